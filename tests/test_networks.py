import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.linalg import block_diag
from scipy.special import expit, softmax

from helpers import astype
from svae.networks import (
    MLP,
    Bernoulli,
    Categorical,
    Dense,
    Encoder,
    Gamma,
    Gaussian,
    LayerNorm,
    Likelihood,
    Poisson,
    mlp_decoder,
    mlp_encoder,
)
from svae.pgm import LDS, SLDS

FEATURES, CLASSES = 3, 4
SAMPLES = 20_000
LIKELIHOODS = {
    "gaussian": Gaussian(FEATURES, initial=0.3),
    "gamma": Gamma(2.5),
    "bernoulli": Bernoulli(),
    "poisson": Poisson(),
    "categorical": Categorical(CLASSES),
}
every_likelihood = pytest.mark.parametrize("name", LIKELIHOODS)
NUMERIC = [name for name in LIKELIHOODS if name != "categorical"]


@eqx.filter_jit
def call(function, *arguments):
    return function(*arguments)


def small_encoder(key, inputs=FEATURES, **settings):
    return eqx.filter_jit(mlp_encoder)(inputs, 2, key, hidden=(8,), **settings)


def size(make):
    return sum(x.size for x in jax.tree.leaves(eqx.filter_eval_shape(make)) if hasattr(x, "size"))


def random_output(likelihood, time=5, seed=0):
    return np.random.default_rng(seed).normal(size=(time, likelihood.num_outputs(FEATURES)))


def oracle(name, output):
    """The same distribution from scipy; of one-hot vectors, for classes."""
    match name:
        case "gaussian":
            return stats.norm(output, np.logaddexp(0, LIKELIHOODS[name].raw_scale.astype(np.float64)))
        case "gamma":
            return stats.gamma(2.5, scale=np.exp(-output))
        case "bernoulli":
            return stats.bernoulli(expit(output))
        case "poisson":
            return stats.poisson(np.exp(output))
        case "categorical":
            return stats.multinomial(1, softmax(output.reshape(-1, FEATURES, CLASSES), axis=-1))


# Sizes


def test_parameter_counts_of_the_networks(key):
    assert size(lambda: mlp_encoder(84, 16, key)) == 57_504
    assert size(lambda: (mlp_decoder(16, 84, key), Gaussian(84))) == 57_640


@pytest.mark.parametrize(("pgm", "count"), [(LDS(16), 716), (SLDS(50, 16), 30_804)])
def test_parameter_counts_of_the_graphical_models(key, pgm, count):
    assert size(lambda: pgm.family.unconstrained_from_natural(pgm.initial(key))) == count


@every_likelihood
def test_networks_fit_the_likelihood(key, name):
    likelihood, x = LIKELIHOODS[name], jnp.ones((5, FEATURES), jnp.float32)
    decoder = mlp_decoder(2, likelihood.num_outputs(FEATURES), key, hidden=(8,))
    encoder = small_encoder(key, likelihood.encoder_inputs(FEATURES))

    @eqx.filter_jit
    def there_and_back(x):
        output = decoder(encoder(likelihood.features(x), jnp.ones(x.shape, bool)).linear)
        return likelihood.log_density(output, x), likelihood.mean(output), likelihood.sample(key, output)

    for result in there_and_back(x):
        assert result.shape == x.shape
        assert result.dtype == jnp.float32


# Layers


def test_layer_norm_is_equinox_own(key):
    x = jax.random.normal(key, (7,), jnp.float32)
    theirs = eqx.nn.LayerNorm(7, eps=1e-6, dtype=jnp.float32)
    np.testing.assert_allclose(LayerNorm(7)(x), theirs(x), rtol=1e-5, atol=1e-6)


def test_perceptron_is_dense_then_gelu_then_norm(key):
    network = astype(MLP((3, 8, 2), key), jnp.float64)
    x = np.random.default_rng(0).normal(size=(5, 3))
    first, last = network.layers
    y = x @ np.asarray(first.weight).T + np.asarray(first.bias)
    y = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
    y = (y - y.mean(axis=1, keepdims=True)) / np.sqrt(y.var(axis=1, keepdims=True) + 1e-6)
    y = y @ np.asarray(last.weight).T + np.asarray(last.bias)
    np.testing.assert_allclose(call(network, jnp.asarray(x)), y, rtol=1e-9, atol=1e-12)


def test_perceptron_takes_any_leading_axes(key):
    network, x = MLP((3, 8, 2), key), jax.random.normal(key, (4, 5, 3), jnp.float32)
    one_by_one = [[call(network, step) for step in sequence] for sequence in x]
    np.testing.assert_allclose(call(network, x), one_by_one, rtol=1e-4, atol=1e-6)


