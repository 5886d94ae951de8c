"""Pictures: arrays in, a matplotlib figure out. Nothing here knows a model or touches global state."""

from functools import lru_cache

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpecFromSubplotSpec, SubplotSpec
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike

from svae.states import runs

# Okabe and Ito's colours, which people with any colour vision can tell apart, on paper and on black.
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#7A7A7A"]
INK = "#333333"
GAP = "#EEEEEE"


def state_colors(num_states: int) -> list[str]:
    """A colour for each state; that of state k does not depend on how many states there are."""
    return list(_distinct_colors(num_states))


@lru_cache
def _distinct_colors(count: int) -> tuple[str, ...]:
    """The palette, then again and again the colour that is farthest from those already taken."""
    grid = np.stack(np.meshgrid(*[np.linspace(0.05, 0.95, 10)] * 3), axis=-1).reshape(-1, 3)
    lab = _oklab(grid)
    light, vivid = lab[:, 0], np.hypot(lab[:, 1], lab[:, 2])
    # To be seen on a black and on a white page, and neither a second grey nor a neon sign.
    usable = (light > 0.42) & (light < 0.86) & (vivid > 0.04) & (vivid < 0.21)
    grid, lab = grid[usable], lab[usable]
    colors = [to_hex(color) for color in PALETTE]
    while len(colors) < count:
        taken = _oklab(np.array([to_rgb(color) for color in colors]))
        distances = np.linalg.norm(lab[:, None] - taken[None], axis=-1)
        colors.append(to_hex(grid[np.argmax(distances.min(axis=1))]))
    return tuple(colors[:count])


def _oklab(rgb: np.ndarray) -> np.ndarray:
    """Coordinates in which equal distances look equally different (Ottosson, 2020)."""
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    opponents = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    return np.cbrt(linear @ cones.T) @ opponents.T


def text_color(background: str) -> str:
    """Black or white, whichever reads better on a colour."""
    return "#FFFFFF" if _oklab(np.array(to_rgb(background)))[0] < 0.66 else "#1A1A1A"


def percent(share: float) -> str:
    """A share for people; what is not zero does not look like it."""
    return "<0.1%" if 0 < share < 0.001 else f"{share:.1%}"


