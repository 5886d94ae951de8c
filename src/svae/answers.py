"""Completions as files: all draws, their mean, and the paths of states that tell them apart."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from svae.completion import Completion

PATH_COLUMNS = ["recording", "start", "stop", "path", "probability"]


def write_completions(
    names: Sequence[str], found: Sequence[Completion], channels: Sequence[str], folder: Path
) -> list[Path]:
    """Write `draws.npz`, `mean.csv` (both can be read again as recordings), `states.npz` and `paths.csv`.

    A recording with one draw has one entry in `draws.npz`, under its name; with several, each draw has a
    number behind it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    draws = {
        name if len(x.values) == 1 else f"{name}_{i}": values
        for name, x in zip(names, found, strict=True)
        for i, values in enumerate(x.values)
    }
    written = [folder / "draws.npz", folder / "mean.csv"]
    _save(written[0], draws)
    tables = [pd.DataFrame(x.mean, columns=list(channels)) for x in found]
    for name, table in zip(names, tables, strict=True):
        table.insert(0, "recording", name)
    pd.concat(tables).to_csv(written[1], index=False, float_format="%.7g")
    with_states = {name: x.states for name, x in zip(names, found, strict=True) if x.states is not None}
    if with_states:
        written += [folder / "states.npz", folder / "paths.csv"]
        _save(written[2], with_states)
        paths_table(names, found).to_csv(written[3], index=False, float_format="%.4f")
    return written


def _save(path: Path, arrays: dict[str, Any]) -> None:
    np.savez_compressed(path, **arrays)


def paths_table(names: Sequence[str], found: Sequence[Completion]) -> pd.DataFrame:
    """One row for each gap and path of states, the likeliest first."""
    rows = [
        (name, start, stop, " ".join(map(str, path.states)), path.probability)
        for name, completion in zip(names, found, strict=True)
        for start, stop in completion.gaps()
        for path in completion.paths(start, stop)
    ]
    return pd.DataFrame(rows, columns=PATH_COLUMNS)


def read_states(path: Path) -> np.ndarray:
    """States frame by frame: the column `state` of a CSV file; -1 is any state."""
    try:
        table = pd.read_csv(path)
    except (ValueError, pd.errors.ParserError) as error:
        raise ValueError(f"{path} cannot be read as CSV with a column named state: {error}") from None
    if "state" not in table:
        raise ValueError(f"{path} has no column named state; it has {', '.join(map(str, table.columns))}")
    values = pd.to_numeric(table["state"], errors="coerce")
    if values.isna().any() or (values != values.round()).any() or len(values) == 0:
        raise ValueError(f"{path}: every state must be a whole number, -1 where any will do")
    return values.to_numpy(np.int64)
