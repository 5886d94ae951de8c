import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax
from scipy.stats import chi2

from helpers import astype, check_derivatives, random_discrete_chain, relative_error, tree_close
from svae.chains import DiscreteChain, DiscreteChainTerms, Form
from svae.expfam import propagate

all_forms = pytest.mark.parametrize("form", list(Form))
plain_forms = pytest.mark.parametrize("form", [Form.SEQUENTIAL, Form.PARALLEL])  # kernels are slow here
both_precisions = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
either_transition = pytest.mark.parametrize("shared", [True, False], ids=["shared", "own"])


@partial(jax.jit, static_argnames="form")
def infer(natural, form, length=None):
    return DiscreteChain(length, form).infer(natural)


@partial(jax.jit, static_argnames="form")
def most_likely_path(natural, form, length=None):
    return DiscreteChain(length, form).most_likely_path(natural)


@partial(jax.jit, static_argnames=("form", "count"))
def sample(key, natural, form, length=None, count=20):
    keys = jax.random.split(key, count)
    return jax.vmap(lambda key: DiscreteChain(length, form).sample(key, natural))(keys)


def all_paths(natural):
    """Every path, and its score."""
    node, transition = (np.asarray(x, np.float64) for x in natural)
    time, states = node.shape
    paths = np.array(list(itertools.product(range(states), repeat=time)))
    steps = np.arange(time)
    scores = node[steps, paths].sum(1)
    if transition.ndim == 2:
        scores = scores + transition[paths[:, :-1], paths[:, 1:]].sum(1)
    else:
        scores = scores + transition[steps[:-1], paths[:, :-1], paths[:, 1:]].sum(1)
    return paths, scores


def enumerate_infer(natural):
    """The oracle: a sum over all paths."""
    paths, scores = all_paths(natural)
    log_partition, probabilities = logsumexp(scores), softmax(scores)
    states = natural.node.shape[1]
    one_hot = np.eye(states)[paths]
    node = np.einsum("p,pti->ti", probabilities, one_hot)
    pair = np.einsum("p,pti,ptj->tij", probabilities, one_hot[:, :-1], one_hot[:, 1:])
    return log_partition, DiscreteChainTerms(node, pair.sum(0) if natural.transition.ndim == 2 else pair)


# Against the sum over all paths


@all_forms
@pytest.mark.parametrize(
    ("time", "states", "shared"),
    [
        *((time, 3, True) for time in (1, 2, 3, 4, 5, 6)),
        *((time, 3, False) for time in (1, 2, 5, 6)),
        *((time, 1, True) for time in (1, 4)),
    ],
)
def test_agrees_with_enumeration(key, time, states, shared, form):
    natural = random_discrete_chain(key, time, states, shared)
    tree_close(infer(natural, form), enumerate_infer(natural), rtol=1e-11, atol=1e-11)


@all_forms
@pytest.mark.parametrize(
    ("time", "states", "shared"), [(1, 3, True), (2, 3, True), (6, 3, True), (4, 1, True), (5, 3, False)]
)
def test_most_likely_path(key, time, states, shared, form):
    for one in jax.random.split(key, 5):
        natural = random_discrete_chain(one, time, states, shared)
        paths, scores = all_paths(natural)
        np.testing.assert_array_equal(most_likely_path(natural, form), paths[np.argmax(scores)])


@all_forms
def test_no_steps_at_all(key, form):
    natural = DiscreteChainTerms(jnp.zeros((0, 3)), jnp.zeros((3, 3)))
    log_partition, stats = infer(natural, form)
    assert log_partition == 0
    assert stats.node.shape == (0, 3)
    assert np.all(stats.transition == 0)
    assert sample(key, natural, form).shape == (20, 0)


@all_forms
def test_masked_steps_are_summed_out(key, form):
    natural = random_discrete_chain(key, 6, 3)
    node = np.array(natural.node)
    node[[1, 2, 4]] = 0
    natural = natural._replace(node=node)
    log_partition, stats = jax.tree.map(np.asarray, infer(natural, form))
    # nodes 0, 3, 5 remain, joined by matrix products
    T = np.exp(np.asarray(natural.transition))
    three, two = np.log(T @ T @ T), np.log(T @ T)
    rest = DiscreteChainTerms(natural.node[np.array([0, 3, 5])], np.stack([three, two]))
    expected, rest_stats = enumerate_infer(rest)
    np.testing.assert_allclose(log_partition, expected, rtol=1e-12)
    np.testing.assert_allclose(stats.node[np.array([0, 3, 5])], rest_stats.node, rtol=1e-10, atol=1e-12)


