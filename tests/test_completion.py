"""Draws of what is missing: exact where they claim to be, and summed up by the states that they visit."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import multivariate_normal

from helpers import users_rules
from svae.completion import Completion
from svae.expfam import GaussianParameters, LinearGaussian, fixed_parameters, parameter_posterior
from svae.models import Batch, make_svae
from svae.networks import Gaussian, mlp_decoder, mlp_encoder
from svae.pgm import (
    HMM,
    LDS,
    SLDS,
    GaussianMixture,
    HMMGlobals,
    LDSGlobals,
    MixtureGlobals,
    SLDSGlobals,
    bridge,
)

MEANS = np.array([[-2.0, 0.0], [1.0, 2.0], [3.0, -1.0]])
COVARIANCES = np.stack([np.eye(2), np.diag([0.5, 2.0]), np.array([[1.0, 0.6], [0.6, 1.0]])])
SEEN = np.array([[-1.5, 0.3], [0.0, 0.0], [2.0, 0.5]])  # nothing is seen at the second step
PRECISION = np.array([[2.0, 2.0], [0.0, 0.0], [1.0, 0.5]])


def levels() -> np.ndarray:
    """log ∫ N(z; mu_k, Sigma_k) exp(-(z - y)'R(z - y)/2) dz of each step, up to what states share."""
    result = np.zeros((3, 3))
    for t, k in itertools.product((0, 2), range(3)):
        normal = multivariate_normal(MEANS[k], COVARIANCES[k] + np.diag(1 / PRECISION[t]))
        result[t, k] = normal.logpdf(SEEN[t])
    return result


def potentials(model):
    observed = jnp.array([True, False, True])
    return model.potentials(jnp.asarray(PRECISION * SEEN), jnp.asarray(PRECISION), observed)


def frequencies(states: np.ndarray, num_states: int) -> np.ndarray:
    return np.stack([np.bincount(column, minlength=num_states) for column in states.T]) / len(states)


def check_missing_step(latents: np.ndarray, states: np.ndarray) -> None:
    """Where nothing was seen, z is a draw from its state's normal."""
    for k in range(3):
        drawn = latents[states[:, 1] == k, 1]
        error = 5 * np.sqrt(np.diag(COVARIANCES[k]) / len(drawn))
        assert np.all(np.abs(drawn.mean(axis=0) - MEANS[k]) < error)
        np.testing.assert_allclose(np.cov(drawn.T), COVARIANCES[k], atol=0.3)


def test_completions_of_a_mixture_are_exact():
    model, weights = GaussianMixture(3, 2), np.array([0.5, 0.3, 0.2])
    parameters = MixtureGlobals(
        GaussianParameters(jnp.asarray(MEANS), jnp.asarray(COVARIANCES)), jnp.asarray(weights)
    )
    complete = jax.jit(lambda key: model.complete_given(key, parameters, potentials(model), 6000, None))
    latents, states = map(np.asarray, complete(jax.random.key(0)))
    expected = softmax(levels() + np.log(weights), axis=1)
    np.testing.assert_allclose(frequencies(states, 3), expected, atol=0.03)
    check_missing_step(latents, states)


def test_completions_of_a_hidden_markov_model_are_exact():
    model, start = HMM(3, 2), np.array([0.5, 0.3, 0.2])
    transition = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.25, 0.5]])
    parameters = HMMGlobals(
        GaussianParameters(jnp.asarray(MEANS), jnp.asarray(COVARIANCES)),
        jnp.asarray(start),
        jnp.asarray(transition),
    )
    complete = jax.jit(lambda key: model.complete_given(key, parameters, potentials(model), 6000, None))
    latents, states = map(np.asarray, complete(jax.random.key(0)))
    scores = levels()
    paths = list(itertools.product(range(3), repeat=3))
    joint = softmax(
        [
            np.log(start[i] * transition[i, j] * transition[j, k]) + sum(scores[[0, 1, 2], [i, j, k]])
            for i, j, k in paths
        ]
    )
    for path, probability in zip(paths, joint, strict=True):
        assert np.mean((states == path).all(axis=1)) == pytest.approx(probability, abs=0.03)
    check_missing_step(latents, states)


def test_fewer_completions_than_draws_of_parameters_have_another_one_each():
    model = GaussianMixture(3, 2)
    far = jnp.asarray([0.0, 100, 200, 300])[:, None, None]  # every draw of parameters is elsewhere
    normals = GaussianParameters(MEANS[None] + far, jnp.broadcast_to(COVARIANCES, (4, 3, 2, 2)))
    parameters = MixtureGlobals(normals, jnp.full((4, 3), 1 / 3))
    unseen = model.potentials(jnp.zeros((1, 2)), jnp.zeros((1, 2)), jnp.array([False]))

    def which(count):
        complete = jax.jit(jax.vmap(lambda key: model.complete(key, parameters, unseen, count)))
        latents, _ = complete(jax.random.split(jax.random.key(0), 200))
        return np.round(np.asarray(latents)[:, :, 0, 0] / 100).astype(int)

    times = np.bincount(which(1)[:, 0], minlength=4)
    assert np.all(np.abs(times - 50) < 5 * np.sqrt(50))
    assert all(len(set(row)) == 3 for row in which(3))
    assert all(sorted(row) == [0, 0, 1, 1, 2, 2, 3, 3] for row in which(8))


