"""Curves as plain numbers, and as a table."""

from typing import Any

import numpy as np
from jaxtyping import Float

from svae.studies.natural.climbing import Curves
from svae.studies.natural.setting import BIASED_NATURAL, RATES, Setting, checkpoints

MARKS = (0.9, 0.99, 0.999)  # of the way from the first to the best bound
BIASED_END = "end of the biased"
LOWEST = 0.02  # nats below the best bound that are told apart

Numbers = dict[str, Any]


def summarise(curves: dict[str, Curves], setting: Setting) -> Numbers:
    """Of one case: the chosen step sizes and their curves, and the steps to each mark.

    Where a method ends is its average over the second half of the steps: single bounds are noisy.
    """
    checks = checkpoints(setting)
    every = np.stack(list(curves.values()))
    first, best = every[0, :, 0, 0], every.max(axis=(0, 2, 3))
    marks = {f"{100 * share:g}% of the way": first + share * (best - first) for share in MARKS}
    late = {name: own[:, :, checks >= setting.steps / 2].mean(axis=-1) for name, own in curves.items()}
    marks[BIASED_END] = late[BIASED_NATURAL].max(axis=1)
    report: Numbers = {"checks": checks, "first": first, "best": best, "marks": marks, "methods": {}}
    for name, own in curves.items():
        below = np.maximum(best[:, None, None] - own, LOWEST)
        chosen = int(np.log(below).mean(axis=(0, 2)).argmin())
        steps = {mark: steps_to(own, values, checks) for mark, values in marks.items()}
        report["methods"][name] = {
            "rate": RATES[chosen],
            "final": late[name][:, chosen],
            "final_of_each_rate": late[name].mean(axis=0),
            "steps": {mark: taken[:, chosen] for mark, taken in steps.items()},
            "steps_at_the_quickest_rate": {mark: quickest(taken) for mark, taken in steps.items()},
            "below_best": below[:, chosen],
            "below_best_of_each_rate": np.median(below, axis=0),
        }
    return plain(report)


def steps_to(curves: Curves, marks: Float[np.ndarray, "seeds"], checks: np.ndarray) -> np.ndarray:
    """The first check of each seed and step size that is at the mark; infinite if none is."""
    reached = curves >= marks[:, None, None]
    return np.where(reached.any(axis=-1), checks[reached.argmax(axis=-1)], np.inf)


def quickest(steps: Float[np.ndarray, "seeds rates"]) -> Numbers:
    """The step size with the smallest median over seeds, if any gets there, and its steps."""
    medians = np.median(steps, axis=0)
    rate = int(medians.argmin())
    return {"rate": RATES[rate] if np.isfinite(medians[rate]) else None, "steps": steps[:, rate]}


def plain(value: Any) -> Any:
    """Lists and rounded numbers, for JSON; what is infinite (a mark never reached) is null."""
    if isinstance(value, dict):
        return {name: plain(inside) for name, inside in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inside) for inside in value]
    if isinstance(value, float | np.floating):
        return round(float(value), 3) if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def table(case: Numbers) -> list[list[str]]:
    """Steps to each mark at the chosen rate, and at the rate that is there first; medians over seeds."""
    lines = [["method", "rate", "final", *case["marks"]]]
    for title, own in case["methods"].items():
        soonest = own["steps_at_the_quickest_rate"]
        cells = [
            f"{_median(own['steps'][mark])} ({_median(soonest[mark]['steps'])})" for mark in case["marks"]
        ]
        lines.append([title, f"{own['rate']:g}", f"{np.mean(own['final']):.2f}", *cells])
    return lines


def _median(steps: list[int | None]) -> str:
    """Over the seeds; a dash where most never got there."""
    median = np.median([np.inf if taken is None else taken for taken in steps])
    return f"{median:.0f}" if np.isfinite(median) else "-"
