"""The semi-Markov SLDS against all of its paths of states, against the SLDS, and against its own draws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import nbinom

from helpers import tree_close
from models import infer, known, random_case, random_parameters
from svae.expfam import (
    DirichletParameters,
    GaussianParameters,
    GaussianTerms,
    LinearGaussian,
    NegativeBinomialValue,
)
from svae.meanfield import CoordinateAscent
from svae.pgm import SLDS, SemiMarkovSLDS, SemiMarkovSLDSGlobals, SLDSGlobals
from svae.pgm.semi_markov import SIZES, dwell_log_probability, ending_probability
from switching_oracle import given_rules

TO_THE_END = CoordinateAscent(max_sweeps=400, tolerance=1e-22)


def log_prior(p, path):
    """log p(k) of a path of states, all dwells of the last segment that reach its end summed up."""
    runs = [(state, len(list(run))) for state, run in itertools.groupby(path)]
    total = np.log(p.start[path[0]])
    for i, (state, length) in enumerate(runs):
        size, stop = SIZES[p.dwell.size[state]], 1 - p.dwell.again[state]
        if i + 1 == len(runs):
            return total + nbinom.logsf(length - 2, size, stop)  # lasts as long as it is seen, or longer
        after = runs[i + 1][0]
        total += nbinom.logpmf(length - 1, size, stop)
        total += np.log(p.transition[state, [j for j in range(len(p.start)) if j != state].index(after)])


def enumerated(parameters, potential):
    """Log-evidence and probability of every path of states."""
    p, scores = jax.tree.map(np.asarray, parameters), {}
    for path in itertools.product(range(len(p.start)), repeat=len(potential.first) - 1):
        rules = [[x[k] for x in p.dynamics] for k in path]
        scores[path] = log_prior(p, path) + given_rules(p.initial, rules, potential)[0]
    total = logsumexp(list(scores.values()))
    return total, {path: np.exp(score - total) for path, score in scores.items()}


def problem(seed, time=5, states=3, max_dwell=60):
    """Known parameters, with short dwells of different sizes, and a path's potentials with a gap."""
    model = SemiMarkovSLDS(states, 2, max_dwell=max_dwell)
    parameters = random_parameters(model, jax.random.key(seed))
    dwell = NegativeBinomialValue(jnp.arange(states), jnp.asarray([0.5, 0.25, 0.15][:states]))
    parameters = parameters._replace(dwell=dwell)
    return model, parameters, random_case(model, seed, time, missing=(2, 3)).potentials


def path_of(potentials):
    return GaussianTerms(potentials[0].first, potentials[0].second)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_the_surrogate_is_a_bound_on_the_enumerated_evidence(seed):
    model, parameters, potentials = problem(seed)
    exact, _ = enumerated(parameters, path_of(potentials))
    inference = infer(model, known(model, parameters), potentials, solver=TO_THE_END)
    assert 0 < exact - float(inference.surrogate) < 3.0  # a bound, and no vacuous one
    short = SemiMarkovSLDS(3, 2, max_dwell=2)
    restricted = infer(short, known(model, parameters), short.wrap(path_of(potentials)), solver=TO_THE_END)
    assert restricted.surrogate < inference.surrogate  # fewer dwells in q: still a bound, a looser one


def test_where_the_path_is_known_the_states_are_exact():
    """With sure potentials z is no longer random, and mean field has nothing to factorise."""
    model, parameters, _ = problem(0)
    z = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    sure = 1e7 * jnp.ones((5, 2))
    potentials = model.potentials(sure * z, sure)
    _, probabilities = enumerated(parameters, path_of(potentials))
    found = infer(model, known(model, parameters), potentials, solver=TO_THE_END).solution.stats[1]
    one_hot, weight = np.eye(3)[np.array(list(probabilities))], np.array(list(probabilities.values()))
    np.testing.assert_allclose(found.node, np.einsum("p,ptk->tk", weight, one_hot), atol=1e-5)
    changes = np.einsum("p,pti,ptj->ij", weight, one_hot[:, :-1], one_hot[:, 1:])
    np.testing.assert_allclose(found.transition, changes * (1 - np.eye(3)), atol=1e-5)
    np.testing.assert_allclose(found.dwell.sum(), 1 + np.asarray(found.transition).sum(), rtol=1e-9)


