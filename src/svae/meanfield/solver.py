"""Block coordinate ascent to a fixed point of the mean-field equations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from svae.expfam import Terms, add, inner, propagate
from svae.meanfield.problem import BlockPosterior, Blocks, Problem, surrogate, sweep, sweep_by, unread


class CoordinateAscent(eqx.Module):
    """When to stop.

    The residual of a sweep is the symmetrised KL divergence, in nats, between the posterior before and
    after it, the sum over blocks of <change of natural, change of stats>. It does not depend on the
    parametrisation. The first block does not count: it is a function of the others, and so need not be
    kept from sweep to sweep.
    """

    max_sweeps: int = eqx.field(default=10, static=True)
    tolerance: float = eqx.field(default=1e-3, static=True)

    @property
    def fixed(self) -> bool:
        """Whether all sequences take all sweeps: nothing has a residual below a tolerance of zero."""
        return self.tolerance == 0

    def __check_init__(self):
        if self.max_sweeps < 1:
            raise ValueError(f"max_sweeps must be at least 1, got {self.max_sweeps}")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance must not be negative, got {self.tolerance}")


class Solution(NamedTuple):
    """The posterior of one sequence, and how inference ended."""

    naturals: Blocks
    stats: Blocks
    log_partitions: tuple[Float[Array, ""], ...]
    sweeps: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]

    @property
    def posterior(self) -> BlockPosterior:
        """The posterior alone."""
        return BlockPosterior(self.naturals, self.stats, self.log_partitions)


def divergence(new: BlockPosterior, old: BlockPosterior) -> Float[Array, ""]:
    """KL(new || old) + KL(old || new)."""
    return inner(add(new.naturals, old.naturals, -1.0), add(new.stats, old.stats, -1.0))


class Progress(NamedTuple):
    """All blocks but the first, which is a function of the others."""

    others: BlockPosterior
    sweeps: Int[Array, ""]
    residual: Float[Array, ""]
    converged: Bool[Array, ""]


def ascend(
    problem: Problem, theta: Terms, potentials: Blocks, start: Blocks, solver: CoordinateAscent
) -> Progress:
    """All sweeps but the last, up to convergence or the cap. Under `vmap` each sequence stops by itself."""
    advance = lambda progress: _next(propagate, problem, theta, potentials, solver, progress)[0]
    begin, most = _begin(potentials, start), solver.max_sweeps - 1
    if solver.fixed:  # a GPU need not ask after each sweep
        return lax.fori_loop(0, most, lambda _, progress: advance(progress), begin)
    return lax.while_loop(lambda progress: (progress.sweeps < most) & ~progress.converged, advance, begin)


def ascend_unrolled(
    problem: Problem, theta: Terms, potentials: Blocks, start: Blocks, solver: CoordinateAscent
) -> Progress:
    """The same, as a loop of fixed length that automatic differentiation can go back through.

    A sequence that has converged is carried along unchanged.
    """

    def step(progress, _):
        updated = _next(propagate, problem, theta, potentials, solver, progress)[0]
        keep = lambda old, new: jnp.where(progress.converged, old, new)
        return jax.tree.map(keep, progress, updated), None

    return lax.scan(step, _begin(potentials, start), None, length=solver.max_sweeps - 1)[0]


def finish(
    infer: Callable,
    problem: Problem,
    theta: Terms,
    potentials: Blocks,
    solver: CoordinateAscent,
    progress: Progress,
) -> tuple[Solution, list[Any]]:
    """The last sweep, of which the first block is kept, too, and what else `infer` tells of each block."""
    end, posterior, more = _next(infer, problem, theta, potentials, solver, progress)
    return Solution(*posterior, *end[1:]), more


def infer_exactly(problem: Problem, theta: Terms, potentials: Blocks, start: Blocks) -> Solution:
    """With a single block, one sweep is exact inference."""
    posterior = sweep(problem, theta, potentials, start)
    residual = jnp.zeros_like(posterior.log_partitions[0])
    return Solution(*posterior, jnp.asarray(1), residual, jnp.asarray(True))


def _begin(potentials: Blocks, start: Blocks) -> Progress:
    """No sweep yet. Naturals have the shapes of the potentials."""
    nothing = jnp.zeros((), jax.tree.leaves(potentials)[0].dtype)
    empty = BlockPosterior(
        jax.tree.map(jnp.zeros_like, potentials[1:]), start[1:], tuple(nothing for _ in start[1:])
    )
    return Progress(empty, jnp.asarray(0), nothing + jnp.inf, jnp.asarray(False))


def _next(
    infer: Callable,
    problem: Problem,
    theta: Terms,
    potentials: Blocks,
    solver: CoordinateAscent,
    progress: Progress,
) -> tuple[Progress, BlockPosterior, list[Any]]:
    """One more sweep; all of its posterior, and what `infer` tells."""
    begin = (unread(potentials[0]), *progress.others.stats)
    posterior, more = sweep_by(infer, problem, theta, potentials, begin)
    others = BlockPosterior(*(blocks[1:] for blocks in posterior))
    change = lax.stop_gradient(divergence(others, progress.others))
    residual = jnp.where(progress.sweeps == 0, jnp.inf, change)  # before the first there is no posterior
    converged = progress.converged | (residual <= solver.tolerance)
    return Progress(others, progress.sweeps + 1, residual, converged), posterior, more


def objective_per_sweep(
    problem: Problem, theta: Terms, potentials: Blocks, start: Blocks, num_sweeps: int
) -> Float[Array, "sweeps"]:
    """The surrogate objective after each of `num_sweeps` sweeps; it never falls."""

    def step(stats, _):
        posterior = sweep(problem, theta, potentials, stats)
        return posterior.stats, surrogate(problem, theta, potentials, posterior)

    return lax.scan(step, start, None, length=num_sweeps)[1]
