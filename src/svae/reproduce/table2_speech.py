"""Table 2, speech."""

from typing import Any

from svae.reproduce import table2
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown

KEY = "model", "seed"


def measure(request: Request, results: Results) -> None:
    """Train and score."""
    table2.measure("speech", request, results)


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Beside the paper's numbers."""
    return table2.show("speech", rows, about)
