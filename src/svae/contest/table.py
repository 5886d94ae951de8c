"""The rows of a comparison as one table: means over seeds, and their spread."""

from typing import Any

import numpy as np

from svae.contest.contest import Contest
from svae.words import number, table

COLUMNS = {  # by their names in a row, as the table heads them
    "bound": "bound",
    "frechet samples": "samples",
    "frechet 0.0-0.8": "0.0-0.8",
    "frechet 0.2-1.0": "0.2-1.0",
    "frechet 0.2-0.8": "0.2-0.8",
    "states": "states",
    "joined": "joined",
    "zeros": "zeros",
    "parameters": "parameters",
    "seconds per epoch": "s/epoch",
}
LEGEND = (
    "bound: nats per number of recordings that no model was trained on. samples, 0.0-0.8, 0.2-1.0, 0.2-0.8: "
    "Frechet distance of new recordings, and of recordings of which that share was hidden. states: in use. "
    "joined: share of completions that meet the right edge of a gap. zeros: size of what is decoded where "
    "zeros were put in the place of frames, relative to the frames. s/epoch: of the last stage."
)


def summarised(contest: Contest) -> list[dict[str, Any]]:
    """For each model, the mean and the standard deviation (None with one seed) of every column."""
    found = []
    for model in dict.fromkeys(row["model"] for row in contest.rows):
        own = [row for row in contest.rows if row["model"] == model]
        values = {name: [row[name] for row in own if row.get(name) is not None] for name in COLUMNS}
        spread = lambda x: {"mean": float(np.mean(x)), "deviation": _deviation(x), "seeds": len(x)}
        found.append({"model": model, **{name: spread(x) if x else None for name, x in values.items()}})
    return found


def as_markdown(contest: Contest) -> str:
    """The table, and what its columns are."""
    cell = lambda found: number(None) if found is None else number(found["mean"], found["deviation"])
    lines = [["model", *COLUMNS.values()]]
    for row in summarised(contest):
        lines.append([row["model"], *(cell(row[name]) for name in COLUMNS)])
    text = [table(lines)]
    if contest.network is not None:
        real = f"{contest.floor:.3g}"
        text += ["", f"Frechet distances by feature network {contest.network}; between real halves: {real}."]
    return "\n".join([*text, "", LEGEND])


def as_json(contest: Contest) -> dict[str, Any]:
    """All numbers."""
    return {
        "data": contest.data,
        "frechet network": contest.network,
        "frechet floor": contest.floor,
        "models": summarised(contest),
        "rows": contest.rows,
        "notes": contest.notes,
    }


def _deviation(values: list[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None