def test_with_geometric_dwells_it_is_the_slds():
    model, plain = SemiMarkovSLDS(3, 2, max_dwell=200), SLDS(3, 2)
    given = random_parameters(plain, jax.random.key(0))
    again = np.array([0.5, 0.8, 0.3])
    others = np.random.default_rng(0).dirichlet(np.ones(2), size=3)
    matrix = np.diag(again)
    for i in range(3):
        matrix[i, [j for j in range(3) if j != i]] = (1 - again[i]) * others[i]
    dwell = NegativeBinomialValue(jnp.zeros(3, int), jnp.asarray(again))
    same = SemiMarkovSLDSGlobals(*given[:3], jnp.asarray(others), dwell)
    case = random_case(plain)
    one = infer(model, known(model, same), model.wrap(path_of(case.potentials)), solver=TO_THE_END)
    markov = SLDSGlobals(*given[:3], jnp.asarray(matrix))
    other = infer(plain, known(plain, markov), case.potentials, solver=TO_THE_END)
    tree_close(one.solution.stats[0], other.solution.stats[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.solution.stats[1].node, other.solution.stats[1].node, atol=1e-6)
    np.testing.assert_allclose(one.surrogate, other.surrogate, rtol=1e-9)


def test_expected_dwells_and_endings():
    """The table of log-probabilities, and P(d = e | d >= e), far into the tail."""
    model, parameters, _ = problem(0)
    theta = model.family.sufficient_stats(parameters).dwell
    table, ending = (
        np.asarray(dwell_log_probability(theta, 60)),
        np.asarray(ending_probability(parameters.dwell, 60)),
    )
    for k in range(3):
        law = nbinom(SIZES[k], 1 - parameters.dwell.again[k])
        np.testing.assert_allclose(table[k], law.logpmf(np.arange(60)), rtol=1e-9, atol=1e-9)
        hazard = np.exp(law.logpmf(np.arange(25)) - law.logsf(np.arange(25) - 1))
        np.testing.assert_allclose(ending[k, :25], hazard, rtol=1e-7)


def test_counts_of_dwells_give_the_conjugate_posterior():
    """Of r and p together, on a grid: prior times likelihood, normalised."""
    model = SemiMarkovSLDS(2, 1, max_dwell=20)
    counts = np.zeros((2, 20))
    counts[0, [3, 4, 6]] = [2, 3, 1]
    _, states = model.wrap(GaussianTerms(jnp.zeros((2, 1)), jnp.zeros((2, 1, 1))))
    prior, stats = model.prior(), states._replace(dwell=jnp.asarray(counts))
    gained = jax.grad(model.states_energy)(jax.tree.map(jnp.zeros_like, prior), stats)
    natural = jax.tree.map(jnp.add, prior.dwell, gained.dwell)
    found = model.family.factors.dwell.standard_from_natural(natural)
    p = (np.arange(4000) + 0.5) / 4000
    like = sum(c * nbinom.logpmf(d, SIZES[:, None], 1 - p) for d, c in enumerate(counts[0]) if c)
    grid = np.exp(like) * p * (1 - p)
    weight = grid.sum(axis=1) / grid.sum()
    np.testing.assert_allclose(np.exp(found.log_weight[0]), weight, rtol=1e-6)
    mean = (grid * p).sum(axis=1) / grid.sum(axis=1)
    np.testing.assert_allclose(found.again[0] / (found.again[0] + found.end[0]), mean, rtol=1e-6)
    np.testing.assert_allclose(np.exp(found.log_weight[1]), 1 / len(SIZES), rtol=1e-9)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_padding_is_exact(length):
    model, parameters, potentials = problem(2)
    posterior, (z, k) = known(model, parameters), potentials
    cut = model.wrap(GaussianTerms(z.first[:length], z.second[:length]))
    junk = lambda x, start, value: x.at[start:].set(value)
    dirty = z._replace(first=junk(z.first, length, 7.0), second=junk(z.second, length, -3 * jnp.eye(2)))
    dirty = dirty, k._replace(node=junk(k.node, length - 1, 5.0))
    alone = infer(model, posterior, cut, solver=TO_THE_END)
    padded = infer(model, posterior, dirty, length=jnp.asarray(length), solver=TO_THE_END)
    np.testing.assert_allclose(padded.kl_local, alone.kl_local, rtol=1e-10)
    short, long = alone.solution.stats[1], padded.solution.stats[1]
    np.testing.assert_allclose(long.node[: length - 1], short.node, atol=1e-10)
    np.testing.assert_array_equal(long.node[length - 1 :], 0)
    tree_close(tuple(long[1:]), tuple(short[1:]), rtol=1e-9, atol=1e-10)


def test_one_state_follows_itself():
    model = SemiMarkovSLDS(1, 2, max_dwell=3)
    parameters = random_parameters(model, jax.random.key(0))
    potentials = random_case(model).potentials
    inference = infer(model, known(model, parameters), potentials)
    np.testing.assert_allclose(inference.solution.stats[1].node, 1, rtol=1e-9)
    assert np.isfinite(inference.surrogate)


def simulated(states=2):
    """Sure parameters whose dwells have a typical length."""
    dynamics = LinearGaussian(jnp.zeros((states, 1, 2)), jnp.ones((states, 1, 1)))
    dwell = NegativeBinomialValue(jnp.asarray([0, 4]), jnp.asarray([0.6, 0.3]))  # r = 1 and r = 20
    initial = GaussianParameters(jnp.zeros(1), jnp.eye(1))
    return SemiMarkovSLDSGlobals(initial, dynamics, jnp.asarray([0.2, 0.8]), jnp.ones((2, 1)), dwell)


def test_generated_dwells_follow_their_law():
    parameters = simulated()
    _, path = jax.jit(lambda key: SemiMarkovSLDS(2, 1).generate(key, parameters, 40_000))(jax.random.key(0))
    state, left = (np.asarray(x) for x in path)
    begins = np.concatenate([[True], left[:-1] == 0])
    assert np.all(state[1:][begins[1:]] != state[:-1][begins[1:]])
    np.testing.assert_array_equal(left[1:][~begins[1:]], left[:-1][~begins[1:]] - 1)
    np.testing.assert_array_equal(state[1:][~begins[1:]], state[:-1][~begins[1:]])
    for k in (0, 1):
        drawn = left[begins & (state == k)]
        law = nbinom(SIZES[parameters.dwell.size[k]], 1 - parameters.dwell.again[k])
        share = np.bincount(np.minimum(drawn, 30), minlength=31) / len(drawn)
        expected = np.append(law.pmf(np.arange(30)), law.sf(29))
        assert len(drawn) > 3000
        np.testing.assert_allclose(share, expected, atol=5 * np.sqrt(0.25 / len(drawn)))


@pytest.mark.slow
def test_completions_are_draws_from_the_exact_posterior():
    _, parameters, potentials = problem(1, time=5, max_dwell=3)  # longer dwells have a mode in common
    potentials = jax.tree.map(lambda x: 0.1 * x, potentials)
    _, probabilities = enumerated(parameters, path_of(potentials))
    count, many = 4000, SemiMarkovSLDS(3, 2, num_particles=1000, max_dwell=10)
    potentials = many.wrap(path_of(potentials))
    complete = jax.jit(lambda key: many.complete_given(key, parameters, potentials, count, None))
    _, states = complete(jax.random.key(0))
    np.testing.assert_array_equal(states[:, 0], states[:, 1])
    drawn = [tuple(path) for path in np.asarray(states[:, 1:]).tolist()]
    assert max(probabilities.values()) < 0.5
    for path, probability in probabilities.items():
        error = 4 * np.sqrt(probability / count) + 0.015  # of the draws, and of the particles
        assert drawn.count(path) / count == pytest.approx(probability, abs=error), path


def test_priors_have_the_documented_values():
    model = SemiMarkovSLDS(4, 2)
    standard = model.family.standard_from_natural(model.prior())
    assert isinstance(standard.transition, DirichletParameters)
    np.testing.assert_allclose(standard.transition.concentration, np.full((4, 3), 0.5))
    np.testing.assert_allclose(np.exp(standard.dwell.log_weight), 1 / 21)
    np.testing.assert_allclose(standard.dwell.again, 2.0)
    np.testing.assert_allclose(standard.dwell.end, 2.0)
    assert SIZES.tolist() == [1, 5, *range(10, 101, 5)]
