"""Particle draws of a switching system against all paths of states, each with its joint Gaussian."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from svae.expfam import GaussianParameters, GaussianTerms, LinearGaussian
from svae.pgm import SLDSGlobals
from svae.pgm.particles import (
    Evidence,
    Learned,
    Switching,
    absorb,
    also_where_learned,
    draw_paths,
    familiar_start,
    familiar_ways,
    markov_switching,
    reading,
    simulate,
    strange,
)
from switching_oracle import given_rules, highest

STATES, SIZE = 2, 2
draw = jax.jit(draw_paths, static_argnums=(3, 4))


@pytest.fixture(scope="module")
def parameters():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(STATES + 1, SIZE, SIZE))
    covariance = 0.3 * root @ np.swapaxes(root, 1, 2) + 0.2 * np.eye(SIZE)
    weights = np.concatenate(
        [0.7 * rng.normal(size=(STATES, SIZE, SIZE)), rng.normal(size=(STATES, SIZE, 1))], axis=2
    )
    return SLDSGlobals(
        GaussianParameters(jnp.asarray(rng.normal(size=SIZE)), jnp.asarray(covariance[-1])),
        LinearGaussian(jnp.asarray(weights), jnp.asarray(covariance[:-1])),
        jnp.array([0.3, 0.7]),
        jnp.array([[0.8, 0.2], [0.35, 0.65]]),
    )


@pytest.fixture(scope="module")
def evidence():
    """Five steps; the second and third are a gap, and the last state is likelier to be the first."""
    rng = np.random.default_rng(1)
    precision = np.array([4.0, 0, 0, 9.0, 1.0])[:, None, None] * np.array([[1.0, 0.4], [0.4, 0.5]])
    linear = (precision @ rng.normal(size=(5, SIZE, 1)))[..., 0]
    states = np.zeros((4, STATES))
    states[3] = [0.5, -0.5]
    return Evidence(GaussianTerms(jnp.asarray(linear), jnp.asarray(-0.5 * precision)), jnp.asarray(states))


def enumerated(parameters, evidence):
    """Log-evidence, probability of each path of states, and the mean of z given it, all dense."""
    scores, means = {}, {}
    for path in itertools.product(range(STATES), repeat=len(evidence.path.first) - 1):
        log_prior = np.log(parameters.start[path[0]]) + sum(
            np.log(parameters.transition[i, j]) for i, j in itertools.pairwise(path)
        )
        rules = [[x[k] for x in parameters.dynamics] for k in path]
        level, means[path] = given_rules(parameters.initial, rules, evidence.path)
        states = sum(float(evidence.rules[t, k]) for t, k in enumerate(path))
        scores[path] = log_prior + level + states
    total = logsumexp(list(scores.values()))
    probabilities = {path: np.exp(score - total) for path, score in scores.items()}
    return total - highest(evidence.path), probabilities, means


def test_absorbing_a_potential_is_a_conjugate_update():
    rng = np.random.default_rng(2)
    mean, root = rng.normal(size=3), rng.normal(size=(3, 3))
    covariance = root @ root.T
    precision = np.array([[2.0, 0.0, 5.0], [0.0, 0.0, 0.0], [5.0, 0.0, 30.0]])
    linear = precision @ rng.normal(size=3)
    seen = lambda r, R: reading(GaussianTerms(jnp.asarray(r), jnp.asarray(-0.5 * R)))
    known = jnp.asarray(mean), jnp.asarray(covariance)
    level, new_mean, new_covariance = absorb(*known, seen(linear, precision))
    expected = np.linalg.inv(np.linalg.inv(covariance) + precision)
    np.testing.assert_allclose(new_covariance, expected, rtol=1e-9)
    natural = np.linalg.solve(covariance, mean) + linear
    np.testing.assert_allclose(new_mean, expected @ natural, rtol=1e-9)
    log_integral = 0.5 * (
        natural @ expected @ natural
        - mean @ np.linalg.solve(covariance, mean)
        + np.linalg.slogdet(expected)[1]
        - np.linalg.slogdet(covariance)[1]
    )
    highest = 0.5 * linear @ np.linalg.pinv(precision) @ linear
    assert float(level) == pytest.approx(log_integral - highest, rel=1e-9)
    unchanged = absorb(*known, seen(0 * linear, 0 * precision))
    np.testing.assert_allclose(unchanged[0], 0, atol=1e-12)
    np.testing.assert_array_equal(unchanged[1], mean)


def test_draws_are_those_of_the_exact_posterior(parameters, evidence):
    total, probabilities, means = enumerated(parameters, evidence)
    count = 4000
    paths = draw(jax.random.key(0), markov_switching(*parameters), evidence, 1000, count)
    assert float(paths.log_evidence) == pytest.approx(total, abs=0.05)
    drawn = [tuple(path) for path in np.asarray(paths.modes[:, 1:]).tolist()]
    for path, probability in probabilities.items():
        error = 4 * np.sqrt(probability / count) + 0.015  # of the draws, and of the particles
        assert drawn.count(path) / count == pytest.approx(probability, abs=error), path
    likeliest = max(probabilities, key=probabilities.__getitem__)
    chosen = np.asarray(paths.latents)[[path == likeliest for path in drawn]]
    error = 4 * chosen.std(axis=0) / np.sqrt(len(chosen)) + 0.02
    assert np.all(np.abs(chosen.mean(axis=0) - means[likeliest]) < error)


def test_latents_spread_as_they_should(parameters, evidence):
    """With one state allowed the posterior is Gaussian, and its covariance is known."""
    only = evidence._replace(rules=jnp.asarray([[0.0, -1e9]] * 4))
    _, _, means = enumerated(parameters, evidence)
    paths = draw(jax.random.key(1), markov_switching(*parameters), only, 10, 20000)
    assert np.all(np.asarray(paths.modes[:, 1:]) == 0)
    latents = np.asarray(paths.latents)
    np.testing.assert_allclose(latents.mean(axis=0), means[0, 0, 0, 0], atol=0.03)
    steps = np.diff(latents, axis=1).reshape(20000, -1)
    # Against a filter and smoother that the library has elsewhere: the Gaussian chain itself
    from svae.chains import GaussianChain, GaussianChainTerms

    matrix, offset = parameters.dynamics.weights[0, :, :-1], parameters.dynamics.weights[0, :, -1]
    noise = jnp.linalg.inv(parameters.dynamics.covariance[0])
    first = jnp.linalg.inv(parameters.initial.covariance)
    linear = evidence.path.first.at[0].add(first @ parameters.initial.mean)
    linear = linear.at[:-1].add(-matrix.T @ noise @ offset).at[1:].add(noise @ offset)
    precision = (-2 * evidence.path.second).at[0].add(first)
    precision = precision.at[:-1].add(matrix.T @ noise @ matrix).at[1:].add(noise)
    cross = jnp.broadcast_to(matrix.T @ noise, (4, SIZE, SIZE))
    stats = GaussianChain().expected_stats(GaussianChainTerms(linear, -0.5 * precision, cross))
    centred = latents - np.asarray(stats.first)
    expected = np.asarray(stats.second) - np.einsum("ti,tj->tij", stats.first, stats.first)
    np.testing.assert_allclose(np.einsum("sti,stj->tij", centred, centred) / 20000, expected, atol=0.03)
    assert np.isfinite(steps).all()


def test_padding_changes_nothing_before_it(parameters, evidence):
    """Draws of a padded sequence have the moments of the sequence alone; behind it they are zero."""
    behind = GaussianTerms(jnp.full((3, SIZE), 7.0), jnp.broadcast_to(-2.5 * jnp.eye(SIZE), (3, SIZE, SIZE)))
    padded = Evidence(
        jax.tree.map(lambda x, y: jnp.concatenate([x, y]), evidence.path, behind),
        jnp.pad(evidence.rules, [(0, 3), (0, 0)]),
    )
    alone = draw(jax.random.key(0), markov_switching(*parameters), evidence, 500, 4000)
    paths = draw(jax.random.key(0), markov_switching(*parameters), padded, 500, 4000, jnp.asarray(5))
    assert np.all(np.asarray(paths.latents[:, 5:]) == 0)
    assert np.all(np.asarray(paths.modes[:, 5:]) == 0)
    np.testing.assert_allclose(paths.latents[:, :5].mean(axis=0), alone.latents.mean(axis=0), atol=0.08)
    assert float(paths.log_evidence) == pytest.approx(float(alone.log_evidence), abs=0.08)


def two_rules(inputs=None):
    """One that grows and one that shrinks a single number, half of the time each."""
    weights = jnp.asarray([[[1.3, 0.0]], [[0.8, 0.0]]])
    noise = jnp.full((2, 1, 1), 0.01)
    dynamics = LinearGaussian(weights, noise) if inputs is None else Learned(weights, noise, inputs)
    first = GaussianParameters(jnp.zeros(1), jnp.eye(1))
    return markov_switching(first, dynamics, jnp.full(2, 0.5), jnp.full((2, 2), 0.5))


def sums(inputs):
    """Of p p' with p = [z; 1]."""
    both = np.column_stack([inputs, np.ones(len(inputs))])
    return both.T @ both


