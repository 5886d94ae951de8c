"""Figure 3, left and middle: the error of gradients through inference, by sweeps that inference took."""

from typing import Any, NamedTuple

import jax
import numpy as np

from svae.models import SVAE
from svae.reproduce.fitted import models_of
from svae.reproduce.material import material
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.studies.gradients import encoded, picture, summary, synthetic
from svae.studies.gradients.experiments import study
from svae.studies.gradients.problems import Case, System
from svae.training.build import GraphPrior, untrained
from svae.words import table

KEY = ("system",)
TITLES = {"new": "Newly initialised model", "trained": "Trained model"}
GRID = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 25, 30, 40, 50)


class Sizes(NamedTuple):
    """How much is studied: the synthetic system, or so many windows of data; and after which sweeps."""

    synthetic: synthetic.Sizes
    windows: int
    sweeps: tuple[int, ...] = GRID


SIZES = {
    "tiny": Sizes(synthetic.Sizes(2, 2, 12, 4, fit_rounds=3), windows=2, sweeps=(1, 4)),
    "small": Sizes(synthetic.Sizes(3, 2, 30, 8, fit_rounds=10), windows=8, sweeps=(1, 2, 4, 8, 16, 30)),
    "full": Sizes(synthetic.Sizes(), windows=128),
}


def measure(request: Request, results: Results) -> None:
    """Both experiments, with a new system and with a trained one."""
    sizes = SIZES[request.budget]
    kind = "a synthetic switching system" if request.data is None else material("mocap", request).caption
    results.settle(**request.about(data=kind))
    missing = [name for name in TITLES if not results.has(name)]
    if not missing:
        return
    values = None if request.data is None else _windows_and_models(request, sizes.windows)
    with jax.enable_x64(True):
        cases = synthetic.cases(sizes.synthetic) if values is None else _cases(*values)
        for name in missing:
            say = lambda line: request.say(f"{name}: {line}")
            outcome = study(*cases[name], sizes.sweeps, say)
            results.add({"system": name, **summary.summarise(sizes.sweeps, outcome)})


def _windows_and_models(request: Request, count: int) -> tuple[np.ndarray, dict[str, SVAE]]:
    """Test windows as the table's switching SVAE sees them, and that model untrained and trained."""
    given = material("mocap", request)
    ((_, fitted),) = models_of("mocap", given, request, ["svae-slds"])
    values = [fitted.standardizer.apply(item.values) for item in given.test]
    some = np.linspace(0, len(values) - 1, min(count, len(values))).round().astype(int)
    new = untrained(fitted.config, len(fitted.channels), GraphPrior())
    assert isinstance(new, SVAE)
    assert isinstance(fitted.model, SVAE)
    return np.stack([values[i] for i in some]), {"new": new, "trained": fitted.model}


def _cases(values: np.ndarray, models: dict[str, SVAE]) -> dict[str, tuple[System, Case]]:
    return {name: encoded.case_of(model, values, seed=1) for name, model in models.items()}


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Tables and curves."""
    parts = [
        f"Data: {about['data']}. Budget: {about['budget']}. Error of each gradient relative to that of "
        "No-Solve after as many sweeps of inference: median (90th percentile) over sequences. Cap: as many "
        "terms of the series as sweeps; threshold: No-Solve for sequences that have not converged. "
        "Gauss-Seidel sweeps and conjugate gradients (CG) are not in the paper."
    ]
    for row in rows:
        truth = row["truth"]
        parts += [f"**{TITLES[row['system']]}**, {row['sequences']} sequences", table(summary.table(row))]
        parts.append(
            f"The truth is the gradient after {truth['sweeps']} sweeps, when the last sweep moved the "
            f"posterior by {truth['largest_residual']:.1g} nats at most; conjugate gradients differ from it "
            f"by a share of {truth['largest_difference_to_conjugate_gradients']:.1g} at most."
        )
    figure = picture.figure_of({TITLES[row["system"]]: row for row in rows})
    return Shown("Figure 3, errors of gradients through inference", "\n\n".join(parts), figure)
