"""The semi-Markov chain against the sum over all of its paths, one by one."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from helpers import astype, check_derivatives, generator, relative_error, tree_close
from svae.chains import DiscreteChain, DiscreteChainTerms, SemiMarkovChain, SemiMarkovPath, SemiMarkovTerms
from svae.expfam import propagate


def random_chain(key, time, states, dwell, scale=1.0):
    rng = generator(key)
    shapes = (time, states), (states, states), (states, dwell)
    return SemiMarkovTerms(*(jnp.asarray(scale * rng.normal(size=shape)) for shape in shapes))


def all_paths(time, states, dwell):
    """Every list of (state, steps left) that is possible."""
    if time == 0:
        return [[]]
    enter = lambda but: [(k, d) for k in range(states) if k != but or states == 1 for d in range(dwell)]
    paths = [[first] for first in enter(None)]
    for _ in range(time - 1):
        ways = lambda k, c: [(k, c - 1)] if c else enter(k)
        paths = [[*path, way] for path in paths for way in ways(*path[-1])]
    return paths


def counted(path, states, dwell):
    """Statistics of one path, by walking along it."""
    node, transition, dwells = (
        np.zeros((len(path), states)),
        np.zeros((states, states)),
        np.zeros((states, dwell)),
    )
    for t, (k, c) in enumerate(path):
        node[t, k] = 1
        if t == 0 or path[t - 1][1] == 0:
            dwells[k, c] += 1
            if t:
                transition[path[t - 1][0], k] += 1
    return SemiMarkovTerms(node, transition, dwells)


def enumerated(natural):
    """The oracle: log-partition and mean statistics."""
    natural = SemiMarkovTerms(*(np.asarray(x, np.float64) for x in natural))
    (time, states), dwell = natural.node.shape, natural.dwell.shape[1]
    stats = [counted(path, states, dwell) for path in all_paths(time, states, dwell)]
    stacked = [np.stack(x) for x in zip(*stats, strict=True)]
    flat = [x.reshape(len(stats), -1) for x in stacked]
    scores = sum(x @ y.ravel() for x, y in zip(flat, natural, strict=True))
    mean = (np.tensordot(softmax(scores), x, axes=1) for x in stacked)
    return logsumexp(scores), SemiMarkovTerms(*mean)


def scores_of(natural, paths):
    states, dwell = natural.dwell.shape
    stats = (counted(path, states, dwell) for path in paths)
    return np.array([sum(np.sum(np.asarray(x) * y) for x, y in zip(natural, s, strict=True)) for s in stats])


@partial(jax.jit, static_argnames=("states", "dwell"))
def infer(natural, states, dwell, length=None):
    return SemiMarkovChain(states, dwell, length).infer(natural)


@pytest.mark.parametrize(
    ("time", "states", "dwell"), [(1, 3, 2), (2, 3, 3), (5, 3, 3), (6, 2, 2), (6, 2, 8), (4, 3, 1), (5, 1, 2)]
)
def test_agrees_with_enumeration(key, time, states, dwell):
    natural = random_chain(key, time, states, dwell)
    tree_close(infer(natural, states, dwell), enumerated(natural), rtol=1e-10, atol=1e-10)


def test_derivatives(key):
    natural = random_chain(key, 4, 3, 2)
    check_derivatives(SemiMarkovChain(3, 2), natural, enumerated)


def test_segments_begin_at_the_first_step_and_may_end_after_the_last(key):
    """Two steps, dwells 0, 1 and 2: by hand, with the last dwell summed over what the end cuts off."""
    node, transition, dwell = random_chain(key, 2, 2, 3)
    n, E, W = (np.exp(np.asarray(x)) for x in (node, transition, dwell))
    whole = sum(n[0, k] * n[1, k] * (W[k, 1] + W[k, 2]) for k in (0, 1))
    cut = sum(n[0, k] * W[k, 0] * E[k, 1 - k] * n[1, 1 - k] * W[1 - k].sum() for k in (0, 1))
    found = infer(SemiMarkovTerms(node, transition, dwell), 2, 3)[0]
    np.testing.assert_allclose(found, np.log(whole + cut), rtol=1e-12)


def test_geometric_dwells_make_a_markov_chain(key):
    """With W[k, d] = d log a + log(1 - a) and long dwells, states follow each other as in a Markov chain."""
    time, states = 6, 3
    rng = generator(key)
    node, rows = rng.normal(size=(time, states)), rng.dirichlet(np.ones(states - 1), size=states)
    again = np.array([0.2, 0.5, 0.6])
    matrix = np.diag(again)
    for i in range(states):
        matrix[i, [j for j in range(states) if j != i]] = (1 - again[i]) * rows[i]
    dwell = np.arange(80)[None] * np.log(again)[:, None] + np.log1p(-again)[:, None]
    changes = np.log(np.where(np.eye(states) > 0, 1, matrix / (1 - again[:, None])))
    natural = SemiMarkovTerms(*map(jnp.asarray, (node, changes, dwell)))
    markov = DiscreteChainTerms(jnp.asarray(node), jnp.asarray(np.log(matrix)))
    expected, stats = jax.jit(DiscreteChain().infer)(markov)
    found, own = infer(natural, states, 80)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_allclose(own.node, stats.node, rtol=1e-9)
    off = ~np.eye(states, dtype=bool)
    np.testing.assert_allclose(np.asarray(own.transition)[off], np.asarray(stats.transition)[off], rtol=1e-9)


@pytest.mark.parametrize("length", [0, 1, 3, 5])
@pytest.mark.parametrize("garbage", [np.nan, 1e30, -np.inf])
def test_padding_changes_nothing(key, length, garbage):
    natural = random_chain(key, 5, 3, 3)
    dirty = natural._replace(node=natural.node.at[length:].set(garbage))
    log_partition, stats = infer(dirty, 3, 3, length)
    cut = natural._replace(node=natural.node[:length])
    expected = (0.0, jax.tree.map(np.zeros_like, cut)) if length == 0 else enumerated(cut)
    np.testing.assert_allclose(log_partition, expected[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(stats.node[length:], 0)
    tree_close(stats._replace(node=stats.node[:length]), expected[1], rtol=1e-10, atol=1e-10)


@partial(jax.jit, static_argnames=("states", "dwell", "count"))
def sample(key, natural, states, dwell, count, length=None):
    chain = SemiMarkovChain(states, dwell, length)
    return jax.vmap(lambda key: chain.sample(key, natural))(jax.random.split(key, count))


@pytest.mark.parametrize(("time", "length"), [(4, None), (6, 4)])
def test_paths_are_drawn_with_their_probabilities(key, time, length):
    count = 20_000
    natural = random_chain(key, time, 2, 3)
    short = natural._replace(node=natural.node[:length])
    paths = all_paths(len(short.node), 2, 3)
    expected = count * softmax(scores_of(short, paths))
    drawn = jax.tree.map(np.asarray, sample(key, natural, 2, 3, count, length))
    together = np.stack(drawn, axis=-1)
    assert np.all(together[:, len(short.node) :] == 0)
    names = {tuple(path): i for i, path in enumerate(map(tuple, paths))}
    inside = together[:, : len(short.node)].tolist()
    observed = np.bincount([names[tuple(map(tuple, path))] for path in inside], minlength=len(paths))
    assert np.all(np.abs(observed - expected) < 5 * np.sqrt(expected) + 5)


@pytest.mark.parametrize("seed", range(4))
def test_most_likely_path(seed):
    natural = random_chain(jax.random.key(seed), 6, 3, 3)
    paths = all_paths(6, 3, 3)
    best = paths[int(np.argmax(scores_of(natural, paths)))]
    found = jax.jit(SemiMarkovChain(3, 3).most_likely_path)(natural)
    np.testing.assert_array_equal(np.stack(found, axis=-1), best)


def test_statistics_of_a_path():
    for path in (
        [(1, 2), (1, 1), (1, 0), (0, 0), (2, 2), (2, 1)],
        [(0, 0)],
        [(0, 0), (1, 1), (1, 0), (2, 0)],
    ):
        value = SemiMarkovPath(*(jnp.asarray(x) for x in zip(*path, strict=True)))
        tree_close(SemiMarkovChain(3, 3).sufficient_stats(value), counted(path, 3, 3))
        padded = SemiMarkovPath(*(jnp.pad(x, (0, 2), constant_values=1) for x in value))
        node, *rest = SemiMarkovChain(3, 3, len(path)).sufficient_stats(padded)
        np.testing.assert_array_equal(node[len(path) :], 0)
        tree_close(tuple(rest), tuple(counted(path, 3, 3)[1:]))


def test_dwells_that_are_too_long_have_no_statistics():
    value = SemiMarkovPath(jnp.asarray([0, 0]), jnp.asarray([3, 2]))
    assert np.all(np.isfinite(SemiMarkovChain(2, 4).sufficient_stats(value).dwell))
    assert np.any(np.isnan(SemiMarkovChain(2, 3).sufficient_stats(value).dwell))


def test_forbidden_states_and_dwells(key):
    natural = random_chain(key, 5, 3, 3)
    forbidden = natural._replace(
        node=natural.node.at[2, 0].set(-np.inf), dwell=natural.dwell.at[:, 0].set(-np.inf)
    )
    log_partition, stats = infer(forbidden, 3, 3)
    low = forbidden._replace(node=natural.node.at[2, 0].set(-1e4), dwell=natural.dwell.at[:, 0].set(-1e4))
    tree_close((log_partition, stats), enumerated(low), rtol=1e-9, atol=1e-9)
    gradient = jax.jit(jax.grad(lambda n: jnp.sum(jnp.sin(propagate(n, SemiMarkovChain(3, 3))[1].node))))
    assert all(np.all(np.isfinite(x)) for x in gradient(forbidden))


def test_long_chain_in_single_precision(key):
    natural = random_chain(key, 2000, 4, 20, scale=3.0)
    single, double = (infer(astype(natural, dtype), 4, 20) for dtype in (jnp.float32, jnp.float64))
    assert single[0].dtype == jnp.float32
    for one, other in zip(jax.tree.leaves(single), jax.tree.leaves(double), strict=True):
        assert relative_error(one, other) < 1e-3


@pytest.mark.parametrize(
    ("field", "shape"), [("node", (5, 2)), ("node", (5,)), ("transition", (3, 2)), ("dwell", (3, 4))]
)
def test_errors_name_the_field(key, field, shape):
    bad = random_chain(key, 5, 3, 3)._replace(**{field: jnp.zeros(shape)})
    with pytest.raises(ValueError, match=rf"^{field} "):
        SemiMarkovChain(3, 3).infer(bad)