def test_rules_lose_by_the_distance_from_where_they_were_learned():
    rng = np.random.default_rng(0)
    seen = [rng.normal(size=(50, 1)), 3 + 0.5 * rng.normal(size=(80, 1))]
    ways = familiar_ways(two_rules(jnp.asarray([sums(x) for x in seen])))
    places = np.array([[0.5, 0.2], [3.0, 2.0], [4.5, 3.0], [9.0, 5.0]])[..., None]  # to which each rule leads
    distance = np.stack([(places[:, k, 0] - x.mean()) ** 2 / x.var() for k, x in enumerate(seen)], axis=1)
    expected = np.log(0.5) - np.maximum(distance - strange(1), 0)
    found = jax.vmap(ways, (None, 0))(jnp.asarray(0), jnp.asarray(places))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert found[0, 0] > found[0, 1] + 5
    assert found[3, 1] > found[3, 0] + 5


def test_paths_stay_where_their_rules_were_learned():
    inputs = jnp.asarray([sums(np.random.default_rng(i).normal(size=(200, 1))) for i in range(2)])
    keys = jax.random.split(jax.random.key(0), 50)
    run = jax.jit(lambda system: jax.vmap(lambda key: simulate(key, system, 300)[0])(keys))
    free, held = (np.abs(run(two_rules(x))) for x in (None, inputs))
    assert free.max() > 100  # the one that grows, too often in a row
    # never further than one step beyond where both are strange
    assert held.max() < 1.3 * 1.2 * np.sqrt(strange(1)) + 1


