"""Recordings from tables: csv and parquet files, and DataFrames. One column is one channel.

Three columns are read for what their names say: `time` (or `timestamp`, `t`; in seconds, or dates) gives the
rate, `recording` splits the table, `label` labels the frames.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from svae.data.errors import DataError
from svae.data.joining import join
from svae.data.numeric import float_table, is_number, not_a_number
from svae.data.recordings import Recording, Recordings, default_channels, first_repeat

if TYPE_CHECKING:
    import pandas as pd

TIME_NAMES = ("time", "timestamp", "t")


DELIMITERS = ",", ";", "\t"


def read_csv(path: Path, delimiter: str | None = None, header: bool | None = None) -> Recordings:
    """A csv file whose first row names the channels; `header=False` if there is none.

    Without a `delimiter`, it is the one of comma, semicolon and tab that finds most names in the first row.
    """
    delimiter = delimiter or max(DELIMITERS, key=lambda each: len(_first_row(path, each)))
    names = _first_row(path, delimiter)
    if not names:
        raise DataError("the file is empty")
    if header is None and all(is_number(name) for name in names):
        raise DataError(
            "the first row holds numbers where names of channels are expected; write names above it (or load "
            "it in Python, with header=False if it is data, header=True if these are the names)"
        )
    columns = list(default_channels(len(names))) if header is False else [name.strip() for name in names]
    skip_rows = 0 if header is False else 1
    return recordings_from_frame(read_plain_csv(path, columns, skip_rows, delimiter), path.stem)


def read_plain_csv(path: Path, columns: list[str], skip_rows: int, delimiter: str = ",") -> pd.DataFrame:
    """The rows behind the header. Each must have as many entries as there are `columns`."""
    import pyarrow
    from pyarrow import csv

    try:
        table = csv.read_csv(
            path,
            # one thread counts rows, so that an error can name the row
            read_options=csv.ReadOptions(column_names=columns, skip_rows=skip_rows, use_threads=False),
            parse_options=csv.ParseOptions(delimiter=delimiter),
            convert_options=csv.ConvertOptions(strings_can_be_null=True),
        )
    except pyarrow.ArrowInvalid as error:
        raise DataError(f"every row must have {len(columns)} entries: {error}") from error
    return table.to_pandas()


def read_parquet(path: Path) -> Recordings:
    """A parquet file; an index that pandas stored with it does no harm."""
    from pyarrow import parquet

    return recordings_from_frame(parquet.read_table(path).to_pandas(), path.stem)


def is_frame(data: Any) -> bool:
    """Whether this is a DataFrame, found out without importing pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(data, pandas.DataFrame)


def recordings_from_frame(frame: pd.DataFrame, name: str) -> Recordings:
    """Recordings from a DataFrame; `name` is for a table without a `recording` column."""
    if len(frame) == 0:
        raise DataError("the table has no rows", recording=name)
    columns = _column_names(frame)
    # positions, because a DataFrame may have names that are not texts
    special = {kind: _find(columns, names) for kind, names in _SPECIAL.items()}
    channels = [i for i in range(len(columns)) if i not in special.values()]
    values = float_columns([(columns[i], frame.iloc[:, i]) for i in channels])
    seconds = _seconds(frame, special["time"])
    labels, label_names = _labels(frame, special["label"])
    parts = []
    for part, rows in _groups(frame, special["recording"], name):
        item = Recording(part, values[rows], None if labels is None else labels[rows])
        rate = None if seconds is None else _rate(seconds[rows], part)
        parts.append(Recordings((item,), tuple(columns[i] for i in channels), rate, label_names))
    return join(parts)


_SPECIAL = {"time": TIME_NAMES, "recording": ("recording",), "label": ("label",)}


def _first_row(path: Path, delimiter: str) -> list[str]:
    import csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        return next(csv.reader(file, delimiter=delimiter), [])


def _column_names(frame: pd.DataFrame) -> list[str]:
    names = [str(name).strip() for name in frame.columns]
    if "" in names:
        raise DataError(
            f"column {names.index('')} (counted from 0) has no name; "
            "if it is an index that pandas wrote, write with index=False"
        )
    twice = first_repeat(names)
    if twice is not None:
        raise DataError("two columns have this name; rename one of them", column=twice)
    return names


