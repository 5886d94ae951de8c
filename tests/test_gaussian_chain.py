from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from helpers import astype, check_derivatives, generator, random_gaussian_chain, relative_error, tree_close
from svae.chains import Form, GaussianChain, GaussianChainTerms, natural_from_potentials
from svae.expfam import propagate

all_forms = pytest.mark.parametrize("form", list(Form))
plain_forms = pytest.mark.parametrize("form", [Form.SEQUENTIAL, Form.PARALLEL])  # kernels are slow here
both_precisions = pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])


@partial(jax.jit, static_argnames="form")
def infer(natural, form, length=None):
    return GaussianChain(length, form).infer(natural)


@partial(jax.jit, static_argnames="form")
def sample(key, natural, form, length=None):
    return GaussianChain(length, form).sample(key, natural)


def joint(natural):
    """Precision and linear term of all variables at once."""
    first, second, cross = (np.asarray(x, np.float64) for x in natural)
    time, size = first.shape
    precision = np.zeros((time, size, time, size))
    for t in range(time):
        precision[t, :, t] = -(second[t] + second[t].T)
    for t in range(time - 1):
        precision[t, :, t + 1] = -cross[t]
        precision[t + 1, :, t] = -cross[t].T
    return precision.reshape(time * size, time * size), first.ravel()


def dense_log_partition(precision, linear):
    quadratic = linear @ np.linalg.solve(precision, linear)
    return 0.5 * (quadratic - np.linalg.slogdet(precision)[1] + linear.size * np.log(2 * np.pi))


def dense_moments(natural):
    precision, linear = joint(natural)
    covariance = np.linalg.inv(precision)
    return covariance @ linear, covariance


def dense_infer(natural):
    """The oracle: one Gaussian over all variables."""
    time, size = natural.first.shape
    mean, covariance = dense_moments(natural)
    moments = (covariance + np.outer(mean, mean)).reshape(time, size, time, size)
    steps = np.arange(time)
    stats = GaussianChainTerms(
        mean.reshape(time, size), moments[steps, :, steps], moments[steps[:-1], :, steps[1:]]
    )
    return dense_log_partition(*joint(natural)), stats


# Against the dense joint distribution


@all_forms
@pytest.mark.parametrize(
    ("time", "size"),
    [
        *((time, 3) for time in (1, 2, 5, 8, 13)),
        *((time, 1) for time in (1, 5)),
        *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((3, 3), (4, 3), (2, 1))),
    ],
)
def test_agrees_with_the_dense_joint(key, time, size, form):
    natural = random_gaussian_chain(key, time, size)
    tree_close(infer(natural, form), dense_infer(natural), rtol=1e-10, atol=1e-10)


@all_forms
def test_only_the_symmetric_part_of_second_order_potentials_counts(key, form):
    natural = random_gaussian_chain(key, 5, 3)
    skew = np.triu(np.ones((5, 3, 3)), 1) - np.tril(np.ones((5, 3, 3)), -1)
    skewed = natural._replace(second=natural.second + skew)
    tree_close(infer(skewed, form), dense_infer(natural), rtol=1e-10, atol=1e-10)


@all_forms
def test_missing_steps_are_integrated_out(key, form):
    observed = np.array([0, 1, 0, 0, 1, 1, 0, 0], bool)
    time, size = 8, 3
    natural = random_gaussian_chain(key, time, size, observed)
    log_partition, stats = jax.tree.map(np.asarray, infer(natural, form))

    precision, linear = joint(natural)
    kept = np.repeat(observed, size)
    gone = ~kept
    gain = np.linalg.solve(precision[gone][:, gone], precision[gone][:, kept])
    rest_precision = precision[kept][:, kept] - precision[kept][:, gone] @ gain
    rest_linear = linear[kept] - gain.T @ linear[gone]
    covariance = np.linalg.inv(rest_precision)
    mean = covariance @ rest_linear
    moments = (covariance + np.outer(mean, mean)).reshape(3, size, 3, size)
    np.testing.assert_allclose(stats.first[observed], mean.reshape(3, size), rtol=1e-10)
    np.testing.assert_allclose(stats.second[observed], moments[range(3), :, range(3)], rtol=1e-10)
    np.testing.assert_allclose(stats.cross[4], moments[1, :, 2], rtol=1e-10)
    removed = dense_log_partition(precision[gone][:, gone], linear[gone])
    np.testing.assert_allclose(
        log_partition, removed + dense_log_partition(rest_precision, rest_linear), rtol=1e-12
    )


