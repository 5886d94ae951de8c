"""The jumping SLDS against all of its paths of states, against the SLDS, and against its own draws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from helpers import tree_close
from models import infer, known, random_case, random_parameters
from svae.chains import Form
from svae.expfam import GaussianParameters, GaussianTerms, LinearGaussian
from svae.meanfield import CoordinateAscent
from svae.pgm import SLDS, JumpingSLDS, JumpingSLDSGlobals, SLDSGlobals
from switching_oracle import given_rules

TO_THE_END = CoordinateAscent(max_sweeps=400, tolerance=1e-22)


def enumerated(parameters, potential):
    """Log-evidence and probability of every path of states."""
    p, scores = jax.tree.map(np.asarray, parameters), {}
    states = len(p.start)
    for path in itertools.product(range(states), repeat=len(potential.first)):
        prior = np.log(p.start[path[0]])
        prior += sum(np.log(p.transition[i, j]) for i, j in itertools.pairwise(path))
        ways = [(p.dynamics if i == j else p.jump, j) for i, j in itertools.pairwise(path)]
        rules = [[x[j] for x in way] for way, j in ways]
        initial = [x[path[0]] for x in p.initial]
        scores[path] = prior + given_rules(initial, rules, potential)[0]
    total = logsumexp(list(scores.values()))
    return total, {path: np.exp(score - total) for path, score in scores.items()}


def problem(seed, time=5, states=2, size=2):
    """Known parameters, whose jumps are large, and a path's potentials with a gap."""
    model = JumpingSLDS(states, size)
    parameters = random_parameters(model, jax.random.key(seed))
    offset = 2.0 * np.random.default_rng(seed).normal(size=(states, size, 1))
    weights = jnp.concatenate([0.2 * parameters.jump.weights[..., :-1], jnp.asarray(offset)], axis=-1)
    parameters = parameters._replace(jump=LinearGaussian(weights, 0.5 * parameters.jump.covariance))
    return model, parameters, random_case(model, seed, time, missing=(2, 3)).potentials


def path_of(potentials):
    return GaussianTerms(potentials[0].first, potentials[0].second)


@pytest.mark.parametrize("seed", range(3))
def test_the_surrogate_is_a_bound_on_the_enumerated_evidence(seed):
    model, parameters, potentials = problem(seed)
    exact, _ = enumerated(parameters, path_of(potentials))
    inference = infer(model, known(model, parameters), potentials, solver=TO_THE_END)
    assert 0 < exact - float(inference.surrogate) < 3.0  # a bound, and no vacuous one


def test_where_the_path_is_known_the_states_are_exact():
    """With sure potentials z is no longer random, and mean field has nothing to factorise."""
    model, parameters, potentials = problem(0)
    z = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)))
    sure = 1e7 * jnp.ones((5, 2))
    potentials = model.potentials(sure * z, sure)
    _, probabilities = enumerated(parameters, path_of(potentials))
    found = infer(model, known(model, parameters), potentials, solver=TO_THE_END).solution.stats[1]
    one_hot = np.eye(2)[np.array(list(probabilities))]
    weight = np.array(list(probabilities.values()))
    np.testing.assert_allclose(found.node, np.einsum("p,ptk->tk", weight, one_hot), atol=1e-5)
    pairs = np.einsum("p,pti,ptj->tij", weight, one_hot[:, :-1], one_hot[:, 1:])
    np.testing.assert_allclose(found.transition, pairs, atol=1e-5)


