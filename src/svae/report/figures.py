"""The report's figures, and how a figure becomes part of the page.

What belongs to a state carries an id that starts with `state-3`, by which the page can highlight it.
"""

import io
import re
from collections.abc import Mapping
from html import escape

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import ArrayLike

from svae.plots import INK, PALETTE, logarithmic, percent, plain_axes, state_colors, text_color

WIDTH = 4.0  # inches; three figures stand side by side on a wide screen


def picture(figure: Figure, label: str) -> str:
    """A figure as inline SVG that takes colours and fonts from the page.

    Ids of states become classes, `state s3`, of what can be clicked. Other ids of groups go: they would
    meet again in the next figure.
    """
    buffer = io.StringIO()
    # Text stays text; the salt makes the same figure the same file every time.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "svae"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = re.sub(r"<metadata>.*?</metadata>|<style[^>]*>.*?</style>", "", buffer.getvalue(), flags=re.DOTALL)
    body = svg[svg.index("<g ") : svg.rindex("</svg>")]
    body = re.sub(r'<g id="state-(\d+)[^"]*"', r'<g class="state s\1" data-state="\1"', body)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", body)
    body = re.sub(INK, "var(--ink)", body, flags=re.IGNORECASE)
    width, height = 72 * figure.get_size_inches()
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">{body}</svg>'


def curves_figure(steps: ArrayLike, curves: Mapping[str, ArrayLike], xlabel: str, ylabel: str) -> Figure:
    """Curves over the steps of training: each value faint, a running median on top where there are many.

    The axis leaves out the lowest hundredth of the values, which would flatten the rest of the curve.
    """
    figure = Figure(figsize=(WIDTH, 2.5), layout="constrained")
    ax = plain_axes(figure.add_subplot())
    steps = np.asarray(steps, float)
    for color, (name, curve) in zip(PALETTE, curves.items(), strict=False):
        values = pd.Series(np.asarray(curve, float))
        window = len(values) // 25
        if window > 1:
            ax.plot(steps, values, color=color, lw=0.6, alpha=0.35)
            values = values.rolling(window, center=True, min_periods=1).median()
        # A lone value would be an invisible line.
        ax.plot(steps, values, color=color, lw=1.6, label=name, marker="o" if len(values) == 1 else None)
    every = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    low, high = np.nanquantile(every[np.isfinite(every)], [0.01, 1.0])
    pad = 0.06 * (high - low) or max(0.05 * abs(high), 0.5)
    ax.set_ylim(low - pad, high + pad)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(nbins=5))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}".replace("-", "−")))
    _axis_labels(ax, xlabel, ylabel)
    if len(curves) > 1:
        # Above the axes, where no curve can be.
        legend = ax.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(curves), fontsize=8)
        legend.set_frame_on(False)
        for text in legend.get_texts():
            text.set_color(INK)
    return figure


def usage_figure(usage: np.ndarray) -> Figure:
    """A bar for each state in use: its share of the frames."""
    used = np.flatnonzero(usage > 0)
    figure, ax = _state_rows(used.tolist())
    colors = state_colors(len(usage))
    room = 0.02 * usage.max(initial=0)
    for row, state in enumerate(used):
        share = usage[state]
        ax.barh(row, share, height=0.7, color=colors[state], gid=f"state-{state}")
        text = ax.text(share + room, row, percent(share), va="center", fontsize=8, color=INK)
        text.set_gid(f"state-{state}-share")
    ax.set_xlim(0, 1.18 * max(usage.max(initial=0), 1e-9))
    ax.xaxis.set_major_locator(MaxNLocator(nbins=5))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:g}%"))
    _axis_labels(ax, "share of frames", "state")
    return figure


