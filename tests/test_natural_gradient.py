from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree

from helpers import astype, relative_error, tree_close
from svae.expfam import (
    BIASED,
    PLAIN,
    UNBIASED,
    Dirichlet,
    DirichletParameters,
    DirichletTerms,
    MatrixNormalInverseWishart,
    MNIWParameters,
    NegativeBinomialParameters,
    NegativeBinomialPrior,
    NIWParameters,
    NormalInverseWishart,
    Product,
    add,
    parameter_posterior,
    prior_kl,
)


class Parts(NamedTuple):
    initial: Any
    dynamics: Any
    weights: Any


FAMILY = Product(Parts(NormalInverseWishart(), MatrixNormalInverseWishart(), Dirichlet()))


def random_standard(seed):
    rng = np.random.default_rng(seed)

    def spd(size):
        root = rng.normal(size=(size, 2 * size + 2))
        return root @ root.T / (2 * size + 2)

    def positive(*shape):
        return rng.gamma(3.0, size=shape) + 0.5

    standard = Parts(
        NIWParameters(spd(2), rng.normal(size=2), positive(), positive() + 2),
        MNIWParameters(spd(2), rng.normal(size=(2, 3)), spd(3), positive() + 2),
        DirichletParameters(positive(3)),
    )
    return jax.tree.map(jnp.asarray, standard)


PRIOR = jax.jit(FAMILY.natural_from_standard)(random_standard(0))
START = jax.jit(FAMILY.unconstrained_from_standard)(random_standard(1))
NATURAL = jax.jit(FAMILY.natural_from_unconstrained)(START)
FLAT_START, unravel = ravel_pytree(START)


def loss(unconstrained, rule):
    """A curved function of the statistics, with weights that are not symmetric, plus the divergence."""
    posterior = parameter_posterior(FAMILY, unconstrained, rule)
    flat = ravel_pytree(posterior.inference_stats)[0]
    data_term = jnp.sum(jnp.tanh(flat * np.cos(1 + np.arange(flat.size)))) + jnp.sum(flat**2) / 10
    return data_term + prior_kl(FAMILY, posterior, PRIOR)


def kl_loss(unconstrained, rule):
    return prior_kl(FAMILY, parameter_posterior(FAMILY, unconstrained, rule), PRIOR)


@cache
def value_and_gradient(function, rule):
    return jax.jit(jax.value_and_grad(lambda u: function(u, rule)))


def gradient(function, rule, unconstrained):
    return value_and_gradient(function, rule)(unconstrained)[1]


def flat_gradient(function, rule):
    return np.asarray(ravel_pytree(gradient(function, rule, START))[0])


@jax.jit
def to_natural(direction):
    """A move of the unconstrained parameters, seen in the natural ones."""
    return jax.jvp(FAMILY.natural_from_unconstrained, (START,), (direction,))[1]


def fisher_information():
    """J' F J, with F the Jacobian of the expected statistics and J that of the parametrisation."""
    flat_natural, unravel_natural = ravel_pytree(NATURAL)

    def natural(u):
        return ravel_pytree(FAMILY.natural_from_unconstrained(unravel(u)))[0]

    def stats(n):
        return ravel_pytree(FAMILY.expected_stats(unravel_natural(n)))[0]

    jacobian, fisher = jax.jit(lambda u, n: (jax.jacobian(natural)(u), jax.jacfwd(stats)(n)))(
        FLAT_START, flat_natural
    )
    return np.asarray(jacobian).T @ fisher @ jacobian


def test_natural_gradient_is_the_inverse_fisher_information_times_the_plain_one():
    plain, natural = flat_gradient(loss, PLAIN), flat_gradient(loss, UNBIASED)
    fisher = fisher_information()
    assert np.linalg.eigvalsh(fisher)[0] > 0
    assert relative_error(natural, np.linalg.solve(fisher, plain)) < 1e-8
    assert relative_error(natural, plain) > 0.1