def test_weights_begin_with_the_variance_of_an_average(key):
    weights = np.asarray(call(Dense, 100, 400, key).weight)
    error = np.sqrt(2 / weights.size)  # of a variance, relative
    assert abs(weights.var() * 100 - 1) < 5 * error


# Encoder


def test_steps_with_nothing_present_get_zero_potentials(key):
    present = jnp.asarray([[True] * FEATURES, [False] * FEATURES])
    evidence = call(small_encoder(key), jnp.ones((2, FEATURES), jnp.float32), present)
    assert np.all(np.asarray(evidence.precision[0]) > 0)
    np.testing.assert_array_equal([x[1] for x in evidence], 0)


def test_precision_is_that_of_the_share_of_entries_present(key):
    encoder = small_encoder(key, inputs=4)
    present = jnp.arange(4)[None] < jnp.arange(5)[:, None]
    evidence = call(encoder, jnp.ones((5, 4), jnp.float32), present)
    expected = np.linspace(0, 1, 5)[:, None] * np.exp(encoder.log_precision)
    np.testing.assert_allclose(evidence.precision, expected, rtol=1e-6)


def test_what_is_missing_is_not_seen(key):
    encoder, present = small_encoder(key, inputs=4), jnp.asarray([[True, True, False, True]])
    low, high = (call(encoder, jnp.where(present, 1, jnp.float32(x)), present) for x in (-23, 5))
    np.testing.assert_array_equal(low.linear, high.linear)


def test_a_missing_class_is_not_seen_as_the_first_one():
    likelihood, present = Categorical(CLASSES), jnp.asarray([[True, False]])
    features = likelihood.features(jnp.asarray([[2.0, 0.0]]))
    seen = Encoder(lambda x: x, 2 * CLASSES)(features.astype(jnp.float32), present).linear
    assert np.count_nonzero(seen) == 1


def test_potentials_are_precision_times_mean(key):
    encoder, x = small_encoder(key), jax.random.normal(key, (5, FEATURES), jnp.float32)
    evidence = call(encoder, x, jnp.ones(x.shape, bool))
    np.testing.assert_allclose(evidence.linear / evidence.precision, encoder.network(x), rtol=1e-5)


def test_precision_of_each_step_from_the_network(key):
    encoder = small_encoder(key, precision_per_step=True)
    x = jax.random.normal(key, (5, FEATURES), jnp.float32)
    evidence = call(encoder, x, jnp.ones(x.shape, bool))
    expected = encoder.log_precision[None] + encoder.network(x)[:, 2:]
    np.testing.assert_allclose(np.log(evidence.precision), expected, rtol=1e-4, atol=1e-5)
    assert len(np.unique(evidence.precision[:, 0])) == 5


def test_any_function_can_be_the_network():
    evidence = Encoder(lambda x: 2 * x, FEATURES)(
        jnp.ones((5, FEATURES), jnp.float32), jnp.ones((5, 1), bool)
    )
    np.testing.assert_allclose(evidence.linear / evidence.precision, 2, rtol=1e-6)


def test_an_equinox_network_is_trained(key):
    network = eqx.filter_vmap(eqx.nn.MLP(FEATURES, 2, 8, 1, key=key, dtype=jnp.float32))
    x = jax.random.normal(key, (5, FEATURES), jnp.float32)
    loss = lambda encoder: jnp.sum(encoder(x, jnp.ones(x.shape, bool)).linear ** 2)
    gradient = call(eqx.filter_grad(loss), Encoder(network, 2))
    assert all(np.any(leaf != 0) for leaf in jax.tree.leaves(gradient))


@pytest.mark.parametrize("per_step", [False, True])
def test_gradients_are_finite_even_where_nothing_is_present(key, per_step):
    x, present = jnp.zeros((5, FEATURES), jnp.float32), jnp.zeros((5, FEATURES), bool)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(encoder):
        evidence = encoder(x, present)
        return jnp.sum(evidence.linear) + jnp.sum(evidence.precision)

    encoder = small_encoder(key, precision_per_step=per_step)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient(encoder)))


# Likelihoods


@every_likelihood
def test_density_is_scipy_own(name):
    likelihood = astype(LIKELIHOODS[name], jnp.float64)
    output = random_output(likelihood)
    distribution = oracle(name, output)
    if name == "categorical":
        x = np.random.default_rng(1).integers(CLASSES, size=(5, FEATURES))
        expected, x = distribution.logpmf(np.eye(CLASSES)[x]), x.astype(float)
    else:
        x = distribution.rvs(output.shape, random_state=np.random.default_rng(1)).astype(float)
        expected = (distribution.logpdf if name in ("gaussian", "gamma") else distribution.logpmf)(x)
    np.testing.assert_allclose(
        likelihood.log_density(jnp.asarray(output), jnp.asarray(x)), expected, rtol=1e-9
    )