@pytest.mark.slow
@pytest.mark.parametrize("model", [SLDS(2, 2, num_particles=50), HMM(2, 2), GaussianMixture(2, 2)])
def test_bridges_fill_a_gap_between_what_was_seen(model):
    posterior = parameter_posterior(
        model.family, model.family.unconstrained_from_natural(model.initial(jax.random.key(0)))
    )
    seen = jnp.linspace(0, 1, 12)[:, None] * jnp.ones((12, 2))
    observed = (jnp.arange(12) < 4) | (jnp.arange(12) >= 8)
    given = model.potentials(1e4 * seen, jnp.full((12, 2), 1e4), observed)
    latents, states = jax.jit(lambda key: bridge(model, posterior, key, given, 20))(jax.random.key(1))
    assert latents.shape == (20, 12, 2)
    assert states.shape == (20, 12)
    assert np.all(np.isfinite(latents))
    assert np.abs(latents - seen[None])[:, observed].max() < 0.1
    assert np.all(np.std(latents[:, 5], axis=0) > 0)
    parameters = jax.jit(lambda key: model.draw_parameters(key, posterior))(jax.random.key(2))
    again, _ = jax.jit(lambda key: model.complete(key, parameters, given, 20))(jax.random.key(1))
    assert np.abs(again - seen[None])[:, observed].max() < 0.1


def test_a_linear_system_is_forecast_alike_in_both_ways():
    """Both are exact if the parameters are known: z_{t+1} ~ N(A z_t + b, Q) from what was seen last."""
    matrix, offset = np.array([[0.8, 0.3], [-0.3, 0.8]]), np.array([0.5, 0.0])
    noise = np.array([[0.3, 0.1], [0.1, 0.2]])
    model = LDS(2)
    parameters = LDSGlobals(
        GaussianParameters(jnp.zeros(2), jnp.eye(2)),
        LinearGaussian(jnp.asarray(np.column_stack([matrix, offset])), jnp.asarray(noise)),
    )
    last, horizon, count = np.array([2.0, -1.0]), 4, 4000
    observed = jnp.arange(2 + horizon) < 2
    precision = jnp.full((2 + horizon, 2), 1e8)
    given = model.potentials(precision * jnp.asarray(last)[None], precision, observed)
    mean, covariance = last, np.zeros((2, 2))
    for _ in range(horizon):
        mean, covariance = matrix @ mean + offset, matrix @ covariance @ matrix.T + noise
    known = fixed_parameters(model.family, parameters)
    expected, states = jax.jit(lambda key: bridge(model, known, key, given, count))(jax.random.key(0))
    assert states is None
    ancestral, _ = jax.jit(lambda key: model.complete_given(key, parameters, given, count, None))(
        jax.random.key(1)
    )
    for drawn in (np.asarray(expected[:, -1]), np.asarray(ancestral[:, -1])):
        assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(covariance) / count))
        np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=0.1)


def test_a_switching_forecast_by_expected_potentials_ends_where_its_states_lead():
    """Two states, each with a place to go: they follow their Markov chain, and draws are at their places."""
    model, places, stay = SLDS(2, 1), np.array([-4.0, 4.0]), np.array([0.9, 0.7])
    transition = np.array([[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]])
    weights = np.stack([[[0.2, 0.8 * place]] for place in places])  # z' = place + (z - place) / 5
    parameters = SLDSGlobals(
        GaussianParameters(jnp.zeros(1), jnp.eye(1)),
        LinearGaussian(jnp.asarray(weights), jnp.full((2, 1, 1), 0.01)),
        jnp.array([0.5, 0.5]),
        jnp.asarray(transition),
    )
    seen, horizon = 4, 5
    observed = jnp.arange(seen + horizon) < seen
    precision = jnp.full((seen + horizon, 1), 1e4)
    given = model.potentials(precision * places[0], precision, observed)
    known = fixed_parameters(model.family, parameters)
    draws = jax.jit(lambda given, key: bridge(model, known, key, given, 1500))
    latents, states = map(np.asarray, draws(given, jax.random.key(0)))
    assert (states[:, :seen] == 0).all()
    share = np.linalg.matrix_power(transition, horizon)[0]
    np.testing.assert_allclose(np.bincount(states[:, -1]) / 1500, share, atol=0.05)
    stayed = states[:, -1] == states[:, -2]
    distance = np.abs(latents[stayed, -1, 0] - places[states[stayed, -1]])
    assert np.quantile(distance, 0.99) < 2
    told = model.restrict(given, (jnp.arange(2)[None] == 1) | observed[:, None])
    latents, states = map(np.asarray, draws(told, jax.random.key(0)))
    assert (states[:, seen:] == 1).all()
    assert np.abs(latents[:, -1, 0] - 4).max() < 0.6


