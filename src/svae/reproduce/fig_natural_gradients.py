"""Figure 3, right: steps that natural and other gradients need to learn the dynamics."""

from typing import Any

from svae.data import load
from svae.reproduce.material import material
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.studies.natural import picture, summary
from svae.studies.natural.climbing import curves_of
from svae.studies.natural.setting import CASES, Case, Setting
from svae.words import table

KEY = ("case",)
SETTINGS = {
    "tiny": Setting({"Motion capture": Case("mocap6", 2, 0)}, steps=6, checks=4, hidden=(8,)),
    "small": Setting(CASES, steps=200),
    "full": Setting(CASES),
}
GIVEN = {  # with --data: one case, on windows as long as the paper's
    "tiny": Setting({}, steps=6, checks=4, window=40, hidden=(8,)),
    "small": Setting({}, steps=200, batch=16, window=250, hidden=(256, 128)),
    "full": Setting({}, steps=1000, batch=128, window=250, hidden=(256, 128)),
}
PRETRAINING = {"tiny": 2, "small": 1000, "full": 4000}
LATENT = {"tiny": 2, "small": 16, "full": 16}


def measure(request: Request, results: Results) -> None:
    """Every case that is not there yet, with all its seeds."""
    if request.data is None:
        setting = SETTINGS[request.budget]
        results.settle(**request.about(data="exercises of mocap6 and the Laplacian toy"))
        recordings = lambda case: load(case.data, **dict(case.options))
    else:
        given = material("mocap", request)
        results.settle(**request.about(data=given.caption))
        case = Case(request.data, LATENT[request.budget], PRETRAINING[request.budget])
        setting = GIVEN[request.budget]._replace(cases={given.caption: case})
        recordings = lambda case: given.training
    setting = setting._replace(seeds=len(request.seeds))
    for name, case in setting.cases.items():
        if not results.has(name):
            numbers = summary.summarise(
                curves_of(name, case, recordings(case), setting, request.say), setting
            )
            results.add({"case": name, "seeds": setting.seeds, **numbers})


def show(rows: list[Row], about: dict[str, Any]) -> Shown:
    """Tables and curves."""
    parts = [
        f"Data: {about['data']}. Budget: {about['budget']}. An SVAE-LDS with frozen networks: steps until "
        "the bound has come so far, at the chosen rate (at the rate that is there first), medians over "
        "seeds. final: nats per sequence, averaged over the second half of the steps."
    ]
    for row in rows:
        parts += [f"**{row['case']}**, {row['seeds']} seeds", table(summary.table(row))]
    figure = picture.figure_of({row["case"]: row for row in rows})
    return Shown("Figure 3, steps that gradients need", "\n\n".join(parts), figure)
