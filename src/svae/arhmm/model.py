"""The variational AR-HMM: its posterior, its bound, and the two steps that raise it."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from svae.arhmm import emissions, transitions
from svae.arhmm.emissions import Regressions
from svae.arhmm.local import Sequences, SequenceStats, most_likely_path, sequence_stats
from svae.arhmm.transitions import StickyPrior, Transitions


class Prior(NamedTuple):
    """Priors of the regressions and of the transitions.

    The states' KL divergence to their prior counts `price` times: the higher, the longer they last, however
    sharply regressions tell them apart. The bound is the lower for it, and still a bound.
    """

    regression: Regressions
    transition: StickyPrior
    price: float = 1.0


class Posterior(NamedTuple):
    """q of the regressions and of the transitions."""

    regressions: Regressions
    transitions: Transitions
    price: float = 1.0

    @property
    def num_states(self) -> int:
        """States in use."""
        return len(self.regressions.dof)

    def scores(self) -> tuple[Float[ndarray, "k size"], Float[ndarray, "k"], Float[ndarray, "k k"]]:
        """Expected log-likelihood (as coefficients of the features), start and transition weights.

        All of them in prices of a nat.
        """
        q = self.transitions
        log_start, log_rows = transitions.expected_log(q.start), transitions.expected_log(q.rows)
        natural = emissions.natural_from_regressions(self.regressions) / self.price
        return natural, log_start[:-1], log_rows[:, :-1]


class Fit(NamedTuple):
    """Posterior, statistics that it was made from, and the evidence lower bound of all data in nats."""

    posterior: Posterior
    stats: SequenceStats  # one entry for each sequence
    total: SequenceStats  # their sum
    elbo: float


def regression_stats(prior: Prior, total: SequenceStats) -> emissions.RegressionStats:
    """The part of the statistics that the regressions need."""
    return emissions.stats_from_flat(total.regression, *prior.regression.mean.shape)


def global_step(prior: Prior, stats: SequenceStats, old: Transitions | None = None) -> Fit:
    """The best posterior for given statistics, and the bound."""
    total = stats.total()
    posterior, elbo = best_posterior(prior, total, old)
    return Fit(posterior, stats, total, elbo)


def best_posterior(
    prior: Prior, total: SequenceStats, old: Transitions | None = None
) -> tuple[Posterior, float]:
    """For statistics of all sequences together; and the bound."""
    regression = regression_stats(prior, total)
    regressions = emissions.posterior(prior.regression, regression)
    sticks = None if old is None else (old.stick_mean, old.stick_weight)
    start, counts = prior.price * total.start, prior.price * total.counts
    chain = transitions.update(prior.transition, start, counts, sticks)
    evidence = emissions.log_normaliser(regressions) - emissions.log_normaliser(prior.regression)
    n = prior.regression.scale.shape[-1]
    likelihood = float(np.sum(evidence) - np.sum(regression.weight) * n / 2 * emissions.LOG_2PI)
    states = transitions.bound(prior.transition, chain, start, counts) + prior.price * float(total.entropy)
    return Posterior(regressions, chain, prior.price), likelihood + states


def local_step(sequences: Sequences, posterior: Posterior) -> SequenceStats:
    """The best q(states) of some sequences."""
    return sequence_stats(sequences, *posterior.scores())[0]


def probabilities(sequences: Sequences, posterior: Posterior) -> Float[ndarray, "sequences time k"]:
    """q(states)."""
    return sequence_stats(sequences, *posterior.scores())[1]


def paths(sequences: Sequences, posterior: Posterior) -> list[Int[ndarray, "_"]]:
    """The most likely states of each sequence."""
    natural, log_start, log_rows = posterior.scores()
    scores = sequences.features @ natural.T
    return [
        most_likely_path(x[ok], log_start, log_rows) for x, ok in zip(scores, sequences.valid, strict=True)
    ]


def refine(prior: Prior, sequences: Sequences, fit: Fit, which: Int[ndarray, "some"], passes: int = 1) -> Fit:
    """Local and global steps in turn, on some of the sequences; the bound does not fall."""
    if len(which) == 0:
        return fit
    subset = sequences.select(which)
    for _ in range(passes):
        stats = fit.stats.replaced(which, local_step(subset, fit.posterior))
        fit = global_step(prior, stats, fit.posterior.transitions)
    return fit