def _find(columns: Sequence[str], names: Sequence[str]) -> int | None:
    found = [i for i, column in enumerate(columns) if column.lower() in names]
    if len(found) > 1:
        both = " and ".join(f"'{columns[i]}'" for i in found)
        raise DataError(f"columns {both} all claim to be the {names[0]}; keep one of them")
    return found[0] if found else None


def float_columns(columns: Sequence[tuple[Any, pd.Series]]) -> np.ndarray:
    """Named columns side by side, or an error that names the first bad entry."""
    if not columns:
        raise DataError("there are no columns with data")
    return np.stack([_floats(series, str(name)) for name, series in columns], axis=1)


def _floats(series: pd.Series, column: str) -> np.ndarray:
    from pandas.api import types

    if types.is_complex_dtype(series.dtype):
        return float_table(series.to_numpy()[:, None], channels=[column])[:, 0]
    if types.is_numeric_dtype(series.dtype):
        # a column of numbers that may be missing has no numpy type of its own
        return series.to_numpy(np.float32 if series.dtype == np.float32 else np.float64, na_value=np.nan)
    missing = series.isna().to_numpy()
    for row, entry in enumerate(series):
        if not missing[row] and not is_number(entry):
            raise not_a_number(entry, row, column)
    if np.all(missing):
        return np.full(len(series), np.nan)
    raise DataError("numbers stored as text; convert the column to floats", column=column)


def _seconds(frame: pd.DataFrame, position: int | None) -> np.ndarray | None:
    import pandas as pd
    from pandas.api import types

    if position is None:
        if not isinstance(frame.index, pd.DatetimeIndex | pd.TimedeltaIndex):
            return None
        series: pd.Series = frame.index.to_series(name="index")
    else:
        series = frame.iloc[:, position]
    if series.isna().any():
        raise DataError("the time must be given for every row", column=str(series.name))
    if types.is_datetime64_any_dtype(series.dtype):
        return (pd.DatetimeIndex(series) - pd.Timestamp(series.iloc[0])).total_seconds().to_numpy()
    if types.is_timedelta64_dtype(series.dtype):
        return pd.TimedeltaIndex(series).total_seconds().to_numpy()
    return _floats(series, str(series.name)).astype(np.float64)


def _rate(seconds: np.ndarray, recording: str) -> float | None:
    """Frames per second. Half a step of jitter is forgiven: a frame left out makes a whole one."""
    if len(seconds) < 2:
        return None
    steps = np.diff(seconds)
    usual = np.median(steps)
    if not usual > 0:
        raise DataError("time does not increase; sort the rows, or rename the column", recording=recording)
    uneven = np.abs(steps - usual) > 0.5 * usual + 1e-9
    if np.any(uneven):
        row = int(np.argmax(uneven))
        raise DataError(
            f"time is not evenly spaced: {steps[row]:g} s from row {row} to row {row + 1} (counted from 0), "
            f"but mostly {usual:g} s; resample, or insert rows of NaN where frames were left out",
            recording=recording,
        )
    return float(f"{(len(seconds) - 1) / (seconds[-1] - seconds[0]):.6g}")


def _labels(frame: pd.DataFrame, position: int | None) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Whole numbers as they are; texts numbered in their order; -1 where there is none."""
    from pandas.api import types

    if position is None:
        return None, None
    series = frame.iloc[:, position]
    missing = series.isna().to_numpy()
    if types.is_numeric_dtype(series.dtype):
        numbers = np.where(missing, -1, _floats(series, "label"))
        if np.any(numbers != np.round(numbers)):
            raise DataError("labels must be whole numbers or texts", column="label")
        return numbers.astype(np.int64), None
    names = tuple(sorted({str(entry) for entry in series[~missing]}))
    index = {name: number for number, name in enumerate(names)}
    labels = [-1 if gone else index[str(entry)] for entry, gone in zip(series, missing, strict=True)]
    return np.array(labels, np.int64), names


def _groups(frame: pd.DataFrame, position: int | None, name: str) -> list[tuple[str, np.ndarray]]:
    """Name and rows of each recording, in the order in which they begin."""
    if position is None:
        return [(name, np.arange(len(frame)))]
    series = frame.iloc[:, position]
    if series.isna().any():
        row = int(np.argmax(series.isna().to_numpy()))
        raise DataError(f"row {row} (counted from 0) belongs to no recording", column="recording")
    codes, names = series.factorize()
    rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    return [(str(part), part_rows) for part, part_rows in zip(names, rows, strict=True)]
