"""Train every model, score it, and go on where an earlier call stopped."""

from collections.abc import Callable, Iterator, Sequence
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
from svae.features import FeatureNetwork, Recipe, load_features, train_features
from svae.features.artifact import CARD
from svae.results.summary import about_run
from svae.training.artifact import Fitted, load_fitted, save_fitted
from svae.training.loop import TrainingError, Watch
from svae.training.pipeline import fit

FEATURES, PICTURE, IMPUTED = "features", "imputations.png", "imputation.npz"
WINDOW = 25  # frames of the windows whose features are compared

Say = Callable[[str], None]
Watching = Callable[[], AbstractContextManager[Watch]]
Plans = dict[tuple[str, int], Config]  # by model and seed
Score = Callable[[Path, Fitted], dict[str, Any]]  # of a trained model, and of the folder of its run


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
    watching: Watching | None = None,
) -> Contest:
    """All models on `data`, each in a run folder of its own; finished ones are not trained again."""
    plans = {(model, seed): settings(data, model, budget, seed, rate) for model in models for seed in seeds}
    training, recordings = split(load(data, rate=rate), budget)
    contest = Contest(data)
    real = _reference(training, recordings, budget, folder, contest, say)
    if real is not None:
        contest.network, contest.floor = real.network.fingerprint, real.floor
    score = lambda place, fitted: _all_scores(place, fitted, training, recordings, budget, real)
    for row in train_and_score(plans, training, score, contest.network, folder, contest.notes, say, watching):
        contest.rows.append(row)
        if real is not None and any(row[x] is None for x in row if x.startswith("frechet ")):
            name = named(row["model"], row["seed"])
            contest.notes.append(f"draws of {name} grew without bounds: some have no Frechet distance")
    _draw(folder, recordings, [run for run in plans if (run_folder(folder, *run) / IMPUTED).exists()])
    return contest


def train_and_score(
    plans: Plans,
    training: Recordings,
    score: Score,
    network: str | None,
    folder: Path,
    notes: list[str],
    say: Say = lambda line: None,
    watching: Watching | None = None,
) -> Iterator[dict[str, Any]]:
    """A row for each model, as soon as it is there. What was done before is read from its folder.

    `network` is the fingerprint of the one that scores rest on: scores by another are found anew. A model
    that cannot be trained becomes one of the `notes`.
    """
    for (model, seed), config in plans.items():
        name = named(model, seed)
        tell = lambda what: say(f"{name}: {what}")
        place = run_folder(folder, model, seed)
        try:
            fitted = trained(place, config, training, tell, watching)
        except TrainingError as error:
            notes.append(f"{name} could not be trained: {error}")
            continue
        yield {"model": model, "seed": seed, **_scored(place, fitted, score, network, tell)}
        # Another model has other programs, and a process may hold only so many (each has memory maps)
        jax.clear_caches()


def named(model: str, seed: int) -> str:
    """As progress and notes call a run."""
    return f"{model}, seed {seed}"


def run_folder(folder: Path, model: str, seed: int) -> Path:
    """Where a model's run is."""
    return folder / model / f"seed-{seed}"


def feature_network(
    place: Path,
    recordings: Recordings,
    kind: str = "residual",
    *,
    window: int,
    stride: int | None = None,
    epochs: int,
    options: dict[str, Any],
    logarithm: bool = False,
    say: Say = lambda line: None,
) -> FeatureNetwork:
    """The network in this folder, trained on the recordings' labels if there is none yet."""
    if not (place / CARD).exists():
        say("feature network: training")
        recipe = Recipe(epochs=epochs)
        cut: dict[str, Any] = {"window": window, "stride": stride, "logarithm": logarithm}
        train_features(recordings, place, kind, options=options, recipe=recipe, say=say, **cut)
    return load_features(place)


def _reference(
    training: Recordings, recordings: Recordings, budget: Budget, folder: Path, contest: Contest, say: Say
) -> scores.Reference | None:
    """By a network that tells the labels of the training recordings apart; one for all models."""
    if any(item.labels is None for item in training):
        contest.notes.append(
            "these recordings have no labels to train a feature network: no Frechet distances"
        )
        return None
    options = {"width": budget.width}
    network = feature_network(
        folder / FEATURES, training, window=WINDOW, epochs=budget.epochs, options=options, say=say
    )
    return scores.reference(network, recordings)


def trained(
    place: Path, config: Config, training: Recordings, say: Say, watching: Watching | None = None
) -> Fitted:
    """The model of a run folder; one that is not there yet, or only in part, is trained."""
    path = place / "config.toml"
    if path.exists() and load_config(path) != config:
        raise ValueError(f"{place} holds a run with other settings: choose another --out")
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


def _scored(place: Path, fitted: Fitted, score: Score, network: str | None, say: Say) -> dict[str, Any]:
    stored = read_card(place / EVALUATION) if (place / EVALUATION).exists() else {}
    if stored and stored.get(NETWORK) == network:
        return stored
    say("scoring")
    found = score(place, fitted) | ({} if network is None else {NETWORK: network})
    write_card(place / EVALUATION, found)  # the last: with it the run is finished
    return found


def _all_scores(
    place: Path,
    fitted: Fitted,
    training: Recordings,
    recordings: Recordings,
    budget: Budget,
    real: scores.Reference | None,
) -> dict[str, Any]:
    seed = fitted.config.seed
    readings = application.read(fitted, recordings, seed)
    summary = about_run(fitted, recordings, place, readings)
    drawn = scores.completions(fitted, recordings, budget, seed)
    states = np.zeros(0, int) if drawn[0].states is None else drawn[0].states[0]
    np.savez(place / IMPUTED, values=drawn[0].values[0], states=states)
    write_card(place / SUMMARY, summary)
    return {
        "bound": summary["score"],
        **({} if real is None else scores.likeness(fitted, recordings, real, seed)),
        "states": summary.get("states_used"),
        "joined": scores.joins(recordings, drawn),
        "zeros": scores.zeros(fitted, recordings, budget),
        "parameters": scores.num_parameters(fitted),
        "seconds per epoch": scores.seconds_per_epoch(fitted, training, place / "metrics.ndjson"),
    }


def _draw(folder: Path, recordings: Recordings, runs: list[tuple[str, int]]) -> None:
    """The first recording, and beside it what each model, at its first seed, made of the gap."""
    first: dict[str, int] = {}
    for model, seed in runs:
        first.setdefault(model, seed)
    cells = []
    for model, seed in first.items():
        with np.load(run_folder(folder, model, seed) / IMPUTED) as file:
            cells.append(Imputed(model, file["values"], file["states"] if len(file["states"]) else None))
    item = recordings[0]
    figure = imputation_figure(Imputed("the truth", item.values, item.labels), scores.gap(len(item)), cells)
    figure.savefig(folder / PICTURE, dpi=150)
