"""The pictures of the README, from the runs of two commands.

`svae demo && svae fit mocap6 && python examples/pictures.py` writes docs/images.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from svae import application, plots
from svae.completion import Completion, PathSummary
from svae.data import load
from svae.data.synthetic import laplacian
from svae.states import runs
from svae.training.artifact import Fitted, load_fitted

GAP = slice(70, 120)
SHOWN = 3  # paths, and samples


def image(ax: Axes, values: np.ndarray, title: str) -> None:
    """Channels upwards, time to the right."""
    ax.imshow(
        values.T, aspect="auto", origin="lower", cmap="magma", vmin=0, vmax=1.6, interpolation="nearest"
    )
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.set_title(title, fontsize=9, color=plots.INK, loc="left")


def ribbon(ax: Axes, states: np.ndarray, num_states: int) -> None:
    """States below an image, frame under frame."""
    plots.state_ribbon(ax, states, num_states, "")


def fan_figure(fitted: Fitted, seed: int) -> Figure:
    """One gap, and the likeliest ways across it."""
    recordings = laplacian(1, length=190, seed=seed)
    truth, hidden = recordings[0].values, recordings[0].values.copy()
    hidden[GAP] = np.nan
    (completion,) = application.impute(fitted, recordings.map(lambda values: hidden), 200, seed=0)
    chosen = completion.paths(GAP.start, GAP.stop)[:SHOWN]
    count = application.num_states(fitted)
    figure = Figure(figsize=(11, 5.4), layout="constrained")
    grid = figure.add_gridspec(4, 2 + SHOWN, height_ratios=[5, 0.5, 3.2, 0.3])
    found = application.segment(fitted, recordings)[0]
    columns = [("what happened", truth, found.states), ("what was seen", hidden, None)]
    for path in chosen:
        example = one_of(completion, path)
        title = f"a draw from {path.probability:.0%}"  # the path itself stands in the legend
        columns.append((title, completion.values[example], completion.states[example]))
    channel = int(np.argmax(np.nanstd(truth[GAP], axis=0)))
    for column, (title, values, states) in enumerate(columns):
        image(figure.add_subplot(grid[0, column]), values, title)
        below = figure.add_subplot(grid[1, column])
        if states is None:
            below.set_axis_off()
        else:
            ribbon(below, states, count)
    ax = plots.plain_axes(figure.add_subplot(grid[2:, :]))
    frames = np.arange(len(truth))
    inside = frames[GAP]
    for path, color in zip(chosen, plots.PALETTE, strict=False):
        low, mean, high = (x[:, channel] for x in (path.low, path.mean, path.high))
        ax.fill_between(inside, low, high, color=color, alpha=0.25, lw=0)
        ax.plot(inside, mean, color=color, lw=1.6, label=str(path))
    ax.plot(frames, hidden[:, channel], color=plots.INK, lw=1.2)
    ax.plot(inside, truth[GAP, channel], color=plots.INK, lw=1.0, ls=":", label="what happened")
    ax.set_xlim(GAP.start - 35, GAP.stop + 35)
    ax.set_ylabel(f"channel {channel}", fontsize=9, color=plots.INK)
    ax.set_xlabel("frame", fontsize=9, color=plots.INK)
    ax.legend(fontsize=8, frameon=False, ncols=4, loc="upper center", bbox_to_anchor=(0.5, 1.18))
    return figure


def one_of(completion: Completion, path: PathSummary) -> int:
    """The draw on this path that is nearest to the path's mean."""
    assert completion.states is not None
    taken = [tuple(int(x[i]) for i, _ in runs(x)) for x in completion.states[:, GAP]]
    inside = [i for i, states in enumerate(taken) if states == path.states]
    errors = np.mean((completion.values[inside, GAP] - path.mean) ** 2, axis=(1, 2))
    return inside[int(np.argmin(errors))]


def samples_figure(fitted: Fitted) -> Figure:
    """Real sequences above, generated ones below, each with its states."""
    real = laplacian(SHOWN, seed=5)
    found = application.segment(fitted, real)
    drawn = application.generate(fitted, 250, SHOWN, seed=3)
    assert drawn.states is not None
    count = application.num_states(fitted)
    figure = Figure(figsize=(11, 5), layout="constrained")
    grid = figure.add_gridspec(4, SHOWN, height_ratios=[5, 0.5, 5, 0.5])
    for column in range(SHOWN):
        pairs = (real[column].values, found[column].states), (drawn.values[column], drawn.states[column])
        for row, ((values, states), kind) in enumerate(zip(pairs, ("real", "generated"), strict=True)):
            image(figure.add_subplot(grid[2 * row, column]), values, kind)
            ribbon(figure.add_subplot(grid[2 * row + 1, column]), states, count)
    return figure


def ribbon_figure(fitted: Fitted) -> Figure:
    """Exercises that people marked, and states that were found without their help."""
    recordings = load("mocap6")
    found = application.segment(fitted, recordings)
    count = application.num_states(fitted)
    names = recordings.label_names or ()
    figure = Figure(figsize=(11, 6.2), layout="constrained")
    grid = figure.add_gridspec(2 * len(recordings), 1, height_ratios=[1, 1.5] * len(recordings))
    longest = max(recordings.lengths)
    for number, (item, states) in enumerate(zip(recordings, found, strict=True)):
        labels, above = np.asarray(item.labels), figure.add_subplot(grid[2 * number])
        plots.state_ribbon(above, states.states, count, item.name)
        below = figure.add_subplot(grid[2 * number + 1])
        below.set(yticks=[], xticks=[], ylim=(0, 1))
        below.spines[:].set_visible(False)
        for start, stop in runs(labels):
            below.plot([start + 1, stop - 1], [0.93, 0.93], color=plots.INK, lw=2)
            if stop - start > 0.035 * longest:
                text = names[labels[start]].replace("_", " ") if labels[start] >= 0 else ""
                below.text((start + stop) / 2, 0.78, text, ha="center", va="top", fontsize=7, color=plots.INK)
        for ax in (above, below):
            ax.set_xlim(0.5, longest + 0.5)
    return figure


def main() -> None:
    """Draw and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--demo", type=Path, default=Path("runs/demo"))
    parser.add_argument("--mocap6", type=Path, default=Path("runs/mocap6"))
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--seed", type=int, default=2, help="of the sequence with a gap")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    demo = load_fitted(given.demo / "model")
    fan_figure(demo, given.seed).savefig(given.out / "fan.png", dpi=150)
    samples_figure(demo).savefig(given.out / "samples.png", dpi=150)
    if (given.mocap6 / "model").exists():
        ribbon_figure(load_fitted(given.mocap6 / "model")).savefig(given.out / "ribbon.png", dpi=150)


if __name__ == "__main__":
    main()
