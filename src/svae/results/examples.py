"""Examples for the report: gaps that the model fills, and recordings that it makes up."""

from dataclasses import replace

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
    items = [item for item in recordings if len(item) >= 10][:FANS]
    if not items:
        return []
    # What is far from the gap says nothing about it, and costs time.
    offsets, near = zip(*map(_near_the_middle, items), strict=True)
    hidden = replace(recordings, items=near).hide(_middle)
    views = []
    for offset, item, gappy, completion in zip(
        offsets, near, hidden, application.impute(fitted, hidden, DRAWS, seed=0), strict=True
    ):
        gap = _middle(len(item))
        beside = 2 * (gap.stop - gap.start)
        shown = slice(max(gap.start - beside, 0), gap.stop + beside)
        views.append(
            FanView(
                item.name,
                recordings.channels,
                recordings.rate or fitted.rate,
                offset + shown.start,
                offset + gap.start,
                offset + gap.stop,
                gappy.values[shown],
                completion.paths(gap.start, gap.stop),
                item.values[gap],
            )
        )
    return views


def samples(fitted: Fitted, recordings: Recordings) -> list[SampleView]:
    """New recordings, no longer than the longest real one."""
    length = min(max(recordings.lengths), LONGEST_SAMPLE)
    drawn = application.generate(fitted, length, SAMPLES, seed=0)
    states = [None] * SAMPLES if drawn.states is None else drawn.states
    return [SampleView(values, path) for values, path in zip(drawn.values, states, strict=True)]


def _middle(frames: int) -> slice:
    """A tenth of the frames, but at most `LONGEST_GAP`."""
    hidden = min(frames // 10, LONGEST_GAP)
    start = (frames - hidden) // 2
    return slice(start, start + hidden)


def _near_the_middle(item: Recording) -> tuple[int, Recording]:
    """The middle ten gap-lengths of a recording, all of a short one; and where they start."""
    length = min(len(item), 10 * LONGEST_GAP)
    start = (len(item) - length) // 2
    part = slice(start, start + length)
    return start, Recording(item.name, item.values[part])