def test_marginals_are_consistent(key):
    natural = random_discrete_chain(key, 6, 3, shared=False)
    for form in Form:
        node, pair = map(np.asarray, infer(natural, form)[1])
        np.testing.assert_allclose(node.sum(1), 1, rtol=1e-12)
        np.testing.assert_allclose(pair.sum(2), node[:-1], rtol=1e-11)
        np.testing.assert_allclose(pair.sum(1), node[1:], rtol=1e-11)


# Large numbers


def extreme_chain(kind, dtype):
    """Integer potentials, so that single precision can hold them; the answer is then known exactly."""
    rng = np.random.default_rng(3)
    node = 1000.0 * rng.integers(-1, 2, size=(6, 3))
    transition = -1.0 * rng.integers(0, 3, size=(3, 3))
    match kind:
        case "strong emissions":
            pass
        case "forbidden states":
            node[[0, 2, 3], [1, 0, 2]] = -np.inf
        case "forbidden transitions":
            transition = np.where(np.tri(3, k=-1) > 0, -np.inf, transition)
        case "nothing may change":
            transition = np.where(np.eye(3) > 0, 0, -np.inf)
        case "rare transitions":
            transition = np.where(np.eye(3) > 0, 0, -30.0 - np.arange(9.0).reshape(3, 3))
        case "unlikely transitions":
            transition = np.where(np.eye(3) > 0, 0, -100.0 - np.arange(9.0).reshape(3, 3))
        case "one path":
            node = np.where(np.eye(3)[[0, 2, 1, 1, 0, 2]] > 0, -1000.0, -np.inf)
        case "low level":
            node = node - 10_000
    return DiscreteChainTerms(jnp.asarray(node, dtype), jnp.asarray(transition, dtype))


EXTREMES = [
    "strong emissions",
    "forbidden states",
    "forbidden transitions",
    "nothing may change",
    "rare transitions",
    "unlikely transitions",
    "one path",
    "low level",
]


@plain_forms
@both_precisions
@pytest.mark.parametrize("kind", EXTREMES)
def test_extreme_potentials(kind, dtype, form):
    natural = extreme_chain(kind, dtype)
    log_partition, stats = infer(natural, form)
    expected, expected_stats = enumerate_infer(natural)
    assert log_partition.dtype == dtype
    np.testing.assert_allclose(log_partition, expected, rtol=1e-6)
    rounding = 6 * 1000 * jnp.finfo(dtype).eps  # of the scores, which are logarithms of the statistics
    tree_close(stats, expected_stats, rtol=0, atol=float(rounding))
    paths, scores = all_paths(natural)
    path = np.asarray(most_likely_path(natural, form))
    np.testing.assert_allclose(scores[np.all(paths == path, axis=1)], scores.max(), rtol=0, atol=rounding)


@plain_forms
@pytest.mark.parametrize("kind", EXTREMES)
def test_samples_at_extreme_potentials_are_possible(key, kind, form):
    natural = extreme_chain(kind, jnp.float32)
    paths, scores = all_paths(natural)
    possible = {tuple(path) for path in paths[scores > scores.max() - 50]}
    drawn = np.asarray(sample(key, natural, form))
    assert {tuple(path) for path in drawn.tolist()} <= possible


@all_forms
@pytest.mark.parametrize("kind", EXTREMES)
def test_gradients_at_extreme_potentials_are_finite(kind, form):
    natural = extreme_chain(kind, jnp.float32)
    gradient = gradient_of_loss(natural, form)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(gradient))


def field_errors(actual, expected):
    """Relative error of the log-partition and of each field of the statistics."""
    return [
        relative_error(a, b) for a, b in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    ]


def test_all_forms_agree_in_single_precision(key):
    natural = astype(random_discrete_chain(key, 100, 5), jnp.float32)
    sequential, *others = (infer(natural, form) for form in Form)
    assert {x.dtype for x in jax.tree.leaves((sequential, others))} == {np.dtype(np.float32)}
    assert all(max(field_errors(other, sequential)) < 1e-4 for other in others)


@plain_forms
def test_long_chain_in_single_precision(key, form):
    natural = random_discrete_chain(key, 10_000, 5)
    single, double = infer(astype(natural, jnp.float32), form), infer(natural, form=Form.SEQUENTIAL)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(single))
    assert max(field_errors(single, double)) < 1e-3


