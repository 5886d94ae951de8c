"""Frechet distances between Gaussians that are known, and how estimates from samples behave."""

import numpy as np
import pytest
from scipy.linalg import sqrtm

from svae.evaluation import (
    Moments,
    frechet_distance,
    frechet_estimate,
    frechet_floor,
    moments_from_features,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def covariance(rng, dimension, rank=None):
    root = rng.normal(size=(dimension, rank or dimension))
    return root @ root.T


def test_commuting_covariances_by_hand():
    # (1 - 3)² + (√4 - √9)² + (√1 - √16)²
    first = Moments(np.array([1.0, 0]), np.diag([4.0, 1]))
    second = Moments(np.array([3.0, 0]), np.diag([9.0, 16]))
    assert frechet_distance(first, second) == pytest.approx(4 + 1 + 9)


def test_covariances_that_do_not_commute(rng):
    first, second = (Moments(rng.normal(size=6), covariance(rng, 6)) for _ in range(2))
    root = sqrtm(first.covariance @ second.covariance).real
    expected = np.sum((first.mean - second.mean) ** 2) + np.trace(
        first.covariance + second.covariance - 2 * root
    )
    assert frechet_distance(first, second) == pytest.approx(expected)
    assert frechet_distance(second, first) == pytest.approx(expected)


@pytest.mark.parametrize("rank", [2, 20])
def test_no_distance_between_equals(rng, rank):
    moments = Moments(rng.normal(size=20), covariance(rng, 20, rank))
    assert frechet_distance(moments, moments) < 1e-12 * np.trace(moments.covariance)


def test_one_constant_feature_set_is_a_point():
    point, cloud = Moments(np.zeros(2), np.zeros((2, 2))), Moments(np.ones(2), np.eye(2))
    assert frechet_distance(point, cloud) == pytest.approx(4)


def test_disjoint_supports_share_nothing():
    first, second = (Moments(np.zeros(3), np.diag(x)) for x in ([1.0, 2, 0], [0, 0, 4.0]))
    assert frechet_distance(first, second) == pytest.approx(7, abs=1e-12)


def test_moments_are_those_of_numpy(rng):
    features = rng.normal(size=(50, 4)).astype(np.float32) + 100
    mean, covariance = moments_from_features(features)
    np.testing.assert_allclose(mean, features.astype(np.float64).mean(axis=0))
    np.testing.assert_allclose(covariance, np.cov(features.astype(np.float64), rowvar=False))


def test_too_few_samples_warn_and_give_a_number(rng):
    with pytest.warns(UserWarning, match=r"10 samples in 10 dimensions .* too large by 50%"):
        moments_from_features(rng.normal(size=(10, 10)))
    with pytest.warns(UserWarning, match="has rank 4 at most"):
        first, second = (moments_from_features(rng.normal(size=(5, 10))) for _ in range(2))
    assert 0 < frechet_distance(first, second) < np.inf
    assert np.linalg.matrix_rank(first.covariance) == 4


@pytest.mark.parametrize("ratio", [1, 4])
def test_the_warning_tells_the_size_of_the_excess(rng, ratio):
    dimension = 40
    sets = rng.normal(size=(6, 2, ratio * dimension + 1, dimension))
    distances = [frechet_distance(*map(moments_from_features, pair)) for pair in sets]
    assert np.mean(distances) / dimension == pytest.approx(1 / (2 * ratio), rel=0.2)


def test_halves_tell_the_error_and_the_limit(rng):
    """Of 100 estimates: the spread that each expects is the one they have, and extrapolation is unbiased."""
    dimension, count, repeats = 6, 120, 100
    shift, scale = np.full(dimension, 0.3), np.linspace(0.7, 1.4, dimension)
    true = np.sum(shift**2) + np.sum((scale - 1) ** 2)
    found = [
        frechet_estimate(
            rng.normal(size=(count, dimension)), rng.normal(size=(count, dimension)) * scale + shift, seed=i
        )
        for i in range(repeats)
    ]
    distances, limits = (np.array([getattr(x, name) for x in found]) for name in ("distance", "extrapolated"))
    error = distances.std() / np.sqrt(repeats)
    assert distances.mean() - true > 5 * error
    assert abs(limits.mean() - true) < 4 * limits.std() / np.sqrt(repeats)
    assert np.mean([x.halves.mean for x in found]) > distances.mean()
    assert np.mean([x.halves.deviation for x in found]) == pytest.approx(distances.std(), rel=0.3)


def test_estimates_repeat_with_their_seed(rng):
    real, generated = rng.normal(size=(40, 3)), rng.normal(size=(60, 3))
    assert frechet_estimate(real, generated, seed=1) == frechet_estimate(real, generated, seed=1)
    assert frechet_estimate(real, generated, seed=1) != frechet_estimate(real, generated, seed=2)
    assert frechet_floor(real, seed=1) == frechet_floor(real, seed=1)


def test_the_floor_is_the_distance_of_a_perfect_model(rng):
    real = rng.normal(size=(400, 5))
    drawn = [rng.normal(size=(2, 100, 5)) for _ in range(40)]
    expected = [frechet_distance(*map(moments_from_features, (real, x))) for pair in drawn for x in pair]
    floor = frechet_floor(np.concatenate([real, drawn[0][0]]), 100, repeats=40)
    assert floor.mean == pytest.approx(np.mean(expected), rel=0.25)
    assert frechet_floor(real).mean < frechet_floor(real[:80]).mean


def test_a_shift_stands_above_the_floor(rng):
    real, shifted = rng.normal(size=(300, 4)), rng.normal(size=(300, 4)) + 0.5
    floor = frechet_floor(real)
    assert frechet_estimate(real, shifted).halves.mean > floor.mean + 5 * floor.deviation


def test_repeated_estimates_from_few_samples_warn_once(rng):
    few = rng.normal(size=(12, 8))
    with pytest.warns(UserWarning, match="6 samples in 8 dimensions") as caught:
        frechet_estimate(few, few)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match="5 samples in 8 dimensions") as caught:
        frechet_floor(few, 5)
    assert len(caught) == 1


@pytest.mark.parametrize("shape", [(5,), (1, 3), (4, 0), (2, 3, 4)])
def test_wrong_shapes_are_named(shape):
    with pytest.raises(ValueError, match="features must be"):
        moments_from_features(np.zeros(shape))


def test_wrong_arguments_are_named(rng):
    features = rng.normal(size=(20, 3))
    with pytest.raises(ValueError, match="NaN"):
        moments_from_features(np.full((5, 2), np.nan))
    with pytest.raises(ValueError, match="3 and 2 dimensions"):
        frechet_estimate(features, features[:, :2])
    with pytest.raises(ValueError, match="at least four samples"):
        frechet_estimate(features, features[:3])
    with pytest.raises(ValueError, match="at least two samples, got 19 of 20"):
        frechet_floor(features, 19)
    with pytest.raises(ValueError, match="at least two repeats"):
        frechet_floor(features, repeats=1)
