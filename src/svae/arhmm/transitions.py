r"""Which state follows which: a sticky hierarchical Dirichlet process, truncated at the K states in use.

$$ u_j \sim \mathrm{Beta}(1, \gamma),\quad \beta_j = u_j \prod_{l<j}(1-u_l), \qquad
   \pi_0 \sim \mathrm{Dir}(\alpha_0\beta),\quad \pi_k \sim \mathrm{Dir}(\alpha\beta + \kappa e_k) $$

The posterior is a product of Betas on the sticks and Dirichlets with K+1 entries, the last standing for
all states not in use. Expectations of log-normalisers of Dirichlets have no closed form and are bounded:
$\log\Gamma(1+x)$ is superadditive, and $\log(\alpha\beta_k+\kappa)$ concave in $\beta_k$.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.optimize import minimize
from scipy.special import betaln, expit, gammaln, logit, psi, zeta

LOGIT_RANGE = -12, 12  # of the sticks' means
LOG_WEIGHT_RANGE = -4, 16  # of their weights


class StickyPrior(NamedTuple):
    """`persistence` pseudo-counts on staying, `concentration` spread over all states by popularity."""

    gamma: float = 5.0
    concentration: float = 0.5
    start: float = 10.0
    persistence: float = 50.0


class Transitions(NamedTuple):
    """The posterior: sticks (Beta means and weights), and Dirichlets of the start and of each row."""

    stick_mean: Float[ndarray, "k"]
    stick_weight: Float[ndarray, "k"]
    start: Float[ndarray, "k_plus_1"]
    rows: Float[ndarray, "k k_plus_1"]

    @property
    def popularity(self) -> Float[ndarray, "k_plus_1"]:
        """E beta."""
        return _popularity(self.stick_mean)


def _popularity(stick_mean: Float[ndarray, "k"]) -> Float[ndarray, "k_plus_1"]:
    left = np.concatenate([[1.0], np.cumprod(1 - stick_mean)])
    return np.concatenate([stick_mean, [1.0]]) * left


def sticks_from_popularity(popularity: Float[ndarray, "k"]) -> Float[ndarray, "k"]:
    """Stick means for given state probabilities (which sum to less than one)."""
    left = 1 - np.concatenate([[0.0], np.cumsum(popularity)[:-1]])
    return np.clip(popularity / np.maximum(left, 1e-12), 1e-6, 1 - 1e-6)


def expected_log(concentration: Float[ndarray, "... k"]) -> Float[ndarray, "... k"]:
    """E log of the probabilities under Dirichlets."""
    return psi(concentration) - psi(np.sum(concentration, axis=-1, keepdims=True))


def update(
    prior: StickyPrior,
    start_counts: Float[ndarray, "k"],
    counts: Float[ndarray, "k k"],
    sticks: tuple[ndarray, ndarray] | None = None,
    rounds: int = 2,
) -> Transitions:
    """Alternate between the Dirichlets, in closed form, and the sticks, by quasi-Newton steps."""
    num_states = len(start_counts)
    if sticks is None:
        share = start_counts + counts.sum(axis=0) + 1.0
        popularity = share / share.sum() * num_states / (num_states + 1.0)
        sticks = sticks_from_popularity(popularity), np.full(num_states, 1 + prior.gamma)
    for _ in range(rounds):
        sticks = _improve_sticks(prior, _dirichlets(prior, start_counts, counts, *sticks))
    return _dirichlets(prior, start_counts, counts, *sticks)


def _dirichlets(prior: StickyPrior, start_counts, counts, stick_mean, stick_weight) -> Transitions:
    num_states = len(start_counts)
    popularity = _popularity(stick_mean)
    start = prior.start * popularity
    start[:num_states] += start_counts
    rows = np.tile(prior.concentration * popularity, (num_states, 1))
    rows[:, :num_states] += counts + prior.persistence * np.eye(num_states)
    return Transitions(stick_mean, stick_weight, start, rows)


def _coefficients(prior: StickyPrior, num_states: int) -> tuple[Float[ndarray, "k"], Float[ndarray, "k"]]:
    """How often E log u_j and E log(1 - u_j) enter the bound, the entropy of q(u) aside."""
    j = np.arange(1, num_states + 1)
    if prior.persistence > 0:
        return np.full(num_states, num_states + 0.0), num_states * (num_states + 1.0 - j) + prior.gamma
    return np.full(num_states, num_states + 1.0), (num_states + 1.0) * (num_states + 1 - j) + prior.gamma - 1


def _stickiness(prior: StickyPrior) -> float:
    """Slope of the bound on log(alpha beta_k + kappa) in beta_k."""
    if prior.persistence == 0:
        return 0.0
    return float(np.log1p(prior.concentration / prior.persistence))


def _pull(prior: StickyPrior, transitions: Transitions) -> Float[ndarray, "k_plus_1"]:
    """The coefficient of E beta in the bound, given the Dirichlets."""
    rows, start = expected_log(transitions.rows), expected_log(transitions.start)
    pull = prior.concentration * rows.sum(axis=0) + prior.start * start
    pull[:-1] += _stickiness(prior)
    return pull


def _improve_sticks(prior: StickyPrior, transitions: Transitions) -> tuple[ndarray, ndarray]:
    """A few quasi-Newton steps that raise the bound, given the Dirichlets."""
    num_states = len(transitions.stick_mean)
    fixed = _coefficients(prior, num_states), _pull(prior, transitions)
    start = np.concatenate([logit(transitions.stick_mean), np.log(transitions.stick_weight)])
    bounds = np.repeat([LOGIT_RANGE, LOG_WEIGHT_RANGE], num_states, axis=0)
    inside = np.clip(start, *bounds.T)
    found = minimize(_cost, inside, fixed, "L-BFGS-B", jac=True, bounds=bounds, options={"maxiter": 20})
    best = found.x if found.fun <= _cost(start, *fixed)[0] else start
    return expit(best[:num_states]), np.exp(best[num_states:])


def _cost(
    x: Float[ndarray, "twice_k"], coefficients: tuple[ndarray, ndarray], pull: Float[ndarray, "k_plus_1"]
) -> tuple[float, Float[ndarray, "twice_k"]]:
    """Minus the terms of the bound that depend on the sticks, and the gradient; `x` is unconstrained."""
    mean, weight = expit(x[: len(x) // 2]), np.exp(x[len(x) // 2 :])
    a, b = mean * weight, (1 - mean) * weight
    log_u, log_rest = coefficients
    contribution = _popularity(mean) * pull
    value = _stick_terms(a, b, log_u, log_rest) + np.sum(contribution)
    trigamma = lambda x: zeta(2, x)
    both = trigamma(weight)
    by_a = (log_u + 1 - a) * (trigamma(a) - both) - (log_rest + 1 - b) * both
    by_b = (log_rest + 1 - b) * (trigamma(b) - both) - (log_u + 1 - a) * both
    # beta_l falls with u_j for l > j, and rises for l = j
    after = np.cumsum(contribution[::-1])[::-1][1:]
    by_mean = weight * (by_a - by_b) + contribution[:-1] / mean - after / (1 - mean)
    by_weight = mean * by_a + (1 - mean) * by_b
    return -value, -np.concatenate([by_mean * mean * (1 - mean), by_weight * weight])


def _stick_terms(a, b, log_u, log_rest) -> float:
    """E log u and E log(1 - u), weighed, plus the entropy of q(u) = Beta(a, b)."""
    first, rest = psi(a) - psi(a + b), psi(b) - psi(a + b)
    return float(np.sum((log_u + 1 - a) * first + (log_rest + 1 - b) * rest + betaln(a, b)))


def bound(
    prior: StickyPrior, q: Transitions, start_counts: Float[ndarray, "k"], counts: Float[ndarray, "k k"]
) -> float:
    """E log p(states, pi, u) - E log q(pi, u), the states' own entropy aside."""
    num_states = len(start_counts)
    a, b = q.stick_mean * q.stick_weight, (1 - q.stick_mean) * q.stick_weight
    value = num_states**2 * np.log(prior.concentration) + num_states * np.log(prior.start)
    value += (q.popularity[:-1].sum() - num_states) * _stickiness(prior)
    value += num_states * np.log(prior.gamma)  # Beta(1, gamma)
    value += _stick_terms(a, b, *_coefficients(prior, num_states))
    # Dirichlets: (prior + counts - posterior) . E log pi + log-normaliser of the posterior
    rows, start = expected_log(q.rows), expected_log(q.start)
    prior_rows = np.tile(prior.concentration * q.popularity, (num_states, 1))
    prior_rows[:, :-1] += counts + prior.persistence * np.eye(num_states)
    prior_start = prior.start * q.popularity
    prior_start[:-1] += start_counts
    value += np.sum((prior_rows - q.rows) * rows) + np.sum((prior_start - q.start) * start)
    log_normaliser = lambda c: np.sum(np.sum(gammaln(c), axis=-1) - gammaln(np.sum(c, axis=-1)))
    return float(value + log_normaliser(q.rows) + log_normaliser(q.start))
