"""Recurrent and attentive layers, transitions and relaxations, against formulas written out in numpy."""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import expit, gammaln, log_softmax, logsumexp, softmax

from helpers import astype
from svae.networks import (
    COLDEST,
    LSTM,
    BackwardEncoder,
    Combiner,
    Concrete,
    GatedTransition,
    Normal,
    StraightThrough,
    follows,
    precedes,
    same_block,
    shifted,
    step_by_step,
    steps,
)
from svae.networks.attention import Attention, earlier, with_positions
from svae.networks.recurrent import random_orthogonal

OBSERVED = np.array([True, True, False, True, True, True, False])
TIME, INPUTS, HIDDEN = len(OBSERVED), 3, 4


@eqx.filter_jit
def call(function, *arguments, **options):
    return function(*arguments, **options)


@eqx.filter_jit
def make(kind, *sizes):
    return astype(kind(*sizes, jax.random.key(0)), jnp.float64)


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(TIME, INPUTS))


def lstm_in_numpy(lstm, x):
    """One block, from nothing."""
    cell, h, result = np.zeros(HIDDEN), np.zeros(HIDDEN), []
    for row in x:
        mixed = lstm.input_weight @ row + lstm.recurrent_weight @ h + lstm.bias
        i, f, g, o = np.split(np.asarray(mixed), 4)
        cell = expit(f) * cell + expit(i) * np.tanh(g)
        h = expit(o) * np.tanh(cell)
        result.append(h)
    return np.array(result)


