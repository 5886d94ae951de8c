"""What each model puts into the gap of a motion: the truth, and two draws."""

from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from svae.contest.picture import Imputed, imputation_figure
from svae.data import Recordings
from svae.plots import INK, PALETTE, state_ribbon
from svae.reproduce import drawing
from svae.reproduce.fitted import models_of
from svae.reproduce.material import material
from svae.reproduce.packing import packed, unpacked
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.reproduce.sticks import REACH, moving_parents, stick_figure
from svae.words import table

KEY = ("model",)
TRUTH = "the truth"
DRAWS = 2
FIGURES = 11  # stick figures of a window
HIDDEN = "0.2-0.8"
BETWEEN = 1.6  # metres from one stick figure to the next
HEIGHTS = [1.15, 0.14]  # inches, of bodies and of the ribbon below them


def measure(request: Request, results: Results) -> None:
    """One window, the liveliest of the test set, with the middle hidden."""
    given = material("mocap", request)
    window = liveliest(given.test)
    hidden = given.hidden(HIDDEN)
    gap = [hidden.start, hidden.stop]
    parents = moving_parents(given.test.skeleton)
    results.settle(**request.about(data=given.caption, window=window.names[0], gap=gap, parents=parents))
    kept = np.arange(given.window)
    if parents is not None:  # what the picture shows is enough
        kept = np.linspace(0, given.window - 1, FIGURES).round().astype(int)
    row = lambda name, draws, states: {
        "model": name,
        "frames": kept.tolist(),
        "draws": packed(draws[:, kept], bits=16),
        "states": None if states is None else states.tolist(),
        "jump": jump(draws, window[0].values, gap[1]),
    }
    if not results.has(TRUTH):
        results.add(row(TRUTH, window[0].values[None], None))
    names = [name for name in request.chosen() if not results.has(name)]
    for name, fitted in models_of("mocap", given, request, names):
        drawn, states = drawing.completed(fitted, window, hidden, DRAWS, 1, seed=0)
        results.add(row(name, drawn[:, 0], None if states is None else states[:, 0]))


def liveliest(windows: Recordings) -> Recordings:
    """The window whose frames differ most."""
    spread = [np.nanmean(np.nanvar(item.values, axis=0)) for item in windows]
    return windows.select([windows.names[int(np.argmax(spread))]])


def jump(draws: np.ndarray, truth: np.ndarray, stop: int) -> float:
    """The step out of the gap, relative to the median step of what was really done."""
    size = lambda steps: np.sqrt(np.mean(np.square(steps), axis=-1))
    usual = np.median(size(np.diff(truth, axis=0)))
    return float(np.mean(size(truth[stop] - draws[:, stop - 1])) / max(usual, 1e-12))


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Stick figures, or channels where there is no skeleton."""
    lines = [["model", "step out of the gap"]]
    lines += [[row["model"], f"{row['jump']:.1f}"] for row in rows]
    first, last = about["gap"]
    text = (
        f"Data: {about['data']}. Budget: {about['budget']}. Frames {first} to {last} of window "
        f"'{about['window']}' were hidden (red). The step out of the gap is relative to the median step of "
        "the motion: a model that only looks back jumps there."
    )
    figure = _channels(rows, about) if about["parents"] is None else _sticks(rows, about)
    return Shown("Interpolations of a motion", f"{text}\n\n{table(lines)}", figure)


def _sticks(rows: list[Row], about: dict[str, Any]) -> Figure:
    """One strip a draw, with its states below it; all strips have the same scale and the same frames."""
    strips = [(row, number) for row in rows for number in range(row["draws"]["shape"][0])]
    size = 11, sum(HEIGHTS) * len(strips)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.01))
    panels = figure.subplots(2 * len(strips), 1, squeeze=False, height_ratios=HEIGHTS * len(strips))
    for (axes, below), (row, number) in zip(panels.reshape(-1, 2), strips, strict=True):
        _strip(axes, row["frames"], unpacked(row["draws"])[number], about)
        axes.set_ylabel(row["model"], rotation=0, ha="right", va="center", fontsize=9, color=INK)
        if row["states"] is None:
            below.set_axis_off()
            continue
        order = {state: place for place, state in enumerate(dict.fromkeys(chain(*row["states"])))}
        state_ribbon(below, [order[state] for state in row["states"][number]], len(order), "")
        half = _step(row["frames"]) / 2
        below.set_xlim(row["frames"][0] + 1 - half, row["frames"][-1] + 1 + half)
    return figure


def _strip(axes: Axes, frames: list[int], poses: np.ndarray, about: dict[str, Any]) -> None:
    """Bodies side by side, each at its frame, and a shade where frames were hidden."""
    first, last = about["gap"]
    place = lambda frame: BETWEEN * (frame - frames[0]) / _step(frames)
    axes.axvspan(place(first - 0.5), place(last - 0.5), color=INK, alpha=0.07, lw=0)
    for frame, joints in zip(frames, poses, strict=True):
        color = PALETTE[5] if first <= frame < last else INK
        stick_figure(axes, joints, about["parents"], place(frame), color)
    axes.set(xticks=[], yticks=[], xlim=(-BETWEEN / 2, place(frames[-1]) + BETWEEN / 2), ylim=REACH)
    axes.spines[:].set_visible(False)


def _step(frames: list[int]) -> float:
    """Frames from one stick figure to the next."""
    return (frames[-1] - frames[0]) / (len(frames) - 1)


def _channels(rows: list[Row], about: dict[str, Any]) -> Figure:
    """The first draw of each model."""
    cells = [
        Imputed(
            row["model"],
            unpacked(row["draws"])[0],
            None if row["states"] is None else np.asarray(row["states"][0]),
        )
        for row in rows
    ]
    return imputation_figure(cells[0], slice(*about["gap"]), cells[1:])
