from functools import cache
from itertools import combinations, pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import linear_sum_assignment
from scipy.special import digamma, expit, gammaln, logit, logsumexp, roots_jacobi

from svae.arhmm import (
    Effort,
    Fit,
    Prior,
    Regressions,
    RegressionStats,
    StickyPrior,
    fit_arhmm,
    moves,
    outer_features,
    posterior,
    stats_from_flat,
    transitions,
)
from svae.arhmm.beginning import group_by_evidence, grouped_runs
from svae.arhmm.emissions import default_prior, log_evidence, log_normaliser, natural_from_regressions
from svae.arhmm.fit import _names, lap
from svae.arhmm.known import with_known_states
from svae.arhmm.local import SequenceStats, forward_backward, most_likely_path, pad, sequence_stats
from svae.arhmm.model import global_step, local_step, paths, probabilities, refine, regression_stats
from svae.arhmm.transitions import Transitions, bound, update
from svae.expfam import MatrixNormalInverseWishart, MNIWParameters

MNIW = MatrixNormalInverseWishart()
property_test = settings(max_examples=8, deadline=None, derandomize=True)


# Smoothing


def random_chain(num_states, lengths, seed=0, spread=1.0):
    """Scores, valid frames, and log-weights of probabilities that sum to less than one."""
    rng = np.random.default_rng(seed)
    valid = np.arange(max(lengths)) < np.array(lengths)[:, None]
    scores = spread * rng.normal(size=(*valid.shape, num_states))
    weights = np.log(rng.dirichlet(np.ones(num_states + 1), size=num_states + 1))[:, :num_states]
    return np.where(valid[:, :, None], scores, 0), valid, spread * weights[0], spread * weights[1:]


def all_paths(scores, log_start, log_rows):
    """Every path of one sequence, and its log-weight."""
    time, num_states = scores.shape
    every = np.array(list(product(range(num_states), repeat=time)))
    weight = log_start[every[:, 0]] + scores[np.arange(time), every].sum(axis=1)
    return every, weight + log_rows[every[:, :-1], every[:, 1:]].sum(axis=1)


def by_enumeration(scores, log_start, log_rows):
    """Marginals, expected transitions, log-evidence and entropy."""
    every, weight = all_paths(scores, log_start, log_rows)
    evidence = logsumexp(weight)
    probability = np.exp(weight - evidence)
    hot = np.eye(scores.shape[1])[every]
    counts = np.einsum("p,pti,ptj->ij", probability, hot[:, :-1], hot[:, 1:])
    entropy = -np.sum(probability * np.where(probability > 0, weight - evidence, 0))
    return np.einsum("p,ptk->tk", probability, hot), counts, evidence, entropy