def test_if_jumps_are_like_other_steps_it_is_the_slds():
    jumping, plain = JumpingSLDS(3, 2), SLDS(3, 2)
    given = random_parameters(plain, jax.random.key(0))
    repeated = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), given.initial)
    same = JumpingSLDSGlobals(repeated, given.dynamics, given.dynamics, given.start, given.transition)
    second = SLDSGlobals(*given[:2], given.start @ given.transition, given.transition)
    case = random_case(plain)
    potentials = jumping.potentials(case.linear, case.precision)
    one = infer(jumping, known(jumping, same), potentials, solver=TO_THE_END)
    other = infer(plain, known(plain, second), case.potentials, solver=TO_THE_END)
    tree_close(one.solution.stats[0], other.solution.stats[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.solution.stats[1].node[1:], other.solution.stats[1].node, atol=1e-6)
    np.testing.assert_allclose(one.surrogate, other.surrogate, rtol=1e-9)


@pytest.mark.parametrize("form", [pytest.param(Form.PARALLEL, marks=pytest.mark.slow), Form.KERNEL])
def test_all_forms_agree(form):
    model, parameters, potentials = problem(1)
    plain = infer(model, known(model, parameters), potentials, solver=CoordinateAscent(3))
    other = infer(JumpingSLDS(2, 2, form), known(model, parameters), potentials, solver=CoordinateAscent(3))
    tree_close(other.solution.stats, plain.solution.stats, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_padding_is_exact(length):
    model, parameters, potentials = problem(2)
    posterior, (z, k) = known(model, parameters), potentials
    cut = model.wrap(GaussianTerms(z.first[:length], z.second[:length]))
    junk = lambda x, value: x.at[length:].set(value)
    dirty = z._replace(first=junk(z.first, 7.0), second=junk(z.second, -3 * jnp.eye(2)))
    dirty = dirty, k._replace(node=junk(k.node, 5.0), transition=k.transition.at[length - 1 :].set(5.0))
    alone = infer(model, posterior, cut, solver=TO_THE_END)
    padded = infer(model, posterior, dirty, length=jnp.asarray(length), solver=TO_THE_END)
    np.testing.assert_allclose(padded.kl_local, alone.kl_local, rtol=1e-10)
    for short, long in zip(alone.solution.stats[1], padded.solution.stats[1], strict=True):
        np.testing.assert_allclose(long[: len(short)], short, atol=1e-10)
        np.testing.assert_array_equal(long[len(short) :], 0)


def test_without_data_the_states_are_the_prior_chain():
    model, parameters, _ = problem(0)
    nothing = model.potentials(jnp.zeros((4, 2)), jnp.zeros((4, 2)))
    draws, states = jax.jit(lambda key: model.complete_given(key, parameters, nothing, 8000, None))(
        jax.random.key(0)
    )
    expected = np.asarray(parameters.start)
    for t in range(4):
        share = np.bincount(np.asarray(states[:, t]), minlength=2) / len(states)
        np.testing.assert_allclose(share, expected, atol=0.05)  # of 300 particles
        expected = expected @ np.asarray(parameters.transition)
    assert np.all(np.isfinite(draws))


@pytest.mark.slow  # as with states that have places, in the same way
def test_completions_are_draws_from_the_exact_posterior():
    _, parameters, potentials = problem(1, time=4)
    potentials = jax.tree.map(lambda x: 0.1 * x, potentials)
    _, probabilities = enumerated(parameters, path_of(potentials))
    count, many = 4000, JumpingSLDS(2, 2, num_particles=1000)
    complete = jax.jit(lambda key: many.complete_given(key, parameters, potentials, count, None))
    drawn = [tuple(path) for path in np.asarray(complete(jax.random.key(0))[1]).tolist()]
    assert max(probabilities.values()) < 0.8
    for path, probability in probabilities.items():
        error = 4 * np.sqrt(probability / count) + 0.015  # of the draws, and of the particles
        assert drawn.count(path) / count == pytest.approx(probability, abs=error), path


def test_generated_paths_jump_where_the_state_changes():
    quiet = jnp.broadcast_to(1e-4 * jnp.eye(1), (2, 1, 1))
    stay = LinearGaussian(jnp.array([[[0.5, 0.0]], [[0.5, 0.0]]]), quiet)
    jump = LinearGaussian(jnp.array([[[0.0, 3.0]], [[1.0, -2.0]]]), quiet)
    parameters = JumpingSLDSGlobals(
        GaussianParameters(jnp.array([[5.0], [-5.0]]), quiet),
        stay,
        jump,
        jnp.array([0.5, 0.5]),
        jnp.array([[0.7, 0.3], [0.4, 0.6]]),
    )
    generate = jax.jit(lambda key: JumpingSLDS(2, 1).generate(key, parameters, 200))
    z, k = (np.asarray(x) for x in generate(jax.random.key(0)))
    assert abs(z[0, 0] - (5.0 if k[0] == 0 else -5.0)) < 0.1
    changed, to = k[1:] != k[:-1], k[1:]
    expected = np.where(~changed, 0.5 * z[:-1, 0], np.where(to == 0, 3.0, z[:-1, 0] - 2.0))
    assert 30 < changed.sum() < 120
    np.testing.assert_allclose(z[1:, 0], expected, atol=0.06)


def test_known_states_are_kept():
    model, parameters, potentials = problem(0)
    allowed = jnp.asarray(np.eye(2, dtype=bool)[[1, 1, 0, 0, 1]])
    solution = infer(model, known(model, parameters), model.restrict(potentials, allowed)).solution
    np.testing.assert_array_equal(jax.jit(model.most_likely_states)(solution), [1, 1, 0, 0, 1])
    few = JumpingSLDS(2, 2, num_particles=10)
    complete = jax.jit(lambda given: few.complete_given(jax.random.key(0), parameters, given, 20, None))
    _, states = complete(model.restrict(potentials, allowed))
    np.testing.assert_array_equal(states, np.broadcast_to([1, 1, 0, 0, 1], (20, 5)))
