"""Examples for the report: gaps that the model fills, and recordings that it makes up."""

from dataclasses import replace

import numpy as np

from svae import application
from svae.data import Recording, Recordings
from svae.report import FanView, SampleView
from svae.training.artifact import Fitted

FANS = 3  # recordings of which a stretch is hidden
DRAWS = 50
LONGEST_GAP = 25
SAMPLES = 4
LONGEST_SAMPLE = 250


def fans(fitted: Fitted, recordings: Recordings) -> list[FanView]:
    """What the model makes of a hidden tenth in the middle of a few recordings."""
    if fitted.config.model.graph == "lds":
        return []
    items = [item for item in recordings if len(item) >= 10][:FANS]
    # What is far from the gap says nothing about it, and costs time.
    near = [_near_the_middle(item) for item in items]
    hidden = [replace(item, values=_with_gap(item.values)) for _, item in near]
    drawn = (
        application.impute(fitted, replace(recordings, items=tuple(hidden)), DRAWS, seed=0) if hidden else []
    )
    views = []
    for (offset, item), completion in zip(near, drawn, strict=True):
        start, stop = _middle(len(item))
        beside = 2 * (stop - start)
        shown = slice(max(start - beside, 0), stop + beside)
        values = _with_gap(item.values)[shown]
        paths = completion.paths(start, stop)
        views.append(
            FanView(
                item.name,
                recordings.channels,
                recordings.rate or fitted.rate,
                offset + shown.start,
                offset + start,
                offset + stop,
                values,
                paths,
                item.values[start:stop],
            )
        )
    return views


def samples(fitted: Fitted, recordings: Recordings) -> list[SampleView]:
    """New recordings, no longer than the longest real one."""
    length = min(max(recordings.lengths), LONGEST_SAMPLE)
    drawn = application.generate(fitted, length, SAMPLES, seed=0)
    if drawn.states is None:
        return []
    return [SampleView(values, states) for values, states in zip(drawn.values, drawn.states, strict=True)]


def _middle(frames: int) -> tuple[int, int]:
    """Start and stop of a tenth of the frames, but at most `LONGEST_GAP`."""
    hidden = min(frames // 10, LONGEST_GAP)
    start = (frames - hidden) // 2
    return start, start + hidden


def _near_the_middle(item: Recording) -> tuple[int, Recording]:
    """The middle ten gap-lengths of a recording, all of a short one; and where they start."""
    length = min(len(item), 10 * LONGEST_GAP)
    start = (len(item) - length) // 2
    part = slice(start, start + length)
    return start, Recording(item.name, item.values[part])


def _with_gap(values: np.ndarray) -> np.ndarray:
    start, stop = _middle(len(values))
    values = values.copy()
    values[start:stop] = np.nan
    return values