# Recurrence


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_each_block_of_observed_steps_is_read_by_itself(x, backend, monkeypatch):
    lstm, given, observed = make(LSTM, INPUTS, HIDDEN), jnp.asarray(x), jnp.asarray(OBSERVED)
    monkeypatch.setattr(steps, "STEPS_OF_GPU", 3)  # of which seven are not a multiple
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    forward = lstm(given, observed, follows(observed))
    backward = lstm(given, observed, precedes(observed), reverse=True)
    ahead, back = np.zeros((TIME, HIDDEN)), np.zeros((TIME, HIDDEN))
    for block in (slice(0, 2), slice(3, 6)):
        ahead[block] = lstm_in_numpy(lstm, x[block])
        back[block] = lstm_in_numpy(lstm, x[block][::-1])[::-1]
    np.testing.assert_allclose(forward, ahead, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(backward, back, rtol=1e-10, atol=1e-12)


class Pair(NamedTuple):
    path: jax.Array
    count: jax.Array  # not differentiated


def pull(weights, state, x):
    """A step with two results, of which one may be left unused."""
    path = jnp.tanh(state.path @ weights["move"] + x @ weights["read"])
    return Pair(path, state.count + 1), {"squares": path**2, "count": state.count, "twice": 2 * path}


@pytest.mark.parametrize("reverse", [False, True])
def test_derivatives_of_steps_are_those_of_a_scan(x, reverse):
    rng = np.random.default_rng(1)
    weights = {"move": rng.normal(size=(HIDDEN, HIDDEN)), "read": rng.normal(size=(INPUTS, HIDDEN))}
    start = Pair(jnp.asarray(rng.normal(size=(2, HIDDEN))), jnp.zeros((), jnp.int32))
    inputs = jnp.asarray(rng.normal(size=(TIME, 2, INPUTS)))

    def total(given, go):
        weights, path, inputs = given
        last, results = go(weights, start._replace(path=path), inputs)
        return jnp.sum(jnp.sin(last.path)) + jnp.sum(results["squares"] * inputs[:, :, :1])

    plain = lambda weights, *rest: jax.lax.scan(lambda s, x: pull(weights, s, x), *rest, reverse=reverse)
    ours = lambda *given: step_by_step(pull, *given, reverse)
    given = jax.tree.map(jnp.asarray, weights), start.path, inputs
    found, expected = (jax.jit(jax.value_and_grad(partial(total, go=go)))(given) for go in (ours, plain))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    (last, _), (expected_last, _) = ours(*given[:1], start, inputs), plain(*given[:1], start, inputs)
    np.testing.assert_array_equal(last.count, expected_last.count)


def test_recurrent_weights_begin_orthogonal_and_biases_at_zero():
    lstm = make(LSTM, INPUTS, 20)
    for gate in np.split(np.asarray(lstm.recurrent_weight), 4):
        np.testing.assert_allclose(gate @ gate.T, np.eye(20), atol=1e-5)
    assert not np.any(lstm.bias)
    assert sum(leaf.size for leaf in jax.tree.leaves(lstm)) == 4 * 20 * (INPUTS + 20 + 1)


def test_orthogonal_matrices_have_no_preferred_direction(key):
    """The trace of a random orthogonal matrix has mean zero and variance one."""
    drawn = np.asarray(jax.jit(jax.vmap(lambda k: random_orthogonal(k, 3)))(jax.random.split(key, 2000)))
    traces = np.trace(drawn, axis1=1, axis2=2)
    assert abs(traces.mean()) < 5 / np.sqrt(2000)
    assert abs(traces.var() - 1) < 0.2


def test_what_belongs_to_the_step_before(x):
    np.testing.assert_array_equal(shifted(jnp.asarray(x)), np.concatenate([np.zeros((1, INPUTS)), x[:-1]]))
    np.testing.assert_array_equal(follows(jnp.asarray(OBSERVED))[1:], OBSERVED[:-1])
    np.testing.assert_array_equal(precedes(jnp.asarray(OBSERVED))[:-1], OBSERVED[1:])


def test_the_backward_encoder_knows_the_rest_of_its_block(x):
    encoder = make(BackwardEncoder, INPUTS, 5, HIDDEN, 2)
    jacobian = jax.jit(jax.jacobian(lambda x: encoder(x, jnp.asarray(OBSERVED))))(jnp.asarray(x))
    seen = np.any(np.asarray(jacobian) != 0, axis=(1, 3))
    expected = np.asarray(same_block(jnp.asarray(OBSERVED))) & np.triu(np.ones((TIME, TIME), bool))
    np.testing.assert_array_equal(seen, expected)


# Transitions


def test_normals_are_scipys():
    rng = np.random.default_rng(0)
    (m, other), (s, other_s) = rng.normal(size=(2, 3)), rng.gamma(2, size=(2, 3))
    q, p, z = Normal(jnp.asarray(m), jnp.asarray(s)), Normal(jnp.asarray(other), jnp.asarray(other_s)), m + 1
    np.testing.assert_allclose(q.log_density(jnp.asarray(z)), stats.norm(m, s).logpdf(z).sum(), rtol=1e-10)
    by_hand = lambda x, i: (
        stats.norm(m[i], s[i]).pdf(x)
        * (stats.norm(m[i], s[i]).logpdf(x) - stats.norm(other[i], other_s[i]).logpdf(x))
    )
    expected = sum(
        integrate.quad(by_hand, m[i] - 12 * s[i], m[i] + 12 * s[i], args=(i,))[0] for i in range(3)
    )
    np.testing.assert_allclose(q.kl(p), expected, rtol=1e-6)
    np.testing.assert_array_equal(q.sample(None), m)


def test_deviations_are_no_variances(key):
    q = Normal(jnp.zeros(20_000), jnp.full(20_000, 3.0))
    assert abs(np.std(q.sample(key)) - 3) < 0.1


def test_gated_transition_by_hand(x):
    gate = make(GatedTransition, INPUTS, HIDDEN, 2)
    dense = lambda layer, u: u @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    relu = lambda u: np.maximum(u, 0)
    nu = expit(dense(gate.gate[1], relu(dense(gate.gate[0], x))))
    proposal = dense(gate.proposal[1], relu(dense(gate.proposal[0], x)))
    found = call(gate, jnp.asarray(x))
    np.testing.assert_allclose(found.mean, (1 - nu) * dense(gate.linear, x) + nu * proposal, rtol=1e-8)
    expected = np.logaddexp(0, dense(gate.deviation, relu(proposal)))
    np.testing.assert_allclose(found.deviation, expected, rtol=1e-5)


def test_combiner_by_hand(x):
    combiner, z = make(Combiner, 2, INPUTS, HIDDEN), np.ones((TIME, 2))
    dense = lambda layer, u: u @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    c = np.tanh(dense(combiner.hidden, 0.5 * (np.tanh(dense(combiner.before, z)) + x)))
    found = call(combiner, jnp.asarray(z), jnp.asarray(x))
    np.testing.assert_allclose(found.mean, dense(combiner.mean, c), rtol=1e-8)
    np.testing.assert_allclose(found.deviation, np.logaddexp(0, dense(combiner.deviation, c)), rtol=1e-5)


def test_no_deviation_is_zero_however_far_out():
    gate = make(GatedTransition, INPUTS, HIDDEN, 2)
    assert np.all(call(gate, jnp.full((4, INPUTS), -1e6)).deviation > 0)


# Attention


def test_attention_by_hand_and_zero_where_nothing_may_be_seen(x):
    attention = make(Attention, INPUTS, 2)
    y, mask = np.random.default_rng(1).normal(size=(TIME, 2)), np.asarray(earlier(TIME, now=False))
    dense = lambda layer, u: u @ np.asarray(layer.weight).T + np.asarray(layer.bias)
    query, key, value = dense(attention.query, x), dense(attention.key, y), dense(attention.value, y)
    mixed = np.zeros((TIME, INPUTS))
    for t in range(1, TIME):
        mixed[t] = softmax(query[t] @ key[:t].T / np.sqrt(INPUTS)) @ value[:t]
    found = call(attention, jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))
    np.testing.assert_allclose(found, dense(attention.head, mixed), rtol=1e-9, atol=1e-12)