def plain_axes(ax: Axes) -> Axes:
    """No box, muted ticks."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(INK)
    ax.tick_params(which="both", colors=INK, labelsize=8)
    return ax


def logarithmic(ax: Axes) -> Axes:
    """The x axis, with a few plain numbers however little or much it spans. What is shown must be there."""
    ax.set_xscale("log")
    low, high = ax.get_xlim()
    subs = (1, 2, 5) if high < 50 * low else (1, 3) if high < 2000 * low else (1,)
    ax.xaxis.set_major_locator(MaxNLocator(4) if high < 5 * low else LogLocator(subs=subs, numticks=6))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())
    return ax


def state_ribbon(ax: Axes, states: ArrayLike, num_states: int, label: str) -> None:
    """One coloured bar: the state at each step."""
    row = np.asarray(states)[None, :]
    extent = (0.5, row.shape[1] + 0.5, 0, 1)
    cmap = ListedColormap(state_colors(num_states))
    ax.imshow(row, aspect="auto", cmap=cmap, vmin=-0.5, vmax=num_states - 0.5, extent=extent)
    _ribbon_label(ax, label)


def above_ribbon(figure: Figure, cell: SubplotSpec, states: ArrayLike | None) -> Axes:
    """An empty panel, with a ribbon below it if there are states.

    States are numbered as they appear: few of them then have the colours that are easiest to tell apart.
    """
    places = GridSpecFromSubplotSpec(2, 1, cell, height_ratios=[12, 1], hspace=0.05)
    panel = figure.add_subplot(places[0])
    if states is not None:
        _, first, inverse = np.unique(np.asarray(states), return_index=True, return_inverse=True)
        numbers = np.argsort(np.argsort(first))[inverse]
        state_ribbon(figure.add_subplot(places[1]), numbers, len(first), "")
    return panel


def probability_ribbon(ax: Axes, probabilities: ArrayLike, label: str) -> None:
    """A stack of colours: the probability of each state at each step."""
    heights = np.asarray(probabilities)
    colors = state_colors(heights.shape[1])
    ax.stackplot(np.arange(1, len(heights) + 1), heights.T, colors=colors, step="mid", lw=0)
    ax.set_ylim(0, 1)
    ax.set_xlim(0.5, len(heights) + 0.5)
    _ribbon_label(ax, label)


def _ribbon_label(ax: Axes, label: str) -> None:
    ax.set_yticks([])
    ax.set_xticks([])
    ax.spines[:].set_visible(False)
    ax.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9, color=INK)


def mark_gap(ax: Axes, observed: ArrayLike) -> None:
    """Grey where nothing was observed."""
    observed = np.asarray(observed)
    for start, stop in runs(observed):
        if not observed[start]:
            ax.axvspan(start - 0.5, stop - 0.5, color=GAP, lw=0, zorder=0)


def band(ax: Axes, mean: ArrayLike, deviation: ArrayLike, color: str, label: str) -> None:
    """A mean with two standard deviations around it."""
    mean, deviation = np.asarray(mean), np.asarray(deviation)
    steps = np.arange(len(mean))
    ax.fill_between(steps, mean - 2 * deviation, mean + 2 * deviation, color=color, alpha=0.25, lw=0)
    ax.plot(steps, mean, color=color, lw=1.5, label=label)


def inference_figure(
    *,
    data: ArrayLike,
    observed: ArrayLike,
    truth: ArrayLike,
    mean: ArrayLike,
    deviation: ArrayLike,
    true_states: ArrayLike,
    state_probabilities: ArrayLike,
    objectives: dict[str, ArrayLike],
) -> Figure:
    """What was seen, what was inferred, and how inference got there.

    `data`, `truth`, `mean`, `deviation` are (time, dims); states rule the time - 1 transitions;
    `objectives` are curves (runs, sweeps) by name.
    """
    data, observed = np.asarray(data, float).copy(), np.asarray(observed)
    data[~observed] = np.nan
    dims, num_states = data.shape[1], np.shape(state_probabilities)[1]
    figure = Figure(figsize=(10, 1.7 * dims + 4.2), layout="constrained")
    grid = figure.add_gridspec(dims + 3, 1, height_ratios=[1.7] * dims + [0.35, 0.35, 2.2])
    for d in range(dims):
        ax = plain_axes(figure.add_subplot(grid[d]))
        mark_gap(ax, observed)
        ax.plot(data[:, d], ".", color="#999999", ms=3, label="observed")
        ax.plot(np.asarray(truth)[:, d], color=INK, lw=0.8, ls="--", label="true path")
        band(ax, np.asarray(mean)[:, d], np.asarray(deviation)[:, d], PALETTE[0], "posterior, 2 s.d.")
        ax.set_xlim(0, len(data) - 1)
        ax.set_ylabel(f"dimension {d + 1}", fontsize=9, color=INK)
        if d == 0:
            ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, fontsize=8, frameon=False)
    state_ribbon(figure.add_subplot(grid[dims]), true_states, num_states, "true state")
    probability_ribbon(figure.add_subplot(grid[dims + 1]), state_probabilities, "inferred")
    _objective_panel(plain_axes(figure.add_subplot(grid[dims + 2])), objectives)
    return figure


def _objective_panel(ax: Axes, objectives: dict[str, ArrayLike]) -> None:
    """How far each run is below the best end, in nats, sweep by sweep."""
    best = max(np.max(curves) for curves in objectives.values())
    for color, (name, curves) in zip(PALETTE, objectives.items(), strict=False):
        for i, curve in enumerate(np.atleast_2d(curves)):
            sweeps = np.arange(1, len(curve) + 1)
            ax.plot(sweeps, best - curve, "o-", ms=3, lw=1.2, color=color, label=None if i else name)
    ax.set_yscale("symlog", linthresh=1.0)
    ax.set_ylim(bottom=-0.1)
    ax.invert_yaxis()
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("sweep of coordinate ascent", fontsize=9, color=INK)
    ax.set_ylabel("nats below\nthe best", fontsize=9, color=INK)
    ax.legend(fontsize=8, frameon=False, loc="best")
