"""Recognition dynamics of their own: the bound against dense Gaussians and enumerated paths of states."""

from dataclasses import replace
from itertools import pairwise, product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from helpers import astype, tree_close
from models import known, random_parameters
from svae.expfam import GaussianParameters, LinearGaussian, parameter_posterior
from svae.models import Batch, Recognition, make_recognition, make_svae
from svae.models.recognition import RIDGE
from svae.networks import Gaussian, mlp_decoder, mlp_encoder
from svae.pgm import HMM, LDS, SLDS, LDSGlobals, SLDSGlobals

TIME, N, K, FEATURES = 4, 2, 3, 3
PATHS = list(product(range(K), repeat=TIME - 1))


@eqx.filter_jit
def recognition_for(pgm, seed=0):
    """Far from where training starts, so that nothing is zero or one."""
    made = astype(make_recognition(pgm, jax.random.key(seed)), jnp.float64)
    flat, unravel = ravel_pytree(made)
    return unravel(flat + 0.2 * np.random.default_rng(seed).normal(size=flat.shape))


def infer(pgm, posterior, recognition, potentials, length=None):
    posterior = posterior._replace(inference_stats=recognition.stats())
    return eqx.filter_jit(lambda *x: pgm.infer(*x, length=length))(posterior, potentials)


@eqx.filter_jit
def uncertain(pgm, key):
    """Natural parameters from which training starts, and the posterior that has them."""
    natural = pgm.initial(key)
    return natural, parameter_posterior(pgm.family, pgm.family.unconstrained_from_natural(natural))


def random_potentials(pgm, seed=0):
    """The third step is missing."""
    rng = np.random.default_rng(seed)
    seen = np.arange(TIME)[:, None] != 2
    linear, precision = rng.normal(size=(TIME, N)) * seen, rng.gamma(2.0, size=(TIME, N)) * seen
    return linear, precision, pgm.potentials(jnp.asarray(linear), jnp.asarray(precision))


def dense_prior(first, steps):
    """Mean and precision of a whole path, from (mean, covariance) and (weights, covariance) of each step."""
    size = N * (len(steps) + 1)
    mean, precision = [np.asarray(first[0])], np.zeros((size, size))
    precision[:N, :N] = np.linalg.inv(first[1])
    for t, (weights, covariance) in enumerate(steps):
        weights, noise = np.asarray(weights), np.linalg.inv(covariance)
        mean.append(weights[:, :N] @ mean[-1] + weights[:, N])
        residual = np.zeros((N, size))  # z_{t+1} - A z_t
        residual[:, t * N : (t + 1) * N] = -weights[:, :N]
        residual[:, (t + 1) * N : (t + 2) * N] = np.eye(N)
        precision += residual.T @ noise @ residual
    return np.concatenate(mean), precision


def dense_posterior(recognition, linear, precision):
    """The recognition dynamics as a density, times the potentials."""
    covariance = lambda root: np.linalg.inv(root @ root.T + RIDGE * np.eye(N))
    step = recognition.weights, covariance(np.asarray(recognition.noise_root))
    first = recognition.initial_mean, covariance(np.asarray(recognition.initial_root))
    mean, before = dense_prior(first, [step] * (TIME - 1))
    after = before + np.diag(precision.ravel())
    return np.linalg.solve(after, before @ mean + linear.ravel()), after


def dense_kl(q, p):
    (mean, precision), (other_mean, other) = q, p
    difference = mean - other_mean
    log_dets = np.linalg.slogdet(precision)[1] - np.linalg.slogdet(other)[1]
    spread = np.trace(np.linalg.solve(precision, other)) + difference @ other @ difference
    return 0.5 * (spread - len(mean) + log_dets)


def known_lds(parameters):
    return dense_prior(parameters.initial, [parameters.dynamics] * (TIME - 1))


@pytest.fixture(scope="module")
def lds():
    pgm = LDS(N)
    linear, precision, potentials = random_potentials(pgm)
    recognition = recognition_for(pgm)
    return pgm, recognition, potentials, dense_posterior(recognition, linear, precision)


def test_the_posterior_is_that_of_the_recognition_dynamics_alone(lds):
    pgm, recognition, potentials, (mean, precision) = lds
    z = infer(pgm, uncertain(pgm, jax.random.key(1))[1], recognition, potentials).solution.stats[0]
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(np.ravel(z.first), mean, atol=1e-9)
    for t in range(TIME):
        own = slice(t * N, (t + 1) * N)
        second = covariance[own, own] + np.outer(mean[own], mean[own])
        np.testing.assert_allclose(z.second[t], second, atol=1e-9)


def test_the_local_kl_with_known_parameters(lds):
    """T - 1 transitions have T - 1 normalisers."""
    pgm, recognition, potentials, q = lds
    parameters = random_parameters(pgm, jax.random.key(3))
    found = infer(pgm, known(pgm, parameters), recognition, potentials)
    assert float(found.kl_local) == pytest.approx(dense_kl(q, known_lds(parameters)), rel=1e-8)


