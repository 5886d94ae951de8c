from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jax.tree_util import keystr, tree_leaves_with_path
from scipy import stats
from scipy.special import digamma, gammaln, multigammaln

from helpers import astype, tree_close
from svae.expfam import (
    Categorical,
    CategoricalParameters,
    Dirichlet,
    DirichletParameters,
    DirichletTerms,
    Gaussian,
    GaussianParameters,
    LinearGaussian,
    MatrixNormalInverseWishart,
    MNIWParameters,
    NegativeBinomialParameters,
    NegativeBinomialPrior,
    NegativeBinomialValue,
    NIWParameters,
    NormalInverseWishart,
    Product,
    constraints,
    inner,
)
from svae.expfam.categorical import CategoricalTerms
from svae.expfam.dirichlet import DirichletUnconstrained

SYMMETRIC = {"second", "output", "input"}
SAMPLES = 20_000
WITH_INTEGERS = "categorical", "negative-binomial"  # in their values


class Parts(NamedTuple):
    niw: Any
    mniw: Any
    dirichlet: Any


def random_standard(name, seed=0, batch=(3,)):
    """Standard parameters, well inside their range."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.normal(size=(*batch, *shape))

    def positive(*shape):
        return rng.gamma(3.0, size=(*batch, *shape)) + 0.3

    def spd(size):
        root = normal(size, 2 * size + 2)
        return root @ np.swapaxes(root, -1, -2) / (2 * size + 2)

    match name:
        case "gaussian":
            standard = GaussianParameters(normal(3), spd(3))
        case "categorical":
            standard = CategoricalParameters(rng.dirichlet(np.full(4, 3.0), size=batch))
        case "dirichlet":
            standard = DirichletParameters(positive(4))
        case "niw":
            standard = NIWParameters(spd(2), normal(2), positive(), positive() + 1.5)
        case "mniw":
            standard = MNIWParameters(spd(2), normal(2, 3), spd(3), positive() + 1.5)
        case "negative-binomial":
            weight = np.log(rng.dirichlet(np.full(3, 3.0), size=batch))
            standard = NegativeBinomialParameters(weight, positive(3), positive(3))
        case "product":
            standard = Parts(*(random_standard(part, seed, batch) for part in Parts._fields))
    return jax.tree.map(jnp.asarray, standard)


FAMILIES = {
    "gaussian": Gaussian(),
    "categorical": Categorical(num_states=4),
    "dirichlet": Dirichlet(),
    "niw": NormalInverseWishart(),
    "mniw": MatrixNormalInverseWishart(),
    "negative-binomial": NegativeBinomialPrior(3),
    "product": Product(Parts(NormalInverseWishart(), MatrixNormalInverseWishart(), Dirichlet())),
}
SINGLE_FAMILIES = [name for name in FAMILIES if name != "product"]
every_family = pytest.mark.parametrize("name", FAMILIES)
every_single_family = pytest.mark.parametrize("name", SINGLE_FAMILIES)


@partial(jax.jit, static_argnums=0)
def to_natural(family, standard):
    return family.natural_from_standard(standard)


def random_natural(name, seed=0, batch=(3,)):
    natural = to_natural(FAMILIES[name], random_standard(name, seed, batch))
    if name == "categorical":  # natural parameters need not be normalised
        natural = CategoricalTerms(natural.one_hot + 0.7)
    if name == "negative-binomial":
        natural = natural._replace(size=natural.size + 0.7)
    return natural


@partial(jax.jit, static_argnums=0)
def log_density(family, natural, value):
    return inner(natural, family.sufficient_stats(value)) - family.log_partition(natural)


# Log-partition and expected statistics


@every_family
def test_expected_stats_are_the_gradient_of_the_log_partition(name):
    family, natural = FAMILIES[name], random_natural(name)

    @jax.jit
    def both(natural):
        return jax.grad(lambda n: jnp.sum(family.log_partition(n)))(natural), family.infer(natural)

    gradient, (log_partition, expected) = both(natural)
    assert log_partition.shape == (() if name == "product" else (3,))
    tree_close(gradient, expected, rtol=1e-9, atol=1e-9)
    for path, leaf in tree_leaves_with_path((gradient, expected)):
        if path[-1].name in SYMMETRIC:
            np.testing.assert_allclose(leaf, np.swapaxes(leaf, -1, -2), rtol=1e-14, atol=1e-14)


@every_single_family
def test_a_batch_is_many_single_ones_from_either_parametrisation(name):
    family, standard = FAMILIES[name], random_standard(name)
    natural = to_natural(family, standard)
    batch, singles = jax.jit(lambda s, n: (family.infer_standard(s), jax.vmap(family.infer)(n)))(
        standard, natural
    )
    tree_close(batch, singles, rtol=1e-10, atol=1e-10)


def test_log_partition_of_a_product_is_the_sum():
    parts = Categorical(), Gaussian()
    natural = random_natural("categorical"), random_natural("gaussian")
    log_partition = lambda family, n: np.sum(np.asarray(jax.jit(family.log_partition)(n)))
    expected = sum(map(log_partition, parts, natural))
    np.testing.assert_allclose(log_partition(Product(parts), natural), expected, rtol=1e-13)


def test_empty_product():
    family = Product(())
    log_partition, expected = family.infer(())
    assert log_partition == 0
    assert expected == ()
    assert family.kl((), ()) == 0


# Known densities


def test_gaussian_density():
    standard, x = random_standard("gaussian", batch=()), np.array([0.3, -1.0, 2.0])
    actual = log_density(Gaussian(), to_natural(Gaussian(), standard), jnp.asarray(x))
    expected = stats.multivariate_normal(standard.mean, standard.covariance).logpdf(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize("state", range(4))
def test_categorical_density(state):
    family, natural = FAMILIES["categorical"], random_natural("categorical", batch=())
    expected = np.log(random_standard("categorical", batch=()).probabilities[state])
    np.testing.assert_allclose(log_density(family, natural, jnp.asarray(state)), expected, rtol=1e-12)


def test_draws_of_a_dirichlet_that_round_to_zero_have_a_finite_density():
    natural = DirichletTerms(jnp.full(50, 0.01 - 1, jnp.float32))
    drawn = Dirichlet().sample(jax.random.key(0), natural)
    assert np.any(np.asarray(drawn) == 0)
    assert np.all(np.isfinite(Dirichlet().sufficient_stats(drawn).log_probability))


def test_dirichlet_density():
    standard, x = random_standard("dirichlet", batch=()), np.array([0.1, 0.2, 0.3, 0.4])
    actual = log_density(Dirichlet(), to_natural(Dirichlet(), standard), jnp.asarray(x))
    np.testing.assert_allclose(
        actual, stats.dirichlet(np.asarray(standard.concentration)).logpdf(x), rtol=1e-10
    )


SIGMA = np.array([[1.3, 0.4], [0.4, 0.7]])


@pytest.mark.parametrize("size", range(3))
def test_negative_binomial_prior_density(size):
    log_weight, a, b = standard = random_standard("negative-binomial", batch=())
    family, p = FAMILIES["negative-binomial"], 0.3
    value = NegativeBinomialValue(jnp.asarray(size), jnp.asarray(p))
    expected = log_weight[size] + stats.beta.logpdf(p, a[size], b[size])
    np.testing.assert_allclose(log_density(family, to_natural(family, standard), value), expected, rtol=1e-10)


def test_niw_density():
    family, standard = NormalInverseWishart(), random_standard("niw", batch=())
    scale, mean, confidence, dof = map(np.asarray, standard)
    mu = np.array([0.5, -1.5])
    value = GaussianParameters(jnp.asarray(mu), jnp.asarray(SIGMA))
    actual = log_density(family, to_natural(family, standard), value)
    expected = stats.invwishart(float(dof), scale).logpdf(SIGMA)
    expected += stats.multivariate_normal(mean, SIGMA / confidence).logpdf(mu)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_mniw_density():
    family, standard = MatrixNormalInverseWishart(), random_standard("mniw", batch=())
    scale, mean, input_precision, dof = map(np.asarray, standard)
    weights = np.array([[0.5, -1.5, 1.0], [0.0, 0.3, -0.4]])
    value = LinearGaussian(jnp.asarray(weights), jnp.asarray(SIGMA))
    actual = log_density(family, to_natural(family, standard), value)
    expected = stats.invwishart(float(dof), scale).logpdf(SIGMA)
    expected += stats.matrix_normal(mean, SIGMA, np.linalg.inv(input_precision)).logpdf(weights)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


# Parametrisations


@every_family
def test_round_trips(name):
    family, standard = FAMILIES[name], random_standard(name)

    @jax.jit
    def round_trips(standard):
        natural = family.natural_from_standard(standard)
        unconstrained = family.unconstrained_from_standard(standard)
        noisy = jax.tree.map(
            lambda x: x + 0.3 * np.sin(1.7 * np.arange(x.size)).reshape(x.shape), unconstrained
        )
        return [
            (family.standard_from_natural(natural), standard),
            (family.natural_from_standard(family.standard_from_natural(natural)), natural),
            (family.standard_from_unconstrained(unconstrained), standard),
            (family.unconstrained_from_standard(family.standard_from_unconstrained(noisy)), noisy),
            (family.natural_from_unconstrained(family.unconstrained_from_natural(natural)), natural),
            (family.unconstrained_from_natural(family.natural_from_unconstrained(noisy)), noisy),
        ]

    for actual, expected in round_trips(standard):
        tree_close(actual, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", ["gaussian", "niw", "mniw"])
def test_stored_matrices_are_symmetric(name):
    natural = random_natural(name)
    for field in SYMMETRIC & set(natural._fields):
        matrix = getattr(natural, field)
        np.testing.assert_allclose(matrix, np.swapaxes(matrix, -1, -2), rtol=1e-14, atol=1e-14)


@cache
def spd_maps(minimum):
    forward = jax.jit(lambda x: constraints.spd_from_unconstrained(x, minimum))
    return forward, jax.jit(lambda x: constraints.unconstrained_from_spd(x, minimum))


free_reals = st.floats(-4, 4, allow_subnormal=False)
property_test = settings(max_examples=60, deadline=None, derandomize=True)


@property_test
@given(size=st.sampled_from([1, 2, 4]), data=st.data())
def test_any_reals_are_one_positive_definite_matrix(size, data):
    packed = data.draw(arrays(np.float64, size * (size + 1) // 2, elements=free_reals))
    forward, backward = spd_maps(1e-6)
    matrix = np.asarray(forward(packed))
    np.testing.assert_array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix)[0] > 0.999e-6
    np.testing.assert_allclose(backward(matrix), packed, rtol=1e-6, atol=1e-6)


@property_test
@given(root=arrays(np.float64, (3, 3), elements=free_reals))
def test_any_positive_definite_matrix_is_reached(root):
    matrix = root @ root.T + 0.1 * np.eye(3)
    forward, backward = spd_maps(0.0)
    np.testing.assert_allclose(forward(backward(matrix)), matrix, rtol=1e-9, atol=1e-9)


@property_test
@given(free=arrays(np.float64, 4, elements=st.floats(-20, 1e4)))
def test_any_reals_are_one_dirichlet(free):
    standard = Dirichlet().standard_from_unconstrained(DirichletUnconstrained(jnp.asarray(free)))
    assert np.all(standard.concentration > Dirichlet().minimum)
    (back,) = Dirichlet().unconstrained_from_standard(standard)
    np.testing.assert_allclose(back, free, rtol=1e-6, atol=1e-6)


@property_test
@given(alpha=arrays(np.float64, 4, elements=st.floats(0.011, 1e6)))
def test_any_dirichlet_is_reached(alpha):
    unconstrained = Dirichlet().unconstrained_from_standard(DirichletParameters(jnp.asarray(alpha)))
    (back,) = Dirichlet().standard_from_unconstrained(unconstrained)
    np.testing.assert_allclose(back, alpha, rtol=1e-12)


def test_matrix_outside_the_range_of_the_map_is_nan():
    assert np.all(np.isnan(constraints.unconstrained_from_spd(-jnp.eye(2), 0.0)[2:]))
    assert np.any(np.isnan(constraints.unconstrained_from_spd(jnp.diag(jnp.asarray([1.0, 1e-7])), 1e-6)))


def test_packed_size_must_be_triangular():
    with pytest.raises(ValueError, match="n\\(n\\+1\\)/2"):
        constraints.spd_from_unconstrained(jnp.zeros(4), 0.0)


def count_unconstrained(name_to_standard):
    sizes = [
        leaf.size
        for name, standard in name_to_standard.items()
        for leaf in jax.tree.leaves(jax.eval_shape(FAMILIES[name].unconstrained_from_standard, standard))
    ]
    return sum(sizes)


def test_unconstrained_parameters_are_packed_without_redundancy():
    eye, one = jnp.eye, jnp.ones(())
    initial = NIWParameters(eye(16), jnp.zeros(16), one, 20 * one)
    dynamics = MNIWParameters(eye(16), jnp.zeros((16, 17)), eye(17), 20 * one)
    assert count_unconstrained({"niw": initial, "mniw": dynamics}) == 716
    switching = jax.tree.map(lambda x: jnp.broadcast_to(x, (50, *x.shape)), dynamics)
    start = count_unconstrained({"dirichlet": DirichletParameters(jnp.ones(50))})
    transition = count_unconstrained({"dirichlet": DirichletParameters(jnp.ones((50, 50)))})
    assert count_unconstrained({"niw": initial, "mniw": switching}) + start + transition == 30_804


# Divergences


@every_family
def test_divergence_is_zero_at_home_and_positive_elsewhere(name):
    here, there = random_natural(name), random_natural(name, seed=1)
    kl = jax.jit(lambda p, q: FAMILIES[name].kl(p, q))
    np.testing.assert_allclose(kl(here, here), 0, atol=1e-11)
    assert kl(here, there) > 1e-2
    assert kl(there, here) > 1e-2


@partial(jax.jit, static_argnums=0)
def kl_of_standard(family, p, q):
    return family.kl(family.natural_from_standard(p), family.natural_from_standard(q))


def closed_kl(name, p, q):
    """Textbook divergences, in numpy."""
    p, q = (jax.tree.map(np.asarray, x) for x in (p, q))
    match name:
        case "gaussian":
            precision, shift = np.linalg.inv(q.covariance), q.mean - p.mean
            log_ratio = np.linalg.slogdet(q.covariance)[1] - np.linalg.slogdet(p.covariance)[1]
            return 0.5 * (np.trace(precision @ p.covariance) + shift @ precision @ shift - 3 + log_ratio)
        case "categorical":
            return np.sum(p.probabilities * np.log(p.probabilities / q.probabilities))
        case "dirichlet":
            a, b = p.concentration, q.concentration
            norm = gammaln(a.sum()) - gammaln(a).sum() - gammaln(b.sum()) + gammaln(b).sum()
            return norm + np.sum((a - b) * (digamma(a) - digamma(a.sum())))


@pytest.mark.parametrize("name", ["gaussian", "categorical", "dirichlet"])
def test_divergence_in_closed_form(name):
    p, q = (random_standard(name, seed, ()) for seed in range(2))
    np.testing.assert_allclose(kl_of_standard(FAMILIES[name], p, q), closed_kl(name, p, q), rtol=1e-10)


def mniw_log_density(standard, weights, sigma):
    """Textbook density at many points, in numpy."""
    scale, mean, input_precision, dof = standard
    n, m = mean.shape
    precision, log_det = np.linalg.inv(sigma), np.linalg.slogdet(sigma)[1]
    wishart = 0.5 * dof * (np.linalg.slogdet(scale)[1] - n * np.log(2)) - multigammaln(0.5 * dof, n)
    wishart = wishart - 0.5 * (dof + n + 1) * log_det - 0.5 * np.einsum("ij,sji->s", scale, precision)
    residual = weights - mean
    quadratic = np.einsum("sia,sij,sjb,ba->s", residual, precision, residual, input_precision)
    log_det = m * log_det - n * np.linalg.slogdet(input_precision)[1]
    return wishart - 0.5 * (n * m * np.log(2 * np.pi) + log_det + quadratic)


def as_mniw(standard):
    """An NIW is an MNIW with one input."""
    scale, mean, last, dof = map(np.asarray, standard)
    if mean.ndim == 1:
        mean, last = mean[:, None], last.reshape(1, 1)
    return MNIWParameters(scale, mean, last, float(dof))


@pytest.mark.parametrize("name", ["niw", "mniw"])
def test_divergence_by_monte_carlo(name):
    p, q = (random_standard(name, seed, ()) for seed in range(2))
    scale, mean, input_precision, dof = as_mniw(p)
    rng = np.random.default_rng(0)
    sigma = stats.invwishart(dof, scale).rvs(SAMPLES, random_state=rng)
    noise = rng.normal(size=(SAMPLES, *mean.shape))
    inputs = np.linalg.cholesky(np.linalg.inv(input_precision))
    weights = mean + np.linalg.cholesky(sigma) @ noise @ inputs.T
    ratio = mniw_log_density(as_mniw(p), weights, sigma) - mniw_log_density(as_mniw(q), weights, sigma)
    actual, error = kl_of_standard(FAMILIES[name], p, q), ratio.std() / np.sqrt(SAMPLES)
    assert error < 0.05 * ratio.mean()
    assert abs(actual - ratio.mean()) < 5 * error


# Samples


@every_single_family
def test_samples_have_the_expected_stats(key, name):
    family, natural = FAMILIES[name], random_natural(name, batch=())
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (SAMPLES // 2, *x.shape)), natural)

    @jax.jit
    @jax.vmap
    def draw(key):
        return family.sufficient_stats(family.sample(key, batch))

    drawn, expected = draw(jax.random.split(key, 2)), jax.jit(family.expected_stats)(natural)
    assert jax.tree.structure(drawn) == jax.tree.structure(expected)
    for (path, x), y in zip(tree_leaves_with_path(drawn), jax.tree.leaves(expected), strict=True):
        x = np.asarray(x)
        error = np.std(x, axis=(0, 1)) / np.sqrt(SAMPLES)
        assert np.all(np.abs(np.mean(x, axis=(0, 1)) - y) <= 5 * error), keystr(path)
        if name not in WITH_INTEGERS:
            assert len(np.unique(x.reshape(SAMPLES, -1)[:, 0])) == SAMPLES, "draws repeat"


def test_draws_of_a_product_are_independent(key):
    family, natural = Product((Gaussian(), Gaussian())), (random_natural("gaussian", batch=()),) * 2
    first, second = jax.jit(jax.vmap(lambda key: family.sample(key, natural)))(jax.random.split(key, SAMPLES))
    correlation = np.corrcoef(first, second, rowvar=False)[:3, 3:]
    assert np.all(np.abs(correlation) < 5 / np.sqrt(SAMPLES))


# Errors


EYE = np.eye(2)
INDEFINITE = np.array([[1.0, 2.0], [2.0, 1.0]])
ASYMMETRIC = np.array([[1.0, 0.5], [0.0, 1.0]])
GOOD = {
    "gaussian": GaussianParameters(np.zeros(2), EYE),
    "categorical": CategoricalParameters(np.full(4, 0.25)),
    "dirichlet": DirichletParameters(np.ones(4)),
    "negative-binomial": NegativeBinomialParameters(*(np.log(np.full(2, 0.5)), np.ones(2), np.ones(2))),
    "niw": NIWParameters(EYE, np.zeros(2), np.ones(()), np.full((), 3.0)),
    "mniw": MNIWParameters(EYE, np.zeros((2, 3)), np.eye(3), np.full((), 3.0)),
}
BAD = [
    ("gaussian", "covariance", np.zeros((2, 3))),
    ("gaussian", "covariance", INDEFINITE),
    ("gaussian", "covariance", ASYMMETRIC),
    ("gaussian", "covariance", np.nan * EYE),
    ("gaussian", "mean", np.zeros(3)),
    ("gaussian", "mean", np.array([0.0, np.nan])),
    ("categorical", "probabilities", np.array([0.5, 0.6, 0.1, 0.1])),
    ("categorical", "probabilities", np.array([1.5, -0.5, 0.5, -0.5])),
    ("categorical", "probabilities", np.array([0.5, 0.5, np.nan, 0.5])),
    ("dirichlet", "concentration", np.array([1.0, -1.0, 1.0, 1.0])),
    ("dirichlet", "concentration", np.array([1.0, 0.0, 1.0, 1.0])),
    ("dirichlet", "concentration", np.array([1.0, np.nan, 1.0, 1.0])),
    ("negative-binomial", "again", np.array([1.0, 0.0])),
    ("negative-binomial", "end", np.array([-1.0, 1.0])),
    ("niw", "scale", np.zeros((2, 3))),
    ("niw", "scale", INDEFINITE),
    ("niw", "mean", np.zeros(3)),
    ("niw", "mean", np.array([np.nan, 0.0])),
    ("niw", "confidence", np.zeros(())),
    ("niw", "confidence", np.full((), np.nan)),
    ("niw", "dof", np.ones(())),
    ("niw", "dof", np.full((), np.nan)),
    ("mniw", "scale", np.zeros(2)),
    ("mniw", "scale", ASYMMETRIC),
    ("mniw", "mean", np.zeros((3, 2))),
    ("mniw", "mean", np.full((2, 3), np.inf)),
    ("mniw", "input_precision", np.zeros((3, 3))),
    ("mniw", "input_precision", np.eye(3)[:2]),
    ("mniw", "dof", np.ones(())),
]


@pytest.mark.parametrize(("name", "field", "value"), BAD)
def test_errors_name_the_parameter(name, field, value):
    bad = jax.tree.map(jnp.asarray, GOOD[name]._replace(**{field: value}))
    with pytest.raises(ValueError, match=rf"^{field} "):
        FAMILIES[name].natural_from_standard(bad)


@pytest.mark.parametrize("name", GOOD)
def test_good_parameters_pass(name):
    good = jax.tree.map(jnp.asarray, GOOD[name])
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(FAMILIES[name].natural_from_standard(good)))


def test_error_says_which_matrix_of_a_stack():
    stack = GaussianParameters(
        jnp.zeros((3, 2)), jnp.stack([jnp.eye(2), jnp.asarray(INDEFINITE), jnp.eye(2)])
    )
    with pytest.raises(ValueError, match=r"^covariance .*\(1,\)"):
        Gaussian().natural_from_standard(stack)


def test_concentration_below_the_reachable_minimum():
    with pytest.raises(ValueError, match=r"^concentration .*0\.01"):
        Dirichlet().unconstrained_from_standard(DirichletParameters(jnp.full(3, 0.005)))


def test_one_hot_vectors_need_the_number_of_states():
    with pytest.raises(ValueError, match="num_states"):
        Categorical().sufficient_stats(jnp.asarray(1))


@pytest.mark.parametrize("name", ["gaussian", "niw", "mniw"])
def test_bad_values_under_jit_give_nan(name):
    field = "covariance" if name == "gaussian" else "scale"
    bad = jax.tree.map(jnp.asarray, GOOD[name]._replace(**{field: INDEFINITE}))
    assert np.isnan(jax.jit(FAMILIES[name].infer_standard)(bad)[0])


# Precision


@every_family
def test_single_precision_stays_single(key, name):
    family, standard = FAMILIES[name], astype(random_standard(name), jnp.float32)

    def everything(standard):
        natural = family.natural_from_standard(standard)
        unconstrained = family.unconstrained_from_standard(standard)
        results = [natural, unconstrained, family.standard_from_natural(natural)]
        results += [family.standard_from_unconstrained(unconstrained), family.infer(natural)]
        results += [family.infer_standard(standard), family.kl(natural, natural)]
        if name not in WITH_INTEGERS:
            value = family.sample(key, natural)
            results += [value, family.sufficient_stats(value)]
        return results

    assert {x.dtype for x in jax.tree.leaves(jax.eval_shape(everything, standard))} == {np.dtype(np.float32)}


@every_single_family
def test_single_precision_agrees_with_double(name):
    infer, standard = jax.jit(FAMILIES[name].infer_standard), random_standard(name)
    tree_close(infer(astype(standard, jnp.float32)), infer(standard), rtol=2e-5, atol=2e-5)
