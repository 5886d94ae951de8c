"""Outcomes as plain numbers, and as a table."""

from typing import Any

import numpy as np
from jaxtyping import Float

from svae.studies.gradients.estimators import CONJUGATE, ESTIMATORS, NO_SOLVE, passes_with
from svae.studies.gradients.experiments import TRUTH_SWEEPS, Outcome

FAILED = 1e300  # stands for an error that is infinite or not a number
SHOWN = (1, 3, 5, 10, 20, 50)  # sweeps, in the table

Numbers = dict[str, Any]


def summarise(grid: tuple[int, ...], outcome: Outcome) -> Numbers:
    """All numbers of the figure, and what vouches for the truth."""
    baseline = outcome.by_sweeps[NO_SOLVE]
    return {
        "sweeps": list(grid),
        "sequences": len(outcome.scale),
        "converged": np.mean(outcome.converged, axis=1).tolist(),
        "no_solve_relative_error": over_batch(baseline / outcome.scale),
        "ratio_to_no_solve": {
            name: over_batch(relative(outcome.by_sweeps[name], baseline)) for name in ESTIMATORS
        },
        "relative_error_by_passes": {
            name: {"passes": [passes_with(n)[name] for n in grid], **over_batch(errors)}
            for name, errors in outcome.by_passes.items()
        },
        "truth": {
            "sweeps": TRUTH_SWEEPS,
            "largest_residual": float(np.max(outcome.residual)),
            "largest_difference_to_conjugate_gradients": float(np.max(outcome.by_passes[CONJUGATE][-1])),
        },
    }


def over_batch(values: Float[np.ndarray, "grid batch"]) -> dict[str, list[float]]:
    """Median and 90th percentile over the sequences."""
    values = np.nan_to_num(values, nan=FAILED, posinf=FAILED)
    columns = {"median": np.median(values, axis=1), "p90": np.quantile(values, 0.9, axis=1, method="higher")}
    return {name: [float(f"{x:.4g}") for x in column] for name, column in columns.items()}


def relative(errors: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """The ratio, where nothing relative to nothing is one."""
    errors, baseline = (np.maximum(x, np.finfo(float).tiny) for x in (errors, baseline))
    return errors / baseline


def table(numbers: Numbers) -> list[list[str]]:
    """Medians (and 90th percentiles) of the ratio to No-Solve, at some numbers of sweeps."""
    grid = numbers["sweeps"]
    shown = [i for i, sweeps in enumerate(grid) if sweeps in SHOWN or sweeps == grid[-1]]
    lines = [["sweeps", *(str(grid[i]) for i in shown)]]
    lines.append(["converged", *(f"{numbers['converged'][i]:.0%}" for i in shown)])
    for name, ratio in numbers["ratio_to_no_solve"].items():
        lines.append([name, *(f"{ratio['median'][i]:.2g} ({ratio['p90'][i]:.2g})" for i in shown)])
    return lines
