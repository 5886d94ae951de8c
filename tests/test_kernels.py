"""Kernels against plain form, and against dense answers in double precision. Here they are interpreted."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import astype, random_gaussian_chain, random_spd, relative_error, tree_close
from svae import linalg
from svae.chains import BATCH, Form, GaussianChain, gaussian
from svae.chains.gaussian_algorithms import in_chunks
from svae.chains.gaussian_parallel import Way
from svae.expfam import linearize
from svae.kernels import ends, many, tiles
from svae.kernels.scan import Loop, Read, kernel_scan, plain_scan
from svae.meanfield import CoordinateAscent, GaussSeidel
from svae.pgm import SLDS
from test_compiled import step_and_arguments

SCANS = {"plain": plain_scan, "kernel": kernel_scan}


# One matrix


@pytest.mark.parametrize("size", [16, 32])
def test_tiles_are_an_algebra_like_linalg(key, size):
    a, x = jnp.asarray(random_spd(key, size, ())), jnp.arange(1.0, 1 + size)
    pairs = {
        "matmul": (a, a),
        "matvec": (a, x),
        "vecmat": (x, a),
        "outer": (x, x),
        "inner": (x, x),
        "transpose": (a,),
        "symmetrize": (a,),
        "identity_like": (a,),
        "inverse_cholesky": (a,),
        "inverse_and_log_det": (a,),
    }
    run = jax.jit(lambda la: {n: getattr(la, n)(*given) for n, given in pairs.items()}, static_argnums=0)
    tree_close(run(tiles), run(linalg), rtol=1e-10, atol=1e-10)


MANY = ("inverse_cholesky", "inverse_and_log_det")


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (65,), (0,)])
def test_functions_of_many_matrices(key, shape, name):
    a = jnp.asarray(random_spd(key, 3, shape))
    tree_close(many.each(getattr(tiles, name), a), getattr(linalg, name)(a), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", MANY)
def test_many_matrices_under_vmap_are_one_kernel(key, name):
    each = lambda a: many.each(getattr(tiles, name), a)
    mapped = jax.vmap(jax.vmap(each))
    a = jnp.asarray(random_spd(key, 3, (2, 5, 2)))
    tree_close(mapped(a), each(a), rtol=1e-12, atol=1e-12)
    kernels = [str(jax.make_jaxpr(function)(a)).split("pallas_call")[1:] for function in (each, mapped)]
    assert len(kernels[0]) == len(kernels[1]) == 1
    assert "grid=(64,)" in kernels[1][0]


def test_many_of_what_is_not_positive_definite(key):
    a = np.array(random_spd(key, 3, (4,)))
    a[1] = -a[1]
    a[2, 0, 0] = np.nan
    inverses = [
        many.each(tiles.inverse_cholesky, jnp.asarray(a)),
        *many.each(tiles.inverse_and_log_det, jnp.asarray(a)),
    ]
    dense = (
        np.linalg.inv(np.linalg.cholesky(a[[0, 3]])),
        np.linalg.inv(a[[0, 3]]),
        np.linalg.slogdet(a[[0, 3]])[1],
    )
    for found, expected in zip(map(np.asarray, inverses), dense, strict=True):
        assert np.all(np.isnan(found[[1, 2]]))
        np.testing.assert_allclose(found[[0, 3]], expected, rtol=1e-10, atol=1e-12)


# Loops


def running_sum(reverse, lead):
    """Sums of a chunk's nodes and of products with what came before, scaled by a constant of the chunk."""
    begin = lambda la, scale: jnp.zeros_like(scale)
    step = lambda la, scale, total, x: (total + scale * jnp.sin(x) * (1 + 0.1 * total),) * 2
    end = lambda la, scale, total: (total * scale, scale if lead else None)
    return Loop(begin, step, end, reverse)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lead", [False, True])
