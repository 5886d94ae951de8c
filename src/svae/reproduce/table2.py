"""The paper's second table: all models trained on the same windows and scored on the same others."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from svae.contest import train_and_score
from svae.plots import INK, PALETTE, logarithmic, plain_axes
from svae.reproduce import scores
from svae.reproduce.efforts import config_for
from svae.reproduce.material import judge_for, material
from svae.reproduce.published import COLUMNS, TABLE2
from svae.reproduce.request import Request
from svae.reproduce.results import Results, Row, Shown
from svae.words import number, table

HEADS = {
    "bound": "bound",
    "fid_sample": "samples",
    "fid_0.0_0.8": "0.0-0.8",
    "fid_0.2_1.0": "0.2-1.0",
    "fid_0.2_0.8": "0.2-0.8",
}
LEGEND = (
    "bound: nats per number of windows that no model was trained on, from one sample; higher is better. "
    "samples: Frechet distance of new windows to real ones. 0.0-0.8, 0.2-1.0, 0.2-0.8: of windows of which "
    "that share was hidden and drawn; lower is better. ± is the standard deviation over independent sets "
    "of samples, or over seeds where there are several; -: draws grew without bounds. Below ours, in "
    "italics, the paper's."
)


def measure(kind: str, request: Request, results: Results) -> None:
    """All models and seeds that are not in the results yet."""
    models = request.chosen()
    missing = [(x, seed) for x in models for seed in request.seeds if not results.has(x, seed)]
    given = material(kind, request)
    results.settle(**request.about(data=given.caption))
    if not missing:
        return
    judge, notes = judge_for(given, request, results.out), list(results.about().get("notes", []))
    results.settle(**request.about(data=given.caption, **judge.about()))
    plans = {run: config_for(given.task, given.effort, given.data, *run) for run in missing}
    score = lambda place, fitted: scores.row(place, fitted, given, judge)
    asked = plans, given.training, score, judge.network.fingerprint, results.out, notes
    for row in train_and_score(*asked, request.say, request.watching):
        results.add(row)
    results.settle(notes=list(dict.fromkeys(notes)))


def show(kind: str, rows: list[Row], about: dict[str, Any]) -> Shown:
    """Ours above the paper's, model by model."""
    published = TABLE2[kind]
    rows = in_order(rows, list(published))
    found = summarised(rows)
    lines = [["model", *HEADS.values(), "states", "parameters", "training"]]
    for model, own in found.items():
        cells = [number(own[name], own[f"{name}_spread"]) for name in COLUMNS]
        training = f"{own['train_seconds'] / 60:.1f} min"
        lines.append([model, *cells, number(own["states"]), f"{own['parameters']:,.0f}", training])
        if model in published:
            theirs = (published[model][name] for name in COLUMNS)
            cells = [number(*x) if isinstance(x, tuple) else number(x) for x in theirs]
            lines.append(["*the paper*", *(f"*{x}*" for x in cells), "", "", ""])
    title = {"mocap": "Table 2, motion capture", "speech": "Table 2, speech"}[kind]
    best = reading(summarised(comparable(rows)), published)
    parts = [_caption(about), table(lines), LEGEND, best, floors(rows), actions(rows)]
    return Shown(title, "\n\n".join(filter(None, parts)), _figure(found, published))


def in_order(rows: list[Row], models: list[str]) -> list[Row]:
    """As the models are, and others after them."""
    place = {model: number for number, model in enumerate(models)}
    return sorted(rows, key=lambda row: (place.get(row["model"], len(place)), row["seed"]))


