"""Small multiples: a stretch of data with its states below, as wide as its place on the page."""

from collections.abc import Mapping

import numpy as np

from svae.report.channels import Channels
from svae.report.markup import tag
from svae.report.timeline import Span, Timeline, bars

HEIGHT, RIBBON, BETWEEN = 110.0, 10.0, 4.0
COLUMNS = 240  # as many as a small drawing can show


def strip(
    values: np.ndarray,
    states: np.ndarray | None,
    colors: list[str],
    channels: Channels,
    label: str,
    window: Span | None = None,
    marked: Span | None = None,
) -> str:
    """Values, and states if there are any; `window` is wider than them where several strips share a scale,
    `marked` the part that matters.
    """
    time = Timeline(len(values), None, COLUMNS)
    first, last = window or (0, time.frames)
    parts = [channels.draw(values, 0.0, HEIGHT, COLUMNS)]
    base = HEIGHT + BETWEEN
    parts += [
        bars(spans, base, RIBBON, fill=colors[state], class_=f"state s{state}", data_state=state)
        for state, spans in ({} if states is None else time.spans(states)).items()
        if state >= 0
    ]
    if marked is not None:
        beside = [(a, b) for a, b in ((0, marked[0]), (marked[1], time.frames)) if b > a]
        parts.append(bars(beside, 0.0, base + RIBBON, class_="veil"))
    return stretched(label, first, last - first, base + RIBBON, *parts)


def stretched(label: str, first: float, frames: float, height: float, *marks: str) -> str:
    """A drawing that is stretched over time and keeps its height."""
    about: Mapping[str, object] = {
        "viewBox": f"{first:g} 0 {frames:g} {height:g}",
        "preserveAspectRatio": "none",
        "style": f"height:{height:g}px",
        "role": "img",
        "aria_label": label,
    }
    return tag("svg", *marks, class_="strip", **about)
