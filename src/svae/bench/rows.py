"""Results as rows: one for each method and seed."""

import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np

from svae.bench.timing import machine
from svae.cards import write_card

Row = dict[str, Any]


def line(row: Row) -> str:
    """A row as it is found."""
    return "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())


def table(rows: list[Row], by: str, columns: tuple[str, ...]) -> str:
    """Mean, smallest and largest value of each column, for each value of `by`."""
    names = list(dict.fromkeys(row[by] for row in rows))
    width = max(map(len, names)) + 2
    lines = [" " * width + "".join(f"{column:>24}" for column in columns)]
    for name in names:
        values = [[row[column] for row in rows if row[by] == name] for column in columns]
        cells = [f"{np.mean(x):.3g} ({min(x):.3g} to {max(x):.3g})" for x in values]
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def command_line(script: str, arguments: list[str] | None) -> str:
    """The command that runs a benchmark script; without `arguments`, with those of this process."""
    return shlex.join(
        ["python", f"benchmarks/{script}.py", *(sys.argv[1:] if arguments is None else arguments)]
    )


def write(rows: list[Row], path: Path, command: str) -> None:
    """With what made them, and where."""
    write_card(path, {"command": command, "machine": machine(), "rows": rows})
