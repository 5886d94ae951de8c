"""What a trained model is scored by, the same for all."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from numpy import ndarray

from svae import application
from svae.completion import Completion
from svae.contest.budgets import Budget
from svae.data import Recordings, windows
from svae.evaluation import Moments, frechet_distance, frechet_floor, joined, moments_from_features
from svae.features import FeatureNetwork
from svae.scoring import middle
from svae.training.artifact import Fitted
from svae.training.checkpoint import read_metrics
from svae.training.pipeline import JOINT, training_windows

REGIMES = {"0.0-0.8": (0.0, 0.8), "0.2-1.0": (0.2, 1.0), "0.2-0.8": (0.2, 0.8)}  # shares that are hidden
GAP = slice(20, 70)  # of the paper's picture ...
LONG = 90  # ... in recordings of so many frames; of others it is the middle

Place = Callable[[int], slice]


class Reference(NamedTuple):
    """Real windows in the eyes of a feature network."""

    network: FeatureNetwork
    moments: Moments
    floor: float  # the distance of one half of them to the other


def reference(network: FeatureNetwork, recordings: Recordings) -> Reference:
    """What generated windows are held against."""
    features = _features(network, recordings)
    return Reference(network, moments_from_features(features), frechet_floor(features).mean)


def distance(real: Reference, made: Recordings) -> float | None:
    """The Frechet distance of made recordings, cut into windows like the real ones; None if they ran away."""
    if not all(np.isfinite(item.values).all() for item in made):
        return None
    return distance_of_features(real.moments, _features(real.network, made))


def distance_of_features(real: Moments, features: ndarray) -> float | None:
    """The Frechet distance, if the network could make numbers of what it saw."""
    return frechet_distance(real, moments_from_features(features)) if np.isfinite(features).all() else None


def _features(network: FeatureNetwork, recordings: Recordings) -> ndarray:
    known = application.with_channels(network.settings.channels, recordings, "feature network")
    cut = windows(known, network.settings.window)
    return network.features(cut.values, cut.lengths)


def likeness(fitted: Fitted, recordings: Recordings, real: Reference, seed: int) -> dict[str, Any]:
    """Frechet distances of new recordings, and of recordings of which most was hidden and drawn once."""
    drawn = application.generate(fitted, max(recordings.lengths), len(recordings), seed).values
    found = {"frechet samples": distance(real, _with_values(recordings, drawn))}
    for name, (first, last) in REGIMES.items():
        hidden = recordings.hide(lambda length: slice(round(first * length), round(last * length)))
        completed = [x.values[0] for x in application.impute(fitted, hidden, 1, seed)]
        found[f"frechet {name}"] = distance(real, _with_values(recordings, completed))
    return found


def gap(length: int) -> slice:
    """The frames that are hidden for `completions`."""
    return GAP if length >= LONG else middle(length)


def completions(fitted: Fitted, recordings: Recordings, budget: Budget, seed: int) -> list[Completion]:
    """Several of the gap in each of the first recordings."""
    hidden = _first(recordings, budget).hide(gap)
    return application.impute(fitted, hidden, budget.draws, seed)


def joins(recordings: Recordings, drawn: list[Completion]) -> float:
    """The share of completions that meet the right edge of the gap."""
    pairs = zip(drawn, recordings, strict=False)
    return float(np.mean([joined(x.values, item.values, gap(len(item))) for x, item in pairs]))


def zeros(fitted: Fitted, recordings: Recordings, budget: Budget) -> float:
    """Frames in the gap set to zero, as if they had been seen: what is decoded there, relative to the truth.

    One: as large as the data. Zero: the model has made zeros of zeros.
    """
    recordings = _first(recordings, budget)
    places = [gap(len(item)) for item in recordings]
    infilled = []
    for item, place in zip(recordings, places, strict=True):
        values = item.values.copy()
        values[place] = 0
        infilled.append(values)
    decoded = application.reconstruct(fitted, _with_values(recordings, infilled))
    inside = lambda values: [np.nanmean(x[p] ** 2) for x, p in zip(values, places, strict=True)]
    size = lambda values: np.sqrt(np.mean(inside(values)))
    return float(size(decoded) / size([item.values for item in recordings]))


def num_parameters(fitted: Fitted) -> int:
    """Numbers that training may move."""
    return sum(x.size for x in jax.tree.leaves(eqx.filter(fitted.model, eqx.is_inexact_array)))


def seconds_per_epoch(fitted: Fitted, training: Recordings, metrics: Any) -> float | None:
    """Of the last stage: steps that see each window once, without the first ones, which were compiled."""
    records = [x for x in read_metrics(metrics) if x["stage"] == JOINT and "elbo" in x]
    steps, seconds = (np.diff([x[name] for x in records]) for name in ("step", "seconds"))
    going = (steps > 0) & (seconds > 0)  # a resumed run has another clock
    if not going.any():
        return None
    count, size = training_windows(training, fitted.config).num_sequences, fitted.config.batch_size
    return float(np.median(seconds[going] / steps[going]) * max(count // size, 1))


def _first(recordings: Recordings, budget: Budget) -> Recordings:
    return replace(recordings, items=recordings.items[: budget.completed])


def _with_values(recordings: Recordings, values: Any) -> Recordings:
    """The same recordings with other numbers, as long as each is."""
    pairs = zip(recordings, values, strict=True)
    return replace(
        recordings, items=tuple(replace(item, values=np.array(x[: len(item)], float)) for item, x in pairs)
    )