def summarised(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """By model: means over seeds; spreads over seeds, or over sets of samples if there is one seed."""
    found: dict[str, dict[str, Any]] = {}
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        found[model] = {}
        for name in (*COLUMNS, "states", "parameters", "train_seconds"):
            values = [row[name] for row in own if row.get(name) is not None]
            found[model][name] = float(np.mean(values)) if values else None
            several = float(np.std(values, ddof=1)) if len(values) > 1 else None
            found[model][f"{name}_spread"] = own[0].get(f"{name}_spread") if len(own) == 1 else several
    return found


def comparable(rows: list[Row]) -> list[Row]:
    """Those of the seeds that all models have, as another seed may make more of a difference than a model."""
    models = {row["model"] for row in rows}
    shared = [seed for seed in {row["seed"] for row in rows} if _models_of(rows, seed) == models]
    return [row for row in rows if row["seed"] in shared] if shared else rows


def _models_of(rows: list[Row], seed: int) -> set[str]:
    return {row["model"] for row in rows if row["seed"] == seed}


def reading(found: dict[str, dict[str, Any]], published: dict[str, Any]) -> str:
    """Which model is the best of each column, with us and in the paper among the same models."""
    both = [model for model in found if model in published]
    if len(both) < 2:
        return ""
    lines = [["best, by seeds that all have", *HEADS.values()]]
    plain = lambda x: x[0] if isinstance(x, tuple) else x
    worst = lambda name: -np.inf if name == "bound" else np.inf
    for who, value in (
        ("ours", lambda model, name: worst(name) if found[model][name] is None else found[model][name]),
        ("the paper's", lambda model, name: plain(published[model][name])),
    ):
        best = lambda name: (max if name == "bound" else min)(both, key=lambda model: value(model, name))
        lines.append([who, *(best(name) for name in COLUMNS)])
    return table(lines)


def floors(rows: list[Row]) -> str:
    """How near interpolations could come, where that is known."""
    names = [f"{name}_seen" for name in COLUMNS[2:]]
    known = [row for row in rows if any(row.get(name) is not None for name in names)]
    if not known:
        return ""
    lines = [["model, seed", *(HEADS[name] for name in COLUMNS[2:])]]
    for row in known:
        lines.append([f"{row['model']}, {row['seed']}", *(number(row.get(name)) for name in names)])
    text = (
        "Frames that interpolations do not see, drawn anew by the same model when it has seen them: no "
        "interpolation by its decoder can be expected to be nearer."
    )
    return f"{table(lines)}\n\n{text}"


def actions(rows: list[Row]) -> str:
    """What states have to do with labels, where there are some."""
    known = [row for row in rows if row.get("nmi") is not None]
    if not known:
        return ""
    lines = [["model, seed", "states", "frames they last", "NMI", "AR-HMM", "k-means"]]
    for row in known:
        cells = [
            number(row.get(name)) for name in ("states", "median_duration", "nmi", "nmi_arhmm", "nmi_kmeans")
        ]
        lines.append([f"{row['model']}, {row['seed']}", *cells])
    text = (
        "Normalised mutual information of states and labels on test windows; AR-HMM and k-means are fitted "
        "to the same latent paths. States last so many frames in the median."
    )
    return f"{table(lines)}\n\n{text}"


def _caption(about: dict[str, Any]) -> str:
    classifier, floor = about.get("classifier"), about.get("floor")
    parts = [f"Data: {about.get('data', 'unknown')}. Budget: {about.get('budget', 'unknown')}."]
    if classifier and floor:
        parts.append(
            f"Distances by feature network {about['network']} ({classifier['kind']}, "
            f"{classifier['classes']} classes, held-out accuracy {classifier['accuracy']:.1%}), on "
            f"{about['windows']} test windows. Real windows have "
            f"{number(floor['real_halves'], floor['spread'])} between halves, and "
            f"{number(floor['real_training'])} between training and test. The paper's distances are by "
            "another network: orders can be compared, numbers cannot."
        )
    return " ".join(parts)


def _figure(found: dict[str, dict[str, Any]], published: dict[str, Any]) -> Figure:
    """A panel for each column; models downwards."""
    figure = Figure(figsize=(13, 0.42 * len(found) + 1.6), layout="constrained")
    panels = figure.subplots(1, len(COLUMNS), sharey=True)
    places = np.arange(len(found))[::-1]
    for axes, name in zip(panels, COLUMNS, strict=True):
        plain_axes(axes)
        for place, (model, own) in zip(places, found.items(), strict=True):
            theirs = published.get(model, {}).get(name)
            if theirs is not None:
                value = theirs[0] if isinstance(theirs, tuple) else theirs
                axes.plot(value, place, "D", color=PALETTE[1], mfc="white", ms=6, label="the paper")
            if own[name] is None:  # beyond all numbers
                right = axes.get_yaxis_transform()
                axes.plot(1, place, ">", color=PALETTE[0], ms=6, transform=right, clip_on=False)
            else:
                spread = own[f"{name}_spread"] or 0.0
                axes.errorbar(own[name], place, xerr=spread, fmt="o", color=PALETTE[0], ms=6, label="ours")
        axes.set_title(HEADS[name], fontsize=10, color=INK)
        axes.grid(axis="y", color="0.9", lw=0.6)
        if name != "bound":
            logarithmic(axes)
        axes.set_yticks(places, labels=list(found))
    handles = dict(zip(*reversed(panels[0].get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure
