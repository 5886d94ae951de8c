"""Bounds of an evidence that is known: Gaussians with a Gaussian mean."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

from svae.evaluation import (
    effective_sample_size,
    evidence_lower_bound,
    importance_weighted,
    nats_per_scalar,
    shared_importance_weighted_bound,
)

DATUM, NOISE = 1.3, 0.8
EVIDENCE = norm.logpdf(DATUM, 0, np.sqrt(1 + NOISE**2))
# the posterior of z ~ N(0, 1) given x ~ N(z, NOISE²)
DEVIATION = NOISE / np.sqrt(1 + NOISE**2)
MEAN = DATUM / (1 + NOISE**2)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def log_weights(rng, shape, mean=MEAN + 0.3, deviation=1.2 * DEVIATION):
    """log p(x, z) - log q(z) of samples from q, by default not quite the posterior."""
    z = rng.normal(mean, deviation, shape)
    return norm.logpdf(z) + norm.logpdf(DATUM, z, NOISE) - norm.logpdf(z, mean, deviation)


def test_the_exact_posterior_gives_the_evidence(rng):
    exact = log_weights(rng, (7, 2), MEAN, DEVIATION)
    for bound in evidence_lower_bound(exact), importance_weighted(exact):
        np.testing.assert_allclose(bound.value, EVIDENCE)
        np.testing.assert_allclose(bound.standard_error, 0, atol=1e-6)
    np.testing.assert_allclose(effective_sample_size(exact), 7)


def test_the_elbo_is_the_evidence_less_the_divergence(rng):
    ratio = 1.2**2
    divergence = 0.5 * (ratio + (0.3 / DEVIATION) ** 2 - 1 - np.log(ratio))
    bound = evidence_lower_bound(log_weights(rng, (20_000,)))
    assert abs(bound.value - (EVIDENCE - divergence)) < 4 * bound.standard_error
    assert 0 < bound.standard_error < 0.01


def test_importance_weighted_bounds_rise_to_the_evidence(rng):
    means, errors = [], []
    for count in 1, 4, 16, 128:
        values = importance_weighted(log_weights(rng, (count, 20_000))).value
        means.append(values.mean())
        errors.append(values.std() / np.sqrt(values.size))
    steps = np.diff(means)
    assert np.all(steps > 3 * np.hypot(errors[:-1], errors[1:]))
    assert np.all(means < EVIDENCE + 3 * np.array(errors))
    assert means[-1] == pytest.approx(EVIDENCE, abs=3e-3)


def test_one_sample_is_the_elbo_without_an_error(rng):
    w = log_weights(rng, (1, 5))
    for bound in evidence_lower_bound(w), importance_weighted(w):
        np.testing.assert_allclose(bound.value, w[0])
        assert np.isnan(bound.standard_error).all()


@pytest.mark.parametrize("bound", [evidence_lower_bound, importance_weighted])
def test_standard_errors_are_the_spread_of_repeated_estimates(rng, bound):
    values, errors = bound(log_weights(rng, (200, 3000)))
    assert np.sqrt(np.mean(errors**2)) == pytest.approx(values.std(), rel=0.05)


def test_effective_samples_by_hand():
    w = np.log([1.0, 1, 2, 0.5])
    assert effective_sample_size(w) == pytest.approx(4.5**2 / 6.25)
    assert effective_sample_size(w - 1e4) == pytest.approx(4.5**2 / 6.25)
    assert effective_sample_size(np.array([0.0, -1e4])) == pytest.approx(1)


def test_importance_weighted_by_hand_and_far_from_zero():
    w = np.log([[1.0, 2], [3, 2]]) - 1e5
    bound = importance_weighted(w)
    np.testing.assert_allclose(bound.value + 1e5, np.log(2))
    # weights 1 and 3: deviation √2 of one, over √2 of two, over a mean of 2
    np.testing.assert_allclose(bound.standard_error, [0.5, 0], atol=1e-9)


def test_a_weight_of_zero_is_allowed():
    w = np.array([0.0, -np.inf])
    assert importance_weighted(w).value == pytest.approx(-np.log(2))
    assert evidence_lower_bound(w).value == -np.inf
    assert importance_weighted(np.full(3, -np.inf)).value == -np.inf


def test_parameters_shared_by_all_sequences(rng):
    """θ ~ N(0, 1) and x_i ~ N(θ, 1): five data that depend on each other through θ."""
    data = np.array([0.4, 1.9, 1.1, 0.2, 1.4])
    mean, deviation = data.sum() / 6 + 0.1, 1.2 * np.sqrt(1 / 6)
    theta = rng.normal(mean, deviation, 50_000)
    w = norm.logpdf(data, theta[:, None])
    ratio = norm.logpdf(theta) - norm.logpdf(theta, mean, deviation)

    evidence = multivariate_normal.logpdf(data, np.zeros(5), np.eye(5) + 1)
    bound = shared_importance_weighted_bound(w, ratio)
    assert abs(bound.value - evidence) < 4 * bound.standard_error
    assert bound.standard_error < 0.01

    predictive = multivariate_normal.logpdf(data, np.full(5, mean), np.eye(5) + deviation**2)
    bound = shared_importance_weighted_bound(w)
    assert abs(bound.value - predictive) < 4 * bound.standard_error
    # one θ for each sequence would be another model
    assert abs(importance_weighted(w).value.sum() - predictive) > 20 * bound.standard_error


def test_one_sequence_shares_with_nobody(rng):
    w = log_weights(rng, (30, 1))
    assert shared_importance_weighted_bound(w) == pytest.approx(importance_weighted(w[:, 0]))


def test_nats_per_scalar_of_noise_of_22_millimetres(rng):
    """A check that the paper's unit allows: its 2.39 is an error of 22 mm, in metres."""
    noise = rng.normal(0, 0.022, (40, 250, 84))
    bound = nats_per_scalar(norm.logpdf(noise, 0, 0.022).sum(axis=(1, 2)), 250 * 84)
    assert bound.value == pytest.approx(2.398, abs=2e-3)
    assert abs(bound.value + np.log(0.022) + 0.5 * np.log(2 * np.pi * np.e)) < 4 * bound.standard_error


def test_nats_per_scalar_by_hand():
    assert nats_per_scalar(np.array([10.0, 30]), 10) == pytest.approx((2, 1))
    # long sequences count for more
    assert nats_per_scalar(np.array([10.0, 60]), np.array([10, 30])).value == pytest.approx(70 / 40)
    assert nats_per_scalar(np.array([10.0, 30]), np.array([10, 30])) == pytest.approx((1, 0))
    assert np.isnan(nats_per_scalar(np.array([3.0]), 3).standard_error)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="first axis must hold samples"):
        importance_weighted(np.zeros((0, 3)))
    with pytest.raises(ValueError, match="got NaN or inf"):
        evidence_lower_bound(np.array([0.0, np.nan]))
    with pytest.raises(ValueError, match="log_weights must have 2 axes"):
        shared_importance_weighted_bound(np.zeros(3))
    with pytest.raises(ValueError, match="one number for each of 3 samples"):
        shared_importance_weighted_bound(np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="bounds holds NaN or infinite"):
        nats_per_scalar(np.array([1, -np.inf]), 3)
    with pytest.raises(ValueError, match="at least one scalar"):
        nats_per_scalar(np.zeros(2), np.array([4, 0]))