# Padding


def cut(natural, length):
    node, transition = map(np.asarray, natural)  # slices of these need no compiler
    own = transition.ndim == 3
    return DiscreteChainTerms(node[:length], transition[: max(length - 1, 0)] if own else transition)


def overwrite_padding(natural, length, garbage):
    node, transition = map(np.array, natural)
    node[length:] = garbage
    if transition.ndim == 3:
        transition[max(length - 1, 0) :] = garbage
    return DiscreteChainTerms(jnp.asarray(node), jnp.asarray(transition))


def check_zero_padding(terms, length):
    node, transition = map(np.asarray, terms)
    assert np.all(node[length:] == 0)
    if transition.ndim == 3:
        assert np.all(transition[max(length - 1, 0) :] == 0)


@all_forms
@both_precisions
@either_transition
@pytest.mark.parametrize("length", [1, 2, 3, 5, 6])
def test_padding_changes_nothing(key, length, shared, dtype, form):
    natural = astype(random_discrete_chain(key, 6, 3, shared), dtype)
    tolerance = 1e-6 if dtype == jnp.float32 else 1e-12
    expected, expected_stats = enumerate_infer(cut(natural, length))
    for garbage in (np.nan, np.inf, -np.inf, 1e30, 0.0):
        log_partition, stats = infer(overwrite_padding(natural, length, garbage), form, length)
        np.testing.assert_allclose(log_partition, expected, rtol=tolerance)
        tree_close(cut(stats, length), expected_stats, rtol=tolerance, atol=tolerance)
        check_zero_padding(stats, length)


@plain_forms
def test_long_padding_changes_nothing(key, form):
    natural = astype(random_discrete_chain(key, 1000, 7), jnp.float32)
    log_partition, stats = infer(overwrite_padding(natural, 4, np.nan), form, 4)
    expected = enumerate_infer(cut(natural, 4))
    assert max(field_errors((log_partition, cut(stats, 4)), expected)) < 1e-6
    check_zero_padding(stats, 4)


@all_forms
def test_nothing_but_padding(key, form):
    log_partition, stats = infer(random_discrete_chain(key, 6, 3), form, 0)
    assert log_partition == 0
    assert all(np.all(x == 0) for x in stats)


@partial(jax.jit, static_argnames="form")
def gradient_of_loss(natural, form, length=None):
    def loss(natural):
        log_partition, stats = propagate(natural, DiscreteChain(length, form))
        return jnp.sin(log_partition) + sum(jnp.sum(jnp.sin(3 * x)) for x in stats)

    return jax.grad(loss)(natural)


@all_forms
def test_gradients_of_a_padded_chain(key, form):
    natural, length = random_discrete_chain(key, 6, 3, shared=False), 4
    expected = gradient_of_loss(cut(natural, length), form)
    for garbage in (np.nan, 1e30):
        actual = gradient_of_loss(overwrite_padding(natural, length, garbage), form, length)
        tree_close(cut(actual, length), expected, rtol=1e-10, atol=1e-10)
        check_zero_padding(actual, length)


@all_forms
def test_paths_in_the_padding_are_zero(key, form):
    natural = random_discrete_chain(key, 6, 3, shared=False)
    padded = overwrite_padding(natural, 4, np.nan)
    paths, scores = all_paths(cut(natural, 4))
    best = most_likely_path(padded, form, 4)
    np.testing.assert_array_equal(best, [*paths[np.argmax(scores)], 0, 0])
    drawn = np.asarray(sample(key, padded, form, 4))
    assert np.all(drawn[:, 4:] == 0)
    assert len(np.unique(drawn, axis=0)) > 1


# Sampling


@plain_forms
@pytest.mark.parametrize("time", [1, 2, 5])
def test_paths_are_drawn_with_their_probabilities(key, time, form):
    count, states = 20_000, 3
    natural = random_discrete_chain(key, time, states, shared=False, scale=1.0)
    paths, scores = all_paths(natural)
    expected = count * softmax(scores)
    drawn = np.asarray(sample(key, natural, form, count=count))
    index = np.ravel_multi_index(drawn.T, (states,) * time)
    observed = np.bincount(index, minlength=len(paths))

    common = expected >= 10
    assert np.all(np.abs(observed - expected)[common] < 5 * np.sqrt(expected[common]))
    bins = [(observed[common], expected[common]), (observed[~common].sum(), expected[~common].sum())]
    statistic = sum(np.sum((o - e) ** 2 / np.maximum(e, 1)) for o, e in bins)
    assert statistic < chi2(common.sum()).isf(1e-6)


