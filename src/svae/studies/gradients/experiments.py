"""The two experiments, with one system."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from svae.meanfield import CoordinateAscent, Solution, Unrolled
from svae.studies.gradients.estimators import (
    ADJOINTS,
    CAPPED,
    CG_CAPPED,
    CG_THRESHOLD,
    CONJUGATE,
    NO_SOLVE,
    UNROLLED,
    advance,
    begin,
    error,
    gradient_through,
    gradients_at,
    solvers_with,
)
from svae.studies.gradients.problems import Case, Gradient, System

TRUTH_SWEEPS = 1000  # of the forward pass, and terms of the series behind the true gradient
TOGETHER = 32  # sequences: unrolled sweeps of more would need too much memory

Errors = dict[str, Float[np.ndarray, "grid batch"]]
Say = Callable[[str], None]


class Truth(NamedTuple):
    """Converged inference, and the gradient there."""

    solution: Solution
    gradient: Gradient
    scale: Float[Array, "batch"]  # root mean square of the gradient


class Outcome(NamedTuple):
    """Of both experiments: errors, and for each sequence how converged it was."""

    by_sweeps: Errors
    by_passes: Errors  # relative to the gradient
    converged: Bool[np.ndarray, "grid batch"]
    scale: Float[np.ndarray, "batch"]  # of the true gradient
    residual: Float[np.ndarray, "batch"]  # of the inference behind it


def study(system: System, case: Case, grid: tuple[int, ...], say: Say = lambda line: None) -> Outcome:
    """Both experiments, some sequences at a time."""
    parts = []
    for first in range(0, len(case.linear), TOGETHER):
        part = case.part(slice(first, first + TOGETHER))
        truth = find_truth(system, part)
        by_sweeps, converged = errors_by_sweeps(system, part, truth, grid, say)
        by_passes = errors_by_passes(system, part, truth, grid)
        residual = np.asarray(truth.solution.residual)
        parts.append(Outcome(by_sweeps, by_passes, converged, np.asarray(truth.scale), residual))
    return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *parts)


def find_truth(system: System, case: Case) -> Truth:
    """Sweep until nothing moves, then sum the series with as many terms."""
    solution = advance(system, case, begin(case), jnp.asarray(TRUTH_SWEEPS))
    gradient = gradients_at(system, case, solution, ADJOINTS)[CAPPED]  # a program that is needed anyway
    return Truth(solution, gradient, error(gradient, jax.tree.map(jnp.zeros_like, gradient)))


def errors_by_sweeps(
    system: System, case: Case, truth: Truth, grid: tuple[int, ...], say: Say
) -> tuple[Errors, Bool[np.ndarray, "grid batch"]]:
    """Every estimator's error after L sweeps."""
    solution, rows, converged = begin(case), [], []
    for sweeps in grid:
        solution = advance(system, case, solution, jnp.asarray(sweeps))
        gradients = gradients_at(system, case, solution, ADJOINTS)
        gradients[CG_CAPPED] = gradients_at(system, case, solution, solvers_with(sweeps))[CONJUGATE]
        gradients[UNROLLED] = gradient_through(system, case, CoordinateAscent(sweeps, 0.0), Unrolled())
        row = {name: np.asarray(error(gradient, truth.gradient)) for name, gradient in gradients.items()}
        row[CG_THRESHOLD] = np.where(solution.converged, row[CG_CAPPED], row[NO_SOLVE])
        rows.append(row)
        converged.append(np.asarray(solution.converged))
        say(f"{sweeps} sweeps: {np.mean(solution.converged):.0%} of the sequences have converged")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows), np.stack(converged)


def errors_by_passes(system: System, case: Case, truth: Truth, grid: tuple[int, ...]) -> Errors:
    """Relative error at the converged posterior after n steps of each solver."""
    rows = []
    for steps in grid:
        gradients = gradients_at(system, case, truth.solution, solvers_with(steps))
        row = {name: error(gradient, truth.gradient) / truth.scale for name, gradient in gradients.items()}
        rows.append(row)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