def durations_figure(durations: Mapping[int, ArrayLike], num_states: int, unit: str) -> Figure:
    """A strip for each state: the lengths of its segments and their median. The axis is logarithmic."""
    figure, ax = _state_rows(list(durations))
    colors = state_colors(num_states)
    for row, (state, lengths) in enumerate(durations.items()):
        lengths = np.sort(np.asarray(lengths, float))
        # Evenly spaced ranks keep the shape of the distribution and the picture small.
        shown = lengths[np.linspace(0, len(lengths) - 1, min(len(lengths), 150)).round().astype(int)]
        # Multiples of the golden ratio spread dots without a random number.
        heights = row + 0.55 * (np.arange(len(shown)) * 0.618 % 1 - 0.5)
        ax.scatter(shown, heights, s=18, color=colors[state], alpha=0.65, lw=0, gid=f"state-{state}")
        ends = [row - 0.38, row + 0.38]
        ax.plot([np.median(lengths)] * 2, ends, color=INK, lw=1.8, gid=f"state-{state}-median")
    logarithmic(ax)
    _axis_labels(ax, f"length of a segment ({unit}); the bar is the median", "state")
    return figure


def _state_rows(states: list[int]) -> tuple[Figure, Axes]:
    """Axes with one row for each state, the first on top."""
    figure = Figure(figsize=(WIDTH, 0.8 + 0.26 * max(len(states), 3)), layout="constrained")
    ax = plain_axes(figure.add_subplot())
    ax.set_yticks(np.arange(len(states)), [str(state) for state in states])
    ax.set_ylim(max(len(states), 1) - 0.4, -0.6)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure, ax


def _axis_labels(ax: Axes, xlabel: str, ylabel: str) -> None:
    ax.set_xlabel(xlabel, fontsize=8.5, color=INK)
    ax.set_ylabel(ylabel, fontsize=8.5, color=INK)


def transition_figure(
    transition: np.ndarray, usage: np.ndarray, threshold: float = 0.1, most: int = 24
) -> Figure:
    """A ring of states: discs as large as their use, arrows to where a state goes when it ends.

    Staying is left out: arrows are probabilities given that the state is left, from `threshold` on.
    So are all states but the `most` used, and those in fewer than one of 200 frames.
    """
    moves = transition * (1 - np.eye(len(usage)))
    moves = moves / np.maximum(moves.sum(axis=1, keepdims=True), 1e-12)
    figure = Figure(figsize=(WIDTH, WIDTH), layout="constrained")
    ax = figure.add_subplot(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
    ax.set_axis_off()
    often = np.sort(np.argsort(-usage, kind="stable")[:most])
    shown = often[usage[often] >= 0.005].tolist()
    count = max(len(shown), 1)
    places = {
        state: (np.sin(2 * np.pi * i / count), np.cos(2 * np.pi * i / count)) for i, state in enumerate(shown)
    }
    # Radii in points: no larger than lets neighbours on the ring stay apart.
    largest = min(22.0, 320 / count)
    radii = np.maximum(largest * np.sqrt(usage / max(usage.max(initial=0), 1e-12)), 0.4 * largest)
    colors = state_colors(len(usage))
    for i, (x, y) in places.items():
        for j in shown:
            if i != j and moves[i, j] >= threshold:
                arrow = _arrow(
                    moves[i, j], posA=(x, y), posB=places[j], shrinkA=radii[i], shrinkB=radii[j] + 2
                )
                arrow.set(color=colors[i], gid=f"state-{i}-to-{j}")
                ax.add_patch(arrow)
        ax.scatter(x, y, s=4 * radii[i] ** 2, color=colors[i], lw=0, zorder=3, gid=f"state-{i}")
        name = ax.text(x, y, str(i), ha="center", va="center_baseline", color=text_color(colors[i]))
        name.set(fontsize=min(10, radii[i] + 1), zorder=4, gid=f"state-{i}-name")
    return figure


def _arrow(probability: float, **ends) -> FancyArrowPatch:
    """An arrow as strong as a move is probable, bent so that the way back has a place of its own."""
    size = 7 + 6 * probability
    arrow = FancyArrowPatch(connectionstyle="arc3,rad=0.18", arrowstyle="-|>", mutation_scale=size, **ends)
    arrow.set(lw=0.6 + 3.4 * probability, alpha=0.55 + 0.4 * probability)
    return arrow