def test_sufficient_stats():
    path = jnp.asarray([0, 2, 2, 1, 2, 2])
    node, transition = DiscreteChain(num_states=3).sufficient_stats(path)
    np.testing.assert_array_equal(node, np.eye(3)[[0, 2, 2, 1, 2, 2]])
    np.testing.assert_array_equal(transition, [[0, 0, 1], [0, 0, 1], [0, 1, 2]])
    node, transition = DiscreteChain(length=3, num_states=3).sufficient_stats(path)
    np.testing.assert_array_equal(node, np.eye(3)[[0, 2, 2, 1, 2, 2]] * (np.arange(6) < 3)[:, None])
    np.testing.assert_array_equal(transition, [[0, 0, 1], [0, 0, 0], [0, 0, 1]])


def test_sufficient_stats_step_by_step():
    path = jnp.asarray([0, 2, 2, 1])
    node, transition = DiscreteChain(length=3, num_states=3, shared=False).sufficient_stats(path)
    np.testing.assert_array_equal(node, np.eye(3)[[0, 2, 2, 1]] * (np.arange(4) < 3)[:, None])
    expected = np.zeros((3, 3, 3))
    expected[[0, 1], [0, 2], [2, 2]] = 1
    np.testing.assert_array_equal(transition, expected)


def test_sufficient_stats_need_the_number_of_states():
    with pytest.raises(ValueError, match="num_states"):
        DiscreteChain().sufficient_stats(jnp.asarray([0, 1]))


# Derivatives


@all_forms
@either_transition
def test_derivatives(key, shared, form):
    natural = random_discrete_chain(key, 4, 3, shared)
    check_derivatives(DiscreteChain(form=form), natural, enumerate_infer, form != Form.KERNEL)


@plain_forms
def test_backpropagation_through_the_recursion(key, form):
    natural = random_discrete_chain(key, 5, 3)
    gradient = jax.jit(jax.grad(lambda n: DiscreteChain(form=form).infer(n)[0]))(natural)
    tree_close(gradient, enumerate_infer(natural)[1], rtol=1e-10, atol=1e-10)


# Against a hidden Markov model


def test_agrees_with_a_hidden_markov_model():
    from dynamax.hidden_markov_model.inference import hmm_posterior_mode, hmm_smoother

    time, states = 20, 4
    rng = np.random.default_rng(0)
    start, transition = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), size=states)
    likelihood = 3 * rng.normal(size=(time, states))
    arrays = [jnp.asarray(x) for x in (start, transition, likelihood)]
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        smoothed = jax.jit(hmm_smoother)(*arrays)
        mode = jax.jit(hmm_posterior_mode)(*arrays)

    node = likelihood.copy()
    node[0] += np.log(start)
    natural = DiscreteChainTerms(jnp.asarray(node), jnp.asarray(np.log(transition)))
    stats = DiscreteChainTerms(smoothed.smoothed_probs, smoothed.trans_probs)
    for form in Form:
        tree_close(infer(natural, form), (smoothed.marginal_loglik, stats), rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(most_likely_path(natural, form), mode)


# Bad input


@all_forms
@either_transition
@pytest.mark.parametrize("field", DiscreteChainTerms._fields)
def test_nan_in_nan_out(key, field, shared, form):
    natural = random_discrete_chain(key, 5, 3, shared)
    bad = np.array(getattr(natural, field))
    bad[2, 1] = np.nan
    log_partition, stats = infer(natural._replace(**{field: jnp.asarray(bad)}), form)
    assert np.isnan(log_partition)
    assert np.all(np.any(np.isnan(np.asarray(stats.node)), axis=1))


@all_forms
@pytest.mark.parametrize(
    ("field", "shape"),
    [
        ("node", (5,)),
        ("node", (2, 5, 3)),
        ("transition", (3, 2)),
        ("transition", (3,)),
        ("transition", (5, 3, 3)),
        ("transition", (4, 2, 2)),
        ("transition", (4, 4, 3, 3)),
    ],
)
def test_errors_name_the_field(key, field, shape, form):
    bad = random_discrete_chain(key, 5, 3)._replace(**{field: jnp.zeros(shape)})
    for method in (infer, most_likely_path, partial(sample, key)):
        with pytest.raises(ValueError, match=rf"^{field} "):
            method(bad, form)
