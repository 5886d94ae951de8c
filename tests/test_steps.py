from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from helpers import astype, generator, random_spd, relative_error, tree_close
from svae.chains import IndependentSteps
from svae.expfam import Categorical, CategoricalTerms, Gaussian, GaussianTerms, propagate

TIME, LENGTH = 6, 4
FAMILIES = {"gaussian": Gaussian(), "categorical": Categorical(num_states=3)}
every_family = pytest.mark.parametrize("name", FAMILIES)
both_precisions = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])


@partial(jax.jit, static_argnames="name")
def infer(name, natural, length=None):
    return IndependentSteps(FAMILIES[name], length).infer(natural)


def random_steps(key, name):
    rng = generator(key)
    if name == "categorical":
        return CategoricalTerms(jnp.asarray(rng.normal(size=(TIME, 3))))
    return GaussianTerms(jnp.asarray(rng.normal(size=(TIME, 2))), -0.5 * random_spd(key, 2, (TIME,)))


def one_by_one(natural):
    """The oracle: textbook formulas at each step, in numpy."""
    fields = [np.asarray(x, np.float64) for x in natural]
    if len(fields) == 1:
        return sum(map(logsumexp, fields[0])), CategoricalTerms(np.stack([softmax(x) for x in fields[0]]))
    total, means, seconds = 0.0, [], []
    for first, second in zip(*fields, strict=True):
        covariance = np.linalg.inv(-2 * second)
        mean = covariance @ first
        total += 0.5 * (first @ mean + np.linalg.slogdet(2 * np.pi * covariance)[1])
        means.append(mean)
        seconds.append(covariance + np.outer(mean, mean))
    return total, GaussianTerms(np.stack(means), np.stack(seconds))


def cut(terms):
    return jax.tree.map(lambda x: x[:LENGTH], terms)


def overwrite_padding(terms, garbage):
    def overwrite(x):
        x = np.array(x)
        x[LENGTH:] = garbage
        return jnp.asarray(x)

    return jax.tree.map(overwrite, terms)


def check_zero_padding(terms):
    assert all(np.all(np.asarray(x)[LENGTH:] == 0) for x in jax.tree.leaves(terms))


@every_family
def test_log_partitions_add_up(key, name):
    natural = random_steps(key, name)
    tree_close(infer(name, natural), one_by_one(natural), rtol=1e-11, atol=1e-11)


@every_family
@both_precisions
def test_padding_changes_nothing(key, name, dtype):
    natural = astype(random_steps(key, name), dtype)
    tolerance = 1e-6 if dtype == jnp.float32 else 1e-12
    expected, expected_stats = one_by_one(cut(natural))
    for garbage in (np.nan, np.inf, 1e30, 0.0):
        log_partition, stats = infer(name, overwrite_padding(natural, garbage), LENGTH)
        assert log_partition.dtype == dtype
        np.testing.assert_allclose(log_partition, expected, rtol=tolerance)
        assert relative_error(cut(stats), expected_stats) < tolerance
        check_zero_padding(stats)


@every_family
def test_nothing_but_padding(key, name):
    log_partition, stats = infer(name, random_steps(key, name), 0)
    assert log_partition == 0
    assert all(np.all(x == 0) for x in jax.tree.leaves(stats))


@every_family
def test_gradients_of_padded_steps(key, name):
    natural = random_steps(key, name)

    @jax.jit
    def gradients(natural, length):
        family = IndependentSteps(FAMILIES[name], length)

        def loss(natural, method):
            log_partition, stats = method(natural)
            return jnp.sin(log_partition) + sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(stats))

        methods = family.infer, lambda n: propagate(n, family)
        return [jax.grad(loss)(natural, method) for method in methods]

    taped, propagated = gradients(overwrite_padding(natural, np.nan), LENGTH)
    tree_close(propagated, taped, rtol=1e-11, atol=1e-11)
    check_zero_padding(taped)
    for expected in gradients(cut(natural), None):
        tree_close(cut(propagated), expected, rtol=1e-11, atol=1e-11)


@every_family
def test_gradient_of_the_log_partition_is_the_stats(key, name):
    natural = random_steps(key, name)
    gradient = jax.jit(jax.grad(lambda n: IndependentSteps(FAMILIES[name], LENGTH).infer(n)[0]))(natural)
    tree_close(cut(gradient), one_by_one(cut(natural))[1], rtol=1e-11, atol=1e-11)
    check_zero_padding(gradient)


@every_family
def test_samples(key, name):
    count, natural = 20_000, random_steps(key, name)
    family = IndependentSteps(FAMILIES[name], LENGTH)

    @jax.jit
    @jax.vmap
    def draw(key):
        value = family.sample(key, overwrite_padding(natural, np.nan))
        return value, family.sufficient_stats(value)

    values, stats = draw(jax.random.split(key, count))
    assert values.shape[:2] == (count, TIME)
    assert np.all(values[:, LENGTH:] == 0)
    expected = one_by_one(cut(natural))[1]
    for x, y in zip(jax.tree.leaves(stats), jax.tree.leaves(expected), strict=True):
        x = np.asarray(x)
        assert np.all(x[:, LENGTH:] == 0)
        error = np.std(x[:, :LENGTH], axis=0) / np.sqrt(count)
        assert np.all(np.abs(np.mean(x[:, :LENGTH], axis=0) - y) < 5 * error)


def test_sufficient_stats(key):
    states = jnp.asarray([0, 2, 1, 1, 2, 0])
    stats = IndependentSteps(FAMILIES["categorical"], LENGTH).sufficient_stats(states)
    np.testing.assert_array_equal(stats.one_hot, np.eye(3)[states] * (np.arange(TIME) < LENGTH)[:, None])
    path = generator(key).normal(size=(TIME, 2))
    first, second = IndependentSteps(FAMILIES["gaussian"]).sufficient_stats(jnp.asarray(path))
    np.testing.assert_array_equal(first, path)
    np.testing.assert_array_equal(second, np.einsum("ti,tj->tij", path, path))


def test_improper_step_gives_nan():
    natural = GaussianTerms(jnp.zeros((2, 1)), jnp.asarray([[[-0.5]], [[0.5]]]))
    assert np.isnan(infer("gaussian", natural)[0])
    assert np.isfinite(infer("gaussian", natural, 1)[0])
