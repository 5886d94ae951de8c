"""Speech generated for ten times as long as models were trained on."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svae import application
from svae.plots import INK, above_ribbon
from svae.reproduce.fitted import models_of
from svae.reproduce.material import material
from svae.reproduce.packing import packed, unpacked
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.states import num_used, runs
from svae.words import table

KEY = ("model",)
REAL = "real speech"
LONGER = 10  # times
BANDS = 3  # neighbouring frequencies that the picture shows as one
QUIETEST = 1e-8  # relative to the loudest
COLUMNS = 3


def measure(request: Request, results: Results) -> None:
    """One sequence of each model, and real ones in a row."""
    given = material("speech", request)
    length = LONGER * given.window
    results.settle(**request.about(data=given.caption, trained_on=given.window))
    if not results.has(REAL):
        real = np.concatenate([item.values for item in given.test])[:length]
        results.add({"model": REAL, "seed": None, "picture": packed(loudness(real)), "states": None})
    names = [name for name in request.chosen() if not results.has(name)]
    for name, fitted in models_of("speech", given, request, names):
        drawn = application.generate(fitted, length, 1, seed=0)
        states = None if drawn.states is None else drawn.states[0].tolist()
        picture = packed(loudness(drawn.values[0]))
        results.add({"model": name, "seed": fitted.config.seed, "picture": picture, "states": states})


def loudness(power: np.ndarray) -> np.ndarray:
    """Decibels of bands of frequencies, from the loudest down to what nobody hears."""
    finite = np.nan_to_num(power, nan=0, posinf=float(np.finfo(np.float32).max))
    bands = finite[:, : finite.shape[1] // BANDS * BANDS] if finite.shape[1] >= BANDS else finite
    bands = bands.reshape(len(bands), -1, min(BANDS, finite.shape[1])).mean(axis=-1)
    return 10 * np.log10(np.maximum(bands / max(bands.max(), 1e-30), QUIETEST))


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Spectrograms above ribbons of states."""
    lines = [["model", "states in use", "frames they last, median"]]
    for row in rows:
        if row["states"]:
            lengths = [stop - start for start, stop in runs(row["states"])]
            used = num_used(np.bincount(row["states"]))
            lines.append([row["model"], str(used), f"{np.median(lengths):g}"])
    text = (
        f"Data: {about['data']}. Budget: {about['budget']}. One sequence from each model, {LONGER} times as "
        f"long as the {about['trained_on']} frames that it was trained on; decibels, low frequencies below. "
        "The real speech is several windows in a row."
    )
    parts = [text, table(lines)] if len(lines) > 1 else [text]
    return Shown("Generated speech", "\n\n".join(parts), _figure(rows))


def _figure(rows: list[Row]) -> Figure:
    lines = -(-len(rows) // COLUMNS)
    figure = Figure(figsize=(4.4 * COLUMNS, 2.1 * lines), layout="constrained")
    grid = figure.add_gridspec(lines, COLUMNS)
    for number, row in enumerate(rows):
        axes = above_ribbon(figure, grid[number], row["states"])
        axes.imshow(unpacked(row["picture"]).T, aspect="auto", origin="lower", cmap="magma")
        axes.set_title(row["model"], fontsize=9, color=INK)
        axes.set(xticks=[], yticks=[])
    return figure
