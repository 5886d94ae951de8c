"""Cutting recordings into windows of one size, and putting results for windows together again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from svae.data.errors import DataError
from svae.data.recordings import Recordings


@dataclass(frozen=True, eq=False)
class Places:
    """Where windows lie: window w is frames start[w], ..., start[w] + lengths[w] - 1 of recording[w].

    None is longer than `size`.
    """

    size: int
    recording: Int[np.ndarray, " windows"]
    start: Int[np.ndarray, " windows"]
    lengths: Int[np.ndarray, " windows"]

    def __len__(self) -> int:
        return len(self.start)

    def select(self, which: Shaped[np.ndarray, " chosen"]) -> Places:
        """Only these, by number."""
        return Places(self.size, self.recording[which], self.start[which], self.lengths[which])

    def pieces(self, size: int) -> Places:
        """Each window in pieces of `size` frames, the last one shorter, in their order."""
        counts = -(-self.lengths // size)
        of = np.repeat(np.arange(len(self)), counts)
        behind = size * (np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts))
        left = np.minimum(size, self.lengths[of] - behind)
        return Places(size, self.recording[of], self.start[of] + behind, left)


@dataclass(frozen=True, eq=False)
class Windows:
    """Stretches of recordings, padded with zeros behind `lengths`; NaN still marks missing entries.

    Window w holds frames start[w], ..., start[w] + lengths[w] - 1 of recording number recording[w].
    """

    values: Float[np.ndarray, "windows time features"]
    lengths: Int[np.ndarray, " windows"]
    recording: Int[np.ndarray, " windows"]
    start: Int[np.ndarray, " windows"]

    def __len__(self) -> int:
        return len(self.values)


def windows(
    recordings: Recordings, size: int | None, stride: int | None = None, min_size: int = 2
) -> Windows:
    """Windows of `size` frames every `stride` frames (default: `size`) that cover every frame.

    The last window of a recording is shorter, unless it would have fewer than `min_size` frames: then it
    reaches back over earlier ones. A recording shorter than `size` is one short window. With `size=None`
    each recording is one window.
    """
    return cut(recordings, places(recordings.lengths, size, stride, min_size))


def places(lengths: Sequence[int], size: int | None, stride: int | None = None, min_size: int = 2) -> Places:
    """Where `windows` of recordings of these lengths lie."""
    if len(lengths) == 0:
        raise DataError("there are no recordings")
    size = max(lengths) if size is None else size
    stride = size if stride is None else stride
    if not 0 < stride <= size:
        raise DataError(f"the stride of windows must be from 1 to their size, got {size=}, {stride=}")
    min_size = min(min_size, size)
    found = [
        (number, start, min(size, length - start))
        for number, length in enumerate(lengths)
        for start in _starts(length, size, stride, min_size)
    ]
    return Places(size, *np.array(found, np.int64).T)


def cut(recordings: Recordings, places: Places) -> Windows:
    """The windows that lie there."""
    dtype = np.result_type(*{item.values.dtype for item in recordings})
    values = np.zeros((len(places), places.size, recordings.num_features), dtype)
    found = zip(places.recording.tolist(), places.start.tolist(), places.lengths.tolist(), strict=True)
    for window, (number, start, length) in enumerate(found):
        values[window, :length] = recordings[number].values[start : start + length]
    return Windows(values, places.lengths, places.recording, places.start)


def _starts(length: int, size: int, stride: int, min_size: int) -> Iterator[int]:
    # the first window that reaches the end is the last one
    last = stride * max(0, -(-(length - size) // stride))
    yield from range(0, last, stride)
    yield last if length - last >= min_size else max(0, length - size)


def stitch(
    windows: Windows, per_window: Shaped[np.ndarray, "windows time *rest"], recordings: Recordings
) -> tuple[Shaped[np.ndarray, "_ *rest"], ...]:
    """Per-step results of windows as one array for each recording.

    Where windows overlap, a step is taken from the window in which it lies farthest from an edge.
    """
    rest = per_window.shape[2:]
    stitched = tuple(np.zeros((length, *rest), per_window.dtype) for length in recordings.lengths)
    depths = [np.full(length, -1) for length in recordings.lengths]
    for window in range(len(windows)):
        number, start, length = (int(x[window]) for x in (windows.recording, windows.start, windows.lengths))
        here = slice(start, start + length)
        depth = np.minimum(np.arange(length), np.arange(length)[::-1])
        deeper = depth > depths[number][here]
        stitched[number][here][deeper] = per_window[window, :length][deeper]
        depths[number][here][deeper] = depth[deeper]
    if any(np.any(depth < 0) for depth in depths):
        raise DataError("the windows do not cover the recordings; were they made from other ones?")
    return stitched