def field_errors(actual, expected):
    """Relative error of the log-partition and of each field of the statistics that has entries."""
    pairs = zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True)
    return [relative_error(a, b) for a, b in pairs if np.size(b)]


def test_all_forms_agree_in_single_precision(key):
    natural = astype(random_gaussian_chain(key, 100, 16), jnp.float32)
    sequential, *others = (infer(natural, form) for form in Form)
    assert {x.dtype for x in jax.tree.leaves((sequential, others))} == {np.dtype(np.float32)}
    assert all(max(field_errors(other, sequential)) < 1e-4 for other in others)


@plain_forms
def test_long_chain_in_single_precision(key, form):
    natural = random_gaussian_chain(key, 10_000, 4)
    single, double = infer(astype(natural, jnp.float32), form), infer(natural, form=Form.SEQUENTIAL)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(single))
    assert max(field_errors(single, double)) < 1e-3


# Padding


def cut(natural, length):
    first, second, cross = map(np.asarray, natural)  # slices of these need no compiler
    return GaussianChainTerms(first[:length], second[:length], cross[: max(length - 1, 0)])


def overwrite_padding(natural, length, garbage):
    first, second, cross = map(np.array, natural)
    first[length:], second[length:], cross[length - 1 :] = garbage, garbage, garbage
    return GaussianChainTerms(*map(jnp.asarray, (first, second, cross)))


def check_padded(natural, length, form, garbage):
    padded = overwrite_padding(natural, length, garbage)
    log_partition, stats = jax.tree.map(np.asarray, infer(padded, form, length))
    tolerance = 1e-6 if natural.first.dtype == jnp.float32 else 1e-12
    errors = field_errors((log_partition, cut(stats, length)), dense_infer(cut(natural, length)))
    assert max(errors) < tolerance
    for field, valid in zip(stats, (length, length, length - 1), strict=True):
        assert np.all(field[valid:] == 0)


@all_forms
@both_precisions
@pytest.mark.parametrize("length", [1, 2, 3, 5, 7, 8])
def test_padding_changes_nothing(key, length, dtype, form):
    natural = astype(random_gaussian_chain(key, 8, 3), dtype)
    for garbage in (np.nan, np.inf, 1e30, 0.0):
        check_padded(natural, length, form, garbage)


@plain_forms
def test_long_padding_changes_nothing(key, form):
    check_padded(astype(random_gaussian_chain(key, 100, 16), jnp.float32), 5, form, np.nan)


@all_forms
def test_nothing_but_padding(key, form):
    log_partition, stats = infer(random_gaussian_chain(key, 8, 3), form, 0)
    assert log_partition == 0
    assert all(np.all(x == 0) for x in stats)


@partial(jax.jit, static_argnames="form")
def gradient_of_loss(natural, form, length=None):
    def loss(natural):
        log_partition, stats = propagate(natural, GaussianChain(length, form))
        return jnp.sin(log_partition) + sum(jnp.sum(jnp.sin(x)) for x in stats)

    return jax.grad(loss)(natural)


@all_forms
def test_gradients_of_a_padded_chain(key, form):
    time, length = 5, 3
    natural = random_gaussian_chain(key, time, 3)
    expected = gradient_of_loss(cut(natural, length), form)
    for garbage in (np.nan, 1e30):
        padded = overwrite_padding(natural, length, garbage)
        actual = jax.tree.map(np.asarray, gradient_of_loss(padded, form, length))
        tree_close(cut(actual, length), expected, rtol=1e-10, atol=1e-10)
        for field, valid in zip(actual, (length, length, length - 1), strict=True):
            assert np.all(field[valid:] == 0)


