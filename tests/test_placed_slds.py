"""The SLDS with places against densities, against all of its paths of states, and against the jumping one."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from helpers import tree_close
from models import energy, infer, known, random_case, random_parameters
from svae.expfam import GaussianParameters, GaussianTerms, LinearGaussian, parameter_posterior
from svae.meanfield import CoordinateAscent
from svae.pgm import JumpingSLDS, JumpingSLDSGlobals, PlacedSLDS, SLDSGlobals
from switching_oracle import given_rules

TO_THE_END = CoordinateAscent(max_sweeps=400, tolerance=1e-22)


def problem(seed, time=5, states=2, size=2):
    """Known parameters, with places far from each other, and a path's potentials with a gap."""
    model = PlacedSLDS(states, size)
    parameters = random_parameters(model, jax.random.key(seed))
    places = 2.0 * np.random.default_rng(seed).normal(size=(states, size))
    initial = GaussianParameters(jnp.asarray(places), 0.3 * parameters.initial.covariance)
    parameters = parameters._replace(initial=initial)
    return model, parameters, random_case(model, seed, time, missing=(2, 3)).potentials


def path_of(potentials):
    return GaussianTerms(potentials[0].first, potentials[0].second)


def enumerated(parameters, potential):
    """Log-evidence and probability of every path of states."""
    p, scores = jax.tree.map(np.asarray, parameters), {}
    for path in itertools.product(range(len(p.start)), repeat=len(potential.first)):
        prior = np.log(p.start[path[0]])
        prior += sum(np.log(p.transition[i, j]) for i, j in itertools.pairwise(path))
        rules = [[x[j] for x in p.dynamics] for j in path[1:]]
        scores[path] = prior + given_rules([x[path[0]] for x in p.initial], rules, potential)[0]
    total = logsumexp(list(scores.values()))
    return total, {path: np.exp(score - total) for path, score in scores.items()}


def test_the_energy_of_a_draw_is_its_log_density():
    model, parameters, _ = problem(0, states=3)
    p = jax.tree.map(np.asarray, parameters)
    z, k = map(np.asarray, jax.jit(lambda key: model.generate(key, parameters, 6))(jax.random.key(1)))
    normal = multivariate_normal.logpdf
    expected = np.log(p.start[k[0]]) + normal(z[0], *(x[k[0]] for x in p.initial))
    for t in range(1, 6):
        weights, covariance = (x[k[t]] for x in p.dynamics)
        expected += np.log(p.transition[k[t - 1], k[t]])
        expected += normal(z[t], weights[:, :-1] @ z[t - 1] + weights[:, -1], covariance)
    of = lambda *values: tuple(b.sufficient_stats(x) for b, x in zip(model.blocks(None), values, strict=True))
    stats = jax.jit(of)(jnp.asarray(z), jnp.asarray(k))
    found = energy(model, known(model, parameters).stats, stats)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_the_surrogate_is_a_bound_on_the_enumerated_evidence(seed):
    model, parameters, potentials = problem(seed)
    exact, _ = enumerated(parameters, path_of(potentials))
    inference = infer(model, known(model, parameters), potentials, solver=TO_THE_END)
    assert 0 < exact - float(inference.surrogate) < 3.0  # a bound, and no vacuous one


