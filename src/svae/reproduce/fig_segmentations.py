"""Figure 1: the states of held-out motions, and what was going on."""

from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svae import application
from svae.data import Recording, Recordings
from svae.plots import INK, state_ribbon
from svae.reproduce.fitted import models_of
from svae.reproduce.material import material
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.states import runs
from svae.words import table

KEY = "model", "clip"
CLIPS = 12
LONGEST = 500  # frames that are shown of a clip


def measure(request: Request, results: Results) -> None:
    """Clips of as many actions as there are, and their most likely states."""
    given = material("mocap", request)
    results.settle(**request.about(data=given.caption, rate=given.clips.rate))
    clips = various(given.clips)
    missing = lambda model: not all(results.has(model, name) for name in clips.names)
    names = [name for name in request.chosen(["svae-slds"]) if missing(name)]
    for model, fitted in models_of("mocap", given, request, names):
        for item, found in zip(clips, application.segment(fitted, clips), strict=True):
            row = {"model": model, "clip": item.name, "label": label_of(item, clips)}
            results.add(row | {"states": found.states.tolist()})


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
    return Shown("Figure 1, states of held-out motions", f"{text}\n\n{table(lines)}", _figure(rows))


def _figure(rows: list[Row]) -> Figure:
    """One bar a clip; states have the same colours in all clips of a model."""
    figure = Figure(figsize=(11, 0.42 * len(rows) + 0.6), layout="constrained")
    panels = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    longest = max(len(row["states"]) for row in rows)
    several = len({row["model"] for row in rows}) > 1
    for axes, row in zip(panels, rows, strict=True):
        own = [other["states"] for other in rows if other["model"] == row["model"]]
        order = {state: place for place, state in enumerate(_by_use(own))}
        name = row["label"] or row["clip"]
        label = f"{row['model']}: {name}" if several else name
        state_ribbon(axes, [order[state] for state in row["states"]], len(order), label)
        axes.set_xlim(0.5, longest + 0.5)
    panels[-1].set_xticks([1, longest])
    panels[-1].set_xlabel("frame", fontsize=9, color=INK)
    return figure


def _by_use(paths: list[list[int]]) -> list[int]:
    """States, most used first: they have the colours that are easiest to tell apart."""
    counts = np.bincount(np.concatenate(paths))
    return [int(state) for state in np.argsort(-counts, kind="stable") if counts[state] > 0]
