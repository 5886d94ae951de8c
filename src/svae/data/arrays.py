"""Recordings from named arrays: npy and npz files, and what HDF5 files hold."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from svae.data.errors import DataError
from svae.data.numeric import float_table
from svae.data.recordings import Recording, Recordings, default_channels

# PyPOTS stores these beside its X: the values before some were hidden, and one class for each sample.
BESIDE_X = ("X_ori", "y")


def read_npy(path: Path) -> Recordings:
    """One (time, features) array, or a batch (recordings, time, features)."""
    return recordings_from_arrays({path.stem: np.load(path, allow_pickle=False)})


def read_npz(path: Path) -> Recordings:
    """Each array is a recording (time, features), or a batch (recordings, time, features) as PyPOTS' X.

    Other keys: rate, channels, label_names, and labels_NAME for the labels of array NAME.
    """
    # opened here, because numpy leaves a broken file open
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return recordings_from_arrays({key: _entry(file, key) for key in file.files})


def _entry(file: Any, key: str) -> np.ndarray:
    try:
        return file[key]
    except ValueError as error:
        raise DataError("holds Python objects; save an array of floats", recording=key) from error


def recordings_from_arrays(arrays: Mapping[str, Any]) -> Recordings:
    """Recordings from named arrays and the keys that `read_npz` knows."""
    arrays = {key: np.asarray(array) for key, array in arrays.items()}
    rate, channels, label_names = (arrays.pop(key, None) for key in ("rate", "channels", "label_names"))
    labels = {key.removeprefix("labels_"): arrays.pop(key) for key in [*arrays] if key.startswith("labels_")}
    if "X" in arrays and arrays["X"].ndim == 3:
        arrays = {key: array for key, array in arrays.items() if key not in BESIDE_X}
    for key in labels:
        if key not in arrays:
            raise DataError(f"there are labels_{key}, but no recording of this name")
    names = None if channels is None else texts(channels)
    items = [
        item for key, array in arrays.items() for item in _recordings(key, array, labels.get(key), names)
    ]
    if not items:
        raise DataError("there are no recordings")
    if names is None:
        names = default_channels(items[0].values.shape[1])
    return Recordings(
        tuple(items),
        names,
        rate=None if rate is None else _scalar("rate", rate),
        label_names=None if label_names is None else texts(label_names),
    )


def _recordings(
    key: str, array: np.ndarray, labels: np.ndarray | None, channels: tuple[str, ...] | None
) -> list[Recording]:
    if array.ndim not in (2, 3):
        raise DataError(
            f"shape {array.shape}; expected (time, features), or (recordings, time, features) for a batch",
            recording=key,
        )
    if labels is not None and (labels.dtype.kind not in "iu" or labels.shape != array.shape[:-1]):
        wanted = f"integers of shape {array.shape[:-1]}"
        raise DataError(f"labels_{key} must be {wanted}, got {labels.dtype} {labels.shape}", recording=key)
    whole = None if labels is None else labels.astype(np.int64)
    if array.ndim == 2:
        return [Recording(key, float_table(array, key, channels), whole)]
    return [
        Recording(f"{key}_{i}", float_table(x, f"{key}_{i}", channels), None if whole is None else whole[i])
        for i, x in enumerate(array)
    ]


def texts(values: Any) -> tuple[str, ...]:
    """Names, which HDF5 returns as bytes."""
    return tuple(x.decode() if isinstance(x, bytes) else str(x) for x in np.ravel(np.asarray(values)))


def _scalar(name: str, value: np.ndarray) -> float:
    if value.size != 1 or value.dtype.kind not in "fiu":
        raise DataError(f"{name} must be one number, got {value.dtype} of shape {value.shape}")
    return float(value.reshape(()))