def test_replicates_have_the_moments_of_data_given_themselves():
    with users_rules("raise"):
        key, plain = jax.random.key(0), ()  # no hidden layers: affine
        encoder, decoder = mlp_encoder(3, 2, key, plain), mlp_decoder(2, 3, key, plain)
        model = make_svae(LDS(2), Gaussian(3), 3, key, encoder=encoder, decoder=decoder)
        values = jnp.cumsum(jax.random.normal(key, (1, 6, 3)), axis=1)
        batch = Batch(values, jnp.full(1, 6, jnp.int32))
        draw = jax.jit(jax.vmap(lambda key: model.replicate(key, batch)[0]))
        drawn = np.asarray(draw(jax.random.split(key, 4000)))
        inference = model.infer(model.posterior(), batch)
        mean, second, _ = (np.asarray(x[0]) for x in inference.solution.stats[0])
        corners = jax.vmap(decoder)(jnp.concatenate([jnp.zeros((1, 2)), jnp.eye(2)]))
        offset, matrix = np.asarray(corners[0]), np.asarray(corners[1:] - corners[:1]).T
        latent = second - mean[:, :, None] * mean[:, None, :]
        noise = np.asarray(model.likelihood.scale) ** 2
    variance = np.einsum("fi,tij,fj->tf", matrix, latent, matrix) + noise
    error = np.abs(drawn.mean(axis=0) - (mean @ matrix.T + offset))
    assert np.all(error < 5 * np.sqrt(variance / 4000))
    np.testing.assert_allclose(drawn.var(axis=0), variance, rtol=0.15)


@pytest.fixture
def small():
    """As users run it, in single precision."""
    with users_rules("raise"):
        yield small_model()


def small_model():
    key = jax.random.key(0)
    encoder, decoder = mlp_encoder(3, 2, key, (8,)), mlp_decoder(2, 3, key, (8,))
    pgm = SLDS(3, 2, num_particles=20)
    return make_svae(pgm, Gaussian(3), 3, key, encoder=encoder, decoder=decoder)


@pytest.mark.slow
def test_states_may_be_given_or_forbidden(small):
    """In segmentations and in draws; with nothing seen, that is generation from a segmentation."""
    given = np.array([0, 0, 0, 2, 2, 2, 1, 1])
    allowed = jnp.asarray(np.eye(3, dtype=bool)[given])[None]
    nothing = Batch(jnp.full((1, 8, 3), jnp.nan), jnp.array([8]), allowed)
    assert small.segment(nothing).states[0].tolist() == given.tolist()
    draws = small.impute(jax.random.key(0), nothing, 5)
    assert draws.values.shape == (5, 1, 8, 3)
    assert np.isfinite(draws.values).all()
    assert (np.asarray(draws.states)[:, 0] == given).all()
    without = nothing._replace(allowed=jnp.broadcast_to(jnp.array([True, False, True]), (1, 8, 3)))
    assert not np.any(np.asarray(small.impute(jax.random.key(0), without, 20).states) == 1)
    with pytest.raises(TypeError, match="LDS has no discrete states"):
        LDS(2).restrict((), allowed[0])


def test_draws_are_grouped_by_the_states_that_they_visit():
    states = np.array([[0, 0, 1, 1], [0, 1, 1, 1], [0, 2, 2, 2], [0, 0, 0, 1]])
    values = np.arange(4.0)[:, None, None] * np.ones((4, 4, 1))
    completion = Completion(values, np.array([[False], [True], [True], [False]]), states)
    assert completion.gaps() == [(1, 3)]
    first, second = completion.paths(0, 4)
    assert (first.states, first.probability) == ((0, 1), 0.75)
    assert (second.states, second.probability) == ((0, 2), 0.25)
    np.testing.assert_allclose(first.mean, 4 / 3)
    np.testing.assert_allclose(second.mean, 2.0)
    assert str(first) == "75% 0 → 1"
    assert np.all(first.low < first.mean)
    assert np.all(first.mean < first.high)
    np.testing.assert_allclose(completion.mean, 1.5)
    np.testing.assert_allclose(completion.quantiles([0.5]), 1.5)
    with pytest.raises(ValueError, match="not within the 4"):
        completion.paths(2, 9)
    (every,) = completion._replace(states=None).paths(0, 4)
    assert (every.states, every.probability, str(every)) == ((), 1, "all draws")
    np.testing.assert_allclose(every.mean, completion.mean)
