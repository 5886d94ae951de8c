"""What every model promises, whatever it is inside: one set of tests over all of them."""

import io
from functools import cache
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.special import logsumexp

from helpers import tree_close, users_rules
from small_models import DISCRETE, FEATURES, GRAPHICAL, LATENT, SMALL, TIME, small
from svae.models import Batch

BATCH, SAMPLES, HORIZON, WEIGHTS = 2, 3, 2, 200
STEPS, GAIN = 100, 0.4  # of Adam on one batch, and nats for each number that they must gain
ADAM = optax.adam(3e-2)
# All tests of one model in a row: programs of all models would not fit into the memory maps of a process
each_model = pytest.mark.parametrize("name", SMALL, scope="module")
# But for how it is trained, the biased model is the other one, and has the same answers.
ANSWERING = [name for name in SMALL if name != "svae-slds-bias"]
# Others answer by the same code: the SLDS, the linear SIN, the semi-Markov SLDS, the other discrete DKS.
LIKE_OTHERS = "sin-slds", "svae-jslds", "dks-straight-through"
asked = lambda name: pytest.param(name, marks=pytest.mark.slow) if name in LIKE_OTHERS else name
each_answering = pytest.mark.parametrize("name", list(map(asked, ANSWERING)), scope="module")


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


def data():
    """Two waves, of which the second jumps."""
    t = np.arange(TIME)[:, None]
    first = np.sin(t / np.array([1.0, 1.5, 2.0]))
    second = np.where(t < 3, 1.0, -1.0) * np.array([1.0, 0.5, -0.5]) + 0.1 * np.cos(t)
    return jnp.asarray(np.stack([first, second]), jnp.float32)


def batch(gaps=False, lengths=(TIME, TIME)):
    """With gaps: one of two frames, one at the start, one at the end, and single entries."""
    values = data()
    if gaps:
        values = values.at[0, 2:4].set(jnp.nan).at[1, 0].set(jnp.nan).at[1, 5].set(jnp.nan)
        values = values.at[0, 5, 1].set(jnp.nan).at[1, 2, :2].set(jnp.nan)
    return Batch(values, jnp.asarray(lengths, jnp.int32))


BATCHES = {
    "whole": batch(),
    "gaps": batch(gaps=True),
    "ragged": batch(gaps=True, lengths=(TIME, 4)),
    "nothing": Batch(
        jnp.full((BATCH, TIME, FEATURES), jnp.nan, jnp.float32), jnp.asarray([TIME, 3], jnp.int32)
    ),
}


@eqx.filter_jit
def learn(model, state, key, batch):
    """One step of Adam; the bound and the gradient before it."""

    def loss(model):
        bound = model.elbo(key, batch)
        return -jnp.mean(bound.elbo(BATCH)), bound

    (_, bound), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(model)
    updates, state = ADAM.update(gradient, state)
    return eqx.apply_updates(model, updates), state, bound, gradient


def bound_of(model, batch, seed=0):
    return learn(model, begin(model), jax.random.key(seed), batch)[2:]


def begin(model):
    return ADAM.init(eqx.filter(model, eqx.is_inexact_array))


class Answers(NamedTuple):
    """To all questions of one batch."""

    latents: tuple
    reconstruction: jax.Array
    imputed: tuple
    forecast: tuple
    log_weights: jax.Array


@eqx.filter_jit
def ask(model, key, batch, parameters):
    keys = jax.random.split(key, 4)
    return Answers(
        model.encode(batch),
        model.reconstruct(batch),
        model.impute(keys[0], batch, SAMPLES, parameters),
        model.forecast(keys[1], batch, HORIZON, SAMPLES, parameters),
        model.log_weights(keys[2], keys[3], batch, WEIGHTS),
    )


@cache
def answers(name, which="ragged"):
    with users_rules("raise"):
        return ask(small(name), jax.random.key(1), BATCHES[which], parameters(name))


@cache
def parameters(name):
    """Drawn once, in a program of their own: it would be a good part of every other one."""
    return eqx.filter_jit(type(small(name)).draw_parameters)(small(name), jax.random.key(2))


@each_model
@pytest.mark.parametrize("which", BATCHES)
def test_the_bound_and_its_gradient_are_finite_whatever_is_missing(name, which):
    bound, gradient = bound_of(small(name), BATCHES[which])
    assert bound.log_likelihood.shape == bound.kl_local.shape == (BATCH,)
    for leaf in jax.tree.leaves((bound, gradient)):
        assert np.all(np.isfinite(leaf))
    if which == "nothing":
        np.testing.assert_array_equal(bound.log_likelihood, 0)
        # with uncertain parameters, knowing nothing is not the same as their average prior
        excess = np.asarray(bound.kl_local)
        assert np.all(excess >= -1e-4) if name in GRAPHICAL else np.all(excess == 0)


@each_model
@pytest.mark.parametrize("garbage", [np.nan, 1e9])
def test_what_is_in_the_padding_does_not_count(name, garbage):
    clean = BATCHES["ragged"]
    values = jnp.where(clean.inside[:, :, None], clean.values, garbage)
    dirty = clean._replace(values=values)
    found, expected = (bound_of(small(name), x) for x in (dirty, clean))
    tree_close(found, expected, rtol=1e-6, atol=1e-6)


