"""Frames of which only some entries were seen: exact where that is possible, honest where it is not."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag

from helpers import astype, users_rules
from svae import application
from svae.data import interpolate
from svae.evaluation import average_draw_scores, score_draws
from svae.expfam import DirichletParameters, GaussianParameters, LinearGaussian, MNIWParameters, NIWParameters
from svae.models import Batch, make_svae, partly_seen, with_decoder_potentials, with_graph
from svae.networks import Dense, Encoder, Gaussian, Likelihood, Poisson, mlp_encoder
from svae.pgm import LDS, SLDS, LDSGlobals, SLDSGlobals

STEPS, SIZE, FEATURES, NOISE = 6, 2, 3, 0.3


@eqx.filter_jit
def prepare(model, batch, filled):
    return with_decoder_potentials(model, batch, filled)


@eqx.filter_jit
def impute(model, key, batch, count, parameters):
    return model.impute(key, batch, count, parameters)


def gaussian(features, scale):
    return eqx.tree_at(lambda x: x.raw_scale, Gaussian(features), jnp.full(features, np.log(np.expm1(scale))))


# A linear decoder, Gaussian noise and linear dynamics: everything is one joint Gaussian


@pytest.fixture(scope="module")
def linear():
    key = jax.random.key(0)
    decoder = Dense(SIZE, FEATURES, key)
    decoder = eqx.tree_at(lambda x: x.bias, decoder, jnp.array([0.5, -1.0, 0.2]))
    encoder = Encoder(Dense(FEATURES, SIZE, key), SIZE)
    model = make_svae(LDS(SIZE), gaussian(FEATURES, NOISE), FEATURES, key, encoder=encoder, decoder=decoder)
    return astype(model, jnp.float64)


@pytest.fixture(scope="module")
def pierced():
    """Whole frames, a missing one, one with a single entry, one without one, and padding."""
    values = np.random.default_rng(0).normal(size=(1, STEPS + 2, FEATURES))
    values[0, 2] = np.nan
    values[0, 3, :2] = np.nan
    values[0, 4, 1] = np.nan
    return Batch(jnp.asarray(values), jnp.array([STEPS]))


DYNAMICS = LinearGaussian(np.array([[0.9, -0.3, 0.1], [0.3, 0.8, 0.0]]), np.diag([0.2, 0.3]))
FIRST = GaussianParameters(np.array([0.4, -0.2]), np.diag([1.0, 0.5]))


def dense_answer(model, batch):
    """Mean and variance of every entry, from the joint Gaussian of all z and all that was seen.

    The encoder's potentials count as measurements of z at whole frames.
    """
    matrix, offset = DYNAMICS.weights[:, :-1], DYNAMICS.weights[:, -1]
    size = STEPS * SIZE
    step, shift, spread = np.eye(size), np.zeros(size), np.zeros((size, size))
    shift[:SIZE], spread[:SIZE, :SIZE] = FIRST
    for t in range(1, STEPS):
        here, before = slice(t * SIZE, (t + 1) * SIZE), slice((t - 1) * SIZE, t * SIZE)
        step[here, before] = -matrix
        shift[here], spread[here, here] = offset, DYNAMICS.covariance
    precision = step.T @ np.linalg.inv(spread) @ step
    natural = step.T @ np.linalg.solve(spread, shift)
    C, d = np.asarray(model.decoder.weight), np.asarray(model.decoder.bias)
    evidence = jax.tree.map(lambda x: np.asarray(x[0]), model.evidence(batch))
    blocks, slopes = [], []
    for t in range(STEPS):
        seen = np.asarray(batch.present[0, t])
        if seen.all():
            blocks.append(np.diag(evidence.precision[t]))
            slopes.append(evidence.linear[t])
        else:
            blocks.append(C[seen].T @ C[seen] / NOISE**2)
            slopes.append(C[seen].T @ (np.asarray(batch.values[0, t]) - d)[seen] / NOISE**2)
    covariance = np.linalg.inv(precision + block_diag(*blocks))
    mean = (covariance @ (natural + np.concatenate(slopes))).reshape(STEPS, SIZE)
    everywhere = block_diag(*[C] * STEPS)
    variance = np.diag(everywhere @ covariance @ everywhere.T).reshape(STEPS, FEATURES) + NOISE**2
    return mean @ C.T + d, variance, np.stack(blocks), np.stack(slopes)


def test_a_linear_model_has_the_answer_of_the_joint_gaussian(linear, pierced):
    filled = jnp.asarray(interpolate(np.asarray(pierced.values[0]))[None])
    ready = prepare(linear, pierced, filled)
    mean, variance, precision, slope = dense_answer(linear, pierced)
    np.testing.assert_allclose(-2 * ready.potentials.second[0, :STEPS], precision, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(ready.potentials.first[0, :STEPS], slope, rtol=1e-3, atol=1e-3)
    parameters = jax.tree.map(lambda x: jnp.asarray(x)[None], LDSGlobals(FIRST, DYNAMICS))
    draws = np.asarray(impute(linear, jax.random.key(1), ready, 20_000, parameters).values[:, 0, :STEPS])
    missing = np.isnan(pierced.values[0, :STEPS])
    error = np.sqrt(variance / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - mean)[missing] < 5 * error[missing])
    np.testing.assert_allclose(draws.var(axis=0)[missing], variance[missing], rtol=0.06)


def test_whole_frames_missing_frames_and_padding_keep_their_potentials(linear, pierced):
    assert np.flatnonzero(partly_seen(pierced)[0]).tolist() == [3, 4]
    ready = prepare(linear, pierced, jnp.nan_to_num(pierced.values))
    before = eqx.filter_jit(type(linear).potentials)(linear, pierced)[0]
    others = np.array([0, 1, 2, 5, 6, 7])
    for new, old in zip(ready.potentials, before, strict=False):
        np.testing.assert_array_equal(new[0, others], old[0, others])
    whole = Batch(pierced.values.at[0, 3:5].set(jnp.nan), pierced.lengths)
    assert application.prepared(linear, whole) is whole
    ahead = eqx.filter_jit(type(linear).forecast)(linear, jax.random.key(0), ready, 2, 3)
    assert np.all(np.isfinite(ahead.values))


# A decoder that is not linear: data drawn from the model itself


class Curved(eqx.Module):
    """A plane that is bent into waves."""

    flat: Dense
    waves: Dense

    def __call__(self, z):
        return self.flat(z) + 0.4 * jnp.sin(2 * self.waves(z))


def sure(q):
    """q(theta) of two ways to turn, known almost exactly."""
    single = lambda x: jnp.asarray(x, jnp.float32)
    turn = lambda angle: 0.95 * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    weights = np.stack([np.c_[turn(angle), np.zeros(2)] for angle in (0.3, -0.1)])
    many, eye = 1e4, 1e4 * np.eye(2)
    return SLDSGlobals(
        NIWParameters(*map(single, (eye, np.zeros(2), many, many))),
        MNIWParameters(*map(single, ([q * eye] * 2, weights, [many * np.eye(3)] * 2, [many] * 2))),
        DirichletParameters(single([many, many])),
        DirichletParameters(single([[0.95 * many, 0.05 * many], [0.05 * many, 0.95 * many]])),
    )


def curved(likelihood, features, key):
    keys = jax.random.split(key, 3)
    decoder = Curved(Dense(2, features, keys[0]), Dense(2, features, keys[1]))
    encoder = mlp_encoder(features, 2, keys[2], (8,))  # random: what it says is worthless
    graph = SLDS(2, 2, num_particles=50)
    model = make_svae(graph, likelihood, features, key, encoder=encoder, decoder=decoder)
    return with_graph(model, graph, sure(0.1))


def simulated(model, sequences, length, features, share):
    """Data that the model would produce, with holes, and the parameters that were at work."""
    parameters = eqx.filter_jit(model.draw_parameters)(jax.random.key(0))
    parameters = jax.tree.map(lambda x: x[:1], parameters)
    truth = eqx.filter_jit(model.generate)(jax.random.key(1), sequences, length, parameters).values
    hidden = np.random.default_rng(0).random(truth.shape) < share
    hidden[..., 0] = False  # no frame is missing altogether
    batch = Batch(jnp.where(hidden, jnp.nan, truth), jnp.full(sequences, length))
    return np.asarray(truth), hidden, batch, parameters


def scored(draws, truth, hidden):
    together = zip(np.swapaxes(draws, 0, 1), truth, hidden, strict=True)
    return average_draw_scores([score_draws(*one) for one in together])


@pytest.mark.slow
def test_draws_are_calibrated_where_every_frame_is_seen_in_part():
    """Nine tenths of the truth lie in the band that says so, within the error of 40 sequences."""
    with users_rules("raise"):
        model = curved(gaussian(6, 0.15), 6, jax.random.key(3))
        truth, hidden, batch, parameters = simulated(model, 40, 40, 6, share=0.4)
        ready = application.prepared(model, batch)
        values = np.asarray(impute(model, jax.random.key(2), ready, 60, parameters).values)
        scores = scored(values, truth, hidden)
        for level, share in scores.coverage.items():
            assert share == pytest.approx(level, abs=0.05)
        lines = np.stack([interpolate(x) for x in np.asarray(batch.values)])
        assert scores.crps < 0.5 * scored(lines[None], truth, hidden).crps
        bound = eqx.filter_jit(lambda batch: model.elbo(jax.random.key(0), batch).elbo(1))
        assert np.all(bound(ready) > bound(batch))


class Laplace(Likelihood):
    """As a user would write it, without a word about information."""

    scale: float = 0.2

    def num_outputs(self, num_features):
        return num_features

    def log_density(self, output, x):
        return -jnp.abs(x - output) / self.scale - jnp.log(2 * self.scale)

    def mean(self, output):
        return output

    def sample(self, key, output):
        return output + self.scale * jax.random.laplace(key, output.shape, output.dtype)


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [Laplace(), Poisson()])
def test_any_likelihood_will_do(likelihood):
    with users_rules("raise"):
        model = curved(likelihood, 4, jax.random.key(4))
        truth, hidden, batch, parameters = simulated(model, 20, 30, 4, share=0.3)
        ready = application.prepared(model, batch)
        values = np.asarray(impute(model, jax.random.key(2), ready, 40, parameters).values)
        blind = np.asarray(impute(model, jax.random.key(2), batch, 40, parameters).values)
        assert scored(values, truth, hidden).crps < 0.85 * scored(blind, truth, hidden).crps