def test_the_local_kl_with_unknown_parameters_is_an_average(lds):
    pgm, recognition, potentials, q = lds
    natural, posterior = uncertain(pgm, jax.random.key(2))
    keys = jax.random.split(jax.random.key(5), 4000)
    drawn = jax.jit(jax.vmap(lambda key: pgm.family.sample(key, natural)))(keys)
    drawn = jax.tree.map(np.asarray, drawn)
    each = [dense_kl(q, known_lds(jax.tree.map(lambda x: x[i], drawn))) for i in range(len(keys))]
    found = float(infer(pgm, posterior, recognition, potentials).kl_local)
    assert abs(found - np.mean(each)) < 4 * np.std(each) / np.sqrt(len(each))


def test_padding_has_no_transitions(lds):
    pgm, recognition, potentials, _ = lds
    parameters = known(pgm, random_parameters(pgm, jax.random.key(3)))
    cut = lambda x: x[: TIME - 1] if x.shape[0] == TIME else x[: TIME - 2]
    short = infer(pgm, parameters, recognition, jax.tree.map(cut, potentials))
    padded = infer(pgm, parameters, recognition, potentials, length=jnp.asarray(TIME - 1))
    np.testing.assert_allclose(padded.kl_local, short.kl_local, rtol=1e-9)


def known_slds(seed=0):
    rng = np.random.default_rng(seed)
    spd = lambda *shape: (
        np.eye(N) + 0.3 * (lambda x: x @ np.swapaxes(x, -1, -2))(rng.normal(size=(*shape, N, N)))
    )
    weights = 0.5 * np.eye(N, N + 1) + 0.3 * rng.normal(size=(K, N, N + 1))
    parts = (
        GaussianParameters(rng.normal(size=N), spd()),
        LinearGaussian(weights, spd(K)),
        rng.dirichlet(np.ones(K)),
        rng.dirichlet(np.ones(K), K),
    )
    return jax.tree.map(jnp.asarray, SLDSGlobals(*parts))


def test_the_local_kl_of_a_switching_model_by_enumeration():
    """q(k) of every path by its scores, and the KL of q(z) to each path's dynamics."""
    pgm, parameters = SLDS(K, N), known_slds()
    linear, precision, potentials = random_potentials(pgm)
    recognition = recognition_for(pgm)
    q = dense_posterior(recognition, linear, precision)
    start, transition = np.asarray(recognition.start), np.asarray(recognition.transition)
    along = lambda first, rows, path: first[path[0]] + sum(rows[pair] for pair in pairwise(path))
    scores = np.array([along(start, transition, path) for path in PATHS])
    weights = np.exp(scores - np.logaddexp.reduce(scores))
    expected = 0.0
    for weight, path in zip(weights, PATHS, strict=True):
        steps = [(parameters.dynamics.weights[k], parameters.dynamics.covariance[k]) for k in path]
        log_p = along(np.log(parameters.start), np.log(parameters.transition), path)
        expected += weight * (np.log(weight) - log_p + dense_kl(q, dense_prior(parameters.initial, steps)))
    found = infer(pgm, known(pgm, parameters), recognition, potentials)
    assert float(found.kl_local) == pytest.approx(expected, rel=1e-8)
    marginals = [weights @ (np.array(PATHS)[:, 0] == k) for k in range(K)]
    np.testing.assert_allclose(found.solution.stats[1].node[0], marginals, atol=1e-9)


def test_states_do_not_see_the_data():
    pgm = SLDS(K, N)
    recognition, parameters = recognition_for(pgm), known(pgm, known_slds())
    one, other = (
        infer(pgm, parameters, recognition, random_potentials(pgm, seed)[2]).solution for seed in (1, 2)
    )
    np.testing.assert_allclose(one.stats[1].node, other.stats[1].node, atol=1e-9)
    assert np.max(np.abs(one.stats[0].first - other.stats[0].first)) > 0.1
    assert bool(one.converged)


@eqx.filter_jit
def model_for(pgm, recognition):
    keys = jax.random.split(jax.random.key(0), 3)
    encoder, decoder = mlp_encoder(FEATURES, N, keys[0], (4,)), mlp_decoder(N, FEATURES, keys[1], (4,))
    networks = {"encoder": encoder, "decoder": decoder}
    model = make_svae(pgm, Gaussian(FEATURES), FEATURES, keys[2], **networks, recognition=recognition)
    return astype(model, jnp.float64)


def batch():
    values = np.random.default_rng(0).normal(size=(2, TIME, FEATURES))
    values[0, 1] = np.nan
    return Batch(jnp.asarray(values), jnp.asarray([TIME, TIME - 1]))


bound_of = eqx.filter_jit(lambda model: model.elbo(jax.random.key(7), batch()))