@pytest.mark.parametrize("name", NUMERIC)
def test_draws_have_the_right_moments(key, name):
    likelihood = astype(LIKELIHOODS[name], jnp.float64)
    output = random_output(likelihood, time=1)
    drawn = np.asarray(likelihood.sample(key, jnp.broadcast_to(output, (SAMPLES, *output.shape[1:]))))
    mean, variance = oracle(name, output[0]).stats()
    np.testing.assert_allclose(likelihood.mean(jnp.asarray(output))[0], mean, rtol=1e-9)
    assert np.all(np.abs(drawn.mean(axis=0) - mean) < 5 * np.sqrt(variance / SAMPLES))
    squares = (drawn - mean) ** 2
    assert np.all(
        np.abs(squares.mean(axis=0) - variance) < 5 * squares.std(axis=0) / np.sqrt(SAMPLES) + 1e-12
    )


def test_classes_are_drawn_as_often_as_they_should(key):
    likelihood = Categorical(CLASSES)
    output = jnp.asarray(random_output(likelihood, time=1))
    drawn = np.asarray(likelihood.sample(key, jnp.broadcast_to(output, (SAMPLES, output.shape[1]))))
    probability = softmax(np.asarray(output).reshape(FEATURES, CLASSES), axis=-1)
    frequency = np.mean(drawn[:, :, None] == np.arange(CLASSES), axis=0)
    assert np.all(np.abs(frequency - probability) < 5 * np.sqrt(probability * (1 - probability) / SAMPLES))
    np.testing.assert_array_equal(likelihood.mean(output)[0], probability.argmax(axis=-1))


def test_classes_are_seen_one_hot():
    features = Categorical(3).features(jnp.asarray([[0.0, 2.0], [1.0, 1.0]]))
    np.testing.assert_array_equal(features, [[1, 0, 0, 0, 0, 1], [0, 1, 0, 0, 1, 0]])


def test_positive_data_are_seen_as_logarithms():
    x = np.array([[0.5, 3.0]])
    np.testing.assert_allclose(Gamma().features(jnp.asarray(x)), np.log(x), rtol=1e-12)
    np.testing.assert_allclose(Poisson().features(jnp.asarray(x)), np.log1p(x), rtol=1e-12)
    assert np.all(np.isfinite(Gamma().features(jnp.zeros((1, 2)))))


def information_matrix(likelihood, information, output, present):
    """All columns, of one step."""
    columns = jax.vmap(lambda tangent: information(likelihood, output[0], present, tangent))
    return np.asarray(columns(jnp.eye(output.shape[1])))


@every_likelihood
def test_information_is_the_variance_of_the_slope(name):
    """In closed form, of what is present; and nearly the same by draws."""
    likelihood = astype(LIKELIHOODS[name], jnp.float64)
    output, present = jnp.asarray(random_output(likelihood, time=1)), jnp.asarray([True, False, True])
    if name == "categorical":
        probability = softmax(np.asarray(output).reshape(FEATURES, CLASSES), axis=-1)
        expected = block_diag(*(np.diag(p) - np.outer(p, p) for p in probability))
    else:
        variance = oracle(name, np.asarray(output[0])).stats()[1]
        expected = np.diag({"gaussian": 1 / variance, "gamma": np.full(FEATURES, 2.5)}.get(name, variance))
    outputs = output.shape[1]
    expected = expected * np.repeat(np.asarray(present), outputs // FEATURES)[:, None]
    found = information_matrix(likelihood, type(likelihood).information, output, present)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    drawn = information_matrix(likelihood, Likelihood.information, output, present)
    np.testing.assert_allclose(drawn, expected, rtol=0.6, atol=0.1)


@every_likelihood
@pytest.mark.parametrize("scale", [0.0, 20.0, -20.0])
def test_gradients_are_finite_far_out(name, scale):
    likelihood, x = LIKELIHOODS[name], jnp.zeros((2, FEATURES), jnp.float32)
    output = jnp.full((2, likelihood.num_outputs(FEATURES)), scale, jnp.float32)

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(likelihood_and_output):
        likelihood, output = likelihood_and_output
        return jnp.sum(likelihood.log_density(output, x))

    leaves = jax.tree.leaves(gradient((likelihood, output)))
    assert leaves
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