@all_forms
def test_batch_of_lengths(key, form):
    naturals = [random_gaussian_chain(k, 5, 3) for k in jax.random.split(key, 3)]
    stacked = jax.tree.map(lambda *x: np.stack(x), *naturals)
    lengths = jnp.asarray([3, 5, 2])
    batch = jax.jit(jax.vmap(lambda n, length: infer(n, form, length)))(stacked, lengths)
    log_partitions, stats = jax.tree.map(np.asarray, batch)
    for i, length in enumerate((3, 5, 2)):
        actual = log_partitions[i], cut(jax.tree.map(lambda x: x[i], stats), length)
        tree_close(actual, dense_infer(cut(naturals[i], length)), rtol=1e-10, atol=1e-10)


# Sampling


@partial(jax.jit, static_argnames="form")
def path_of_noise(natural, noise, form):
    family = GaussianChain(form=form)
    return family._algorithm(natural).draw(natural, family._valid(natural), noise)


@all_forms
@pytest.mark.parametrize("time", [1, 2, 5, 8])
def test_sample_is_the_right_affine_map_of_noise(key, time, form):
    natural = random_gaussian_chain(key, time, 2)
    mean, covariance = dense_moments(natural)
    noise = generator(key).normal(size=(1 + 2 * time, 2 * time))  # zero, and a basis
    noise[0] = 0
    paths = jax.jit(jax.vmap(lambda noise: path_of_noise(natural, noise, form)))(noise.reshape(-1, time, 2))
    paths = np.asarray(paths).reshape(noise.shape)
    np.testing.assert_allclose(paths[0], mean, rtol=1e-10, atol=1e-10)
    root = np.linalg.solve(noise[1:], paths[1:] - mean).T
    np.testing.assert_allclose(root @ root.T, covariance, rtol=1e-9, atol=1e-9)


@plain_forms
def test_samples_have_the_moments_of_the_dense_joint(key, form):
    time, size, count = 5, 3, 20_000
    natural = random_gaussian_chain(key, time, size)
    mean, covariance = dense_moments(natural)
    draw = jax.jit(jax.vmap(lambda key: sample(key, natural, form)))
    paths = np.asarray(draw(jax.random.split(key, count))).reshape(count, -1)
    assert np.all(np.abs(paths.mean(0) - mean) < 5 * np.sqrt(np.diag(covariance) / count))
    products = (paths - mean)[:, :, None] * (paths - mean)[:, None, :]
    assert np.all(np.abs(products.mean(0) - covariance) < 5 * products.std(0) / np.sqrt(count))


@all_forms
def test_samples_are_zero_in_the_padding(key, form):
    natural = overwrite_padding(random_gaussian_chain(key, 5, 3), 3, np.nan)
    path = np.asarray(sample(key, natural, form, 3))
    assert np.all(np.isfinite(path))
    assert np.all(path[:3] != 0)
    assert np.all(path[3:] == 0)


def test_sufficient_stats(key):
    path = np.asarray(jax.random.normal(key, (5, 2)))
    stats = GaussianChain(3).sufficient_stats(jnp.asarray(path))
    for t in range(5):
        inside = t < 3
        np.testing.assert_array_equal(stats.first[t], inside * path[t])
        np.testing.assert_array_equal(stats.second[t], inside * np.outer(path[t], path[t]))
    for t in range(4):
        np.testing.assert_array_equal(stats.cross[t], (t < 2) * np.outer(path[t], path[t + 1]))


# Derivatives


@all_forms
def test_derivatives(key, form):
    check_derivatives(
        GaussianChain(form=form), random_gaussian_chain(key, 3, 2), dense_infer, form != Form.KERNEL
    )


@plain_forms
def test_backpropagation_through_the_recursion(key, form):
    natural = random_gaussian_chain(key, 3, 3)
    gradient = jax.jit(jax.grad(lambda n: GaussianChain(form=form).infer(n)[0]))(natural)
    tree_close(gradient, dense_infer(natural)[1], rtol=1e-10, atol=1e-10)


# Against a Kalman smoother