def test_loops_read_and_write_where_they_should(scan, reverse, lead):
    chunks, length, size = 3, 2, 16
    values = np.arange(8.0)[:, None] * np.ones(size)
    scales = np.array([1.0, 10.0, 100.0, 1000.0])[:, None] * np.ones(size)
    constants, nodes = Read(jnp.asarray(scales), 1, 1), Read(jnp.asarray(values), 2, 1)
    summary, results = SCANS[scan](running_sum(reverse, lead), chunks, length, constants, nodes)
    for c in range(chunks):
        scale, (first, second) = scales[c + 1], np.sin(values[2 * c + 1 : 2 * c + 3])
        first, second = (second, first) if reverse else (first, second)
        once = scale * first
        sums = np.stack([once, once + scale * second * (1 + 0.1 * once)])
        expected = sums[::-1] if reverse else sums
        expected = np.concatenate([scale[None], expected]) if lead else expected
        rows = length + lead
        np.testing.assert_allclose(results[rows * c : rows * (c + 1)], expected, rtol=1e-12)
        np.testing.assert_allclose(summary[c], scale * sums[-1], rtol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lead", [False, True])
def test_derivatives_of_loops(reverse, lead):
    values, scales = jnp.linspace(0, 1, 7 * 16).reshape(7, 16), jnp.linspace(1, 2, 3 * 16).reshape(3, 16)

    @partial(jax.jit, static_argnums=0)
    def gradient(scan, values, scales):
        def loss(values, scales):
            found = scan(running_sum(reverse, lead), 3, 2, Read(scales, 1), Read(values, 2, 1))
            return sum(jnp.sum(jnp.cos(x * jnp.arange(1.0, 17.0)[None])) for x in jax.tree.leaves(found))

        return jax.grad(loss, argnums=(0, 1))(values, scales)

    tree_close(gradient(kernel_scan, values, scales), gradient(plain_scan, values, scales), rtol=1e-10)


# Loops from both ends


def weighted_sum(la, matrix, state, inputs):
    value, weight = inputs
    state = la.where(weight > 0, la.vecmat(state, matrix), jnp.ones_like(state)) + value
    return state, (state, la.inner(state, value))


def run_both_ways(loops, matrices, inputs, axes):
    begin = lambda la, vector: vector
    each = lambda matrices, inputs: loops(begin, weighted_sum, matrices, inputs)
    return jax.jit(jax.vmap(each, axes))(matrices, inputs)


@pytest.mark.parametrize("count", [1, 3, 20])  # with rows of 16 the second program repeats some of the first
@pytest.mark.parametrize("own_matrices", [False, True])
def test_loops_from_both_ends(key, count, own_matrices, monkeypatch):
    monkeypatch.setattr(ends, "MANY", 16)
    keys, size, length = jax.random.split(key, 4), 16, 5
    matrices = 0.3 * jax.random.normal(keys[0], (*((count,) if own_matrices else ()), 2, size, size))
    values = jax.random.normal(keys[1], (count, 1, length, size))  # the same in both directions
    weights = (jax.random.uniform(keys[2], (count, 2, length)) > 0.3).astype(float)
    axes = (0 if own_matrices else None, 0)
    found = run_both_ways(ends.kernel, matrices, (values, weights), axes)
    tree_close(found, run_both_ways(ends.plain, matrices, (values, weights), axes), rtol=1e-10)
    # and by hand: the second sequence of the batch, from its end
    b = count - 1
    matrix, state = np.asarray(matrices[b, 1] if own_matrices else matrices[1]), np.zeros(size)
    for t in reversed(range(length)):
        carried = state @ matrix if weights[b, 1, t] > 0 else np.ones(size)
        state = carried + np.asarray(values[b, 0, t])
        np.testing.assert_allclose(found[1][0][b, 1, t], state, rtol=1e-10)
    np.testing.assert_allclose(found[0][b, 1], state, rtol=1e-10)


# Chains


def test_chunks_in_a_kernel_and_in_plain_form(key):
    size, uncut, time = 3, 3, 7  # three chunks, of which the last has one node, and then all in one
    natural = random_gaussian_chain(key, time, 16)
    change = random_gaussian_chain(jax.random.fold_in(key, 1), time, 16)
    noise = jax.random.normal(key, natural.first.shape)

    @partial(jax.jit, static_argnums=0)
    def everything(scan, natural, valid):
        algorithm = in_chunks(Way(scan, size, uncut))
        path, pull = jax.vjp(lambda natural: algorithm.draw(natural, valid, noise), natural)
        log_partition, stats, factors = algorithm.linearize(natural, valid)
        return (
            algorithm.stats(natural, valid),
            (log_partition, stats),
            algorithm.change(factors, valid, change),
            (path, pull(jnp.sin(path))),
        )

    for length in (7, 5):
        valid = jnp.arange(time) < length
        found = everything(kernel_scan, natural, valid)
        tree_close(found, everything(plain_scan, natural, valid), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", [1.0, 1e-3], ids=["well conditioned", "ill conditioned"])
def test_single_precision_against_double(key, noise):
    natural = random_gaussian_chain(key, 40, 16)
    natural = natural._replace(second=natural.second / noise, cross=natural.cross / noise)
    change = random_gaussian_chain(jax.random.fold_in(key, 1), 40, 16)

    def everything(form, natural, change):
        run = jax.jit(lambda natural, change: _moments_and_change(GaussianChain(form=form), natural, change))
        return run(natural, change)

    single = everything(Form.KERNEL, *astype((natural, change), jnp.float32))
    double = everything(Form.SEQUENTIAL, natural, change)
    assert {x.dtype for x in jax.tree.leaves(single)} == {np.dtype(np.float32)}
    for actual, expected, limit in zip(single, double, (1e-4, 1e-3), strict=True):
        pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
        assert max(relative_error(a, b) for a, b in pairs) < limit


def test_many_sequences_are_inferred_without_cutting_them(key, monkeypatch):
    # the name of the batch's axis tells how many there are
    natural = random_gaussian_chain(key, 40, 16)
    change = random_gaussian_chain(jax.random.fold_in(key, 1), 40, 16)
    family = GaussianChain(form=Form.KERNEL)

    def everything(count):
        batch = jax.tree.map(lambda x: jnp.stack([x] * count), (natural, change))
        infer = jax.vmap(
            lambda natural, change: _moments_and_change(family, natural, change), axis_name=BATCH
        )
        cuts = str(jax.make_jaxpr(infer)(*batch)).count("pallas_call")
        return cuts, jax.tree.map(lambda x: x[-1], jax.jit(infer)(*batch))

    monkeypatch.setattr(gaussian, "FULL", 2)
    (cut, one), (uncut, two) = everything(1), everything(2)
    assert uncut < cut
    tree_close(one, two, rtol=1e-9, atol=1e-9)


def _moments_and_change(family, natural, change):
    log_partition, stats, jacobian = linearize(natural, family)
    return (log_partition, stats), jacobian(change)


@pytest.mark.slow
def test_gradient_step_is_the_same_with_kernels():
    results = []
    for form in (Form.SEQUENTIAL, Form.KERNEL):
        model = SLDS(3, 2, form)
        step, arguments = step_and_arguments(
            model, 2, 10, CoordinateAscent(4, tolerance=0.0), GaussSeidel(), sampled=False
        )
        results.append(step(*arguments))
    tree_close(*results, rtol=1e-8, atol=1e-8)
