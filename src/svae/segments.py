"""Segments: runs of equal states as a table, the form in which most people take results away."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from svae.states import runs

COLUMNS = {
    "recording": "str",
    "start": "int64",
    "stop": "int64",
    "start_seconds": "float64",
    "seconds": "float64",
    "state": "int64",
    "probability": "float64",
}


def segments_table(
    names: Sequence[str],
    states: Sequence[np.ndarray],
    probability: Sequence[np.ndarray],
    rate: float | None,
) -> pd.DataFrame:
    """One row for each run of equal states.

    `states` has one (time,) and `probability` one (time, num_states) for each name. In the table, `start`
    and `stop` count frames and `stop` is exclusive; `start_seconds` and `seconds`, the duration, are NaN
    where the rate is unknown; `probability` is that of the segment's state, averaged over its frames.
    """
    rows = [
        row
        for name, path, chances in zip(names, states, probability, strict=True)
        for row in _rows(name, np.asarray(path), np.asarray(chances), np.nan if rate is None else 1 / rate)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows(name: str, states: np.ndarray, probability: np.ndarray, period: float) -> list[tuple]:
    if states.ndim != 1 or probability.ndim != 2 or len(probability) != len(states):
        got = f"{states.shape} and {probability.shape}"
        raise ValueError(f"recording '{name}': give states (time,) and probability (time, states), got {got}")
    chosen = probability[np.arange(len(states)), states]
    return [
        (name, i, j, i * period, (j - i) * period, states[i], chosen[i:j].mean()) for i, j in runs(states)
    ]


def write_segments(table: pd.DataFrame, folder: Path) -> tuple[Path, Path]:
    """Writes segments.csv, for people, and segments.parquet, which keeps types; returns their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    text, binary = folder / "segments.csv", folder / "segments.parquet"
    # Six digits after the point are a microsecond, and no 0.30000000000000004.
    table.to_csv(text, index=False, float_format="%.6f")
    table.to_parquet(binary, index=False)
    return text, binary
