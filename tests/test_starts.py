"""Where inference begins: scores of states against densities written out, and what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import multivariate_normal

from svae.expfam import GaussianParameters, LinearGaussian, MatrixNormalInverseWishart, fixed_parameters
from svae.meanfield import CoordinateAscent
from svae.pgm import SLDS, SLDSGlobals
from svae.pgm.starts import transition_scores

MEANS = np.array([[0.3, -0.2], [0.5, 0.1], [0.4, 0.6], [-0.1, 0.5]])
NOISE = np.array([0.04, 0.09])  # variance of the potentials


def chain_of(model, precision, observed=None):
    return jax.jit(model.potentials)(jnp.asarray(precision * MEANS), jnp.asarray(precision), observed)[0]


scores_of = jax.jit(transition_scores)


@jax.jit
def dynamics(key):
    weights, eye = jax.random.normal(key, (3, 2, 3)), jnp.broadcast_to(jnp.eye(2), (3, 2, 2))
    root = jax.random.normal(jax.random.fold_in(key, 1), (3, 2, 2))
    return LinearGaussian(weights, 0.1 * eye + root @ jnp.swapaxes(root, 1, 2))


def test_scores_are_densities_of_what_potentials_show(key):
    known = dynamics(key)
    potential = chain_of(SLDS(3, 2), np.broadcast_to(1 / NOISE, MEANS.shape))
    scores = scores_of(jax.jit(MatrixNormalInverseWishart().sufficient_stats)(known), potential)
    for k in range(3):
        matrix, offset = np.asarray(known.weights[k, :, :2]), np.asarray(known.weights[k, :, 2])
        covariance = known.covariance[k] + np.diag(NOISE) + matrix @ np.diag(NOISE) @ matrix.T
        for t in range(3):
            expected = multivariate_normal(matrix @ MEANS[t] + offset, covariance).logpdf(MEANS[t + 1])
            np.testing.assert_allclose(scores[t, k], expected, rtol=1e-9)


def test_no_score_next_to_a_missing_step(key):
    observed = jnp.array([True, True, False, True])
    precision = np.broadcast_to(1 / NOISE, MEANS.shape)
    theta = jax.jit(MatrixNormalInverseWishart().sufficient_stats)(dynamics(key))
    scores = scores_of(theta, chain_of(SLDS(3, 2), precision, observed))
    alone = scores_of(theta, chain_of(SLDS(3, 2), precision))
    np.testing.assert_allclose(scores[0], alone[0])  # the typical noise is that of observed steps
    np.testing.assert_array_equal(scores[1:], 0)


def test_what_is_not_known_about_a_state_counts_against_it():
    """A state that has seen nothing must not explain everything."""
    model = SLDS(3, 2)
    theta = jax.jit(lambda: model.family.expected_stats(model.prior()))().dynamics
    exact = 1e8 * np.ones_like(MEANS)
    scores = scores_of(theta, chain_of(model, exact))
    first, second = MEANS[:-1, :, None] * MEANS[:-1, None], MEANS[1:, :, None] * MEANS[1:, None]
    cross, one = MEANS[1:, :, None] * MEANS[:-1, None], np.ones((3, 1, 1))
    inputs = np.block([[first, MEANS[:-1, :, None]], [MEANS[:-1, None], one]])
    outputs = np.concatenate([cross, MEANS[1:, :, None]], axis=2)
    pair = lambda a, b: np.einsum("kij,tij->tk", a, b)
    expected = pair(theta.output, second) + pair(theta.cross, outputs) + pair(theta.input, inputs)
    expected = expected + np.asarray(theta.weight)[None] - np.log(2 * np.pi)
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_a_broad_state_does_not_absorb_what_sharp_ones_explain(key):
    """Two slow, exact movements and a noisy state, seen through noise five times that of the movements."""
    step, jitter, blur = 0.1, 0.01, 0.05
    offsets = jnp.array([[step, 0.0], [0.0, -step], [0.0, 0.0]])
    eye = jnp.broadcast_to(jnp.eye(2), (3, 2, 2))
    weights = jnp.concatenate([eye, offsets[:, :, None]], axis=2)
    noise = jnp.array([jitter, jitter, 0.5])[:, None, None] ** 2 * eye
    rows = 0.9 * jnp.eye(3) + 0.1 / 3
    parameters = SLDSGlobals(
        GaussianParameters(jnp.zeros(2), jnp.eye(2)), LinearGaussian(weights, noise), jnp.ones(3) / 3, rows
    )
    truth = np.arange(120) // 12 % 2
    path = np.cumsum(np.asarray(offsets)[truth] + jitter * jax.random.normal(key, (120, 2)), axis=0)
    seen = path + blur * jax.random.normal(jax.random.fold_in(key, 1), path.shape)
    model, precision = SLDS(3, 2), jnp.full((120, 2), blur**-2)
    potentials = model.potentials(precision * seen, precision)
    posterior = fixed_parameters(model.family, parameters)
    inference = jax.jit(lambda p: model.infer(posterior, p, solver=CoordinateAscent(100)))(potentials)
    states = jnp.argmax(inference.solution.stats[1].node, axis=1)
    assert inference.solution.converged
    assert np.mean(np.asarray(states) == truth[1:]) > 0.9
