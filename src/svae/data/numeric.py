"""Turning what users hand over into arrays of floats, or saying which entry is none."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from svae.data.errors import DataError


def float_table(
    values: Any, recording: str | None = None, channels: Sequence[str] | None = None
) -> Float[np.ndarray, "time features"]:
    """Values as (time, features): float32 stays, other real numbers become float64, masked ones NaN."""
    if isinstance(values, np.ma.MaskedArray):
        plain = float_table(values.data, recording, channels)
        return np.where(np.ma.getmaskarray(values), np.nan, plain).astype(plain.dtype)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise DataError("rows have different lengths", recording=recording) from error
    if array.ndim == 1:
        raise DataError(
            f"a 1-D array of shape {array.shape} may be one channel or one frame; "
            "write x[:, None] for one channel, x[None, :] for one frame",
            recording=recording,
        )
    if array.ndim != 2:
        raise DataError(f"expected shape (time, features), got {array.shape}", recording=recording)
    if array.dtype.kind == "c":
        raise DataError(
            "complex numbers; take magnitude and phase, or real and imaginary parts, as channels",
            recording=recording,
        )
    if array.dtype.kind not in "fiub":
        _raise_at_first_bad(array, recording, channels)
    return array if array.dtype == np.float32 else array.astype(np.float64, copy=False)


def _raise_at_first_bad(array: np.ndarray, recording: str | None, channels: Sequence[str] | None) -> None:
    for (row, column), entry in np.ndenumerate(array):
        if not is_number(entry):
            raise not_a_number(entry, row, str(column) if channels is None else channels[column], recording)
    raise DataError(
        f"numbers stored as {array.dtype}; convert them with np.asarray(values, float)", recording=recording
    )


def is_number(entry: Any) -> bool:
    """Whether the entry is a real number, or a text that spells one."""
    if isinstance(entry, str | bytes):
        try:
            float(entry)
        except ValueError:
            return False
        return True
    return isinstance(entry, numbers.Real | np.bool_)


def not_a_number(entry: Any, row: int, column: str, recording: str | None = None) -> DataError:
    """The error for one bad entry."""
    shown = entry.decode(errors="replace") if isinstance(entry, bytes) else entry
    return DataError(
        f"{str(shown)!r} in row {row} (counted from 0) is not a number; put NaN where a value is missing",
        recording=recording,
        column=column,
    )
