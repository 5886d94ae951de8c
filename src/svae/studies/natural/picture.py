"""The figure: how far below the best bound each method still is, a panel for each case."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from svae.studies.natural.setting import METHODS
from svae.studies.natural.summary import LOWEST, Numbers

COLOURS = dict(zip(METHODS, ("0.5", "#E69F00", "#0072B2"), strict=True))  # safe for colour-blind readers


def figure_of(cases: dict[str, Numbers]) -> Figure:
    """The cases by the titles of their panels."""
    figure = Figure(figsize=(4.6 * len(cases) + 0.4, 4.8), layout="constrained")
    panels = figure.subplots(1, len(cases), squeeze=False, sharex=True, sharey=True)[0]
    for axes, (name, case) in zip(panels, cases.items(), strict=True):
        _draw(axes, case)
        axes.set_title(name, fontweight="bold", fontsize=11)
        axes.set_xlabel("steps")
    panels[0].set_ylabel("nats per sequence below the best bound")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=4, frameon=False)
    return figure


def _draw(axes: Axes, case: Numbers) -> None:
    """Median over seeds, within their range; thin, the median of each other step size."""
    checks = np.asarray(case["checks"])
    axes.plot([], [], color="0.7", lw=0.7, label="other step sizes")
    for name, own in case["methods"].items():
        colour, below = COLOURS[name], np.asarray(own["below_best"])
        median = np.median(below, axis=0)
        axes.plot(checks, np.transpose(own["below_best_of_each_rate"]), lw=0.7, color=colour, alpha=0.4)
        axes.fill_between(checks, below.min(axis=0), below.max(axis=0), color=colour, alpha=0.2, lw=0)
        axes.plot(checks, median, lw=2.4, color=colour, label=name)
        axes.annotate(
            f"rate {own['rate']:g}",
            (checks[-1], median[-1]),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color=colour,
        )
    farthest = np.max(np.subtract(case["best"], case["first"]))  # what goes beyond gets worse, not better
    axes.set(xscale="log", yscale="log", xlim=(1, checks[-1]), ylim=(LOWEST, 2 * farthest))
    axes.grid(color="0.9", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
