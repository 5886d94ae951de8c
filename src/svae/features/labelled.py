"""Windows of recordings with a class for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float, Int

from svae.data import DataError, Recordings
from svae.data import windows as cut
from svae.states import runs


@dataclass(frozen=True, eq=False)
class LabelledWindows:
    """Windows padded behind `lengths`, the number of each one's class, and of the recording it is from."""

    values: Float[np.ndarray, "windows time channels"]
    lengths: Int[np.ndarray, "windows"]
    labels: Int[np.ndarray, "windows"]  # 0, ..., number of classes - 1
    recording: Int[np.ndarray, "windows"]
    classes: tuple[str, ...]
    channels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    def select(self, which: Bool[np.ndarray, "windows"]) -> LabelledWindows:
        """Only these."""
        parts = {name: getattr(self, name)[which] for name in ("values", "lengths", "labels", "recording")}
        return replace(self, **parts)


def windows_from_arrays(
    values: Float[np.ndarray, "windows time channels"],
    labels: Int[np.ndarray, "windows"],
    lengths: Int[np.ndarray, "windows"] | None = None,
) -> LabelledWindows:
    """Windows that were cut elsewhere, each taken for a recording of its own; labels are any integers."""
    if values.ndim != 3 or labels.shape != values.shape[:1]:
        raise DataError(
            f"give values (windows, time, channels) and one label each, got {values.shape} and {labels.shape}"
        )
    found, labels = np.unique(labels, return_inverse=True)
    lengths = np.full(len(values), values.shape[1]) if lengths is None else lengths
    channels = tuple(f"channel_{number}" for number in range(values.shape[2]))
    return LabelledWindows(values, lengths, labels, np.arange(len(values)), tuple(map(str, found)), channels)


def labelled_windows(recordings: Recordings, size: int, stride: int | None = None) -> LabelledWindows:
    """Windows of up to `size` frames, and the class that most labelled frames of each have.

    Of classes with equally many frames the one with the lowest number counts. Windows without a labelled
    frame are left out, and so are classes without a window.
    """
    found = cut(recordings, size, stride, min_size=size // 2)
    places = zip(found.recording.tolist(), found.start.tolist(), found.lengths.tolist(), strict=True)
    majority = np.array([_most_frequent(recordings[i].labels, start, start + n) for i, start, n in places])
    there = majority >= 0
    if not there.any():
        raise DataError("no frame has a label, so there is nothing to classify")
    numbers, labels = np.unique(majority[there], return_inverse=True)
    names = recordings.label_names
    return LabelledWindows(
        found.values[there],
        found.lengths[there],
        labels,
        found.recording[there],
        tuple(str(number) if names is None else names[number] for number in numbers),
        recordings.channels,
    )


def _most_frequent(labels: np.ndarray | None, start: int, stop: int) -> int:
    known = np.zeros(0, int) if labels is None else labels[start:stop]
    known = known[known >= 0]
    return int(np.argmax(np.bincount(known))) if len(known) else -1


def label_recordings(recordings: Recordings, classes: Sequence[str]) -> Recordings:
    """The recordings with one class each, the same for all frames of a recording."""
    if len(classes) != len(recordings):
        raise DataError(f"give one class to each recording, got {len(classes)} for {len(recordings)}")
    names = tuple(sorted(set(classes)))
    items = tuple(
        replace(item, labels=np.full(len(item), names.index(name)))
        for item, name in zip(recordings, classes, strict=True)
    )
    return replace(recordings, items=items, label_names=names)


def typical_run(recordings: Recordings) -> int:
    """For how many frames a label lasts, in the median over runs; at least two."""
    paths = [item.labels for item in recordings if item.labels is not None]
    lengths = [stop - start for path in paths for start, stop in runs(path) if path[start] >= 0]
    if not lengths:
        raise DataError("no frame has a label, so there is nothing to classify")
    return max(2, int(np.median(lengths)))
