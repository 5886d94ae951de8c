"""Moves that change the number of states. Each is the same thing: a proposal, a few steps of refinement on
the sequences that it touches, and acceptance if the bound on all data has risen.

What a proposal does to the statistics of untouched sequences is a linear map from old states to new ones,
and exact: they do not use the states concerned.
"""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from svae.arhmm import emissions
from svae.arhmm.local import Sequences, SequenceStats, sequence_stats
from svae.arhmm.model import Fit, Prior, best_posterior, global_step, paths, refine, regression_stats
from svae.states import runs

UNUSED = 1e-8  # frames: a state with less has no influence on a sequence
MARGIN = 1e-6  # nats by which the bound must rise
MOST_PAIRS = 100  # that are looked at for a merge
MOST_TOUCHED = 10  # sequences on which a birth is refined

Run = tuple[int, int, int]  # sequence, first frame, frame after the last


def sort_states(prior: Prior, fit: Fit) -> Fit:
    """Most used first, as the sticks expect; kept if the bound agrees."""
    order = np.argsort(-fit.total.usage, kind="stable")
    if np.all(order == np.arange(len(order))):
        return fit
    return _better(fit, global_step(prior, fit.stats.mapped(np.eye(len(order))[:, order]))) or fit


def merge_candidates(prior: Prior, fit: Fit) -> list[tuple[int, int]]:
    """Pairs of states, those first whose frames one regression explains best."""
    stats = regression_stats(prior, fit.total)
    own = emissions.log_evidence(prior.regression, stats)
    first, second = np.triu_indices(len(own), 1)
    joint = emissions.RegressionStats(*(x[first] + x[second] for x in stats))
    gap = emissions.log_evidence(prior.regression, joint) - own[first] - own[second]
    return [(int(first[i]), int(second[i])) for i in np.argsort(-gap)[:MOST_PAIRS]]


def merge(prior: Prior, sequences: Sequences, fit: Fit, keep: int, drop: int) -> Fit | None:
    """Two states become one.

    A merged chain has less entropy than before; a merge that loses even with the old one is not refined.
    """
    mapping = _merging(fit, keep, drop)
    if best_posterior(prior, fit.total.mapped(mapping))[1] <= fit.elbo:
        return None
    usage = fit.stats.usage
    touched = np.flatnonzero(np.minimum(usage[:, keep], usage[:, drop]) > UNUSED)
    return _better(fit, refine(prior, sequences, global_step(prior, fit.stats.mapped(mapping)), touched))


def _merging(fit: Fit, keep: int, drop: int) -> Float[ndarray, "k j"]:
    mapping = np.eye(fit.posterior.num_states)
    mapping[drop, keep] = 1
    return np.delete(mapping, drop, axis=1)


def delete(prior: Prior, sequences: Sequences, fit: Fit, state: int) -> Fit | None:
    """A state's frames go to whichever others take them."""
    dropped = np.arange(fit.posterior.num_states) == state
    return _better(fit, _without(prior, sequences, fit, dropped, passes=2))


def _without(prior: Prior, sequences: Sequences, fit: Fit, dropped: ndarray, passes: int) -> Fit:
    mapping = np.eye(len(dropped))[:, ~dropped]
    touched = np.flatnonzero(fit.stats.usage[:, dropped].sum(axis=1) > UNUSED)
    return refine(prior, sequences, global_step(prior, fit.stats.mapped(mapping)), touched, passes)


def runs_of_states(sequences: Sequences, fit: Fit, shortest: int) -> list[Run]:
    """Stretches in which the most likely state stays the same, of two frames at least."""
    return [
        (i, start, stop)
        for i, path in enumerate(paths(sequences, fit.posterior))
        for start, stop in runs(path)
        if stop - start >= max(shortest, 2)
    ]


def birth(prior: Prior, sequences: Sequences, fit: Fit, run: Run) -> Fit | None:
    """Cut a run of one state where that explains it best; either part or both get states of their own."""
    i, start, stop = run
    middle = start + _best_cut(prior, sequences.features[i, start:stop])
    parts = (start, middle), (middle, stop)
    proposals = [_born(prior, sequences, fit, i, chosen) for chosen in (parts, parts[:1], parts[1:])]
    return _better(fit, max(proposals, key=lambda proposal: proposal.elbo))


def _best_cut(prior: Prior, features: Float[ndarray, "time size"]) -> int:
    """Where two regressions explain a run best."""
    shape = prior.regression.mean.shape
    sums = np.cumsum(features, axis=0)
    stride = -(-len(features) // 25)
    cuts = np.arange(stride, len(features), stride)
    evidence = lambda flat: emissions.log_evidence(prior.regression, emissions.stats_from_flat(flat, *shape))
    return int(cuts[np.argmax(evidence(sums[cuts - 1]) + evidence(sums[-1] - sums[cuts - 1]))])


def _born(prior: Prior, sequences: Sequences, fit: Fit, i: int, parts: tuple) -> Fit:
    """A new state for each part of sequence `i`, refined there and where the old states are in use."""
    old, new = fit.posterior.num_states, len(parts)
    target = np.array([i])
    one = sequences.select(target)
    _, probability = sequence_stats(one, *fit.posterior.scores())
    split = sum(probability[0, start:stop].sum(axis=0) for start, stop in parts)
    probability = np.pad(probability, [(0, 0), (0, 0), (0, new)])
    for k, (start, stop) in enumerate(parts, old):
        probability[0, start:stop] = np.eye(old + new)[k]
    assigned = SequenceStats(
        np.swapaxes(probability, 1, 2) @ one.features,
        probability[:, 0],
        np.swapaxes(probability[:, :-1], 1, 2) @ probability[:, 1:],
        np.zeros(1),
    )
    grown = fit.stats.mapped(np.eye(old, old + new)).replaced(target, assigned)
    proposal = refine(prior, sequences, global_step(prior, grown), target, passes=3)
    proposal = refine(prior, sequences, proposal, _users(fit, split))
    usage = proposal.total.usage
    empty = usage < min(1, usage.max())
    return _without(prior, sequences, proposal, empty, passes=1) if np.any(empty) else proposal


def _users(fit: Fit, weights: Float[ndarray, "k"]) -> Int[ndarray, "some"]:
    """The sequences that use the states of a run most: its new states may be wanted there, too."""
    use = fit.stats.usage @ weights
    return np.sort(np.argsort(-use, kind="stable")[:MOST_TOUCHED])


def _better(fit: Fit, proposal: Fit) -> Fit | None:
    return proposal if proposal.elbo > fit.elbo + MARGIN else None
