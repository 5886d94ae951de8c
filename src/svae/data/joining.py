"""Recordings from several places as one set."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from svae.data.errors import DataError
from svae.data.recordings import Recordings


def join(parts: Sequence[Recordings]) -> Recordings:
    """All recordings of the parts, whose channels and rates must agree."""
    if not parts:
        raise DataError("there are no recordings")
    first = parts[0]
    for part in parts[1:]:
        _require_same_kind(first, part)
    label_names, parts = _common_labels(parts)
    items = tuple(item for part in parts for item in part.items)
    return replace(first, items=items, label_names=label_names)


def same_rate(first: float | None, other: float | None) -> bool:
    """Whether two rates agree; those read from time stamps differ by rounding."""
    return first is not None and other is not None and abs(first - other) <= 1e-2 * first


def _require_same_kind(first: Recordings, other: Recordings) -> None:
    pair = f"'{first.names[0]}' and '{other.names[0]}'"
    if first.rate != other.rate and not same_rate(first.rate, other.rate):
        raise DataError(f"recordings {pair} have different rates: {first.rate} and {other.rate} Hz")
    if first.channels != other.channels:
        odd = [
            channel for channel in (*first.channels, *other.channels) if not _in_both(channel, first, other)
        ]
        difference = f"'{odd[0]}' is only in one of them" if odd else "their order differs"
        raise DataError(
            f"recordings {pair} have different channels: {difference}; every recording must have the same"
        )
    if first.skeleton != other.skeleton:
        raise DataError(f"recordings {pair} have different skeletons")


def _in_both(channel: str, first: Recordings, other: Recordings) -> bool:
    return channel in first.channels and channel in other.channels


def _common_labels(parts: Sequence[Recordings]) -> tuple[tuple[str, ...] | None, Sequence[Recordings]]:
    """One list of label names for all parts, and the parts labelled by it."""
    given = {part.label_names for part in parts if part.label_names is not None}
    labelled = [part for part in parts if any(item.labels is not None for item in part)]
    if len(given) <= 1 and all(part.label_names is not None or not given for part in labelled):
        return (given.pop() if given else None), parts
    if any(part.label_names is None for part in labelled):
        raise DataError("some recordings have named labels, others numbers only; name all or none")
    union = tuple(sorted({name for names in given for name in names}))
    return union, [_relabel(part, union) for part in parts]


def _relabel(part: Recordings, label_names: tuple[str, ...]) -> Recordings:
    # the extra entry at the end is what a negative label finds
    table = np.array([*(label_names.index(name) for name in part.label_names or ()), -1])
    items = tuple(
        item if item.labels is None else replace(item, labels=table[np.maximum(item.labels, -1)])
        for item in part
    )
    return replace(part, items=items, label_names=label_names)
