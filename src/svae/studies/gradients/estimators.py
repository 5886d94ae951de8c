"""The ways to estimate a gradient after so many sweeps of inference, for each sequence."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from svae.expfam import Terms, add
from svae.meanfield import (
    Adjoint,
    BlockPosterior,
    Blocks,
    ConjugateGradients,
    CoordinateAscent,
    GaussSeidel,
    NoSolve,
    Richardson,
    Solution,
    fixed_point,
    linear_system,
)
from svae.meanfield.adjoints import ImplicitAdjoint
from svae.meanfield.problem import sweep
from svae.meanfield.solver import divergence
from svae.studies.gradients.problems import EACH_SEQUENCE, Case, Gradient, System, loss

Adjoints = dict[str, ImplicitAdjoint]

UNROLLED = "Unrolled"
IMPLICIT = "Implicit, J = 50"
CAPPED = "Implicit + cap"
THRESHOLD = "Implicit + cap + threshold"
SWEEPS_CAPPED = "Gauss-Seidel + cap"
CG = "CG, 10 steps"
CG_CAPPED = "CG + cap"
CG_THRESHOLD = "CG + cap + threshold"
NO_SOLVE = "No-Solve"
ESTIMATORS = (
    *(IMPLICIT, UNROLLED, CAPPED, THRESHOLD, SWEEPS_CAPPED),
    *(CG, CG_CAPPED, CG_THRESHOLD, NO_SOLVE),
)

ADJOINTS: Adjoints = {
    IMPLICIT: Richardson(steps=50, fallback=False),
    CAPPED: Richardson(fallback=False),
    THRESHOLD: Richardson(),
    SWEEPS_CAPPED: GaussSeidel(fallback=False),
    CG: ConjugateGradients(),
    NO_SOLVE: NoSolve(),
}

SERIES = "Richardson"
SWEEPS = "Gauss-Seidel"
CONJUGATE = "Conjugate gradients"


def solvers_with(steps: int) -> Adjoints:
    """All iterative solvers, with a given number of steps."""
    return {
        SERIES: Richardson(steps=steps, fallback=False),
        SWEEPS: GaussSeidel(steps=steps, fallback=False),
        CONJUGATE: ConjugateGradients(max_steps=steps, tolerance=1e-10),
    }


def passes_with(steps: int) -> dict[str, int]:
    """Linearised belief propagation passes that these take; conjugate gradients keep one in reserve."""
    return {SERIES: steps + 1, SWEEPS: steps + 1, CONJUGATE: steps + 2}


def begin(case: Case) -> Solution:
    """No sweep yet."""
    zeros = jnp.zeros(len(case.linear))
    empty = BlockPosterior(case.start, case.start, (zeros, zeros))
    return Solution(*empty, zeros.astype(int), zeros + jnp.inf, zeros > 0)


@eqx.filter_jit
def advance(system: System, case: Case, solution: Solution, sweeps: Int[Array, ""]) -> Solution:
    """Inference goes on until it has taken `sweeps` sweeps, whether or not it could have stopped.

    `converged` says whether the default tolerance would have let it.
    """
    problem, tolerance = system.graph.problem(), CoordinateAscent().tolerance

    def one(case: Case, solution: Solution) -> Solution:
        potentials = system.graph.potentials(case.linear, case.precision)

        def step(taken: Int[Array, ""], old: Solution) -> Solution:
            new = sweep(problem, case.theta, potentials, old.stats)
            residual = jnp.where(taken == 0, jnp.inf, divergence(new, old.posterior))
            return Solution(*new, taken + 1, residual, residual <= tolerance)

        return jax.lax.fori_loop(solution.sweeps, sweeps, step, solution)

    return jax.vmap(one, (EACH_SEQUENCE, 0))(case, solution)


@eqx.filter_jit
def gradient_through(system: System, case: Case, solver: CoordinateAscent, adjoint: Adjoint) -> Gradient:
    """The gradient as training takes it: `jax.grad` through `fixed_point`."""
    graph = system.graph

    def one(case: Case) -> Gradient:
        def through(theta: Terms, linear: Array, precision: Array) -> Float[Array, ""]:
            potentials = graph.potentials(linear, precision)
            solution = fixed_point(graph.problem(), theta, potentials, case.start, solver, adjoint)
            return loss(system, case, theta, solution.posterior)

        return Gradient(*jax.grad(through, argnums=(0, 1, 2))(case.theta, case.linear, case.precision))

    return jax.vmap(one, (EACH_SEQUENCE,))(case)


@eqx.filter_jit
def gradients_at(system: System, case: Case, solution: Solution, adjoints: Adjoints) -> dict[str, Gradient]:
    """The same by several implicit adjoints, at a solution at hand.

    Cotangents a of the naturals and c of the statistics become the cotangent y of the naturals' sources;
    these are the encoder's potentials, and theta through the messages d energy / d stats.
    """
    problem = system.graph.problem()

    def one(case: Case, solution: Solution) -> dict[str, Gradient]:
        of_loss = jax.grad(lambda theta, posterior: loss(system, case, theta, posterior), argnums=(0, 1))
        direct, bar = of_loss(case.theta, solution.posterior)
        equations = linear_system(problem, case.theta, solution)
        _, to_encoder = jax.vjp(system.graph.potentials, case.linear, case.precision)

        def pull_back(y: Blocks) -> Gradient:
            def along(theta: Terms) -> Float[Array, ""]:
                return jax.jvp(lambda stats: problem.energy(theta, stats), (solution.stats,), (y,))[1]

            return Gradient(add(direct, jax.grad(along)(case.theta)), *to_encoder(y))

        return {
            name: pull_back(adjoint.solve(equations, bar.naturals, bar.stats))
            for name, adjoint in adjoints.items()
        }

    return jax.vmap(one, (EACH_SEQUENCE, 0))(case, solution)


@jax.jit
def error(estimate: Gradient, truth: Gradient) -> Float[Array, "batch"]:
    """Root mean squared error of each sequence's gradient, over all its entries."""
    differences = jax.tree.leaves(add(estimate, truth, -1.0))
    squares = jnp.concatenate([d.reshape(len(d), -1) ** 2 for d in differences], axis=1)
    return jnp.sqrt(jnp.mean(squares, axis=1))
