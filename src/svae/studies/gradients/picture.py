"""The figure: the experiments in two rows, a column for each system."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from svae.studies.gradients.estimators import (
    CAPPED,
    CG,
    CG_THRESHOLD,
    CONJUGATE,
    ESTIMATORS,
    IMPLICIT,
    NO_SOLVE,
    SERIES,
    SWEEPS,
    SWEEPS_CAPPED,
    THRESHOLD,
    UNROLLED,
)
from svae.studies.gradients.summary import Numbers

COLOURS = {  # safe for colour-blind readers (Okabe and Ito), in the order of the legend
    IMPLICIT: "#D55E00",
    UNROLLED: "#E69F00",
    CAPPED: "#56B4E9",
    THRESHOLD: "#0072B2",
    SWEEPS_CAPPED: "#7A7A7A",
    CG: "#CC79A7",
    CG_THRESHOLD: "#009E73",
    NO_SOLVE: "black",
    SERIES: "#0072B2",
    SWEEPS: "#D55E00",
    CONJUGATE: "#009E73",
}
FLOOR, CEILING = 1e-6, 1e3  # of the ratios that are shown


def figure_of(systems: dict[str, Numbers]) -> Figure:
    """The systems by the titles of their columns."""
    figure = Figure(figsize=(6 * len(systems) + 1, 9), layout="constrained")
    upper, lower = figure.subplots(2, len(systems), sharey="row", squeeze=False)
    for above, below, (title, numbers) in zip(upper, lower, systems.items(), strict=True):
        above.set_title(title, fontweight="bold")
        _draw_sweeps(above, numbers)
        _draw_passes(below, numbers["relative_error_by_passes"])
    upper[0].set_ylabel("error of the gradient after L sweeps,\nrelative to that of No-Solve")
    lower[0].set_ylabel("relative error of the gradient\nwhere inference has converged")
    _legend(upper[-1], {"at least half of the\nsequences have converged": {"color": "0.9", "lw": 8}})
    _legend(lower[-1], {})
    return figure


def _draw_sweeps(axes: Axes, numbers: Numbers) -> None:
    """Experiment 1, shaded from where at least half of the sequences have converged."""
    grid, known = numbers["sweeps"], numbers["ratio_to_no_solve"]
    ratios = {name: known[name] for name in COLOURS if name in ESTIMATORS and name in known}
    axes.axhline(1, color="black", lw=1.8, label=NO_SOLVE, zorder=1.5)
    for name in [name for name in ratios if name != NO_SOLVE]:
        _draw_curve(axes, grid, ratios[name], name)
    half = np.searchsorted(numbers["converged"], 0.5)
    if half < len(grid):
        axes.axvspan(grid[half], 2 * grid[-1], color="0.95", zorder=0)
    worst = {name: max(ratio["p90"]) for name, ratio in ratios.items()}
    beyond = [f"{name}: up to {value:.0e}" for name, value in worst.items() if value > CEILING]
    if beyond:
        text = "beyond the scale (90th percentile):\n" + "\n".join(beyond)
        axes.text(0.03, 0.04, text, fontsize=9, color="0.35", transform=axes.transAxes)
    axes.set(xscale="log", yscale="log", ylim=(FLOOR, CEILING), xlim=(0.9, 1.1 * grid[-1]))
    ticks = [sweeps for sweeps in (1, 2, 5, 10, 20, 50, 100) if sweeps <= grid[-1]]
    axes.set_xticks(ticks, labels=[str(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("sweeps of inference, L")
    _decorate(axes)


def _draw_passes(axes: Axes, curves: Numbers) -> None:
    """Experiment 2."""
    for name in [name for name in (SERIES, SWEEPS, CONJUGATE) if name in curves]:
        _draw_curve(axes, curves[name]["passes"], curves[name], name)
    axes.set(yscale="log", ylim=(1e-13, 1.5), xlim=(0, None))
    axes.set_xlabel("belief propagation passes allowed for the linear system")
    _decorate(axes)


def _draw_curve(axes: Axes, x: list[int], curve: dict[str, list[float]], name: str) -> None:
    """Median solid, 90th percentile dashed; zero is drawn as something tiny."""
    median, p90 = (np.maximum(curve[key], 1e-16) for key in ("median", "p90"))
    axes.plot(x, median, "o-", ms=3.5, lw=1.8, color=COLOURS[name], label=name)
    axes.plot(x, p90, "--", lw=1.1, color=COLOURS[name], alpha=0.8)


def _decorate(axes: Axes) -> None:
    """A light grid, and no box."""
    axes.grid(color="0.88", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(axes: Axes, extra: dict[str, dict[str, Any]]) -> None:
    """Beside the panel: the curves in the order of `COLOURS`, then what the styles mean."""
    drawn = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    entries = {name: drawn[name] for name in COLOURS if name in drawn}
    styles = {"median over sequences": {"color": "0.35"}, "90th percentile": {"color": "0.35", "ls": "--"}}
    entries |= {name: Line2D([], [], **style) for name, style in (styles | extra).items()}
    axes.legend(
        entries.values(), entries, loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9
    )