def test_gradients_of_attention_to_nothing_are_zero(x):
    attention, nothing = make(Attention, INPUTS, INPUTS), jnp.zeros((TIME, TIME), bool)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(attention(x, x, nothing) ** 2)))(jnp.asarray(x))
    np.testing.assert_array_equal(gradient, 0)


def test_blocks():
    expected = np.zeros((TIME, TIME), bool)
    for block in (slice(0, 2), slice(3, 6)):
        expected[block, block] = True
    np.testing.assert_array_equal(same_block(jnp.asarray(OBSERVED)), expected)


def test_positions_are_sines_and_cosines():
    waves = np.asarray(with_positions(jnp.zeros((5, 6))))
    for t in range(5):
        for i in range(3):
            angle = t / 10_000 ** (2 * i / 6)
            np.testing.assert_allclose(
                waves[t, 2 * i : 2 * i + 2], [np.sin(angle), np.cos(angle)], atol=1e-12
            )


# Relaxations


SCORES = np.array([0.5, -1.0, 0.2]), np.array([-0.3, 0.4, 0.1])


def draws(relaxation, count=4000):
    each = jax.vmap(lambda key: relaxation(key, *map(jnp.asarray, SCORES)))
    return call(each, jax.random.split(jax.random.key(0), count))


def concrete_log_density(y, scores, temperature):
    """Of a point in the simplex; Maddison, Mnih & Teh (2017), equation 10."""
    log_alpha, n = log_softmax(scores), len(scores)
    top = np.sum(log_alpha - (temperature + 1) * np.log(y), axis=-1)
    bottom = n * logsumexp(log_alpha - temperature * np.log(y), axis=-1)
    return gammaln(n) + (n - 1) * np.log(temperature) + top - bottom


def test_concrete_weights_are_ratios_of_its_densities():
    found = draws(astype(Concrete(0.7), jnp.float64))
    q, p = (concrete_log_density(np.asarray(found.value), scores, 0.7) for scores in SCORES)
    np.testing.assert_allclose(found.log_ratio, p - q, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.kl, q - p, rtol=1e-6, atol=1e-8)
    weights = np.exp(np.asarray(found.log_ratio))  # both are densities
    assert abs(weights.mean() - 1) < 5 * weights.std() / np.sqrt(len(weights))


def test_both_choose_states_as_often_as_they_should():
    probability = softmax(SCORES[0])
    for relaxation in (astype(Concrete(COLDEST), jnp.float64), StraightThrough()):
        values = np.asarray(draws(relaxation).value)
        frequency = np.eye(3)[values.argmax(axis=-1)].mean(axis=0)
        assert np.all(np.abs(frequency - probability) < 5 * np.sqrt(probability / len(values)))
        np.testing.assert_allclose(values.sum(axis=-1), 1, rtol=1e-6)


def test_straight_through_is_one_hot_with_the_gradient_of_its_probabilities(key):
    weights = jnp.asarray([1.0, -2.0, 0.5])
    q, p = map(jnp.asarray, SCORES)
    value = lambda scores: StraightThrough()(key, scores, p).value
    np.testing.assert_allclose(np.sort(value(q)), [0, 0, 1], atol=1e-12)
    found = jax.grad(lambda scores: weights @ value(scores))(q)
    np.testing.assert_allclose(found, jax.grad(lambda scores: weights @ jax.nn.softmax(scores))(q), rtol=1e-9)


def test_straight_through_costs_the_divergence_of_categoricals():
    found, (q, p) = draws(StraightThrough()), map(log_softmax, SCORES)
    np.testing.assert_allclose(found.kl, np.sum(np.exp(q) * (q - p)), rtol=1e-9)
    ratio = np.asarray(found.log_ratio)
    assert abs(ratio.mean() + found.kl[0]) < 5 * ratio.std() / np.sqrt(len(ratio))


def test_the_temperature_is_not_learned_and_never_falls_below_the_coldest(key):
    assert float(Concrete(1e-6).temperature) == pytest.approx(COLDEST)
    loss = lambda relaxation: jnp.sum(relaxation(key, *map(jnp.asarray, SCORES)).value ** 2)
    assert float(eqx.filter_grad(loss)(astype(Concrete(0.5), jnp.float64)).log_temperature) == 0
    cold = astype(Concrete(1e-6), jnp.float64)
    gradient = jax.grad(lambda q: cold(key, q, jnp.asarray(SCORES[1])).kl)(jnp.asarray(SCORES[0]))
    assert np.all(np.isfinite(gradient))


def test_without_noise_the_likeliest_state():
    for relaxation in (astype(Concrete(), jnp.float64), StraightThrough()):
        np.testing.assert_array_equal(relaxation(None, *map(jnp.asarray, SCORES)).value, [1, 0, 0])