def test_paths_begin_where_paths_begin_and_where_their_rule_was_learned():
    """The product of two normals: known by their precisions, and found in draws."""
    rng = np.random.default_rng(1)
    seen = [2 + 0.5 * rng.normal(size=(300, 1)), -3 + 0.2 * rng.normal(size=(300, 1))]
    system = two_rules(jnp.asarray([sums(x) for x in seen]))
    both = jax.tree.map(lambda x: jnp.concatenate([x, x]), system.initial)
    means, covariances = jax.jit(also_where_learned)(both, system.dynamics.inputs)
    begin = jax.jit(jax.vmap(lambda key: familiar_start(key, system)))
    (places, _), rules = begin(jax.random.split(jax.random.key(0), 20000))
    for rule, x in enumerate(seen):
        precision = 1 + 1 / x.var()  # paths begin around zero, with unit variance
        np.testing.assert_allclose(covariances[rule, 0, 0], 1 / precision, rtol=1e-6)
        np.testing.assert_allclose(means[rule, 0], x.mean() / x.var() / precision, rtol=1e-6)
        own = np.asarray(places[:, 0])[np.asarray(rules) == rule]
        assert own.mean() == pytest.approx(means[rule, 0], abs=5 / np.sqrt(precision * len(own)))
        assert own.var() == pytest.approx(1 / precision, rel=0.1)
    begin = jax.jit(jax.vmap(lambda key: simulate(key, system, 1)[0][0, 0]))
    first = begin(jax.random.split(jax.random.key(0), 2000))
    assert 0.45 < np.mean(np.asarray(first) > 0) < 0.55  # the rules are equally probable
    assert np.min(np.abs(first)) > 0.1


