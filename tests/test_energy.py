"""Energies against densities written out with scipy, and models against exact answers."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, nbinom

from helpers import tree_close
from models import MODELS, energy, infer, known, random_case, random_parameters
from svae.expfam import (
    GaussianParameters,
    GaussianTerms,
    LinearGaussian,
    add,
    inner,
    prior_kl,
)
from svae.meanfield import CoordinateAscent
from svae.pgm import LDS, SLDS, LDSGlobals, SLDSGlobals
from svae.pgm.semi_markov import SIZES


def normal(x, mean, covariance):
    return multivariate_normal.logpdf(x, mean, covariance)


def transition(z, t, weights, covariance):
    return normal(z[t + 1], weights[:, :-1] @ z[t] + weights[:, -1], covariance)


def markov(states, start, matrix):
    return np.log(start[states[0]]) + sum(np.log(matrix[a, b]) for a, b in itertools.pairwise(states))


def log_density_normal(_, z):
    return sum(normal(x, np.zeros(len(x)), np.eye(len(x))) for x in z)


def log_density_mixture(p, z, k):
    return sum(
        normal(x, *(y[s] for y in p.emission)) + np.log(p.weights[s]) for x, s in zip(z, k, strict=True)
    )


def log_density_hmm(p, z, k):
    emissions = sum(normal(x, *(y[s] for y in p.emission)) for x, s in zip(z, k, strict=True))
    return emissions + markov(k, p.start, p.transition)


def log_density_lds(p, z):
    return normal(z[0], *p.initial) + sum(transition(z, t, *p.dynamics) for t in range(len(z) - 1))


def log_density_slds(p, z, k):
    moves = sum(transition(z, t, *(x[s] for x in p.dynamics)) for t, s in enumerate(k))
    return normal(z[0], *p.initial) + moves + markov(k, p.start, p.transition)


def log_density_jslds(p, z, k):
    first = normal(z[0], *(x[k[0]] for x in p.initial))
    rules = [p.dynamics if a == b else p.jump for a, b in itertools.pairwise(k)]
    moves = sum(transition(z, t, *(x[s] for x in rules[t])) for t, s in enumerate(k[1:]))
    return first + moves + markov(k, p.start, p.transition)


def log_density_hsmm_slds(p, z, path):
    k, left = np.asarray(path.state), np.asarray(path.remaining)
    begins = [t for t in range(len(k)) if t == 0 or left[t - 1] == 0]
    size, again = SIZES[p.dwell.size], np.asarray(p.dwell.again)
    dwells = sum(nbinom.logpmf(left[t], size[k[t]], 1 - again[k[t]]) for t in begins)
    others = lambda i: [j for j in range(len(p.start)) if j != i]
    pairs = [(k[t - 1], k[t]) for t in begins if t]
    changes = sum(np.log(p.transition[i, others(i).index(j)]) for i, j in pairs)
    moves = sum(transition(z, t, *(x[s] for x in p.dynamics)) for t, s in enumerate(k))
    return normal(z[0], *p.initial) + moves + np.log(p.start[k[0]]) + changes + dwells


def log_density_coupled(p, z, j, k):
    moves = sum(
        transition(z, t, *(x[a, b] for x in p.dynamics)) for t, (a, b) in enumerate(zip(j, k, strict=True))
    )
    chains = markov(j, p.what_start, p.what) + markov(k, p.pace_start, p.pace)
    return normal(z[0], *p.initial) + moves + chains


LOG_DENSITIES = {
    name.removeprefix("log_density_").replace("_", "-"): f
    for name, f in globals().items()
    if "log_density_" in name
}


def stats_of(model, values):
    return tuple(block.sufficient_stats(v) for block, v in zip(model.blocks(None), values, strict=True))


@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_energy_is_the_log_density_at_known_values(name):
    model = MODELS[name]
    keys = jax.random.split(jax.random.key(0))
    parameters = random_parameters(model, keys[0])

    @jax.jit
    def generate(key, parameters):
        values = model.generate(key, parameters, 6)
        theta = model.family.sufficient_stats(parameters)
        return values, model.energy(theta, stats_of(model, values), None)

    values, actual = generate(keys[1], parameters)
    expected = LOG_DENSITIES[name](*jax.tree.map(np.asarray, (parameters, *values)))
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_energy_is_affine_in_each_argument(name):
    model = MODELS[name]
    one, two = random_case(model, 0), random_case(model, 1)
    stats = [infer(model, case.posterior, case.potentials).solution.stats for case in (one, two)]

    def check(function, a, b):
        middle = function(jax.tree.map(lambda x, y: 0.25 * np.asarray(x) + 0.75 * np.asarray(y), a, b))
        np.testing.assert_allclose(middle, 0.25 * function(a) + 0.75 * function(b), rtol=1e-10)

    check(lambda theta: energy(model, theta, stats[0]), one.posterior.stats, two.posterior.stats)
    for m in range(len(stats[0])):
        replaced = lambda own: (*stats[0][:m], own, *stats[0][m + 1 :])
        check(lambda own: energy(model, one.posterior.stats, replaced(own)), stats[0][m], stats[1][m])


@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_local_kl_is_the_mean_log_ratio(name):
    model = MODELS[name]
    case = random_case(model)
    parameters = random_parameters(model, jax.random.key(5))
    posterior = known(model, parameters)
    inference = infer(model, posterior, case.potentials, solver=CoordinateAscent(max_sweeps=3))
    solution = inference.solution

    def log_ratio(key):
        values = model.sample(key, solution)
        stats = stats_of(model, values)
        log_q = inner(solution.naturals, stats) - sum(solution.log_partitions)
        return log_q - model.energy(posterior.stats, stats, None)

    ratios = np.asarray(jax.jit(jax.vmap(log_ratio))(jax.random.split(jax.random.key(1), 10_000)))
    error = ratios.std() / np.sqrt(len(ratios))
    assert abs(ratios.mean() - inference.kl_local) < 5 * error


def linear_gaussian_problem(seed, time, size, obs):
    """x_t = C z_t + d + noise, and the potentials that are exactly its likelihood."""
    rng = np.random.default_rng(seed)
    C, d, variance = rng.normal(size=(obs, size)), rng.normal(size=obs), 0.5
    x = rng.normal(size=(time, obs))
    precision = C.T @ C / variance
    linear = (x - d) @ C / variance
    return x, C, d, variance, linear, precision


def exact_log_evidence(x, C, d, variance, initial, weights, covariance):
    """log p(x) from the dense joint Gaussian of a chain with a transition for each step."""
    time, size = len(x), len(initial[0])
    # z = F (noise) with z_{t+1} = A_t z_t + b_t + e_t
    F = np.eye(time * size)
    mean = [np.asarray(initial[0])]
    blocks = [np.asarray(initial[1])]
    for t in range(time - 1):
        A, b = np.asarray(weights[t][:, :-1]), np.asarray(weights[t][:, -1])
        rows = slice((t + 1) * size, (t + 2) * size)
        F[rows] += A @ F[t * size : (t + 1) * size]
        mean.append(A @ mean[-1] + b)
        blocks.append(np.asarray(covariance[t]))
    noise = np.zeros((time * size, time * size))
    for t, block in enumerate(blocks):
        noise[t * size : (t + 1) * size, t * size : (t + 1) * size] = block
    big = np.kron(np.eye(time), C)
    mean_x = big @ np.concatenate(mean) + np.tile(d, time)
    cov_x = big @ F @ noise @ F.T @ big.T + variance * np.eye(len(mean_x))
    return multivariate_normal.logpdf(np.ravel(x), mean_x, cov_x)


def elbo(model, parameters, x, C, d, variance, linear, precision):
    """E_q log p(x | z) - KL(q || p), in closed form."""
    obs = x.shape[1]
    second = -0.5 * np.broadcast_to(precision, (len(x), *precision.shape))
    potentials = model.wrap(GaussianTerms(jnp.asarray(linear), jnp.asarray(second)))
    solver = CoordinateAscent(max_sweeps=200, tolerance=1e-14)
    inference = infer(model, known(model, parameters), potentials, solver=solver)
    residual = x - d
    constant = -0.5 * np.sum(residual**2) / variance - 0.5 * len(x) * obs * np.log(2 * np.pi * variance)
    return inference.surrogate + constant


def test_elbo_is_the_exact_evidence_for_a_linear_gaussian_decoder():
    model = LDS(2)
    parameters = random_parameters(model, jax.random.key(0))
    data = linear_gaussian_problem(1, 7, 2, 3)
    x, C, d, variance, *_ = data
    weights, covariance = parameters.dynamics
    exact = exact_log_evidence(x, C, d, variance, parameters.initial, [weights] * 6, [covariance] * 6)
    np.testing.assert_allclose(elbo(model, parameters, *data), exact, rtol=1e-9)


def test_slds_elbo_is_a_lower_bound_on_the_enumerated_evidence():
    model, time = SLDS(2, 2), 6
    gaps = []
    for seed in range(4):
        key = jax.random.key(seed)
        parameters = random_parameters(model, key)
        data = linear_gaussian_problem(10 + seed, time, 2, 3)
        x, C, d, variance, *_ = data
        terms = []
        for path in itertools.product(range(2), repeat=time - 1):
            weights, covariance = ([np.asarray(p)[k] for k in path] for p in parameters.dynamics)
            evidence = exact_log_evidence(x, C, d, variance, parameters.initial, weights, covariance)
            terms.append(
                evidence + markov(path, np.asarray(parameters.start), np.asarray(parameters.transition))
            )
        gaps.append(logsumexp(terms) - float(elbo(model, parameters, *data)))
    assert min(gaps) > 0
    assert max(gaps) < 3.0  # a bound, and no vacuous one


def test_slds_with_one_state_is_the_lds():
    slds, lds = SLDS(1, 2), LDS(2)
    parameters = random_parameters(lds, jax.random.key(0))
    weights, covariance = parameters.dynamics
    dynamics = LinearGaussian(weights[None], covariance[None])
    same = SLDSGlobals(parameters.initial, dynamics, jnp.ones(1), jnp.ones((1, 1)))
    case = random_case(lds)
    potentials = slds.potentials(case.linear, case.precision)
    one = infer(slds, known(slds, same), potentials)
    other = infer(lds, known(lds, parameters), case.potentials)
    tree_close(one.solution.stats[0], other.solution.stats[0])
    np.testing.assert_allclose(one.kl_local, other.kl_local, rtol=1e-9)


def test_generated_lds_paths_have_the_moments_of_the_model():
    model = LDS(2)
    weights = jnp.array([[0.8, 0.3, 0.1], [-0.2, 0.9, -0.5]])
    covariance = jnp.array([[0.5, 0.2], [0.2, 0.4]])
    initial = GaussianParameters(jnp.array([1.0, -1.0]), jnp.array([[0.3, -0.1], [-0.1, 0.6]]))
    parameters = LDSGlobals(initial, LinearGaussian(weights, covariance))
    keys = jax.random.split(jax.random.key(0), 40_000)
    (paths,) = jax.jit(jax.vmap(lambda k: model.generate(k, parameters, 3)))(keys)
    mean, cov = np.asarray(initial.mean), np.asarray(initial.covariance)
    for t in range(3):
        z = np.asarray(paths[:, t])
        np.testing.assert_allclose(z.mean(0), mean, atol=5 * np.sqrt(cov.max() / len(z)))
        np.testing.assert_allclose(np.cov(z.T), cov, atol=5 * cov.max() * np.sqrt(2 / len(z)))
        A = np.asarray(weights[:, :-1])
        mean, cov = A @ mean + np.asarray(weights[:, -1]), A @ cov @ A.T + np.asarray(covariance)


def test_generated_states_follow_the_chain():
    model = SLDS(3, 1)
    start, matrix = jnp.array([0.2, 0.5, 0.3]), jnp.array([[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.1, 0.1, 0.8]])
    dynamics = LinearGaussian(jnp.zeros((3, 1, 2)), jnp.ones((3, 1, 1)))
    parameters = SLDSGlobals(GaussianParameters(jnp.zeros(1), jnp.eye(1)), dynamics, start, matrix)
    keys = jax.random.split(jax.random.key(0), 20_000)
    _, states = jax.jit(jax.vmap(lambda k: model.generate(k, parameters, 4)))(keys)
    expected = np.asarray(start)
    for t in range(3):
        frequency = np.bincount(np.asarray(states[:, t]), minlength=3) / len(states)
        np.testing.assert_allclose(frequency, expected, atol=5 * np.sqrt(0.25 / len(states)))
        expected = expected @ np.asarray(matrix)


@pytest.mark.parametrize("name", LOG_DENSITIES)
def test_prior_kl_vanishes_at_the_prior_and_is_positive_elsewhere(name):
    model = MODELS[name]
    case = random_case(model)

    @jax.jit
    def divergences(posterior):
        prior = model.prior()
        pairs = (prior, prior), (posterior.natural, prior)
        return [model.family.kl(*pair) for pair in pairs], prior_kl(model.family, posterior, prior)

    (nothing, expected), kl = divergences(case.posterior)
    assert nothing == pytest.approx(0, abs=1e-9)
    np.testing.assert_allclose(kl, expected, rtol=1e-9, atol=1e-9)
    assert kl > 0 or name == "normal"


def test_priors_have_the_documented_values():
    model = SLDS(4, 16)
    standard = jax.jit(lambda: model.family.standard_from_natural(model.prior()))()
    np.testing.assert_allclose(standard.initial.scale, 16 * np.eye(16))
    np.testing.assert_allclose(standard.initial.confidence, 1e-3)
    np.testing.assert_allclose(standard.initial.dof, 18)
    np.testing.assert_allclose(standard.dynamics.mean[2], 0.9 * np.eye(16, 17), atol=1e-12)
    np.testing.assert_allclose(standard.dynamics.input_precision[1], 1e-3 * np.eye(17))
    np.testing.assert_allclose(standard.start.concentration, 0.1)
    np.testing.assert_allclose(standard.transition.concentration, np.full((4, 4), 0.5) + 99.5 * np.eye(4))


def test_svi_statistics_are_the_expected_sufficient_statistics():
    # d energy / d theta is what stochastic variational inference adds up: here for the SLDS by hand
    model = MODELS["slds"]
    case = random_case(model)
    stats = infer(model, case.posterior, case.potentials).solution.stats
    gradient = jax.jit(jax.grad(model.energy))(case.posterior.stats, stats, None)
    z, k = (type(block)(*map(np.asarray, block)) for block in stats)
    np.testing.assert_allclose(gradient.dynamics.weight, k.node.sum(0), rtol=1e-10)
    np.testing.assert_allclose(
        gradient.dynamics.output, np.einsum("tk,tij->kij", k.node, z.second[1:]), rtol=1e-10
    )
    cross = np.concatenate([np.swapaxes(z.cross, 1, 2), z.first[1:, :, None]], axis=2)
    np.testing.assert_allclose(gradient.dynamics.cross, np.einsum("tk,tij->kij", k.node, cross), rtol=1e-10)
    np.testing.assert_allclose(gradient.transition.log_probability, k.transition, rtol=1e-10)
    np.testing.assert_allclose(gradient.start.log_probability, k.node[0], rtol=1e-10)
    np.testing.assert_allclose(gradient.initial.second, z.second[0], rtol=1e-10)
    assert gradient.initial.weight == pytest.approx(1)


def test_adding_statistics_gives_the_conjugate_posterior():
    # one batch variational Bayes step raises the bound: kl_local + prior_kl falls at fixed q(z)
    model = MODELS["lds"]
    case = random_case(model)
    stats = infer(model, case.posterior, case.potentials).solution.stats

    @jax.jit
    def costs(own, theta):
        target = add(model.prior(), jax.grad(model.energy)(theta, stats, None))

        def cost(scale):
            natural = add(target, add(own, target, -1.0), scale)
            theta = model.family.expected_stats(natural)
            return model.family.kl(natural, model.prior()) - model.energy(theta, stats, None)

        return jax.vmap(cost)(jnp.array([0.0, 0.1, 0.5]))

    best, *others = costs(case.posterior.natural, case.posterior.stats)
    assert min(others) > best
