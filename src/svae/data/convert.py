"""`as_recordings`: every form of data in memory that the library accepts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, SupportsIndex

import numpy as np

from svae.data.errors import DataError
from svae.data.joining import join, same_rate
from svae.data.numeric import float_table
from svae.data.recordings import Recording, Recordings, default_channels, require_usable
from svae.data.tables import is_frame, recordings_from_frame


def as_recordings(
    data: Any,
    *,
    rate: float | None = None,
    channels: Iterable[str] | None = None,
    lengths: Iterable[SupportsIndex] | None = None,
    min_length: int = 2,
) -> Recordings:
    """Recordings from any of these, with NaN for missing entries:

    - a (batch, time, features) array, with `lengths` if the recordings are padded at their ends;
    - one (time, features) array, with `lengths` if several recordings were concatenated;
    - a list or tuple of (time, features) arrays or DataFrames, or a dict of them by name;
    - a DataFrame with channels as columns; the columns time, recording and label are what they say;
    - a file, a folder of files, or the name of a built-in set, see `load`;
    - recordings, which are returned as they are.

    `rate` is in frames per second. Each recording must have at least `min_length` frames.
    """
    names = None if channels is None else tuple(channels)
    sizes = None if lengths is None else tuple(int(length) for length in lengths)
    brings_channels = isinstance(data, Recordings | str | PathLike) or is_frame(data)
    if brings_channels and names is not None:
        raise DataError("these data bring their own channel names; leave `channels` out")
    if sizes is not None and (brings_channels or isinstance(data, Mapping | list | tuple)):
        raise DataError("`lengths` belongs to one array, 2-D or 3-D; leave it out")
    if isinstance(data, str | PathLike):
        from svae.data.files import load

        return load(data, rate=rate, min_length=min_length)
    return require_usable(with_rate(_convert(data, names, sizes), rate), min_length)


def with_rate(recordings: Recordings, rate: float | None) -> Recordings:
    """The recordings at this rate, which must not contradict their own."""
    if rate is None or recordings.rate == rate:
        return recordings
    if recordings.rate is not None and not same_rate(recordings.rate, rate):
        raise DataError(f"the data say {recordings.rate:g} frames per second, but rate={rate:g} was given")
    return replace(recordings, rate=float(rate))


def _convert(data: Any, channels: tuple[str, ...] | None, lengths: tuple[int, ...] | None) -> Recordings:
    if isinstance(data, Recordings):
        return data
    if isinstance(data, Mapping):
        return _join_named(((str(name), part) for name, part in data.items()), channels)
    if isinstance(data, list | tuple):
        if data and all(not is_frame(part) and _axes(part) < 2 for part in data):
            raise DataError(
                "a list must hold one 2-D array (time, features) for each recording; "
                "for a single recording pass one array"
            )
        return _join_named(_numbered(data), channels)
    if is_frame(data):
        return recordings_from_frame(data, "recording_0")
    array = data if isinstance(data, np.ma.MaskedArray) else np.asarray(data)
    if array.ndim == 3:
        return _join_named(_numbered(_unpad(array, lengths)), channels)
    if lengths is not None:
        return _join_named(_numbered(_split(array, lengths)), channels)
    return _join_named([("recording_0", array)], channels)


def _axes(part: Any) -> int:
    try:
        return np.ndim(part)
    except ValueError:  # rows of different lengths
        return 2


def _numbered(parts: Iterable[Any]) -> list[tuple[str, Any]]:
    return [(f"recording_{number}", part) for number, part in enumerate(parts)]


def _join_named(parts: Iterable[tuple[str, Any]], channels: tuple[str, ...] | None) -> Recordings:
    return join([_one(name, part, channels) for name, part in parts])


def _one(name: str, part: Any, channels: tuple[str, ...] | None) -> Recordings:
    if is_frame(part):
        if channels is not None:
            raise DataError("a DataFrame brings its own channel names; leave `channels` out", recording=name)
        return recordings_from_frame(part, name)
    values = float_table(part, name, channels)
    names = default_channels(values.shape[1]) if channels is None else channels
    return Recordings((Recording(name, values),), names)


def _unpad(batch: np.ndarray, lengths: tuple[int, ...] | None) -> list[np.ndarray]:
    if lengths is None:
        return list(batch)
    if len(lengths) != len(batch) or not all(0 <= length <= batch.shape[1] for length in lengths):
        raise DataError(f"`lengths` must be {len(batch)} numbers from 0 to {batch.shape[1]}, got {lengths}")
    return [values[:length] for values, length in zip(batch, lengths, strict=True)]


def _split(array: np.ndarray, lengths: tuple[int, ...]) -> list[np.ndarray]:
    if array.ndim != 2 or sum(lengths) != len(array) or min(lengths, default=0) < 0:
        raise DataError(
            f"`lengths` add up to {sum(lengths)}, but the array has shape {array.shape}; "
            "they must add up to its rows"
        )
    return np.split(array, np.cumsum(lengths)[:-1])
