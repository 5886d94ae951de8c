"""Block coordinate ascent to a fixed point of the mean-field equations."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from svae.expfam import Terms, add, inner
from svae.meanfield.problem import BlockPosterior, Blocks, Problem, surrogate, sweep


class CoordinateAscent(eqx.Module):
    """When to stop.

    The residual of a sweep is the symmetrised KL divergence, in nats, between the posterior before and
    after it, the sum over blocks of <change of natural, change of stats>. It does not depend on the
    parametrisation and, to leading order, is twice what the sweep gained.
    """

    max_sweeps: int = eqx.field(default=10, static=True)
    tolerance: float = eqx.field(default=1e-3, static=True)

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


def ascend(
    problem: Problem, theta: Terms, potentials: Blocks, start: Blocks, solver: CoordinateAscent
) -> Solution:
    """Sweep until convergence or the cap. Under `vmap` each sequence stops by itself."""
    return lax.while_loop(
        lambda solution: (solution.sweeps < solver.max_sweeps) & ~solution.converged,
        lambda solution: _next(problem, theta, potentials, solver, solution),
        _begin(potentials, start),
    )


def ascend_unrolled(
    problem: Problem, theta: Terms, potentials: Blocks, start: Blocks, solver: CoordinateAscent
) -> Solution:
    """The same, as a loop of fixed length that automatic differentiation can go back through.

    A sequence that has converged is carried along unchanged.
    """

    def step(solution, _):
        updated = _next(problem, theta, potentials, solver, solution)
        keep = lambda old, new: jnp.where(solution.converged, old, new)
        return jax.tree.map(keep, solution, updated), None

    return lax.scan(step, _begin(potentials, start), None, length=solver.max_sweeps)[0]


def infer_exactly(problem: Problem, theta: Terms, potentials: Blocks, start: Blocks) -> Solution:
    """With a single block, one sweep is exact inference."""
    posterior = sweep(problem, theta, potentials, start)
    residual = jnp.zeros_like(posterior.log_partitions[0])
    return Solution(*posterior, jnp.asarray(1), residual, jnp.asarray(True))


def _begin(potentials: Blocks, start: Blocks) -> Solution:
    """No sweep yet. Naturals have the shapes of the potentials."""
    nothing = jnp.zeros((), jax.tree.leaves(potentials)[0].dtype)
    empty = jax.tree.map(jnp.zeros_like, potentials), start, tuple(nothing for _ in start)
    return Solution(*empty, jnp.asarray(0), nothing + jnp.inf, jnp.asarray(False))


def _next(
    problem: Problem, theta: Terms, potentials: Blocks, solver: CoordinateAscent, solution: Solution
) -> Solution:
    """One more sweep."""
    posterior = sweep(problem, theta, potentials, solution.stats)
    change = lax.stop_gradient(divergence(posterior, solution.posterior))
    residual = jnp.where(solution.sweeps == 0, jnp.inf, change)  # before the first there is no posterior
    return Solution(*posterior, solution.sweeps + 1, residual, residual <= solver.tolerance)


def objective_per_sweep(
    problem: Problem, theta: Terms, potentials: Blocks, start: Blocks, num_sweeps: int
) -> Float[Array, "sweeps"]:
    """The surrogate objective after each of `num_sweeps` sweeps; it never falls."""

    def step(stats, _):
        posterior = sweep(problem, theta, potentials, stats)
        return posterior.stats, surrogate(problem, theta, potentials, posterior)

    return lax.scan(step, start, None, length=num_sweeps)[1]