def test_natural_gradient_where_natural_parameters_have_a_free_constant():
    """Sizes of a negative binomial have weights that need not sum to one."""
    family = NegativeBinomialPrior(3)
    parameters = [[-1.0, -2.0, 0.5], [2.0, 3.0, 0.7], [1.0, 4.0, 2.0]]
    standard = NegativeBinomialParameters(*map(jnp.asarray, parameters))
    there = jax.jit(family.unconstrained_from_standard)(standard)
    start, unravel = ravel_pytree(there)
    natural, unravel_natural = ravel_pytree(jax.jit(family.natural_from_unconstrained)(there))

    def loss(u, rule):
        flat = ravel_pytree(parameter_posterior(family, unravel(u), rule).stats)[0]
        return jnp.sum(jnp.tanh(flat * np.cos(1 + np.arange(9))))

    def natural_of(u):
        return ravel_pytree(family.natural_from_unconstrained(unravel(u)))[0]

    def stats(n):
        return ravel_pytree(family.expected_stats(unravel_natural(n)))[0]

    @jax.jit
    def derivatives(start, natural):
        gradients = [jax.grad(loss)(start, rule) for rule in (PLAIN, UNBIASED)]
        return jax.jacfwd(natural_of)(start), jax.jacfwd(stats)(natural), *gradients

    jacobian, covariance, plain, natural_gradient = map(np.asarray, derivatives(start, natural))
    fisher = jacobian.T @ covariance @ jacobian
    assert np.linalg.eigvalsh(fisher)[0] > 0
    assert relative_error(natural_gradient, np.linalg.solve(fisher, plain)) < 1e-8


def test_natural_gradient_of_the_divergence_is_the_difference_of_natural_parameters():
    difference = add(NATURAL, PRIOR, -1.0)
    pushed = jax.jit(lambda d: jax.jvp(FAMILY.unconstrained_from_natural, (NATURAL,), (d,))[1])(difference)
    actual = gradient(kl_loss, UNBIASED, START)
    assert relative_error(actual, pushed) < 1e-10
    tree_close(to_natural(actual), difference, rtol=1e-9, atol=1e-9)


def test_plain_gradient_is_that_of_finite_differences():
    value, step = jax.jit(jax.vmap(lambda u: loss(unravel(u), PLAIN))), 1e-5
    start, moves = np.asarray(FLAT_START), step * np.eye(FLAT_START.size)
    expected = (value(start + moves) - value(start - moves)) / (2 * step)
    np.testing.assert_allclose(flat_gradient(loss, PLAIN), expected, rtol=1e-6, atol=1e-6)


def test_rules_differ_in_gradients_only():
    @jax.jit
    def posteriors(unconstrained):
        posteriors = [parameter_posterior(FAMILY, unconstrained, rule) for rule in (UNBIASED, BIASED, PLAIN)]
        return posteriors, [prior_kl(FAMILY, posterior, PRIOR) for posterior in posteriors]

    (unbiased, biased, plain), divergences = posteriors(START)
    tree_close(biased, unbiased, rtol=1e-14, atol=1e-14)
    tree_close(plain, unbiased, rtol=1e-14, atol=1e-14)
    tree_close(unbiased.inference_stats, unbiased.stats, rtol=0, atol=0)
    expected = jax.jit(lambda p, q: FAMILY.kl(p, q))(NATURAL, PRIOR)
    np.testing.assert_allclose(divergences, np.full(3, expected), rtol=1e-11)


def test_posterior_at_the_prior_has_no_divergence_and_no_gradient():
    home = jax.jit(FAMILY.unconstrained_from_natural)(PRIOR)
    value, gradient = value_and_gradient(kl_loss, UNBIASED)(home)
    np.testing.assert_allclose(value, 0, atol=1e-11)
    np.testing.assert_allclose(ravel_pytree(gradient)[0], 0, atol=1e-11)


