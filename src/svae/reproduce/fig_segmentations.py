"""Figure 1: the states of held-out motions, and what was going on."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from svae import application
from svae.data import Recording, Recordings
from svae.plots import INK, state_colors, state_ribbon
from svae.reproduce.fitted import models_of
from svae.reproduce.material import material
from svae.reproduce.packing import packed, unpacked
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.reproduce.sticks import REACH, moving_parents, stick_figure
from svae.states import runs
from svae.words import table

KEY = "model", "clip"
CLIPS = 12
LONGEST = 500  # frames that are shown of a clip
EVERY = 25  # frames from one stick figure to the next,
ROOM = 1.35  # and metres


def measure(request: Request, results: Results) -> None:
    """Clips of as many actions as there are, and their most likely states."""
    given = material("mocap", request)
    parents = moving_parents(given.clips.skeleton)
    results.settle(**request.about(data=given.caption, rate=given.clips.rate, parents=parents))
    clips = various(given.clips)
    missing = lambda model: not all(results.has(model, name) for name in clips.names)
    names = [name for name in request.chosen(["svae-slds"]) if missing(name)]
    for model, fitted in models_of("mocap", given, request, names):
        for item, found in zip(clips, application.segment(fitted, clips), strict=True):
            row = {"model": model, "clip": item.name, "label": label_of(item, clips)}
            poses = None if parents is None else packed(item.values[EVERY // 2 :: EVERY], bits=16)
            results.add(row | {"states": found.states.tolist(), "poses": poses})


def various(clips: Recordings) -> Recordings:
    """Clips of every action in turn, the beginning of each; those of an action stand together."""
    shelves: dict[str, list[Recording]] = {}
    for item in clips:
        shelves.setdefault(label_of(item, clips), []).append(item)
    turns = range(max(map(len, shelves.values())))
    names = [shelf[i].name for i in turns for shelf in shelves.values() if i < len(shelf)][:CLIPS]
    chosen = sorted(names, key=lambda name: label_of(clips[name], clips))
    begin = lambda x: Recording(x.name, x.values[:LONGEST], None if x.labels is None else x.labels[:LONGEST])
    return replace(clips, items=tuple(begin(clips[name]) for name in chosen))


def label_of(item: Recording, clips: Recordings) -> str:
    """The label of most frames."""
    if item.labels is None or (item.labels < 0).all():
        return ""
    number = int(np.bincount(item.labels[item.labels >= 0]).argmax())
    return str(number) if clips.label_names is None else clips.label_names[number]


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Ribbons, and how many states each motion goes through."""
    lines = [["model", "clip", "action", "states", "changes", "frames of the longest"]]
    for row in rows:
        stretches = runs(row["states"])
        longest = max(stop - start for start, stop in stretches)
        facts = len(set(row["states"])), len(stretches) - 1, longest
        lines.append([row["model"], row["clip"], row["label"] or "-", *map(str, facts)])
    text = (
        f"Data: {about['data']}. Budget: {about['budget']}. Most likely states of clips that the model was "
        f"not trained on, at most {LONGEST} frames of each. Labels were not seen in training."
    )
    return Shown(
        "Figure 1, states of held-out motions", f"{text}\n\n{table(lines)}", _figure(rows, about["parents"])
    )


def _figure(rows: list[Row], parents: Sequence[int] | None) -> Figure:
    """One bar a clip, with stick figures above it; states have the same colours in all clips of a model."""
    heights = [0.42] if parents is None else [0.75, 0.25]  # inches
    size = 11, sum(heights) * len(rows) + 0.6
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(h_pad=0.02))
    panels = figure.subplots(len(heights) * len(rows), 1, squeeze=False, height_ratios=heights * len(rows))
    longest = max(len(row["states"]) for row in rows)
    several = len({row["model"] for row in rows}) > 1
    for (*above, axes), row in zip(panels.reshape(len(rows), len(heights)), rows, strict=True):
        own = [other["states"] for other in rows if other["model"] == row["model"]]
        order = {state: place for place, state in enumerate(_by_use(own))}
        states = [order[state] for state in row["states"]]
        name = row["label"] or row["clip"]
        state_ribbon(axes, states, len(order), f"{row['model']}: {name}" if several else name)
        axes.set_xlim(0.5, longest + 0.5)
        if parents is not None:
            colors = state_colors(len(order))
            _poses(above[0], row, parents, [colors[state] for state in states], longest)
    axes.set_xticks([1, longest])
    axes.set_xlabel("frame", fontsize=9, color=INK)
    return figure


def _poses(axes: Axes, row: Row, parents: Sequence[int], colors: list[str], longest: int) -> None:
    """Each where its frame is, in the colour of its state."""
    for turn, joints in enumerate(unpacked(row["poses"])):
        stick_figure(axes, joints, parents, ROOM * (turn + 0.5), colors[turn * EVERY + EVERY // 2], lw=1.2)
    axes.set(xlim=(0, ROOM * longest / EVERY), ylim=REACH)
    axes.set_axis_off()


def _by_use(paths: list[list[int]]) -> list[int]:
    """States, most used first: they have the colours that are easiest to tell apart."""
    counts = np.bincount(np.concatenate(paths))
    return [int(state) for state in np.argsort(-counts, kind="stable") if counts[state] > 0]
