"""Frechet distance between two sets of features: how far apart the Gaussians are that fit them best.

It measures generated sequences against real ones, given features of each. Estimates from few samples are
too large: even two sets of n samples from one distribution lie apart, by up to about d/2n of the variance
of their d features. Compare only distances from equal numbers of samples, and with `frechet_floor`.
"""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

Features = Float[ndarray, "_ dimension"]  # of samples, two sets may have different numbers


class Moments(NamedTuple):
    """All that the distance needs to know of a set of features."""

    mean: Float[ndarray, "dimension"]
    covariance: Float[ndarray, "dimension dimension"]


class Spread(NamedTuple):
    """Repeated estimates."""

    mean: float
    deviation: float


class FrechetEstimate(NamedTuple):
    """A distance and what to think of it."""

    distance: float  # from all samples
    halves: Spread  # from random halves; their deviation is about the standard error of `distance`
    extrapolated: float  # to infinitely many samples


def moments_from_features(features: Features) -> Moments:
    """Mean and unbiased covariance, in double precision; warns if samples are too few for a covariance."""
    features = _checked(features)
    _warn_if_few(len(features), features.shape[1])
    return _moments(features)


def frechet_distance(first: Moments, second: Moments) -> float:
    """The squared distance, ‖m₁ - m₂‖² + tr(S₁ + S₂ - 2 (S₁^½ S₂ S₁^½)^½), as it is always reported.

    With S = F Fᵀ, the trace of that root is the sum of the singular values of F₁ᵀ F₂. To take roots of the
    product's eigenvalues instead would turn errors of 1e-16 into errors of 1e-8.
    """
    if first.mean.shape != second.mean.shape:
        raise ValueError(f"the features have {first.mean.size} and {second.mean.size} dimensions")
    overlap = np.linalg.svd(_factor(first.covariance).T @ _factor(second.covariance), compute_uv=False)
    spread = np.trace(first.covariance) + np.trace(second.covariance) - 2 * overlap.sum()
    return float(np.sum((first.mean - second.mean) ** 2) + max(spread, 0))


def frechet_estimate(
    real: Features, generated: Features, repeats: int = 10, seed: int = 0
) -> FrechetEstimate:
    """The distance, its spread and its limit for many samples.

    The excess of an estimate goes like 1/n, so halves have twice that of the whole: what they add is what
    is to be taken off. This holds once there are several times more samples than dimensions.
    """
    real, generated = _checked(real), _checked(generated)
    fewest = min(len(real), len(generated))
    if fewest < 4:
        raise ValueError(f"halves need at least four samples, got {fewest}")
    _warn_if_few(fewest // 2, real.shape[1])
    rng = np.random.default_rng(seed)
    distance = frechet_distance(_moments(real), _moments(generated))
    pairs = ([_moments(_half(x, rng)) for x in (real, generated)] for _ in range(repeats))
    halves = _spread([frechet_distance(*pair) for pair in pairs])
    return FrechetEstimate(distance, halves, 2 * distance - halves.mean)


def frechet_floor(real: Features, count: int | None = None, repeats: int = 10, seed: int = 0) -> Spread:
    """What a perfect model would get: the distance of `count` real samples, or of half, to the others."""
    real = _checked(real)
    count = len(real) // 2 if count is None else count
    fewest = min(count, len(real) - count)
    if fewest < 2:
        raise ValueError(f"both parts need at least two samples, got {count} of {len(real)}")
    _warn_if_few(fewest, real.shape[1])
    rng = np.random.default_rng(seed)
    splits = (np.split(rng.permutation(real), [count]) for _ in range(repeats))
    return _spread([frechet_distance(_moments(first), _moments(second)) for first, second in splits])


def _moments(features: Features) -> Moments:
    mean = features.mean(axis=0)
    centred = features - mean
    return Moments(mean, centred.T @ centred / (len(features) - 1))


def _half(features: Features, rng: np.random.Generator) -> Features:
    return rng.permutation(features)[: len(features) // 2]


def _factor(covariance: Float[ndarray, "dimension dimension"]) -> Float[ndarray, "dimension rank"]:
    """F with F Fᵀ the covariance, and only as many columns as its rank."""
    values, vectors = np.linalg.eigh(np.asarray(covariance, np.float64))
    there = values > values[-1] * len(values) * np.finfo(np.float64).eps  # the rest is rounding
    return vectors[:, there] * np.sqrt(values[there])


def _spread(distances: list[float]) -> Spread:
    if len(distances) < 2:
        raise ValueError("a spread needs at least two repeats")
    return Spread(float(np.mean(distances)), float(np.std(distances, ddof=1)))


def _checked(features: Features) -> Features:
    features = np.asarray(features, np.float64)
    if features.ndim != 2 or len(features) < 2 or not features.shape[1]:
        raise ValueError(f"features must be (samples, dimension), two samples or more, got {features.shape}")
    if not np.isfinite(features).all():
        raise ValueError("features hold NaN or infinite values")
    return features


def _warn_if_few(count: int, dimension: int) -> None:
    if count <= dimension:
        warnings.warn(
            f"the covariance of {count} samples in {dimension} dimensions has rank {count - 1} at most: the "
            f"Frechet distance may be too large by {min(dimension / (2 * count), 2):.0%} of the features' "
            f"variance; have {10 * dimension} samples or more, or compare with frechet_floor",
            stacklevel=3,
        )
