"""Fitting: laps over batches of sequences, and moves between laps until none helps any more."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from svae.arhmm import moves
from svae.arhmm.beginning import grouped_runs
from svae.arhmm.local import Sequences, SequenceStats, one_thread, pad
from svae.arhmm.model import Fit, Prior, best_posterior, global_step, local_step, refine


class Effort(NamedTuple):
    """How long to try."""

    max_laps: int = 50
    batch_size: int = 25
    births: int = 3  # attempts after each lap
    shortest_birth: int = 10  # frames of one state that may be cut in two
    most_states: int | None = None  # that births may lead to
    patience: int = 3  # laps in a row without an accepted move that end the search
    tolerance: float = 1e-6  # nats per frame that a lap must gain to count as progress
    restarts: int = 1  # the best of so many fits is kept
    run: int | None = None  # frames of the runs that states begin with; None: as few as will do


def fit_arhmm(
    series: list[Float[ndarray, "..."]],
    prior: Prior,
    num_states: int,
    *,
    seed: int = 0,
    effort: Effort | None = None,
    report: Callable[[int, Fit], None] = lambda lap, fit: None,
) -> Fit:
    """The posterior of an AR-HMM, starting from `num_states` states and keeping as many as data support.

    `series` may differ in length; NaN marks missing frames. `report` is called after each lap.
    """
    effort = Effort() if effort is None else effort
    _check(series, prior, num_states)
    sequences = pad(series)
    seeds = np.random.SeedSequence(seed).spawn(effort.restarts)
    with one_thread():
        fits = [
            _fit_once(prior, sequences, num_states, np.random.default_rng(child), effort, report)
            for child in seeds
        ]
    return max(fits, key=lambda fit: fit.elbo)


def _check(series: list[ndarray], prior: Prior, num_states: int) -> None:
    n = prior.regression.mean.shape[0]
    if num_states < 1:
        raise ValueError(f"num_states must be at least 1, got {num_states}")
    if not series:
        raise ValueError("series is empty: the AR-HMM needs at least one sequence")
    for i, x in enumerate(series):
        if x.ndim != 2 or x.shape[1] != n:
            raise ValueError(f"series[{i}] must have shape (time, {n}), got {x.shape}")
        if len(x) < 2:
            raise ValueError(f"series[{i}] has {len(x)} frames; an auto-regression needs at least 2")


def _fit_once(
    prior: Prior,
    sequences: Sequences,
    num_states: int,
    rng: np.random.Generator,
    effort: Effort,
    report: Callable[[int, Fit], None],
) -> Fit:
    fit = begin(prior, sequences, num_states, rng, effort)
    enough = effort.tolerance * sequences.valid.sum()
    failed: set = set()
    idle = 0
    for number in range(effort.max_laps):
        before = fit
        fit = lap(prior, sequences, fit, effort.batch_size)
        fit = moves.sort_states(prior, fit)
        if number > 0:
            for move in (_births, _merges, _deletes):
                fit = move(prior, sequences, fit, rng, effort, failed)
        report(number, fit)
        idle = 0 if fit.posterior.num_states != before.posterior.num_states else idle + 1
        if idle >= effort.patience and fit.elbo - before.elbo < enough:
            break
    return fit


def begin(
    prior: Prior, sequences: Sequences, num_states: int, rng: np.random.Generator, effort: Effort
) -> Fit:
    """The first fit to all sequences."""
    runs = grouped_runs(prior, sequences, num_states, rng, effort.run)
    return refine(prior, sequences, runs, np.arange(len(sequences)))


def lap(prior: Prior, sequences: Sequences, fit: Fit, batch_size: int) -> Fit:
    """Visit all sequences once, with a global step after each batch (memoized inference)."""
    stats, total, posterior = fit.stats.copy(), fit.total, fit.posterior
    for start in range(0, len(sequences), batch_size):
        batch = slice(start, start + batch_size)
        new = local_step(sequences.select(batch), posterior)
        changes = [x - old[batch] for x, old in zip(new, stats, strict=True)]
        total = SequenceStats(*(x + np.sum(y, axis=0) for x, y in zip(total, changes, strict=True)))
        posterior, _ = best_posterior(prior, total, posterior.transitions)
        for old, x in zip(stats, new, strict=True):
            old[batch] = x
    return global_step(prior, stats, posterior.transitions)


# What failed rests until the frames of its states have changed by a per cent or so: `failed` holds the
# logarithms of their number and size, rounded. States have no other name that would survive a merge or a
# new order.


def _names(fit: Fit) -> list[tuple[float, ...]]:
    marks = np.stack([fit.total.usage, np.linalg.norm(fit.total.regression, axis=1)], axis=1)
    return [tuple(row) for row in np.log(np.maximum(marks, 1e-10)).round(2).tolist()]


def _births(prior: Prior, sequences: Sequences, fit: Fit, rng, effort: Effort, failed: set) -> Fit:
    room = np.inf if effort.most_states is None else effort.most_states - fit.posterior.num_states
    if room <= 0:
        return fit
    runs = moves.runs_of_states(sequences, fit, effort.shortest_birth)
    for i in rng.permutation(len(runs))[: effort.births]:
        born = moves.birth(prior, sequences, fit, runs[i])
        if born is not None and born.posterior.num_states - fit.posterior.num_states <= room:
            return born
    return fit


def _merges(prior: Prior, sequences: Sequences, fit: Fit, rng, effort: Effort, failed: set) -> Fit:
    return merge_all(prior, sequences, fit, failed)


def merge_all(prior: Prior, sequences: Sequences, fit: Fit, failed: set) -> Fit:
    """Merge pairs of states until no merge raises the bound; what is in `failed` is not tried."""
    while True:
        names = _names(fit)
        for pair in moves.merge_candidates(prior, fit):
            name = ("merge", *sorted(names[k] for k in pair))
            if name in failed:
                continue
            merged = moves.merge(prior, sequences, fit, *pair)
            if merged is not None:
                fit = merged
                break
            failed.add(name)
        else:
            return fit


def _deletes(prior: Prior, sequences: Sequences, fit: Fit, rng, effort: Effort, failed: set) -> Fit:
    for k in reversed(range(fit.posterior.num_states)):  # the least used is the last
        if not 0 < k < fit.posterior.num_states:
            continue
        name = ("delete", _names(fit)[k])
        if name in failed:
            continue
        without = moves.delete(prior, sequences, fit, k)
        if without is None:
            failed.add(name)
        else:
            fit = without
    return fit