@pytest.mark.parametrize("length", [1, 3, None])
def test_it_is_the_jumping_slds_whose_jumps_are_like_other_steps(length):
    model, given, potentials = problem(1)
    jumping = JumpingSLDS(2, 2)
    same = JumpingSLDSGlobals(given.initial, given.dynamics, given.dynamics, given.start, given.transition)
    options = {"length": None if length is None else jnp.asarray(length), "solver": TO_THE_END}
    one = infer(model, known(model, given), potentials, **options)
    other = infer(jumping, known(jumping, same), jumping.wrap(path_of(potentials)), **options)
    tree_close(one.solution.stats[0], other.solution.stats[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(one.solution.stats[1].node, other.solution.stats[1].node, atol=1e-6)
    np.testing.assert_allclose(one.kl_local, other.kl_local, rtol=1e-8)


def test_completions_are_draws_from_the_exact_posterior():
    _, parameters, potentials = problem(1, time=4)
    potentials = jax.tree.map(lambda x: 0.1 * x, potentials)
    _, probabilities = enumerated(parameters, path_of(potentials))
    count, many = 4000, PlacedSLDS(2, 2, num_particles=1000)
    complete = jax.jit(lambda key: many.complete_given(key, parameters, potentials, count, None))
    drawn = [tuple(path) for path in np.asarray(complete(jax.random.key(0))[1]).tolist()]
    assert max(probabilities.values()) < 0.8
    for path, probability in probabilities.items():
        error = 4 * np.sqrt(probability / count) + 0.015  # of the draws, and of the particles
        assert drawn.count(path) / count == pytest.approx(probability, abs=error), path


def test_new_paths_begin_in_the_place_of_their_first_state():
    """With the place's own spread, though dynamics were learned around it: both say the same thing once."""
    size = 1
    model = PlacedSLDS(2, size, stay=1.0)
    standard = jax.jit(lambda key: model.family.standard_from_natural(model.initial(key)))(jax.random.key(0))
    place = standard.initial._replace(
        mean=jnp.array([[5.0], [-5.0]]),
        scale=jnp.full((2, 1, 1), 1000.0),
        dof=jnp.full(2, 1002.0),
        confidence=jnp.full(2, 1000.0),
    )
    seen = jnp.array([[[26.0, 5.0], [5.0, 1.0]], [[26.0, -5.0], [-5.0, 1.0]]])  # inputs: these places
    dynamics = standard.dynamics._replace(input_precision=1000 * seen)

    @jax.jit
    def draw(standard):
        unconstrained = model.family.unconstrained_from_standard(standard)
        posterior = parameter_posterior(model.family, unconstrained)
        return jax.tree.map(lambda x: x[0], model.draw_parameters(jax.random.key(1), posterior))

    drawn = draw(standard._replace(initial=place, dynamics=dynamics))
    begin = jax.jit(jax.vmap(lambda key: model.generate(key, drawn, 2)))
    z, k = (np.asarray(x) for x in begin(jax.random.split(jax.random.key(2), 4000)))
    centred = z[:, 0, 0] - np.where(k[:, 0] == 0, 5.0, -5.0)
    assert abs(centred.mean()) < 0.1
    assert centred.std() == pytest.approx(1.0, abs=0.08)


def test_known_states_are_kept():
    model, parameters, potentials = problem(0)
    allowed = jnp.asarray(np.eye(2, dtype=bool)[[1, 1, 0, 0, 1]])
    solution = infer(model, known(model, parameters), model.restrict(potentials, allowed)).solution
    np.testing.assert_array_equal(jax.jit(model.most_likely_states)(solution), [1, 1, 0, 0, 1])
    few = PlacedSLDS(2, 2, num_particles=10)
    complete = jax.jit(lambda given: few.complete_given(jax.random.key(0), parameters, given, 20, None))
    _, states = complete(model.restrict(potentials, allowed))
    np.testing.assert_array_equal(states, np.broadcast_to([1, 1, 0, 0, 1], (20, 5)))


def test_a_given_prior_of_places_is_every_states():
    given = [[2.0, 0.1], [0.1, 1.0]], [0.5, -0.5], 1e-3, 4.0
    nested = tuple(tuple(map(tuple, x)) if i == 0 else tuple(x) if i == 1 else x for i, x in enumerate(given))
    model = PlacedSLDS(3, 2, places=nested)
    found = model.family.standard_from_natural(model.prior())
    assert isinstance(found, SLDSGlobals)
    for ours, theirs in zip(found.initial, given, strict=True):
        for state in range(3):
            np.testing.assert_allclose(ours[state], theirs, rtol=1e-5)


def test_a_linear_rule_leads_from_the_place():
    quiet = jnp.broadcast_to(1e-4 * jnp.eye(1), (2, 1, 1))
    parameters = SLDSGlobals(
        GaussianParameters(jnp.array([[5.0], [-5.0]]), quiet),
        LinearGaussian(jnp.array([[[0.5, 0.0]], [[0.9, 1.0]]]), quiet),
        jnp.array([0.5, 0.5]),
        jnp.array([[0.7, 0.3], [0.4, 0.6]]),
    )
    generate = jax.jit(lambda key: PlacedSLDS(2, 1).generate(key, parameters, 100))
    z, k = (np.asarray(x) for x in generate(jax.random.key(0)))
    assert abs(z[0, 0] - (5.0 if k[0] == 0 else -5.0)) < 0.1
    expected = np.where(k[1:] == 0, 0.5 * z[:-1, 0], 0.9 * z[:-1, 0] + 1.0)
    np.testing.assert_allclose(z[1:, 0], expected, atol=0.06)
