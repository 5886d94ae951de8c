"""The results of several runs side by side: what `svae compare` prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from svae.cards import read_card
from svae.config import differing_settings, load_config

SUMMARY, EVALUATION, NETWORK = "summary.json", "evaluation.json", "frechet network"


class Comparison(NamedTuple):
    """Tables with a column for each run, and what to know about them."""

    settings: pd.DataFrame  # those that differ
    results: pd.DataFrame  # of training
    scores: pd.DataFrame  # of `svae evaluate`
    notes: list[str]


def compare_runs(folders: Sequence[Path]) -> Comparison:
    """Settings, results and scores; Frechet distances by different networks are left out."""
    for folder in folders:
        if not (folder / SUMMARY).exists():
            raise FileNotFoundError(f"there is no finished run in {folder}: {SUMMARY} is missing")
    settings = {str(folder): load_config(folder / "config.toml") for folder in folders}
    results = pd.DataFrame({str(x): _read(x / SUMMARY) for x in folders}, dtype=object)
    scores = pd.DataFrame({str(x): _read(x / EVALUATION) for x in folders}, dtype=object)
    notes = []
    networks = sorted(set(scores.loc[NETWORK].dropna())) if NETWORK in scores.index else []
    if len(networks) > 1:
        scores = scores.drop(index=[name for name in scores.index if name.startswith("frechet ")])
        notes.append(
            f"Frechet distances by different feature networks ({', '.join(networks)}) cannot be compared and "
            "are left out: evaluate all runs with one network"
        )
    return Comparison(
        pd.DataFrame(differing_settings(settings)),
        results.drop(index="warnings", errors="ignore"),
        scores,
        notes,
    )


def _read(path: Path) -> dict[str, Any]:
    return read_card(path) if path.exists() else {}