@pytest.mark.parametrize("num_states", [1, 2, 3])
@pytest.mark.parametrize("spread", [1.0, 30.0, 1e3, 1e5])  # the last two: beyond the range of probabilities
def test_smoothing_is_a_sum_over_all_paths(num_states, spread):
    lengths = [5, 3, 1, 6]
    scores, valid, log_start, log_rows = random_chain(num_states, lengths, spread=spread)
    smoothed = forward_backward(scores, valid, log_start, log_rows)
    for i, length in enumerate(lengths):
        probability, counts, evidence, _ = by_enumeration(scores[i, :length], log_start, log_rows)
        np.testing.assert_allclose(smoothed.probability[i, :length], probability, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(smoothed.counts[i], counts, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(smoothed.log_evidence[i], evidence, rtol=1e-12)


def test_a_forbidden_way_to_the_only_good_state_is_taken():
    scores = np.array([[[0.0, -900.0], [-900.0, 0.0]]])
    smoothed = forward_backward(
        scores, np.ones((1, 2), bool), np.zeros(2), np.array([[0, -800.0], [-800, 0]])
    )
    np.testing.assert_allclose(smoothed.counts[0], [[0, 1], [0, 0]], atol=1e-12)
    np.testing.assert_allclose(smoothed.log_evidence, -800)


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_most_likely_path_is_the_best_of_all(spread):
    for seed in range(10):
        scores, _, log_start, log_rows = random_chain(3, [6], seed, spread)
        every, weight = all_paths(scores[0], log_start, log_rows)
        np.testing.assert_array_equal(
            most_likely_path(scores[0], log_start, log_rows), every[weight.argmax()]
        )


def ragged_problem(seed=0, lengths=(6, 4, 2), num_states=3):
    """Sequences of two dimensions, with frames missing, and globals."""
    rng = np.random.default_rng(seed)
    series = [rng.normal(size=(length, 2)) for length in lengths]
    series[0][2] = np.nan
    series[1][0, 1] = np.nan
    _, _, log_start, log_rows = random_chain(num_states, [1], seed)
    regressions = posterior(default_prior(np.ones(2)), random_stats(num_states, rng))
    return series, (natural_from_regressions(regressions), log_start, log_rows)


def random_stats(num_states, rng, frames=8, n=2):
    """Regression statistics of so many random frames for each state."""
    outputs, inputs = rng.normal(size=(num_states * frames, n)), rng.normal(size=(num_states * frames, n + 1))
    flat = outer_features(outputs, inputs).reshape(num_states, frames, -1).sum(axis=1)
    return stats_from_flat(flat, n, n + 1)


def test_sequence_stats_by_enumeration():
    series, (natural, log_start, log_rows) = ragged_problem()
    found, probability = sequence_stats(pad(series), natural, log_start, log_rows)
    for i, x in enumerate(series):
        features = outer_features(x[1:], np.c_[x[:-1], np.ones(len(x) - 1)])
        scores = np.where(np.isnan(features).any(axis=1)[:, None], 0, np.nan_to_num(features) @ natural.T)
        marginal, counts, _, entropy = by_enumeration(scores, log_start, log_rows)
        known = ~np.isnan(features).any(axis=1)
        np.testing.assert_allclose(probability[i, : len(x) - 1], marginal, atol=1e-12)
        np.testing.assert_array_equal(probability[i, len(x) - 1 :], 0)
        np.testing.assert_allclose(found.start[i], marginal[0], atol=1e-12)
        np.testing.assert_allclose(found.counts[i], counts, atol=1e-12)
        np.testing.assert_allclose(found.entropy[i], entropy, atol=1e-11)
        np.testing.assert_allclose(found.regression[i], marginal[known].T @ features[known], atol=1e-11)
    np.testing.assert_allclose(found.usage, probability.sum(axis=1), atol=1e-12)
    np.testing.assert_allclose(found.total().usage, found.usage.sum(axis=0), atol=1e-12)


def test_padding_changes_nothing():
    series, globals_ = ragged_problem()
    together = sequence_stats(pad(series), *globals_)[0]
    for i, x in enumerate(series):
        alone = sequence_stats(pad([x]), *globals_)[0]
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[i], b[0], rtol=1e-12, atol=1e-12)


def test_selected_sequences_lose_only_common_padding():
    series, globals_ = ragged_problem()
    chosen = np.array([1, 2])
    some, everyone = (sequence_stats(x, *globals_)[0] for x in (pad(series).select(chosen), pad(series)))
    assert pad(series).select(chosen).valid.shape == (2, 3)
    for a, b in zip(some, everyone, strict=True):
        np.testing.assert_allclose(a, b[chosen], rtol=1e-12, atol=1e-12)


def hard_stats(path, num_states, features):
    """Statistics of known states."""
    hot = np.eye(num_states)[path]
    return SequenceStats((hot.T @ features)[None], hot[None, 0], (hot[:-1].T @ hot[1:])[None], np.zeros(1))


@pytest.mark.parametrize("new_names", [[2, 0, 1], [0, 1, 0], [1, 1, 1], [4, 1, 3]])
def test_mapped_statistics_are_those_of_renamed_states(new_names):
    rng = np.random.default_rng(0)
    path, features, new = rng.integers(3, size=20), rng.normal(size=(20, 4)), max(new_names) + 1
    actual = hard_stats(path, 3, features).mapped(np.eye(new)[new_names])
    expected = hard_stats(np.array(new_names)[path], new, features)
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


# Regressions


def as_terms(q):
    """Natural parameters, from another implementation."""
    natural = MNIW.natural_from_standard(MNIWParameters(*map(jnp.asarray, q)))
    return jax.tree.map(np.asarray, natural)


def a_prior():
    rng = np.random.default_rng(5)
    root = rng.normal(size=(3, 9))
    return Regressions(np.diag([0.5, 2.0]), rng.normal(size=(2, 3)), root @ root.T / 9, np.array(4.5))


def test_posterior_adds_statistics_to_natural_parameters():
    found = random_stats(4, np.random.default_rng(0))
    before, after = as_terms(a_prior()), as_terms(posterior(a_prior(), found))
    for a, b, new in zip(after, before, found, strict=True):
        np.testing.assert_allclose(a, b + new, rtol=1e-11, atol=1e-11)


def test_normaliser_and_expectations_agree_with_the_family():
    after = posterior(a_prior(), random_stats(4, np.random.default_rng(0)))
    log_partition, expected = MNIW.infer_standard(MNIWParameters(*map(jnp.asarray, after)))
    np.testing.assert_allclose(log_normaliser(after), log_partition, rtol=1e-12)
    expected = expected._replace(weight=expected.weight - np.log(2 * np.pi))  # n / 2 log 2 pi, n = 2
    rng = np.random.default_rng(1)
    outputs, inputs = rng.normal(size=(7, 2)), rng.normal(size=(7, 3))
    pairs = (outputs, outputs), (outputs, inputs), (inputs, inputs)
    of_frames = lambda pair, x: np.einsum("ti,tj,kij->tk", *pair, np.asarray(x))
    scores = np.asarray(expected.weight) + sum(map(of_frames, pairs, expected[:3]))
    features = outer_features(outputs, inputs)
    np.testing.assert_allclose(features @ natural_from_regressions(after).T, scores, rtol=1e-10, atol=1e-12)


def test_evidence_is_a_product_of_student_predictions():
    rng, prior, n = np.random.default_rng(0), a_prior(), 2
    outputs, inputs = rng.normal(size=(7, n)), rng.normal(size=(7, n + 1))
    features, expected, q = outer_features(outputs, inputs), 0.0, prior
    for y, u, row in zip(outputs, inputs, features, strict=True):
        dof = float(q.dof) - n + 1
        spread = q.scale * (1 + u @ np.linalg.solve(q.input_precision, u)) / dof
        expected += stats.multivariate_t(q.mean @ u, spread, dof).logpdf(y)
        q = posterior(q, stats_from_flat(row, n, n + 1))
    actual = log_evidence(prior, stats_from_flat(features.sum(axis=0), n, n + 1))
    np.testing.assert_allclose(actual, expected, rtol=1e-11)


def test_statistics_of_frames_add():
    first, second = (random_stats(1, np.random.default_rng(seed)) for seed in range(2))
    single = lambda found: RegressionStats(*(x[0] for x in found))
    both = RegressionStats(*(a + b for a, b in zip(first, second, strict=True)))
    one_by_one = posterior(posterior(a_prior(), single(first)), single(second))
    for a, b in zip(one_by_one, posterior(a_prior(), single(both)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)


def test_flat_statistics_are_unpacked():
    found = random_stats(4, np.random.default_rng(0))
    for a, b in zip(stats_from_flat(found.flat, 2, 3), found, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_data_leave_the_prior():
    nothing = RegressionStats(*map(np.zeros_like, random_stats(2, np.random.default_rng(0))))
    np.testing.assert_allclose(log_evidence(a_prior(), nothing), 0, atol=1e-12)
    for a, b in zip(posterior(a_prior(), nothing), a_prior(), strict=True):
        np.testing.assert_allclose(a, np.broadcast_to(b, a.shape), rtol=1e-12, atol=1e-12)


def test_default_prior_expects_to_stay():
    prior = default_prior(np.array([0.1, 2.0]))
    np.testing.assert_allclose(prior.scale / (prior.dof - 2 - 1), np.diag([0.1, 2.0]))  # E Sigma
    np.testing.assert_array_equal(prior.mean, [[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize("bad", [-np.eye(2), np.diag([1.0, -1.0]), np.full((2, 2), np.nan)])
def test_a_covariance_that_is_none_is_an_error(bad):
    with pytest.raises(FloatingPointError, match="centred and scaled"):
        log_normaliser(a_prior()._replace(scale=bad))


# Transitions


STICKY = {
    "sticky": StickyPrior(),
    "loose": StickyPrior(gamma=2.0, concentration=3.0, start=1.0, persistence=0.0),
    "between": StickyPrior(gamma=3.0, concentration=5.0, start=2.0, persistence=2.0),
}
every_prior = pytest.mark.parametrize("prior", STICKY.values(), ids=STICKY)


def random_counts(num_states, seed=0):
    rng = np.random.default_rng(seed)
    return rng.gamma(1.0, size=num_states), rng.gamma(0.5, 6.0, size=(num_states, num_states))


def with_sticks(q, x):
    half = len(x) // 2
    return q._replace(stick_mean=expit(x[:half]), stick_weight=np.exp(x[half:]))


def unconstrained(q):
    return np.concatenate([logit(q.stick_mean), np.log(q.stick_weight)])


@every_prior
@pytest.mark.parametrize("num_states", [1, 4])
def test_gradient_of_the_sticks_by_differences_of_the_bound(prior, num_states):
    counts = random_counts(num_states)
    q = update(prior, *counts, rounds=1)
    fixed = transitions._coefficients(prior, num_states), transitions._pull(prior, q)
    for seed in range(3):
        x = unconstrained(q) + np.random.default_rng(seed).normal(size=2 * num_states)
        value = lambda x: bound(prior, with_sticks(q, x), *counts)
        step = 1e-5
        differences = [(value(x + step * e) - value(x - step * e)) / (2 * step) for e in np.eye(len(x))]
        np.testing.assert_allclose(-transitions._cost(x, *fixed)[1], differences, rtol=1e-6, atol=1e-6)


@every_prior
def test_no_small_change_of_the_posterior_raises_the_bound(prior):
    counts, rng = random_counts(3), np.random.default_rng(0)
    q = update(prior, *counts, rounds=100)
    best = bound(prior, q, *counts)
    for _ in range(20):
        changed = Transitions(*(x * np.exp(0.02 * rng.normal(size=x.shape)) for x in q))
        changed = changed._replace(stick_mean=expit(logit(q.stick_mean) + 0.02 * rng.normal(size=3)))
        assert bound(prior, changed, *counts) < best


@every_prior
def test_more_rounds_never_lower_the_bound(prior):
    for seed in range(5):
        counts = random_counts(4, seed)
        values = [bound(prior, update(prior, *counts, rounds=rounds), *counts) for rounds in range(6)]
        assert np.all(np.diff(values) > -1e-10)


def stick_breaking(u):
    """Popularity of K states and of the rest, from sticks along the last axis."""
    left = np.cumprod(1 - u, axis=-1)
    before = np.concatenate([np.ones_like(u[..., :1]), left[..., :-1]], axis=-1)
    return np.concatenate([u * before, left[..., -1:]], axis=-1)


def dirichlet_concentrations(prior, u):
    """Of the start and of every row, (K + 1, ..., K + 1)."""
    popularity, num_states = stick_breaking(u), u.shape[-1]
    rows = [
        prior.concentration * popularity + prior.persistence * np.eye(num_states + 1)[k]
        for k in range(num_states)
    ]
    return np.stack([prior.start * popularity, *rows])


def log_beta(concentration):
    return gammaln(concentration).sum(axis=-1) - gammaln(concentration.sum(axis=-1))


def log_evidence_of_states(prior, start, counts, nodes=48):
    """log p(states): Dirichlets integrated in closed form, sticks by Gauss-Jacobi quadrature."""
    x, weight = roots_jacobi(nodes, prior.gamma - 1, 0)
    num_states = len(start)
    u = np.array(list(product((x + 1) / 2, repeat=num_states)))
    log_weight = np.log(list(product(weight / weight.sum(), repeat=num_states))).sum(axis=1)
    before = dirichlet_concentrations(prior, u)
    seen = np.pad(np.vstack([start, counts]), [(0, 0), (0, 1)])[:, None]
    return logsumexp(log_weight + (log_beta(before + seen) - log_beta(before)).sum(axis=0))


@every_prior
@pytest.mark.parametrize("num_states", [1, 2])
def test_bound_is_below_the_evidence(prior, num_states):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        start, counts = rng.integers(3, size=num_states) + 0.0, rng.integers(6, size=(num_states,) * 2) + 0.0
        gap = log_evidence_of_states(prior, start, counts) - bound(
            prior, update(prior, start, counts, rounds=50), start, counts
        )
        assert 0 < gap < 10 * num_states


@every_prior
def test_bound_differs_from_the_exact_one_by_the_slack_of_the_normalisers(prior):
    """E_q log p(states, pi, u) - log q(pi, u), sticks by Monte Carlo, with and without the inequalities."""
    num_states, samples = 3, 20_000
    start, counts = random_counts(num_states)
    q = update(prior, start, counts)
    a, b = q.stick_mean * q.stick_weight, (1 - q.stick_mean) * q.stick_weight
    u = stats.beta(a, b).rvs((samples, num_states), random_state=np.random.default_rng(0))
    before = dirichlet_concentrations(prior, u)
    after, seen = np.vstack([q.start, q.rows]), np.pad(np.vstack([start, counts]), [(0, 0), (0, 1)])
    expected_log = digamma(after) - digamma(after.sum(axis=1, keepdims=True))
    exact = np.sum(stats.beta(1, prior.gamma).logpdf(u) - stats.beta(a, b).logpdf(u), axis=1)
    exact += np.einsum("rsl,rl->s", before + (seen - after)[:, None], expected_log)
    exact += log_beta(after).sum() - log_beta(before).sum(axis=0)
    # log Gamma(1 + x) is superadditive; log(alpha beta + kappa) is above its chord
    total = before.sum(axis=-1)
    lower = np.log(before).sum(axis=-1) - np.log(total)
    popularity = stick_breaking(u)
    if prior.persistence:
        for k in range(num_states):
            ends = np.log(prior.persistence), np.log(prior.persistence + prior.concentration)
            chord = ends[0] + popularity[:, k] * (ends[1] - ends[0])
            lower[k + 1] += chord - np.log(before[k + 1, :, k])
    slack = np.sum(-log_beta(before) - lower, axis=0)
    assert np.all(slack > 0)
    difference = exact - slack - bound(prior, q, start, counts)
    assert abs(difference.mean()) < 5 * difference.std() / np.sqrt(samples)
    assert difference.std() < 0.2 * np.sqrt(samples)


def test_sticks_of_a_popularity():
    popularity = np.array([0.4, 0.3, 0.1])
    sticks = transitions.sticks_from_popularity(popularity)
    np.testing.assert_allclose(stick_breaking(sticks), [0.4, 0.3, 0.1, 0.2])
    q = Transitions(sticks, np.ones(3), np.ones(4), np.ones((3, 4)))
    np.testing.assert_allclose(q.popularity, [0.4, 0.3, 0.1, 0.2])


def test_huge_persistence():
    prior, counts = StickyPrior(persistence=1e8), random_counts(3)
    q = update(prior, *counts)
    assert np.all(np.isfinite(np.concatenate([np.ravel(x) for x in q])))
    assert bound(prior, q, *counts) < 0


# Fits


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


@cache
def regimes(num_sequences=4, time=100, seed=0):
    """Sequences that turn left, turn right or rest at a place of their own, and which of it they do."""
    rng = np.random.default_rng(seed)
    weights = [0.98 * rotation(0.6), 0.98 * rotation(-0.6), 0.6 * np.eye(2)]
    offset = np.array([[0, 0], [0, 0], [1, -1]])
    series, states = [], []
    for _ in range(num_sequences):
        state, z, path = rng.integers(3), [rng.normal(size=2)], []
        for _ in range(time - 1):
            state = (state + (rng.random() > 0.97) * rng.integers(1, 3)) % 3
            z.append(weights[state] @ z[-1] + offset[state] + 0.1 * rng.normal(size=2))
            path.append(state)
        series.append(np.array(z))
        states.append(np.array(path))
    return series, states


PRIOR = Prior(default_prior(np.full(2, 0.1)), StickyPrior())


def started(num_states, start=0, prior=PRIOR, **data):
    """Sequences, and a fit that has seen them once."""
    sequences = pad(regimes(**data)[0])
    fit = grouped_runs(prior, sequences, num_states, np.random.default_rng(start))
    return sequences, refine(prior, sequences, fit, np.arange(len(sequences)))


def test_runs_of_one_regime_are_grouped():
    series, truth = regimes()
    sequences = pad(series)
    cuts = [(i, slice(s, s + 8)) for i in range(len(series)) for s in range(0, 90, 8)]
    pure = [(i, cut) for i, cut in cuts if len(set(truth[i][cut])) == 1]
    flat = np.stack([sequences.features[i, cut].sum(axis=0) for i, cut in pure])
    regime = np.array([truth[i][cut][0] for i, cut in pure])
    group = group_by_evidence(PRIOR, flat, 3)
    assert set(regime) == {0, 1, 2}
    assert all(len(set(regime[group == g])) == 1 for g in range(3))


def test_the_first_merger_gains_most_evidence():
    flat = pad(regimes()[0]).features[0, :60].reshape(10, 6, -1).sum(axis=1)
    evidence = lambda x: float(log_evidence(PRIOR.regression, stats_from_flat(x, 2, 3)))
    pairs = list(combinations(range(10), 2))
    gains = [evidence(flat[a] + flat[b]) - evidence(flat[a]) - evidence(flat[b]) for a, b in pairs]
    group = group_by_evidence(PRIOR, flat, 9)
    assert [(a, b) for a, b in pairs if group[a] == group[b]] == [pairs[np.argmax(gains)]]


def not_lower(after, before):
    return after.elbo >= before.elbo - 1e-10 * abs(before.elbo)


def accuracy(fit, series, states):
    """Share of frames in the right state, for the best assignment of names."""
    found, true = np.concatenate(paths(pad(series), fit.posterior)), np.concatenate(states)
    table = np.zeros((fit.posterior.num_states, true.max() + 1))
    np.add.at(table, (found, true), 1)
    return table[linear_sum_assignment(-table)].sum() / len(true)


@property_test
@given(
    seed=st.integers(0, 1000),
    batch_size=st.integers(1, 6),
    sticky=st.sampled_from(list(STICKY)),
    price=st.sampled_from([1.0, 4.0]),
)
def test_laps_never_lower_the_bound(seed, batch_size, sticky, price):
    prior = PRIOR._replace(transition=STICKY[sticky], price=price)
    sequences, fit = started(4, seed, prior, num_sequences=5, time=40, seed=seed % 7)
    for _ in range(4):
        before, fit = fit, lap(prior, sequences, fit, batch_size)
        assert not_lower(fit, before)
    for which in ([0], [1, 3]):
        assert not_lower(refine(prior, sequences, fit, np.array(which), passes=2), fit)


@property_test
@given(seed=st.integers(0, 1000), num_states=st.integers(1, 5))
def test_accepted_moves_raise_a_true_bound(seed, num_states):
    """A bound of stale statistics would fall when all sequences are visited again."""
    sequences, fit = started(num_states, seed, num_sequences=3, time=60)
    fit = lap(PRIOR, sequences, fit, 2)
    proposals = [moves.merge(PRIOR, sequences, fit, *pair) for pair in moves.merge_candidates(PRIOR, fit)]
    proposals += [moves.delete(PRIOR, sequences, fit, k) for k in range(num_states) if num_states > 1]
    proposals += [
        moves.birth(PRIOR, sequences, fit, run) for run in moves.runs_of_states(sequences, fit, 20)[:2]
    ]
    for proposal in filter(None, proposals):
        assert proposal.elbo > fit.elbo
        everyone = np.arange(len(sequences))
        assert not_lower(refine(PRIOR, sequences, proposal, everyone), proposal)


def test_the_bound_does_not_depend_on_batches():
    sequences, fit = started(3)
    whole = local_step(sequences, fit.posterior)
    for size in (1, 2):
        stats_ = fit.stats
        for start in range(0, len(sequences), size):
            which = np.arange(start, min(start + size, len(sequences)))
            stats_ = stats_.replaced(which, local_step(sequences.select(which), fit.posterior))
        np.testing.assert_allclose(
            global_step(PRIOR, stats_).elbo, global_step(PRIOR, whole).elbo, rtol=1e-12
        )


@pytest.mark.parametrize("sticky", STICKY)
def test_the_bound_is_below_the_evidence_of_all_paths(sticky):
    """log p(series, states among the first two), summed over all paths of five transitions."""
    prior = PRIOR._replace(transition=STICKY[sticky])
    x = np.concatenate([regimes()[0][0][:4], regimes()[0][1][:2]])
    sequences = pad([x])
    evidence = []
    for path in product(range(2), repeat=5):
        found = hard_stats(np.array(path), 2, sequences.features[0]).total()
        emitted = log_evidence(prior.regression, regression_stats(prior, found)).sum()
        evidence.append(
            emitted + log_evidence_of_states(prior.transition, found.start, found.counts, nodes=24)
        )
    fit = grouped_runs(prior, sequences, 2, np.random.default_rng(0))
    fit = refine(prior, sequences, fit, np.array([0]), passes=20)
    assert 0 < logsumexp(evidence) - fit.elbo < 25


def test_one_state_is_one_regression():
    series, _ = regimes()
    fit = fit_arhmm(series, PRIOR, 1, effort=Effort(births=0))
    rows = np.concatenate([outer_features(x[1:], np.c_[x[:-1], np.ones(len(x) - 1)]) for x in series])
    expected = posterior(PRIOR.regression, stats_from_flat(rows.sum(axis=0), 2, 3))
    assert fit.posterior.num_states == 1
    for a, b in zip(fit.posterior.regressions, expected, strict=True):
        np.testing.assert_allclose(a[0], b, rtol=1e-9)


@pytest.mark.parametrize(
    ("num_states", "persistence"),
    [(1, 50.0), (10, 0.0), *(pytest.param(*both, marks=pytest.mark.slow) for both in ((1, 0.0), (10, 50.0)))],
)
def test_the_true_regimes_are_found(num_states, persistence):
    prior, laps = PRIOR._replace(transition=StickyPrior(persistence=persistence)), []
    series, states = regimes()
    fit = fit_arhmm(series, prior, num_states, report=lambda number, fit: laps.append(fit))
    assert fit.posterior.num_states == 3
    assert accuracy(fit, series, states) > 0.95
    assert all(not_lower(after, before) for before, after in pairwise(laps))
    probability = probabilities(pad(series), fit.posterior)
    np.testing.assert_allclose(probability.sum(axis=2), 1, rtol=1e-9)


def test_no_move_is_left_at_the_end():
    series, _ = regimes()
    fit, sequences = fit_arhmm(series, PRIOR, 6), pad(series)
    assert all(moves.delete(PRIOR, sequences, fit, k) is None for k in range(fit.posterior.num_states))
    pairs = combinations(range(fit.posterior.num_states), 2)
    assert all(moves.merge(PRIOR, sequences, fit, *pair) is None for pair in pairs)


def test_states_are_sorted_by_use():
    _, fit = started(5)
    order = np.argsort(-fit.total.usage)
    worse = global_step(PRIOR, fit.stats.mapped(np.eye(5)[:, np.roll(order, 1)]))  # the least used first
    better = moves.sort_states(PRIOR, worse)
    assert better.elbo > worse.elbo
    assert np.all(np.diff(better.total.usage) <= 0)
    expected = fit.posterior.regressions.mean[order]
    np.testing.assert_allclose(better.posterior.regressions.mean, expected, rtol=1e-9)
    assert moves.sort_states(PRIOR, better) is better


def test_states_with_as_many_frames_are_not_confused():
    path, features = np.repeat([0, 1], 10), np.arange(20.0)[:, None]
    stats = hard_stats(path, 2, features)
    first, second = _names(Fit(None, stats, stats.total(), 0.0))
    assert first[0] == second[0]
    assert first != second


def test_the_best_restart_is_kept():
    last = {}

    def remember(number, fit):
        last[len(last) - (number > 0)] = fit.elbo

    effort = Effort(max_laps=3, restarts=3, births=0)
    fit = fit_arhmm(regimes()[0], PRIOR, 2, effort=effort, report=remember)
    assert len(set(last.values())) == 3
    assert fit.elbo == max(last.values())


def test_the_same_seed_gives_the_same_fit():
    first, again, other = (
        fit_arhmm(regimes()[0], PRIOR, 4, seed=s, effort=Effort(max_laps=3)) for s in (1, 1, 2)
    )
    assert first.elbo == again.elbo
    np.testing.assert_array_equal(first.posterior.regressions.mean, again.posterior.regressions.mean)
    assert first.elbo != other.elbo


def test_a_sequence_of_missing_frames_says_nothing():
    series, states = regimes()
    fit = fit_arhmm([*series, np.full((30, 2), np.nan)], PRIOR, 3)
    known = sum(len(x) - 1 for x in series)
    np.testing.assert_allclose(fit.posterior.regressions.dof.sum(), known + 3 * PRIOR.regression.dof)
    np.testing.assert_array_equal(fit.stats.regression[-1], 0)
    assert accuracy(fit, series, states) > 0.95


def test_missing_frames_are_left_out():
    series, states = regimes()
    holes = [x.copy() for x in series]
    for x in holes:
        x[40:50] = np.nan
    fit = fit_arhmm(holes, PRIOR, 5)
    assert fit.posterior.num_states == 3
    assert accuracy(fit, holes, states) > 0.9


def test_outliers_are_survived():
    series = [x.copy() for x in regimes()[0]]
    for x in series:
        x[60] += 1e3
    prior = PRIOR._replace(transition=StickyPrior(concentration=1e-3))
    laps = []
    fit_arhmm(series, prior, 5, effort=Effort(max_laps=4), report=lambda number, fit: laps.append(fit))
    assert all(np.isfinite(fit.elbo) for fit in laps)
    assert all(not_lower(after, before) for before, after in pairwise(laps))


@pytest.mark.parametrize("frames", [2, 3])
def test_fewer_frames_than_states(frames):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sequences = pad([10 * rng.normal(size=(frames, 2))])
        fit = refine(PRIOR, sequences, grouped_runs(PRIOR, sequences, 3, rng), np.array([0]))
        for run in moves.runs_of_states(sequences, fit, shortest=1):
            born = moves.birth(PRIOR, sequences, fit, run)
            assert born is None or born.posterior.num_states > 0


GOOD = np.zeros((5, 2))
BAD = [
    ([], 1, "series is empty"),
    ([GOOD], 0, "num_states must be at least 1, got 0"),
    ([GOOD, np.zeros((5, 3))], 1, r"series\[1\] must have shape \(time, 2\), got \(5, 3\)"),
    ([np.zeros(5)], 1, r"series\[0\] must have shape"),
    ([GOOD, GOOD[:1]], 1, r"series\[1\] has 1 frames"),
]


@pytest.mark.parametrize(("series", "num_states", "message"), BAD)
def test_errors_say_what_is_wrong(series, num_states, message):
    with pytest.raises(ValueError, match=message):
        fit_arhmm(series, PRIOR, num_states)


def test_known_states_come_first_and_take_what_means_the_same():
    """Two turns and a drift; people know the drift as state 0, one turn as state 1, in the first series."""
    rng = np.random.default_rng(3)
    turn = lambda angle: np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    matrices, offsets = [turn(0.4), turn(-0.4), np.eye(2)], [0.0, 0.0, 0.1]
    truth = np.repeat([0, 1, 2, 1, 0, 2], 40)
    series = []
    for _ in range(3):
        z = np.ones((len(truth), 2))
        for t in range(1, len(truth)):
            k = truth[t]
            z[t] = matrices[k] @ z[t - 1] + offsets[k] + 0.02 * rng.normal(size=2)
        series.append(z)
    prior = Prior(default_prior(np.full(2, 0.01)), StickyPrior())
    found = fit_arhmm(series, prior, 6)
    names = np.array([1, -1, 0])  # the second turn is not known to anybody
    unknown = np.full(len(truth), -1)
    named = with_known_states(prior, found, series, [names[truth], unknown, unknown], 2)
    for path in paths(pad(series), named.posterior):
        for k, name in ((0, 1), (2, 0)):
            assert np.mean(path[truth[1:] == k] == name) > 0.95
        assert np.mean(path[truth[1:] == 1] >= 2) > 0.95