@each_answering
def test_padding_changes_nothing(name):
    """A sequence cut to its length gets the same latent path."""
    cut = Batch(BATCHES["ragged"].values[1:, :4], jnp.asarray([4], jnp.int32))
    found = eqx.filter_jit(type(small(name)).encode)(small(name), cut)
    for short, padded in zip(found, answers(name).latents, strict=True):
        np.testing.assert_allclose(short[0], padded[1, :4], rtol=1e-4, atol=1e-4)


@each_answering
def test_shapes(name):
    found, states = answers(name), name in DISCRETE
    path, frames = (BATCH, TIME, LATENT), (BATCH, TIME, FEATURES)
    assert found.latents.mean.shape == found.latents.deviation.shape == path
    assert found.reconstruction.shape == frames
    for draws, time in (found.imputed, TIME), (found.forecast, HORIZON):
        assert draws.values.shape == (SAMPLES, BATCH, time, FEATURES)
        assert draws.latents.shape == (SAMPLES, BATCH, time, LATENT)
        assert (draws.states is not None) == states
        if states:
            assert draws.states.shape == (SAMPLES, BATCH, time)
    assert found.log_weights.shape == (WEIGHTS, BATCH)
    assert all(np.all(np.isfinite(x)) for x in (*found.latents, found.forecast.values))


@each_answering
def test_new_sequences(name):
    generate = eqx.filter_jit(type(small(name)).generate)
    drawn = generate(small(name), jax.random.key(0), BATCH, TIME, parameters(name))
    assert drawn.values.shape == (BATCH, TIME, FEATURES)
    assert drawn.latents.shape == (BATCH, TIME, LATENT)
    assert np.all(np.isfinite(drawn.values))
    assert len(np.unique(drawn.values)) == drawn.values.size
    assert (drawn.states is not None) == (name in DISCRETE)


@each_answering
def test_what_is_known_stays_and_what_is_missing_is_drawn(name):
    given, drawn = BATCHES["ragged"], np.asarray(answers(name).imputed.values)
    present = np.asarray(given.present)
    np.testing.assert_array_equal(
        drawn[:, present], np.broadcast_to(given.values[present], (SAMPLES, present.sum()))
    )
    missing = drawn[:, np.asarray(given.inside)[:, :, None] & ~present]
    assert np.all(np.isfinite(missing))
    assert np.all(missing.std(axis=0) > 0)


@each_answering
def test_weights_agree_with_the_bound_and_many_are_worth_more_than_one(name):
    """The bound's closed forms and the weights' densities have one mean; of groups, the bound is higher."""
    weights = np.asarray(answers(name).log_weights, np.float64)
    keys = jax.random.split(jax.random.key(3), WEIGHTS)
    drawn = [learn(small(name), begin(small(name)), key, BATCHES["ragged"])[2] for key in keys]
    bounds = np.array([np.float64(x.log_likelihood) - np.float64(x.kl_local) for x in drawn])
    error = np.sqrt((weights.var(axis=0) + bounds.var(axis=0)) / WEIGHTS) + 1e-5 * np.abs(bounds).mean(axis=0)
    assert np.all(np.abs(weights.mean(axis=0) - bounds.mean(axis=0)) < 5 * error)
    groups = weights.reshape(-1, 10, BATCH)
    tighter = logsumexp(groups, axis=1).mean(axis=0) - np.log(10)
    assert np.all(tighter >= bounds.mean(axis=0) - 5 * error)


@each_model
def test_one_batch_can_be_learned_by_heart(name):
    model, state = small(name), begin(small(name))
    numbers, bounds = np.asarray(BATCHES["whole"].present).sum() / BATCH, []
    for step in range(STEPS):
        model, state, bound, _ = learn(model, state, jax.random.key(step), BATCHES["whole"])
        bounds.append(float(jnp.mean(bound.elbo(BATCH))))
    assert np.mean(bounds[-10:]) - np.mean(bounds[:10]) > GAIN * numbers


@each_model
def test_stored_arrays_make_the_same_model(name):
    model, file = small(name), io.BytesIO()
    eqx.tree_serialise_leaves(file, model)
    file.seek(0)
    again = eqx.tree_deserialise_leaves(file, small(name, seed=1))
    tree_close(*(bound_of(m, BATCHES["ragged"]) for m in (again, model)), rtol=0, atol=0)
    other, own = (bound_of(m, BATCHES["ragged"])[0] for m in (small(name, seed=1), model))
    assert np.all(other.log_likelihood != own.log_likelihood)


@each_answering
def test_states_are_there_if_the_model_has_some(name):
    segment = eqx.filter_jit(type(small(name)).segment)
    if name not in DISCRETE:
        with pytest.raises(TypeError, match="no discrete states"):
            segment(small(name), BATCHES["ragged"])
        return
    found = segment(small(name), BATCHES["ragged"])
    inside = np.asarray(BATCHES["ragged"].inside)
    assert found.states.shape == (BATCH, TIME)
    np.testing.assert_allclose(np.asarray(found.probability).sum(axis=-1)[inside], 1, rtol=1e-5)
    assert np.all(np.asarray(found.certificate.converged))