def test_with_the_models_own_dynamics_it_is_an_svae(lds):
    pgm, _, potentials, _ = lds
    certain = LDSGlobals(
        GaussianParameters(jnp.ones(N), 0.5 * jnp.eye(N)),
        LinearGaussian(0.8 * jnp.eye(N, N + 1) + 0.1, 0.25 * jnp.eye(N)),
    )
    own = Recognition(jnp.ones(N), np.sqrt(2) * jnp.eye(N), certain.dynamics.weights, 2 * jnp.eye(N))
    posterior = known(pgm, certain)
    apart = infer(pgm, posterior, own, potentials)
    together = eqx.filter_jit(pgm.infer)(posterior, potentials)
    for name in "kl_local", "surrogate":
        np.testing.assert_allclose(getattr(apart, name), getattr(together, name), rtol=1e-6)


def test_with_one_state_a_switching_model_is_a_linear_one():
    linear = model_for(LDS(N), recognition_for(LDS(N)))
    one = replace(linear.recognition, start=jnp.ones(1), transition=jnp.ones((1, 1)))
    switching = model_for(SLDS(1, N), one)
    dynamics = jax.tree.map(lambda x: x[None], linear.parameters.dynamics)
    parts = {"initial": linear.parameters.initial, "dynamics": dynamics}
    switching = replace(switching, parameters=switching.parameters._replace(**parts), encoder=linear.encoder)
    for name in "log_likelihood", "kl_local":
        np.testing.assert_allclose(*(getattr(bound_of(m), name) for m in (linear, switching)), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("pgm", [LDS(N), SLDS(K, N)])
def test_gradients_by_finite_differences(pgm):
    """Of everything that inference rests on: the recognition parameters and the encoder's precision."""
    model = model_for(pgm, recognition_for(pgm))
    flat, unravel = ravel_pytree((model.recognition, model.encoder.log_precision))

    @jax.jit
    def loss(flat):
        recognition, log_precision = unravel(flat)
        changed = replace(model, recognition=recognition)
        changed = eqx.tree_at(lambda m: m.encoder.log_precision, changed, log_precision)
        return -jnp.sum(bound_of(changed).elbo(2))

    gradient, rng = jax.grad(loss)(flat), np.random.default_rng(0)
    for _ in range(4):
        way = rng.normal(size=flat.shape)
        numerical = (loss(flat + 1e-5 * way) - loss(flat - 1e-5 * way)) / 2e-5
        assert float(way @ gradient) == pytest.approx(float(numerical), rel=1e-5)


@pytest.mark.slow
def test_the_models_parameters_get_the_update_of_conjugate_models():
    """Inference does not see them, so their natural gradient is that of stochastic variational inference."""
    model = model_for(LDS(N), recognition_for(LDS(N)))
    loss = lambda model: -jnp.sum(model.elbo(jax.random.key(7), batch()).elbo(2))
    found = eqx.filter_jit(eqx.filter_grad(loss))(model).parameters
    pgm = model.pgm
    posterior, stats = model.posterior(), model.infer(model.posterior(), batch()).solution.stats
    energy = lambda theta: jnp.sum(jax.vmap(lambda s, n: pgm.energy(theta, s, n))(stats, batch().lengths))
    counts = jax.grad(energy)(posterior.stats)
    wanted = jax.tree.map(
        lambda own, prior, count: own - prior - count, posterior.natural, pgm.prior(), counts
    )
    _, moved = jax.jvp(pgm.family.natural_from_unconstrained, (model.parameters,), (found,))
    tree_close(moved, wanted, rtol=1e-6, atol=1e-6)


def test_completions_are_draws_from_the_recognition_posterior():
    pgm = LDS(N)
    model = model_for(pgm, recognition_for(pgm))
    drawn = eqx.filter_jit(lambda m: m.impute(jax.random.key(0), batch(), 4000).latents)(model)
    latents = eqx.filter_jit(type(model).encode)(model, batch())
    error = np.asarray(latents.deviation) / np.sqrt(4000)
    inside = np.asarray(batch().inside)
    np.testing.assert_array_less(np.abs(drawn.mean(axis=0) - latents.mean)[inside], 5 * error[inside])
    np.testing.assert_allclose(drawn.std(axis=0)[inside], latents.deviation[inside], rtol=0.08)


def test_numbers_to_be_learned():
    """Of the paper's table, for 16 dimensions and 50 states: 1,516 with the model's 716; 800 + 2,550 more."""
    count = lambda tree: sum(x.size for x in jax.tree.leaves(tree))
    shapes = lambda make: eqx.filter_eval_shape(make, jax.random.key(0))
    of_model = lambda pgm: shapes(lambda key: pgm.family.unconstrained_from_natural(pgm.initial(key)))
    own = {pgm: count(shapes(lambda key: make_recognition(pgm, key))) for pgm in (LDS(16), SLDS(50, 16))}
    assert count(of_model(LDS(16))) + own[LDS(16)] == 1_516
    assert own[SLDS(50, 16)] == 800 + 2_550
    assert count(of_model(SLDS(50, 16))) == 30_804  # the paper leaves out 136 of these


def test_graphs_without_recognition_dynamics_are_refused():
    with pytest.raises(ValueError, match="HMM has no recognition dynamics"):
        make_recognition(HMM(3, 2), jax.random.key(0))
