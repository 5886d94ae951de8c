"""Inference as one differentiable function: problem, solver and adjoint are its arguments."""

from collections.abc import Callable

import equinox as eqx
import jax
from jax import lax

from svae.expfam import Terms, add, linearize, propagate, zeros_for_none
from svae.meanfield.adjoints import Adjoint, GaussSeidel, ImplicitAdjoint, LinearSystem, Unrolled
from svae.meanfield.problem import Blocks, Problem, message
from svae.meanfield.solver import (
    CoordinateAscent,
    Solution,
    ascend,
    ascend_unrolled,
    finish,
    infer_exactly,
)


def fixed_point(
    problem: Problem,
    theta: Terms,
    potentials: Blocks,
    start: Blocks,
    solver: CoordinateAscent | None = None,
    adjoint: Adjoint | None = None,
) -> Solution:
    """Infer the posterior of one sequence; map over a batch with `jax.vmap`.

    `theta` are expected statistics of the parameters, `potentials` the encoder's, one record for each
    block, `start` the statistics to begin with (the first block's are never read). Gradients flow to
    `theta` and `potentials`, by default through capped Gauss-Seidel sweeps where inference has
    converged and without a solve where it has not; see `svae.meanfield.adjoints`.
    """
    solver = CoordinateAscent() if solver is None else solver
    adjoint = GaussSeidel() if adjoint is None else adjoint
    start = lax.stop_gradient(start)
    if len(problem.blocks) == 1:
        return infer_exactly(problem, theta, potentials, start)
    if isinstance(adjoint, Unrolled):
        progress = ascend_unrolled(problem, theta, potentials, start, solver)
        return finish(propagate, problem, theta, potentials, solver, progress)[0]
    return _implicit((theta, potentials), problem, start, solver, adjoint)


@eqx.filter_custom_vjp
def _implicit(sources, problem: Problem, start: Blocks, solver: CoordinateAscent, adjoint: ImplicitAdjoint):
    theta, potentials = sources
    progress = ascend(problem, theta, potentials, start, solver)
    return finish(propagate, problem, theta, potentials, solver, progress)[0]


@_implicit.def_fwd
def _forward(perturbed, sources, problem, start, solver, adjoint):
    del perturbed
    theta, potentials = sources
    progress = ascend(problem, theta, potentials, start, solver)
    solution, more = finish(linearize, problem, theta, potentials, solver, progress)
    return solution, (solution, tuple(jacobian for (jacobian,) in more))


@_implicit.def_bwd
def _backward(residuals, cotangents, perturbed, sources, problem, start, solver, adjoint):
    del perturbed, start
    theta, _ = sources
    solution, jacobians = residuals
    natural_bar = zeros_for_none(solution.naturals, cotangents.naturals)
    stats_bar = zeros_for_none(solution.stats, cotangents.stats)
    log_partition_bar = zeros_for_none(solution.log_partitions, cotangents.log_partitions)
    natural_bar = tuple(map(add, natural_bar, solution.stats, log_partition_bar))

    system = linear_system(problem, theta, solution, jacobians)
    if solver.fixed:
        system = system._replace(sweeps=solver.max_sweeps)
    y = adjoint.solve(system, natural_bar, stats_bar)
    along = lambda theta: jax.jvp(lambda stats: problem.energy(theta, stats), (solution.stats,), (y,))[1]
    return jax.grad(along)(theta), y


def linear_system(
    problem: Problem,
    theta: Terms,
    solution: Solution,
    jacobians: tuple[Callable[[Terms], Terms], ...] | None = None,
) -> LinearSystem:
    """The adjoint's operators at a solution; the blocks' Jacobians may be known."""
    if jacobians is None:
        each = zip(solution.naturals, problem.blocks, strict=True)
        jacobians = tuple(linearize(natural, family)[2] for natural, family in each)

    def coupling(y: Blocks, block: int) -> Terms:
        return jax.jvp(lambda stats: message(problem, theta, stats, block), (solution.stats,), (y,))[1]

    return LinearSystem(jacobians, coupling, solution.sweeps, solution.converged)