@pytest.mark.parametrize(("rule", "flows"), [(UNBIASED, True), (BIASED, False), (PLAIN, True)])
def test_whether_gradients_flow_through_inference(rule, flows):
    def through_inference(unconstrained):
        stats = parameter_posterior(FAMILY, unconstrained, rule).inference_stats
        return sum(jnp.sum(x**2) for x in jax.tree.leaves(stats))

    flat = ravel_pytree(jax.jit(jax.grad(through_inference))(START))[0]
    assert np.all((flat != 0) == flows)


def test_biased_gradient_is_the_update_of_stochastic_variational_inference():
    counts = jax.tree.map(lambda x: 0.1 * jnp.ones_like(x), PRIOR)

    def bound(unconstrained):
        posterior = parameter_posterior(FAMILY, unconstrained, BIASED)
        pairs = zip(jax.tree.leaves(posterior.stats), jax.tree.leaves(counts), strict=True)
        return prior_kl(FAMILY, posterior, PRIOR) - sum(jnp.sum(x * y) for x, y in pairs)

    move = to_natural(jax.jit(jax.grad(bound))(START))
    tree_close(move, add(NATURAL, add(PRIOR, counts), -1.0), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("rule", "optimizer"),
    [(UNBIASED, optax.sgd(0.1)), (UNBIASED, optax.adam(0.05)), (PLAIN, optax.adam(0.05))],
    ids=["natural-sgd", "natural-adam", "plain-adam"],
)
def test_optimisers_approach_the_prior(rule, optimizer):
    @jax.jit
    def step(unconstrained, state, gradient):
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimizer.update(gradient, state, unconstrained)
        return optax.apply_updates(unconstrained, updates), state

    unconstrained, state, values = START, optimizer.init(START), []
    for _ in range(100):
        value, gradient = value_and_gradient(kl_loss, rule)(unconstrained)
        unconstrained, state = step(unconstrained, state, gradient)
        values.append(value)
    assert np.all(np.isfinite(values))
    assert values[-1] < 0.05 * values[0]


def test_small_natural_steps_follow_a_straight_line_to_the_prior():
    rate, unconstrained = 0.01, START
    for _ in range(100):
        move = gradient(kl_loss, UNBIASED, unconstrained)
        unconstrained = jax.tree.map(lambda x, g: x - rate * g, unconstrained, move)
    left = add(jax.jit(FAMILY.natural_from_unconstrained)(unconstrained), PRIOR, -1.0)
    expected = jax.tree.map(lambda x, y: np.exp(-1) * (x - y), NATURAL, PRIOR)
    assert relative_error(left, expected) < 0.02


def test_a_batch_of_gradients_is_the_gradients_one_by_one():
    many = [START, jax.jit(FAMILY.unconstrained_from_natural)(PRIOR)]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *many)
    batched = jax.jit(jax.vmap(lambda u: gradient(loss, UNBIASED, u)))(stacked)
    for i, one in enumerate(many):
        actual = jax.tree.map(lambda x: x[i], batched)
        tree_close(actual, gradient(loss, UNBIASED, one), rtol=1e-10, atol=1e-10)


def test_gradient_outside_jit():
    family = Product((Dirichlet(),))
    prior = (DirichletTerms(jnp.asarray([1.0, 2.0, 0.5])),)

    def value(unconstrained):
        return prior_kl(family, parameter_posterior(family, unconstrained), prior)

    start = (START.weights,)
    tree_close(jax.grad(value)(start), jax.jit(jax.grad(value))(start), rtol=1e-12, atol=1e-12)


def test_single_precision_stays_single():
    def value(unconstrained, prior):
        return prior_kl(FAMILY, parameter_posterior(FAMILY, unconstrained), prior)

    results = jax.eval_shape(jax.value_and_grad(value), *astype((START, PRIOR), jnp.float32))
    assert {x.dtype for x in jax.tree.leaves(results)} == {np.dtype(np.float32)}
