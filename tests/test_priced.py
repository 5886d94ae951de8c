"""States that cost more than their nats: families, models and the AR-HMM, against sums over all paths."""

import itertools
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from helpers import check_derivatives, random_discrete_chain
from models import MODELS, infer, known, random_case, random_parameters
from svae import arhmm
from svae.arhmm.emissions import default_prior
from svae.chains import DiscreteChain
from svae.expfam import Priced, inner, priced
from svae.meanfield import BlockPosterior, CoordinateAscent, surrogate

PRICE = 3.0
WITH_STATES = ["hmm", "slds", "jslds", "hsmm-slds"]
SIZE = 8  # of what is restless
THOROUGH = CoordinateAscent(max_sweeps=200, tolerance=1e-12)


def over_all_paths(natural):
    """c log Z(natural / c) and the statistics, by adding up."""
    node, transition = (np.asarray(x) / PRICE for x in natural)
    paths = list(itertools.product(range(node.shape[1]), repeat=len(node)))
    score = lambda k: (
        sum(node[t, s] for t, s in enumerate(k)) + sum(transition[a, b] for a, b in itertools.pairwise(k))
    )
    scores = np.array([score(k) for k in paths])
    weights = np.exp(scores - logsumexp(scores))
    stats = [DiscreteChain(num_states=node.shape[1]).sufficient_stats(jnp.array(k)) for k in paths]
    mean = jax.tree.map(lambda *x: np.tensordot(weights, np.stack(x), 1), *stats)
    return PRICE * logsumexp(scores), mean


def test_a_priced_family_is_the_conjugate_of_its_entropy():
    natural = random_discrete_chain(jax.random.key(0), 3, 2)
    family = Priced(DiscreteChain(num_states=2), PRICE)
    check_derivatives(family, natural, over_all_paths)
    log_partition, stats = over_all_paths(natural)
    own = jax.tree.map(lambda x: x / PRICE, natural)
    entropy = log_partition / PRICE - inner(own, stats)
    np.testing.assert_allclose(inner(natural, stats) - log_partition, -PRICE * entropy, rtol=1e-12)


def test_a_priced_family_draws_what_the_family_draws():
    plain, natural = DiscreteChain(num_states=3), random_discrete_chain(jax.random.key(1), 6, 3)
    dear = jax.tree.map(lambda x: PRICE * x, natural)
    family, key = priced(plain, PRICE), jax.random.key(2)
    np.testing.assert_array_equal(family.sample(key, dear), plain.sample(key, natural))
    np.testing.assert_array_equal(family.most_likely_path(dear), plain.most_likely_path(natural))
    assert priced(plain, 1.0) is plain


@eqx.filter_jit
def states_kl(model, theta, solution):
    """KL(q(k) || p(k)), by the family without its price."""
    own = jax.tree.map(lambda x: x / model.price, solution.naturals[1])
    log_partition, stats = model.blocks(None)[1].family.infer(own)
    return inner(own, stats) - log_partition - model.states_energy(theta, stats)


@eqx.filter_jit
def objective(model, theta, potentials, solution):
    """What a model's inference maximises, at the posterior of another."""
    blocks = model.blocks(None)
    dear = jax.tree.map(lambda x: model.price * x, solution.naturals[1])
    log_partition, stats = blocks[1].infer(dear)
    found = BlockPosterior(
        (solution.naturals[0], dear), (solution.stats[0], stats), (solution.log_partitions[0], log_partition)
    )
    return surrogate(model.problem(), theta, potentials, found)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_STATES)
def test_the_bound_loses_what_states_cost_more_and_is_the_best_of_its_kind(name):
    cheap = MODELS[name]
    dear = replace(cheap, price=PRICE)
    case = random_case(cheap)
    theta = known(cheap, random_parameters(cheap, jax.random.key(5)))
    plain, found = (infer(model, theta, case.potentials, solver=THOROUGH) for model in (cheap, dear))
    kl = float(states_kl(dear, theta.stats, found.solution))
    same = float(objective(replace(dear, price=1.0), theta.stats, case.potentials, unpriced(found.solution)))
    np.testing.assert_allclose(found.surrogate, same - (PRICE - 1) * kl, rtol=1e-9)
    assert kl >= 0
    # each is better by its own standard
    assert (
        float(found.surrogate) >= float(objective(dear, theta.stats, case.potentials, plain.solution)) - 1e-9
    )
    assert float(plain.surrogate) >= same - 1e-9


