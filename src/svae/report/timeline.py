"""From frames to places in a drawing: one time axis, rows above it, long series thinned."""

from html import escape

import numpy as np

from svae.report.data import RecordingView
from svae.report.markup import tag
from svae.states import runs

WIDTH, LEFT, RIGHT = 1000, 130, 96
MAX_COLUMNS = 500  # a longer series is drawn in so many bins


class Timeline:
    """The time axis of one recording, in bins of `step` frames."""

    def __init__(self, view: RecordingView) -> None:
        self.frames = len(view.values)
        self.step = -(-self.frames // MAX_COLUMNS)
        self.rate, self.unit = (1.0, "frames") if view.rate is None else (view.rate, "s")
        # The frame in the middle stands for its bin.
        self.shown = np.minimum(
            np.arange(self.step // 2, self.frames + self.step // 2, self.step), self.frames - 1
        )

    def x(self, frame):
        """The place of a frame's left edge."""
        return LEFT + (WIDTH - LEFT - RIGHT) * np.asarray(frame) / self.frames

    def span(self, start: int, stop: int) -> str:
        """In words, from when to when."""
        if self.unit == "frames":
            return f"frames {start:,} to {stop:,}"
        return f"{start / self.rate:,.2f} to {stop / self.rate:,.2f} s"

    def segments(self, states: np.ndarray) -> list[tuple[int, int, int]]:
        """State, start and stop of the segments, as far as bins resolve them."""
        shown = states[self.shown]
        return [(int(shown[i]), i * self.step, min(j * self.step, self.frames)) for i, j in runs(shown)]

    def rect(self, start: int, stop: int, y: float, height: float, **attributes: object) -> str:
        """A rectangle over some frames."""
        left, right = self.x(start), self.x(stop)
        place = {"x": f"{left:.1f}", "y": y, "width": f"{right - left:.1f}", "height": height}
        return tag("rect", **place, **attributes)

    def inside(self, start: int, stop: int, text: str, height: float, color: str) -> str:
        """Text in the middle of a segment, if there is room."""
        left, right = self.x(start), self.x(stop)
        if right - left < 7 * len(text) + 6:
            return ""
        place = {"x": f"{(left + right) / 2:.1f}", "y": height / 2 + 4}
        return tag("text", escape(text), class_="inside", style=f"fill:{color}", **place)


def row_name(name: str, height: float) -> str:
    """The name of a row, at its left, shortened where it must be."""
    short = name if len(name) <= 18 else name[:17] + "…"
    whole = "" if short == name else tag("title", escape(name))
    return tag("text", escape(short), whole, class_="row", x=LEFT - 10, y=height / 2 + 4)


def path(x: np.ndarray, y: np.ndarray) -> str:
    """A line through the points, broken at NaN."""
    seen = np.isfinite(y)
    pieces = []
    for start, stop in runs(seen):
        if seen[start]:
            points = [f"{a:.1f} {b:.1f}" for a, b in zip(x[start:stop], y[start:stop], strict=True)]
            # A point alone is a short stroke, or it would not show.
            pieces.append("M" + "L".join(points) + ("h.8" if len(points) == 1 else ""))
    return "".join(pieces)


def scale(values: np.ndarray, low: float, high: float, height: float) -> np.ndarray:
    """Values to places in a row, upside down as SVG has it, with a little room above and below."""
    if high <= low:
        return 0 * values + height / 2
    return height - 3 - (height - 6) * (values - low) / (high - low)


def envelope(values: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames and values to draw: all of them, or the least and the greatest of each bin, so peaks survive."""
    if step == 1:
        return np.arange(len(values)), values
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
