"""Recordings from HDF5 files."""

from pathlib import Path
from typing import Any

import numpy as np

from svae.data.arrays import recordings_from_arrays
from svae.data.errors import DataError
from svae.data.recordings import Recordings

ATTRIBUTES = ("rate", "channels", "label_names")


def read_hdf5(path: Path) -> Recordings:
    """Each dataset is a recording (time, features), or a batch (recordings, time, features) as PyPOTS' X.

    The attributes rate, channels and label_names may stand at the file or at its datasets; the dataset
    labels_NAME holds the labels of dataset NAME.
    """
    import h5py

    arrays: dict[str, Any] = {}
    with h5py.File(path) as file:
        _attributes(file, arrays)

        def visit(name: str, node: Any) -> None:
            if isinstance(node, h5py.Dataset):
                _attributes(node, arrays)
                arrays[name] = node[()]

        file.visititems(visit)
    return recordings_from_arrays(arrays)


def pandas_group(file: Any) -> Any:
    """The group in which pandas stored a table, if it did."""
    return next((node for node in file.values() if "pandas_type" in node.attrs), None)


def _attributes(node: Any, arrays: dict[str, Any]) -> None:
    for key in ATTRIBUTES:
        if key in node.attrs:
            value = node.attrs[key]
            if key in arrays and not np.array_equal(arrays[key], value):
                raise DataError(f"the attribute {key} differs between datasets", recording=node.name)
            arrays[key] = value