def unpriced(solution):
    own = jax.tree.map(lambda x: x / PRICE, solution.naturals[1])
    return solution._replace(naturals=(solution.naturals[0], own))


@pytest.mark.parametrize(
    "name", ["hmm", "slds", *(pytest.param(x, marks=pytest.mark.slow) for x in ("jslds", "hsmm-slds"))]
)
def test_weights_of_draws_know_no_price(name):
    """Their mean is the true KL divergence, with the states' counted once."""
    model = replace(MODELS[name], price=PRICE)
    case, theta = random_case(model), known(model, random_parameters(model, jax.random.key(5)))
    found = infer(model, theta, case.potentials, solver=THOROUGH)

    @eqx.filter_jit
    def weights(keys):
        draw = lambda key: model.sample(key, found.solution)
        return jax.vmap(lambda key: model.log_weight(theta.stats, found.solution, draw(key)))(keys)

    drawn = np.asarray(weights(jax.random.split(jax.random.key(1), 4000)))
    expected = -(float(found.kl_local) - (PRICE - 1) * float(states_kl(model, theta.stats, found.solution)))
    assert abs(drawn.mean() - expected) < 5 * drawn.std() / np.sqrt(len(drawn))


def test_gradients_flow_through_priced_inference():
    model = replace(MODELS["slds"], price=PRICE)
    case = random_case(model)
    direction = np.random.default_rng(0).normal(size=case.linear.shape)

    @eqx.filter_jit
    def value(linear):
        potentials = model.potentials(linear, case.precision)
        stats = model.infer(case.posterior, potentials, solver=THOROUGH).solution.stats
        return jnp.sum(stats[1].node[:, 0]) + jnp.sum(stats[0].first)

    slope = float(jnp.sum(eqx.filter_jit(jax.grad(value))(case.linear) * direction))
    step = 1e-5
    apart = value(case.linear + step * direction) - value(case.linear - step * direction)
    np.testing.assert_allclose(slope, float(apart) / (2 * step), rtol=1e-4)


def test_forbidden_states_stay_forbidden():
    model = replace(MODELS["slds"], price=PRICE)
    case = random_case(model)
    allowed = jnp.ones((8, 3), bool).at[2:5, 0].set(False)
    potentials = model.restrict(case.potentials, allowed)
    probability = model.state_probabilities(infer(model, case.posterior, potentials).solution.stats)
    np.testing.assert_array_equal(np.asarray(probability)[2:5, 0], 0)


def restless(num_sequences=4, time=480):
    """Two ways to turn, each for 120 frames, and in both of them noise that changes every 20 frames."""
    rng = np.random.default_rng(0)
    turns = [np.kron(np.eye(4), [[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in (0.3, -0.3)]
    series = []
    for first in range(num_sequences):
        z = [rng.normal(size=SIZE)]
        for t in range(1, time):
            slow, fast = (t // 120 + first) % 2, t // 20 % 2
            z.append(0.98 * turns[slow] @ z[-1] + (0.03 if fast else 0.5) * rng.normal(size=SIZE))
        series.append(np.array(z))
    return series


def restless_prior(price):
    return arhmm.Prior(default_prior(np.full(SIZE, 0.1)), arhmm.StickyPrior(), price)


def frames_a_segment(fit, series):
    found = arhmm.paths(arhmm.pad(series), fit.posterior)
    return np.mean([len(path) / (1 + np.count_nonzero(np.diff(path))) for path in found])


@pytest.mark.slow
def test_a_duration_has_its_price():
    """Noise tells states apart within two frames, which pseudo-counts for staying would not bridge."""
    series, effort = restless(), arhmm.Effort(run=120)
    price, lasting = arhmm.price_for_duration(series, restless_prior, 4, 120.0, effort=effort)
    assert price > 5
    assert 80 < lasting < 200
    cheap, dear = (arhmm.fit_arhmm(series, restless_prior(x), 4, effort=effort) for x in (1.0, price))
    np.testing.assert_allclose(frames_a_segment(cheap, series), 20, rtol=0.1)
    np.testing.assert_allclose(frames_a_segment(dear, series), 120, rtol=0.1)
    assert dear.elbo < cheap.elbo


def test_states_that_last_anyway_cost_what_they_are_worth():
    price, lasting = arhmm.price_for_duration(restless(), restless_prior, 4, 15.0)
    assert price == 1
    assert lasting >= 15
