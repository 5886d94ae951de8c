"""The toy of the appendix: all models on the moving bump, and what they put into a gap of it."""

from typing import Any

import numpy as np

from svae.contest import BUDGETS, Contest, as_markdown, hold, run_folder
from svae.contest.budgets import split
from svae.contest.contest import IMPUTED
from svae.contest.picture import Imputed, imputation_figure
from svae.contest.scores import gap
from svae.data import load
from svae.reproduce.packing import packed, unpacked
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown

KEY = "model", "seed"
DATA = "laplace"


def measure(request: Request, results: Results) -> None:
    """A contest, model by model, so that each row is there as soon as it is known."""
    budget = BUDGETS[request.budget]
    item = split(load(DATA), budget)[1][0]
    place = gap(len(item))
    about = {"data": "the Laplacian toy", "gap": [place.start, place.stop], "truth": packed(item.values)}
    results.settle(**request.about(**about))
    notes = list(results.about().get("notes", []))
    for model in request.chosen():
        for seed in request.seeds:
            if results.has(model, seed):
                continue
            contest = hold(
                DATA, [model], [seed], budget, results.out, say=request.say, watching=request.watching
            )
            notes += contest.notes
            results.settle(network=contest.network, floor=contest.floor, notes=list(dict.fromkeys(notes)))
            for row in contest.rows:
                results.add(row | _picture(results, model, seed))


def _picture(results: Results, model: str, seed: int) -> Row:
    """What the model put into the gap. Of several seeds the first is shown."""
    if any(row["model"] == model for row in results.rows()):
        return {}
    with np.load(run_folder(results.out, model, seed) / IMPUTED) as file:
        states = file["states"].tolist() or None
        return {"picture": packed(file["values"]), "path": states}


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """The table of a comparison, and its picture."""
    contest = Contest(about["data"], rows, about["network"], about["floor"])
    cells = []
    for row in rows:
        if "picture" in row:
            states = None if row["path"] is None else np.asarray(row["path"])
            cells.append(Imputed(row["model"], unpacked(row["picture"]), states))
    figure = imputation_figure(
        Imputed("the truth", unpacked(about["truth"]), None), slice(*about["gap"]), cells
    )
    text = f"Data: {about['data']}. Budget: {about['budget']}.\n\n{as_markdown(contest)}"
    return Shown("The toy: imputations by each model", text, figure)
