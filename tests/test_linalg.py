import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from helpers import random_spd
from svae import linalg

DTYPES = [jnp.float32, jnp.float64]
TOLERANCE = {jnp.float32: 1e-5, jnp.float64: 1e-13}


def right_hand_side(a):
    columns = np.sin(np.arange(1.0, 1.0 + 2 * a.shape[-1])).reshape(a.shape[-1], 2)
    return np.broadcast_to(columns, (*a.shape[:-1], 2)).astype(a.dtype)


FUNCTIONS = {
    "inverse_cholesky": linalg.inverse_cholesky,
    "cholesky": linalg.cholesky,
    "inverse": linalg.inverse,
    "log_det": linalg.log_det,
    "inverse_and_log_det": linalg.inverse_and_log_det,
    "solve": lambda a: linalg.solve(a, jnp.asarray(right_hand_side(a))),
}
every_function = pytest.mark.parametrize("name", FUNCTIONS)
evaluate_all = jax.jit(lambda a: {name: function(a) for name, function in FUNCTIONS.items()})


def oracle(a):
    a = np.asarray(a, np.float64)
    factor, inverse, log_det = np.linalg.cholesky(a), np.linalg.inv(a), np.linalg.slogdet(a)[1]
    return {
        "inverse_cholesky": np.linalg.inv(factor),
        "cholesky": factor,
        "inverse": inverse,
        "log_det": log_det,
        "inverse_and_log_det": (inverse, log_det),
        "solve": np.linalg.solve(a, right_hand_side(a)),
    }


def leaves_of(*results):
    """Pairs of leaves, with the name of the function they come from."""
    for name in FUNCTIONS:
        for leaves in zip(*(jax.tree.leaves(result[name]) for result in results), strict=True):
            yield name, *map(np.asarray, leaves)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("size", "batch"), [(1, ()), (3, ()), (16, ()), (3, (5,)), *((size, (2, 3)) for size in (1, 2, 3, 16))]
)
def test_agrees_with_numpy(key, size, batch, dtype):
    a = random_spd(key, size, batch).astype(dtype)
    for name, x, y in leaves_of(evaluate_all(a), oracle(a)):
        assert x.dtype == dtype, name
        assert x.shape == y.shape, name
        atol = TOLERANCE[dtype] * max(np.max(np.abs(y)), 1)
        np.testing.assert_allclose(x, y, rtol=0, atol=atol, err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_exact_symmetry_and_triangles(key, size, dtype):
    result = evaluate_all(random_spd(key, size, (2, 3)).astype(dtype))
    for inverse in (result["inverse"], result["inverse_and_log_det"][0]):
        np.testing.assert_array_equal(inverse, np.swapaxes(inverse, -1, -2))
    for factor in (result["inverse_cholesky"], result["cholesky"]):
        np.testing.assert_array_equal(factor, np.tril(factor))
        assert np.all(np.diagonal(factor, axis1=-2, axis2=-1) > 0)


@pytest.mark.parametrize("name", ["inverse_cholesky", "cholesky", "inverse_and_log_det"])
def test_derivatives_to_second_order(key, name):
    function = jax.jit(FUNCTIONS[name])
    check_grads(function, (random_spd(key, 3, (2,)),), order=2, modes=("fwd", "rev"), rtol=1e-6, atol=1e-6)


def test_derivatives_of_solve_in_both_arguments(key):
    arguments = random_spd(key, 3), jax.random.normal(key, (3, 2))
    check_grads(jax.jit(linalg.solve), arguments, order=2, modes=("fwd", "rev"), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [1, 16])
def test_first_derivatives_at_other_sizes(key, size):
    check_grads(evaluate_all, (random_spd(key, size),), order=1, modes=("fwd", "rev"), rtol=1e-5, atol=1e-5)


def test_only_the_symmetric_part_is_read(key):
    a = random_spd(key, 3, (5,))
    noise = np.asarray(jax.random.normal(key, a.shape))
    skewed = a + noise - np.swapaxes(noise, -1, -2)
    for name, x, y in leaves_of(evaluate_all(skewed), evaluate_all(a)):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12, err_msg=name)


def test_gradient_at_asymmetric_input_is_symmetric(key):
    a = random_spd(key, 3, (2,)) + 0.1 * jax.random.normal(key, (2, 3, 3))

    def weighted(name, a):
        leaves = jax.tree.leaves(FUNCTIONS[name](a))
        return sum(jnp.sum(x * np.cos(np.arange(x.size)).reshape(x.shape)) for x in leaves)

    gradients = jax.jit(lambda a: {name: jax.grad(lambda a: weighted(name, a))(a) for name in FUNCTIONS})(a)
    for name, gradient in leaves_of(gradients):
        assert np.all(np.isfinite(gradient)), name
        np.testing.assert_array_equal(gradient, np.swapaxes(gradient, -1, -2), err_msg=name)


BAD = {
    "indefinite": np.diag([1.0, -1.0, 2.0]),
    "negative": -np.eye(3),
    "zero": np.zeros((3, 3)),
    "singular": np.diag([1.0, 0.0, 1.0]),
    "nan": np.where(np.eye(3, k=1) + np.eye(3, k=-1) > 0, np.nan, 2 * np.eye(3)),
    "infinite": np.diag([1.0, np.inf, 1.0]),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", BAD)
def test_bad_matrix_is_all_nan_and_leaves_the_others_alone(key, bad, dtype):
    good = random_spd(key, 3, (5,)).astype(dtype)
    poisoned = good.at[2].set(BAD[bad].astype(dtype))
    others = [0, 1, 3, 4]
    for name, x, y in leaves_of(evaluate_all(poisoned), evaluate_all(good)):
        assert np.all(np.isnan(x[2])), name
        np.testing.assert_array_equal(x[others], y[others], err_msg=name)


def test_positive_definiteness_of_each_matrix(key):
    good = random_spd(key, 3)
    asymmetric = good.at[0, 1].add(0.1)
    matrices = jnp.stack([good, *map(jnp.asarray, BAD.values()), asymmetric, 1e-8 * good])
    sound = linalg.is_positive_definite(matrices)
    np.testing.assert_array_equal(sound, [True] + [False] * (len(BAD) + 1) + [True])


@pytest.mark.parametrize("dtype", DTYPES)
def test_positive_definiteness_forgives_rounding(key, dtype):
    good = random_spd(key, 16).astype(dtype)
    assert linalg.is_positive_definite(good.at[0, 1].multiply(1 + 10 * jnp.finfo(dtype).eps))


def library_calls(function, a):
    text = jax.jit(function).lower(a).compile().as_text()
    return [target for target in re.findall(r'custom_call_target="([^"]*)"', text) if "lapack" in target]


@every_function
def test_calls_no_lapack(key, name):
    a = random_spd(key, 16, (5,))

    def value_and_vjp(a):
        value, pullback = jax.vjp(FUNCTIONS[name], a)
        return value, pullback(value)

    assert library_calls(value_and_vjp, a) == []


def test_a_lapack_call_would_be_seen(key):
    assert library_calls(jnp.linalg.cholesky, random_spd(key, 16, (5,)))