def test_agrees_with_a_kalman_smoother():
    from dynamax.linear_gaussian_ssm.inference import lgssm_smoother, make_lgssm_params

    time, size = 13, 3
    rng = np.random.default_rng(0)
    A = 0.8 * np.eye(size) + 0.1 * rng.normal(size=(size, size))
    b, m0, y = rng.normal(size=size), rng.normal(size=size), rng.normal(size=(time, size))
    Q, S0, R = 0.3 * np.eye(size) + 0.1, 0.5 * np.eye(size) + 0.2, np.diag(rng.gamma(2.0, size=size) + 0.1)
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        arrays = [jnp.asarray(x) for x in (m0, S0, A, Q, np.eye(size), R, b)]
        smoothed = jax.jit(lgssm_smoother)(make_lgssm_params(*arrays), jnp.asarray(y))
    mean = np.asarray(smoothed.smoothed_means)
    second = smoothed.smoothed_covariances + mean[:, :, None] * mean[:, None, :]
    constants = multivariate_normal(m0, S0).logpdf(np.zeros(size))
    constants += (time - 1) * multivariate_normal(b, Q).logpdf(np.zeros(size))
    constants += np.sum(multivariate_normal(np.zeros(size), R).logpdf(y))
    # what it calls cross-covariances are E z_t z_{t+1}'
    stats = GaussianChainTerms(mean, second, smoothed.smoothed_cross_covariances)

    Q_inv, S0_inv, R_inv = map(np.linalg.inv, (Q, S0, R))
    transition = A.T @ Q_inv @ A, A.T @ Q_inv, Q_inv, A.T @ Q_inv @ b, Q_inv @ b
    transition = [np.broadcast_to(x, (time - 1, *x.shape)) for x in transition]
    nodes = np.broadcast_to(R_inv, (time, size, size)), y @ R_inv
    natural = natural_from_potentials(*map(jnp.asarray, (S0_inv, S0_inv @ m0, *transition, *nodes)))
    for form in (
        Form.SEQUENTIAL,
        Form.PARALLEL,
    ):  # to the 1e-9 that the other side adds to matrices before it solves
        expected = smoothed.marginal_loglik - constants, stats
        tree_close(infer(natural, form), expected, rtol=1e-7, atol=1e-7)


# Bad input


@all_forms
def test_chain_without_a_density_has_nan_log_partition(key, form):
    natural = random_gaussian_chain(key, 5, 3)
    for t in range(5):
        flip = np.where(np.arange(5) == t, -1.0, 1.0)[:, None, None]
        assert np.isnan(infer(natural._replace(second=flip * natural.second), form)[0])
    improper = natural._replace(cross=np.array([1.0, 1, 20, 1])[:, None, None] * natural.cross)
    assert np.linalg.eigvalsh(joint(improper)[0])[0] < 0
    assert np.isnan(infer(improper, form)[0])


@all_forms
@pytest.mark.parametrize("field", GaussianChainTerms._fields)
def test_nan_in_nan_out(key, field, form):
    natural = random_gaussian_chain(key, 5, 3)
    values = np.array(getattr(natural, field))
    values[2] = np.nan
    bad = natural._replace(**{field: jnp.asarray(values)})
    log_partition, stats = infer(bad, form)
    assert np.isnan(log_partition)
    assert np.all(np.isnan(stats.first))
    assert np.any(np.isnan(sample(key, bad, form)))


@all_forms
@pytest.mark.parametrize(
    ("field", "shape"),
    [
        ("first", (5,)),
        ("first", (2, 5, 3)),
        ("second", (5, 3, 2)),
        ("second", (4, 3, 3)),
        ("second", (3, 3)),
        ("second", (5, 5, 3, 3)),
        ("cross", (5, 3, 3)),
        ("cross", (4, 2, 3)),
        ("cross", (3, 3)),
    ],
)
def test_errors_name_the_field(key, field, shape, form):
    bad = random_gaussian_chain(key, 5, 3)._replace(**{field: jnp.zeros(shape)})
    family = GaussianChain(form=form)
    with pytest.raises(ValueError, match=rf"^{field} "):
        family.infer(bad)
    with pytest.raises(ValueError, match=rf"^{field} "):
        family.sample(key, bad)
