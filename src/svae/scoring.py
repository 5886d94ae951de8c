"""All scores of a fitted model on recordings, as one table: what `svae evaluate` prints."""

import dataclasses
from typing import Any

import numpy as np

from svae import application
from svae.data import Recording, Recordings, interpolate, repeat_last, windows
from svae.evaluation import (
    average_draw_scores,
    boundary_f1,
    effective_sample_size,
    evidence_lower_bound,
    nats_per_scalar,
    score_draws,
    score_segmentation,
    shared_importance_weighted_bound,
)
from svae.features import FeatureNetwork, frechet_between
from svae.training.artifact import Fitted

HIDDEN = 0.2  # share of a recording that is hidden and filled again
LONGEST = 50  # frames, at most
FEWEST = 10  # frames that a recording must have for that
TOLERANCE = 0.5  # seconds within which a boundary is right; five frames where the rate is unknown


def evaluate(
    fitted: Fitted,
    recordings: Recordings,
    num_samples: int = 20,
    seed: int = 0,
    network: FeatureNetwork | None = None,
) -> dict[str, Any]:
    """Bounds in nats per number; scores of imputations and forecasts; of the states, if there are labels;
    the Frechet distance by a feature network, if one is given.
    """
    recordings = application.matched(fitted, recordings)
    scores = {"recordings": len(recordings), **bounds(fitted, recordings, num_samples, seed)}
    for name, place in ("imputation", middle), ("forecast", end):
        scores |= {f"{name} {k}": v for k, v in filled(fitted, recordings, place, num_samples, seed).items()}
    if fitted.model.num_states is not None:
        scores |= segmentation(fitted, recordings)
    if network is not None:
        scores |= likeness(fitted, recordings, network, seed)
    return scores


def bounds(fitted: Fitted, recordings: Recordings, num_samples: int, seed: int) -> dict[str, float]:
    """The evidence lower bound and the importance-weighted one, in the units of the data."""
    sizes = np.array([np.sum(~np.isnan(item.values)) for item in recordings], np.float64)
    weights = application.log_weights(fitted, recordings, num_samples, seed)
    one = nats_per_scalar(weights[0], sizes)
    several = nats_per_scalar(np.asarray(evidence_lower_bound(weights).value), sizes)
    tighter = shared_importance_weighted_bound(weights)
    scores = {
        "elbo, one sample": float(one.value),
        f"elbo, {num_samples} samples": float(several.value),
        "elbo, standard error": float(several.standard_error),
        f"importance-weighted, {num_samples} samples": float(tighter.value / sizes.sum()),
        "effective samples": float(effective_sample_size(weights.sum(axis=1))),
    }
    return _known(scores)


def _known(scores: dict[str, float]) -> dict[str, float]:
    """Without those that there are too few data for."""
    return {name: value for name, value in scores.items() if not np.isnan(value)}


def middle(length: int) -> slice:
    """The stretch that is hidden and imputed."""
    hidden = min(LONGEST, round(HIDDEN * length))
    start = (length - hidden) // 2
    return slice(start, start + hidden)


def end(length: int) -> slice:
    """The stretch that is hidden and forecast."""
    return slice(length - min(LONGEST, round(HIDDEN * length)), length)


def filled(
    fitted: Fitted, recordings: Recordings, place: Any, num_samples: int, seed: int
) -> dict[str, float]:
    """Scores of draws of hidden stretches, on average; beside them the CRPS of simple guesses."""
    anything = lambda x: len(x) >= FEWEST and not np.isnan(x.values[place(len(x))]).all()
    recordings = dataclasses.replace(recordings, items=tuple(filter(anything, recordings)))
    if len(recordings) == 0:
        return {}
    hidden = recordings.hide(place)
    drawn = application.impute(fitted, hidden, num_samples, seed)
    where = [np.isnan(x.values) & ~np.isnan(r.values) for x, r in zip(hidden, recordings, strict=True)]
    total = average_draw_scores(
        [score_draws(x.values, r.values, w) for x, r, w in zip(drawn, recordings, where, strict=True)]
    )
    scores = {
        "crps": total.crps,
        "energy": total.energy,
        **{f"coverage {level:.0%}": share for level, share in total.coverage.items()},
        "rmse": total.rmse,
        "best rmse": total.best_rmse,
        "jump on the left": total.left.ratio,
        "jump on the right": total.right.ratio,
    }
    for name, guess in GUESSES.items():
        parts = zip(hidden, recordings, where, strict=True)
        simple = [score_draws(guess(x.values)[None], r.values, w) for x, r, w in parts]
        scores[f"crps of {name}"] = average_draw_scores(simple).crps
    return _known(scores)


GUESSES = {"a straight line": interpolate, "the last frame": repeat_last}


def segmentation(fitted: Fitted, recordings: Recordings) -> dict[str, Any]:
    """How inference ended, and agreement with labels where there are some."""
    found = application.segment(fitted, recordings)
    scores: dict[str, Any] = {
        "converged": float(np.mean([x.converged for x in found])),
        "segments": len(application.table(fitted, recordings, found)),
    }
    if any(item.labels is None for item in recordings):
        return scores
    labels = [np.asarray(item.labels) for item in recordings]
    rate = recordings.rate or fitted.rate
    tolerance = 5 if rate is None else max(1, round(TOLERANCE * rate))
    agreement = score_segmentation(np.concatenate(labels), np.concatenate([x.states for x in found]))
    edges = boundary_f1(labels, [x.states for x in found], tolerance)
    return scores | agreement._asdict() | {"boundary f1": edges.f1}


def likeness(
    fitted: Fitted, recordings: Recordings, network: FeatureNetwork, seed: int = 0
) -> dict[str, Any]:
    """The Frechet distance of generated windows to as many real ones, each as long as its real one.

    The distance of halves is the one to hold against the floor, which real halves have among themselves.
    """
    seen = lambda x: application.with_channels(network.settings.channels, x, "feature network")
    real = windows(seen(recordings), network.settings.window)
    drawn = application.generate(fitted, real.values.shape[1], len(real), seed).values
    items = tuple(Recording(str(number), values) for number, values in enumerate(drawn))
    made = np.stack([item.values for item in seen(Recordings(items, fitted.channels))])
    found = frechet_between(network, real.values, made, real.lengths, real.lengths, seed=seed)
    distance, halves, extrapolated = found.estimate
    return {
        "frechet distance": distance,
        "frechet distance, standard error": halves.deviation,
        "frechet distance, extrapolated": extrapolated,
        "frechet distance of halves": halves.mean,
        "frechet floor of halves": found.floor.mean,
        "frechet floor, standard error": found.floor.deviation,
        "frechet windows": len(real),
        "frechet network": found.fingerprint,
    }
