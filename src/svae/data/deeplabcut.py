"""Key points tracked by DeepLabCut: csv and h5 files with a likelihood beside each point."""

import csv
import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svae.data.arrays import texts
from svae.data.errors import DataError
from svae.data.hdf5 import pandas_group
from svae.data.recordings import Recording, Recordings
from svae.data.tables import float_columns, read_plain_csv

HEADER = ("scorer", "individuals", "bodyparts", "coords")
Labels = tuple[str, ...]  # of one column: scorer, perhaps individual, body part, coordinate


def is_deeplabcut_csv(path: Path) -> bool:
    """Whether the table begins with the header rows of DeepLabCut."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return file.readline().startswith("scorer,")


def is_deeplabcut_h5(path: Path) -> bool:
    """Whether pandas wrote the file, as it does for DeepLabCut."""
    import h5py

    with h5py.File(path) as file:
        return pandas_group(file) is not None


def read_deeplabcut_csv(path: Path, likelihood: float = 0.6) -> Recordings:
    """Coordinates as channels like nose.x; points less likely than `likelihood` are missing."""
    header = []
    with path.open(newline="", encoding="utf-8-sig") as file:
        for row in csv.reader(file):
            if row[0] not in HEADER:
                break
            header.append(row[1:])
    columns: list[Labels] = list(zip(*header, strict=True))
    names = ["frame", *(".".join(labels[1:]) for labels in columns)]
    table = read_plain_csv(path, names, skip_rows=len(header))
    values = float_columns(list(table.drop(columns="frame").items()))
    return recordings_from_points(path.stem, columns, values, likelihood)


def read_deeplabcut_h5(path: Path, likelihood: float = 0.6) -> Recordings:
    """The same from the h5 file that DeepLabCut writes through pandas."""
    import h5py

    with h5py.File(path) as file:
        group = pandas_group(file)
        columns, values = _table(group["table"]) if "table" in group else _fixed(group)
    if not columns or not all(isinstance(labels, tuple) and len(labels) > 2 for labels in columns):
        raise DataError("pandas wrote this table, but not for DeepLabCut; write it with to_parquet instead")
    return recordings_from_points(path.stem, columns, values, likelihood)


def recordings_from_points(
    name: str, columns: Sequence[Labels], values: np.ndarray, likelihood: float
) -> Recordings:
    """The coordinates alone, NaN where the point is less likely than `likelihood`."""
    position = {labels[1:]: i for i, labels in enumerate(columns)}
    if len(position) < len(columns):
        raise DataError("a point is there twice; keep one scorer in a file")
    wanted = [labels for labels in position if labels[-1] in ("x", "y", "z")]
    if not wanted:
        raise DataError("there are no columns x, y; expected the header of DeepLabCut: " + ", ".join(HEADER))
    points = values[:, [position[labels] for labels in wanted]].copy()
    for i, labels in enumerate(wanted):
        chance = position.get((*labels[:-1], "likelihood"))
        if chance is not None:
            points[values[:, chance] < likelihood, i] = np.nan
    return Recordings((Recording(name, points),), tuple(".".join(labels) for labels in wanted))


class _PlainUnpickler(pickle.Unpickler):
    """Reads lists, tuples, texts and numbers; runs nothing."""

    def find_class(self, module: str, name: str) -> Any:
        raise DataError(f"refused to load {module}.{name} from the file; use the csv instead")


def _table(table: Any) -> tuple[list[Any], np.ndarray]:
    """Pandas' `table` format keeps the labels of each block of columns as a pickled list."""
    blocks = [name for name in table.dtype.names if name.startswith("values_block_")]
    columns: list[Any] = []
    for block in blocks:
        columns += _PlainUnpickler(io.BytesIO(table.attrs[f"{block}_kind"])).load()
    return columns, np.concatenate([table[block].astype(np.float64) for block in blocks], axis=1)


def _fixed(group: Any) -> tuple[list[Any], np.ndarray]:
    """Pandas' `fixed` format keeps, for each level, the distinct labels and which one each column has.

    A table with plain names for columns has no levels, and gives none here.
    """
    columns: list[Labels] = []
    blocks = [f"block{number}" for number in range(group.attrs["nblocks"])]
    for block in blocks:
        levels = [
            np.array(texts(group[f"{block}_items_level{level}"][()]))[
                group[f"{block}_items_label{level}"][()]
            ]
            for level in range(group.attrs.get(f"{block}_items_nlevels", 0))
        ]
        columns += [tuple(map(str, labels)) for labels in zip(*levels, strict=True)]
    return columns, np.concatenate([group[f"{block}_values"][()] for block in blocks], axis=1)
