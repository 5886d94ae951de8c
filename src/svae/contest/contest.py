"""Train every model, score it, and go on where an earlier call stopped."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from svae import application
from svae.cards import read_card, write_card
from svae.comparison import EVALUATION, NETWORK, SUMMARY
from svae.config import Config, load_config
from svae.contest import scores
from svae.contest.budgets import Budget, settings, split
from svae.contest.picture import Imputed, imputation_figure
from svae.data import Recordings, load
from svae.features import Recipe, load_features, train_features
from svae.features.artifact import CARD
from svae.results.summary import about_run
from svae.training.artifact import Fitted, load_fitted, save_fitted
from svae.training.loop import TrainingError, Watch
from svae.training.pipeline import fit

FEATURES, PICTURE, IMPUTED = "features", "imputations.png", "imputation.npz"
WINDOW = 25  # frames of the windows whose features are compared

Say = Callable[[str], None]


@dataclass
class Contest:
    """The result: a row for each model and seed, in the order asked for."""

    data: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    network: str | None = None  # fingerprint of the feature network
    floor: float | None = None  # its distance between halves of the real windows
    notes: list[str] = field(default_factory=list)


def hold(
    data: str,
    models: Sequence[str],
    seeds: Sequence[int],
    budget: Budget,
    folder: Path,
    rate: float | None = None,
    say: Say = lambda line: None,
    watching: Callable[[], AbstractContextManager[Watch]] | None = None,
) -> Contest:
    """All models on `data`, each in a run folder of its own; finished ones are not trained again."""
    plans = {(model, seed): settings(data, model, budget, seed, rate) for model in models for seed in seeds}
    training, recordings = split(load(data, rate=rate), budget)
    contest = Contest(data)
    real = _reference(training, recordings, budget, folder, contest, say)
    if real is not None:
        contest.network, contest.floor = real.network.fingerprint, real.floor
    for (model, seed), config in plans.items():
        place, name = folder / model / f"seed-{seed}", f"{model}, seed {seed}"
        _require_same(place, config)
        try:
            fitted = _trained(place, config, training, lambda what: say(f"{name}: {what}"), watching)
        except TrainingError as error:
            contest.notes.append(f"{name} could not be trained: {error}")
            continue
        row = _scored(place, fitted, training, recordings, budget, real, lambda what: say(f"{name}: {what}"))
        contest.rows.append({"model": model, "seed": seed, **row})
        if real is not None and any(row[x] is None for x in row if x.startswith("frechet ")):
            contest.notes.append(f"draws of {name} grew without bounds: some have no Frechet distance")
        # Another model has other programs, and a process may hold only so many (each has memory maps)
        jax.clear_caches()
    _draw(folder, recordings, [x for x in plans if (folder / x[0] / f"seed-{x[1]}" / IMPUTED).exists()])
    return contest


def _reference(
    training: Recordings, recordings: Recordings, budget: Budget, folder: Path, contest: Contest, say: Say
) -> scores.Reference | None:
    """By a network that tells the labels of the training recordings apart; one for all models."""
    if any(item.labels is None for item in training):
        contest.notes.append(
            "these recordings have no labels to train a feature network: no Frechet distances"
        )
        return None
    place = folder / FEATURES
    if not (place / CARD).exists():
        say("feature network: training")
        recipe, options = Recipe(epochs=budget.epochs), {"width": budget.width}
        train_features(training, place, options=options, window=WINDOW, recipe=recipe)
    return scores.reference(load_features(place), recordings)


def _require_same(place: Path, config: Config) -> None:
    path = place / "config.toml"
    if path.exists() and load_config(path) != config:
        raise ValueError(f"{place} holds a run with other settings: choose another --out")


def _trained(
    place: Path,
    config: Config,
    training: Recordings,
    say: Say,
    watching: Callable[[], AbstractContextManager[Watch]] | None,
) -> Fitted:
    if (place / "model").exists():
        say("trained before")
        return load_fitted(place)
    say("training")
    if watching is None:
        fitted = fit(training, config, place)
    else:
        with watching() as watch:
            fitted = fit(training, config, place, watch)
    if fitted.ending == "interrupted":
        raise KeyboardInterrupt
    save_fitted(fitted, place / "model")
    return fitted


def _scored(
    place: Path,
    fitted: Fitted,
    training: Recordings,
    recordings: Recordings,
    budget: Budget,
    real: scores.Reference | None,
    say: Say,
) -> dict[str, Any]:
    stored = read_card(place / EVALUATION) if (place / EVALUATION).exists() else {}
    if stored and stored.get(NETWORK) == (None if real is None else real.network.fingerprint):
        return stored
    say("scoring")
    seed = fitted.config.seed
    readings = application.read(fitted, recordings, seed)
    summary = about_run(fitted, recordings, place, readings)
    drawn = scores.completions(fitted, recordings, budget, seed)
    found: dict[str, Any] = {
        "bound": summary["score"],
        **({} if real is None else scores.likeness(fitted, recordings, real, seed)),
        "states": summary.get("states_used"),
        "joined": scores.joins(recordings, drawn),
        "zeros": scores.zeros(fitted, recordings, budget),
        "parameters": scores.num_parameters(fitted),
        "seconds per epoch": scores.seconds_per_epoch(fitted, training, place / "metrics.ndjson"),
    }
    states = np.zeros(0, int) if drawn[0].states is None else drawn[0].states[0]
    np.savez(place / IMPUTED, values=drawn[0].values[0], states=states)
    write_card(place / SUMMARY, summary)
    write_card(place / EVALUATION, found)  # the last: with it the run is finished
    return found


def _draw(folder: Path, recordings: Recordings, runs: list[tuple[str, int]]) -> None:
    """The first recording, and beside it what each model, at its first seed, made of the gap."""
    first: dict[str, int] = {}
    for model, seed in runs:
        first.setdefault(model, seed)
    cells = []
    for model, seed in first.items():
        with np.load(folder / model / f"seed-{seed}" / IMPUTED) as file:
            cells.append(Imputed(model, file["values"], file["states"] if len(file["states"]) else None))
    item = recordings[0]
    figure = imputation_figure(Imputed("the truth", item.values, item.labels), scores.gap(len(item)), cells)
    figure.savefig(folder / PICTURE, dpi=150)
