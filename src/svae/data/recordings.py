"""Recordings: the one form in which data travel through the library."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from svae.data.errors import DataError


@dataclass(frozen=True, eq=False)
class Recording:
    """One multivariate time series. NaN marks a missing entry; a negative label, an unlabelled frame."""

    name: str
    values: Float[np.ndarray, "time features"]
    labels: Int[np.ndarray, " time"] | None = None

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.dtype not in (np.float32, np.float64):
            got = f"{self.values.dtype} of shape {self.values.shape}"
            raise DataError(
                f"values must be floats of shape (time, features), got {got}", recording=self.name
            )
        if self.labels is not None and self.labels.shape != self.values.shape[:1]:
            frames = f"{len(self.values)} frames, labels of shape {self.labels.shape}"
            raise DataError(f"give one label to each frame, got {frames}", recording=self.name)

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Skeleton:
    """Joints whose x, y, z are three channels each, in this order; the root's parent is -1.

    Joints that are `still` have no channels: a number and a place for each that never moves. Bodies of other
    sizes have the same skeleton.
    """

    joints: tuple[str, ...]
    parents: tuple[int, ...]
    still: tuple[tuple[int, tuple[float, float, float]], ...] = field(default=(), compare=False)

    @property
    def moving(self) -> tuple[int, ...]:
        """Numbers of the joints that have channels."""
        return tuple(j for j in range(len(self.joints)) if j not in dict(self.still))

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels: Hips.x, Hips.y, Hips.z, ..."""
        return tuple(f"{self.joints[j]}.{axis}" for j in self.moving for axis in "xyz")


@dataclass(frozen=True, eq=False)
class Recordings:
    """Recordings of the same channels at the same rate (frames per second, None where unknown)."""

    items: tuple[Recording, ...]
    channels: tuple[str, ...]
    rate: float | None = None
    label_names: tuple[str, ...] | None = None
    skeleton: Skeleton | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < np.inf:
            raise DataError(f"rate must be a positive number of frames per second, got {self.rate:g}")
        for kind, names in (("recordings", self.names), ("channels", self.channels)):
            twice = first_repeat(names)
            if twice is not None:
                raise DataError(f"two {kind} are named '{twice}'; rename one of them")
        for item in self.items:
            _require_channels(item, self.channels)
            _require_no_infinity(item, self.channels)
            _require_known_labels(item, self.label_names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the recordings."""
        return tuple(item.name for item in self.items)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Frames in each recording."""
        return tuple(len(item) for item in self.items)

    @property
    def num_features(self) -> int:
        """How many channels there are."""
        return len(self.channels)

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Recording]:
        return iter(self.items)

    def __getitem__(self, which: int | str) -> Recording:
        if isinstance(which, str):
            return self.items[_position(which, self.names, "recording")]
        return self.items[which]

    def select(self, names: Iterable[str]) -> Recordings:
        """The named recordings, in the order of `names`."""
        return replace(self, items=tuple(self[name] for name in names))

    def select_channels(self, channels: Iterable[str]) -> Recordings:
        """The named channels, in the order of `channels`; the skeleton no longer fits and is dropped."""
        channels = tuple(channels)
        columns = [_position(channel, self.channels, "channel") for channel in channels]
        items = tuple(replace(item, values=item.values[:, columns]) for item in self.items)
        return replace(self, items=items, channels=channels, skeleton=None)

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Recordings:
        """The same recordings with `function(values)` for values."""
        return replace(self, items=tuple(replace(item, values=function(item.values)) for item in self.items))

    def hide(self, place: Callable[[int], Any]) -> Recordings:
        """Without the frames that `place(length)` names, which are missing then."""

        def hidden(values: np.ndarray) -> np.ndarray:
            values = values.copy()
            values[place(len(values))] = np.nan
            return values

        return self.map(hidden)


def require_usable(recordings: Recordings, min_length: int = 2) -> Recordings:
    """Returns the recordings if there are any, all are long enough and each channel was ever observed."""
    if len(recordings) == 0:
        raise DataError("there are no recordings")
    if recordings.num_features == 0:
        raise DataError("there are no channels")
    for item in recordings:
        if len(item) < min_length:
            raise DataError(
                f"too short: {len(item)} of at least {min_length} frames; leave it out", recording=item.name
            )
    observed = np.zeros(recordings.num_features, bool)
    for item in recordings:  # mostly the first one tells
        if np.all(observed):
            break
        observed |= np.any(~np.isnan(item.values), axis=0)
    if not np.all(observed):
        column = recordings.channels[int(np.argmin(observed))]
        raise DataError("all entries are missing in all recordings; leave the channel out", column=column)
    return recordings


def first_repeat(names: Iterable[str]) -> str | None:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def default_channels(count: int) -> tuple[str, ...]:
    """Names for channels that came without."""
    return tuple(f"channel_{index}" for index in range(count))


def _position(name: str, names: tuple[str, ...], kind: str) -> int:
    if name not in names:
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise DataError(f"there is no {kind} '{name}'; there are {shown}")
    return names.index(name)


def _require_channels(item: Recording, channels: tuple[str, ...]) -> None:
    width = item.values.shape[1]
    if width != len(channels):
        raise DataError(
            f"{width} columns, but there are {len(channels)} channels; every recording must have the same",
            recording=item.name,
        )


def _require_no_infinity(item: Recording, channels: tuple[str, ...]) -> None:
    if isinstance(item.values, np.memmap):  # of the cache, which was checked when it was written
        return
    infinite = np.isinf(item.values)
    if np.any(infinite):
        row, column = np.argwhere(infinite)[0]
        raise DataError(
            f"infinite value in row {row} (counted from 0); put NaN there if it is missing",
            recording=item.name,
            column=channels[column],
        )


def _require_known_labels(item: Recording, label_names: tuple[str, ...] | None) -> None:
    if item.labels is not None and label_names is not None and item.labels.size:
        largest = int(np.max(item.labels))
        if largest >= len(label_names):
            raise DataError(f"label {largest}, but there are {len(label_names)} names", recording=item.name)
