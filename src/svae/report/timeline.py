"""Time as a coordinate: drawings count frames from left to right, whatever their width on the page.

A drawing of this kind is stretched to the width it gets and zoomed by showing fewer of its frames. Rows
of data have heights of their own: within a row, 0 is the top of its scale and `DEPTH` the bottom.
"""

from collections.abc import Iterable

import numpy as np

from svae.report.markup import tag
from svae.states import runs

MAX_COLUMNS = 1200  # a longer series is drawn in so many bins
DEPTH = 1000

Span = tuple[int, int]


class Timeline:
    """The time axis of some frames, in bins of `step` frames."""

    def __init__(self, frames: int, rate: float | None, most: int = MAX_COLUMNS) -> None:
        self.frames = frames
        self.step = -(-frames // most)
        self.rate, self.unit = (1.0, "frames") if rate is None else (rate, "s")
        # The frame in the middle stands for its bin.
        self.shown = np.minimum(np.arange(self.step // 2, frames + self.step // 2, self.step), frames - 1)

    def segments(self, states: np.ndarray) -> list[tuple[int, int, int]]:
        """State, start and stop of the segments, as far as bins resolve them."""
        shown = states[self.shown]
        return [(int(shown[i]), i * self.step, min(j * self.step, self.frames)) for i, j in runs(shown)]

    def spans(self, states: np.ndarray) -> dict[int, list[Span]]:
        """Start and stop of the segments, by state."""
        found: dict[int, list[Span]] = {}
        for state, start, stop in self.segments(states):
            found.setdefault(state, []).append((start, stop))
        return dict(sorted(found.items()))


def time_words(start: int, stop: int, rate: float | None) -> str:
    """From when to when."""
    if rate is None:
        return f"frames {start:,} to {stop:,}"
    return f"{start / rate:,.2f} to {stop / rate:,.2f} s"


def bars(spans: Iterable[Span], y: float, height: float, **attributes: object) -> str:
    """Bars over some spans, as one mark."""
    outline = "".join(f"M{a} {y:g}h{b - a}v{height:g}h{a - b}z" for a, b in spans)
    return tag("path", d=outline, **attributes)


def row(y: float, height: float, *marks: str) -> str:
    """Marks that measure from 0 to `DEPTH`, in a row with a little room above and below."""
    room = min(3.0, 0.1 * height)
    place = f"translate(0,{y + room:g}) scale(1,{(height - 2 * room) / DEPTH:.5g})"
    return tag("g", *marks, transform=place)


def depth(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Values to places in a row; what is off the scale stays in the row."""
    if high <= low:
        return 0 * values + DEPTH / 2
    return np.clip(DEPTH * (high - values) / (high - low), 0, DEPTH)


def line(x: np.ndarray, y: np.ndarray) -> str:
    """A line through the points, broken at NaN; each point relative to the one before, which is short."""
    x, seen = np.round(np.asarray(x, float), 2), np.isfinite(y)
    whole = np.where(seen, np.round(np.where(seen, y, 0)), 0).astype(int)
    pieces = []
    for start, stop in runs(seen):
        if not seen[start]:
            continue
        first = f"M{x[start]:.10g} {whole[start]}"
        if stop - start == 1:
            pieces.append(first + "m-.4 0h.8")  # a point alone would not show
            continue
        steps = zip(np.diff(x[start:stop]), np.diff(whole[start:stop]), strict=True)
        pieces.append(f"{first}l" + " ".join(f"{a:.6g} {b}" for a, b in steps).replace(" -", "-"))
    return "".join(pieces)


def band(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """The outline of what is between two lines without gaps."""
    return line(np.append(x, x[::-1]), np.append(low, high[::-1])) + "z"


def staircase(edges: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    """Outlines of what is between two step functions, each constant between neighbouring edges."""
    filled = high > low
    pieces = []
    for start, stop in runs(filled):
        if filled[start]:
            forth, back = runs(high[start:stop]), runs(low[start:stop])[::-1]
            way = [f"H{edges[start + j]}V{high[start + j]}" for _, j in forth[:-1]]
            way.append(f"H{edges[stop]}V{low[stop - 1]}")
            way += [f"H{edges[start + i]}V{low[start + i - 1]}" for i, _ in back[:-1]]
            pieces.append(f"M{edges[start]} {high[start]}" + "".join(way) + f"H{edges[start]}z")
    return "".join(pieces)


def envelope(values: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames and values to draw: all of them, or the least and the greatest of each bin, so peaks survive."""
    if step == 1:
        return np.arange(len(values)) + 0.5, values
    bins = _bins(values, step)
    hidden = np.isnan(bins)
    low = np.where(hidden, np.inf, bins).min(axis=1)
    high = np.where(hidden, -np.inf, bins).max(axis=1)
    both = np.stack([low, high], axis=1).reshape(-1, values.shape[1])
    frames = step * (np.repeat(np.arange(len(bins)), 2) + np.tile([0.25, 0.75], len(bins)))
    return frames, np.where(np.isfinite(both), both, np.nan)


def bin_means(values: np.ndarray, step: int) -> np.ndarray:
    """The mean of what was observed in each bin of rows, NaN where nothing was."""
    bins = _bins(values, step)
    seen = ~np.isnan(bins)
    total = np.where(seen, bins, 0).sum(axis=1)
    return np.where(seen.any(axis=1), total / np.maximum(seen.sum(axis=1), 1), np.nan)


def _bins(values: np.ndarray, step: int) -> np.ndarray:
    """(bins, step, columns), filled up with NaN."""
    fill = np.full((-len(values) % step, values.shape[1]), np.nan)
    return np.concatenate([values, fill]).reshape(-1, step, values.shape[1])
