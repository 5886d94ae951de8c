"""The picture of a comparison: one recording, and what each model puts into a gap of it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy import ndarray

from svae.plots import INK, PALETTE, above_ribbon

COLUMNS = 4
BESIDE = 1.0  # frames beside the gap, in lengths of it


class Imputed(NamedTuple):
    """A recording with the gap filled, and its states or labels if there are any."""

    name: str
    values: ndarray  # (time, channels)
    states: ndarray | None


def imputation_figure(truth: Imputed, gap: slice, cells: Sequence[Imputed]) -> Figure:
    """Channels upwards, time to the right; the states of each below it, in colours of its own."""
    beside = round(BESIDE * (gap.stop - gap.start))
    shown = slice(max(gap.start - beside, 0), gap.stop + beside)
    low, high = np.nanquantile(truth.values[shown], [0.001, 0.999])
    everyone = [truth, *cells]
    rows = -(-len(everyone) // COLUMNS)
    figure = Figure(figsize=(3.1 * COLUMNS, 2.1 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, COLUMNS)
    for number, cell in enumerate(everyone):
        ax = above_ribbon(figure, grid[number], None if cell.states is None else cell.states[shown])
        values = cell.values[shown]
        extent = (shown.start, shown.start + len(values), 0, values.shape[1])
        ax.imshow(values.T, aspect="auto", origin="lower", cmap="magma", vmin=low, vmax=high, extent=extent)
        for edge in (gap.start, gap.stop):
            ax.axvline(edge, color=PALETTE[4], lw=1.2, ls="--")
        ax.set_title(cell.name, fontsize=9, color=INK)
        ax.set_yticks([])
        ax.set_xticks([gap.start, gap.stop])
        ax.tick_params(labelsize=7, colors=INK, length=2, labelbottom=cell.states is None)
    return figure