def test_ways_to_begin_lose_by_the_distance_from_where_their_rule_was_learned():
    """Of three equally probable ones the second is far away from there."""
    rng = np.random.default_rng(2)
    learned_at = np.array([0.0, 5.0, -5.0])
    seen = [place + rng.normal(size=(400, 1)) for place in learned_at]
    dynamics = Learned(
        jnp.tile(jnp.asarray([[[1.0, 0.0]]]), (3, 1, 1)),
        jnp.full((3, 1, 1), 0.01),
        jnp.asarray([sums(x) for x in seen]),
    )
    begins = jnp.asarray([0.0, 50.0, -5.0])  # the second far away from its rule
    stay = jnp.asarray(np.where(np.eye(3, dtype=bool), 0.0, -1e9))
    states = jnp.arange(3, dtype=jnp.int32)
    initial = GaussianParameters(begins[:, None], jnp.full((3, 1, 1), 0.01))
    successors = jnp.broadcast_to(states[None], (3, 3))
    system = Switching(states, jnp.log(jnp.full(3, 1 / 3)), initial, dynamics, stay, successors)
    (places, modes), rules = jax.jit(jax.vmap(lambda key: familiar_start(key, system)))(
        jax.random.split(jax.random.key(0), 3000)
    )
    np.testing.assert_array_equal(modes, rules)
    np.testing.assert_allclose(np.bincount(modes, minlength=3) / 3000, [0.5, 0, 0.5], atol=0.05)
    np.testing.assert_allclose(places[:, 0], begins[modes], atol=0.6)
    free = system._replace(dynamics=LinearGaussian(*dynamics[:2]))
    (_, modes), _ = jax.jit(jax.vmap(lambda key: familiar_start(key, free)))(
        jax.random.split(jax.random.key(0), 3000)
    )
    np.testing.assert_allclose(np.bincount(modes, minlength=3) / 3000, 1 / 3, atol=0.05)


def test_forecasts_stay_where_rules_were_learned_and_what_was_seen_stays():
    """Known up to the tenth of 200 steps: up to there draws are those of the posterior, then of new paths."""
    inputs = jnp.asarray([sums(np.random.default_rng(i).normal(size=(200, 1))) for i in range(2)])
    time, seen = 200, 10
    precision = jnp.where(jnp.arange(time) < seen, 400.0, 0.0)[:, None]
    evidence = Evidence(GaussianTerms(0.5 * precision, -0.5 * precision[..., None]), jnp.zeros((time - 1, 2)))
    drawn = lambda system: draw(jax.random.key(0), system, evidence, 100, 40)
    free, held = (np.asarray(drawn(two_rules(x)).latents[..., 0]) for x in (None, inputs))
    np.testing.assert_allclose(held[:, :seen].mean(axis=0), 0.5, atol=0.05)
    assert np.abs(free).max() > 100
    assert np.abs(held).max() < 1.3 * 1.2 * np.sqrt(strange(1)) + 1
    steps = np.abs(np.diff(held, axis=1))[:, seen - 1]  # nothing jumps where data end
    assert steps.max() < 0.3 * 0.65 + 0.5
