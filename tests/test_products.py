"""Products of many rows with one matrix: the kernel, interpreted, and the primitive's rules."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from svae.chains import Form, best_form
from svae.kernels.products import MANY, in_parts, rows_times


@pytest.mark.parametrize(
    ("rows", "size", "results"), [(300, 100, 272), (64, 256, 100), (70, 16, 50), (1, 3, 2)]
)
def test_parts_multiply_in_full_precision(key, rows, size, results):
    a, b = (
        jax.random.normal(k, s, jnp.float32)
        for k, s in zip(jax.random.split(key), ((rows, size), (size, results)), strict=True)
    )
    true = np.float64(a) @ np.float64(b)
    scale = np.abs(np.float64(a)) @ np.abs(np.float64(b))
    assert np.max(np.abs(np.asarray(in_parts(a, b)) - true) / scale) < 4e-7


def test_parts_span_the_range_of_single_precision():
    a = jnp.asarray([[1e30, 1e-30], [1 + 2.0**-23, 0], [jnp.pi, -jnp.pi]], jnp.float32)
    b = jnp.asarray([[1e-30, 1], [1e30, 1]], jnp.float32)
    found, true = np.asarray(in_parts(a, b)), np.float64(a) @ np.float64(b)
    np.testing.assert_allclose(found, true, rtol=4e-7, atol=1e-6)


def test_bad_rows_stay_bad_and_others_good(key):
    a = jax.random.normal(key, (70, 20), jnp.float32).at[3, 5].set(jnp.nan)
    found = np.asarray(in_parts(a, jnp.ones((20, 4), jnp.float32)))
    assert np.isnan(found[3]).all()
    assert np.isfinite(np.delete(found, 3, axis=0)).all()


def three_ways(product):
    """A value, a gradient, and the gradient of a derivative, of sequences that share a matrix."""
    value = lambda rows, matrix: jnp.sum(jnp.sin(product(rows, matrix)))
    slope = lambda rows, matrix: jax.jvp(jax.grad(value), (rows, matrix), (rows**2, matrix + 1))[1]
    curved = lambda rows, matrix: jnp.sum(slope(rows, matrix) ** 2)
    each = lambda f: jax.vmap(f, in_axes=(0, None))
    return lambda rows, matrix: (
        each(value)(rows, matrix),
        each(jax.grad(value, (0, 1)))(rows, matrix),
        jax.grad(lambda m: jnp.sum(each(curved)(rows, m)))(matrix),
    )


@pytest.mark.parametrize("shape", [(4, 5, 7), (2, 4, 5, 7), (4, 0, 7)])
def test_derivatives_are_those_of_a_matrix_product(key, shape):
    rows, matrix = jax.random.normal(key, shape), jax.random.normal(key, (7, 3))
    found = jax.jit(three_ways(rows_times))(rows, matrix)
    true = three_ways(jnp.matmul)(rows, matrix)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12), found, true)


@pytest.mark.parametrize("axes", [(1, None), (None, 0), (1, 2), (0, 0)])
def test_any_axis_can_be_mapped(key, axes):
    shapes = [(5, 7), (7, 3)]
    given = []
    for shape, axis in zip(shapes, axes, strict=True):
        x = jax.random.normal(key, shape if axis is None else (4, *shape))
        given.append(x if axis is None else jnp.moveaxis(x, 0, axis))
    found = jax.vmap(rows_times, axes)(*given)
    np.testing.assert_allclose(found, jax.vmap(jnp.matmul, axes)(*given), rtol=1e-12)


def on_gpu(patch, capability):
    """As if this were a machine with such a GPU."""
    patch.setattr(jax, "default_backend", lambda: "gpu")
    patch.setattr(jax, "devices", lambda: [SimpleNamespace(compute_capability=capability)])


def uses_kernel(rows, size, dtype, capability="9.0"):
    """Whether the program for a GPU does, where kernels are not interpreted."""
    many, matrix = jax.ShapeDtypeStruct((1, rows, size), dtype), jax.ShapeDtypeStruct((size, 4), dtype)
    with pytest.MonkeyPatch.context() as patch:
        on_gpu(patch, capability)
        traced = jax.jit(jax.vmap(rows_times, (0, None))).trace(many, matrix)
        return "triton" in traced.lower(lowering_platforms=("cuda",)).as_text()


def test_gpus_multiply_in_parts_where_rows_are_many():
    assert uses_kernel(MANY, 20, jnp.float32)
    assert not uses_kernel(MANY - 1, 20, jnp.float32)
    assert not uses_kernel(MANY, 20, jnp.float64)
    assert not uses_kernel(2**31 // 20 + 1, 20, jnp.float32)


def test_older_gpus_do_without_kernels(monkeypatch):
    assert not uses_kernel(MANY, 20, jnp.float32, "7.5")
    for capability in ("7.5", "gfx90a"):
        on_gpu(monkeypatch, capability)
        assert best_form() == Form.PARALLEL
    on_gpu(monkeypatch, "8.0")
    assert best_form() == Form.KERNEL
