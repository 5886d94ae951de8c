"""Where a fit begins: short runs of frames, grouped by the regressions that explain them together."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from svae.arhmm.emissions import log_evidence, stats_from_flat
from svae.arhmm.local import Sequences, SequenceStats
from svae.arhmm.model import Fit, Prior, global_step

MOST_RUNS = 200  # to group: the work grows with their square


def grouped_runs(
    prior: Prior, sequences: Sequences, num_states: int, rng: np.random.Generator, frames: int | None = None
) -> Fit:
    """Each state starts as a group of short runs, cut at random from the sequences.

    Single runs would do, but half of them span a change of state, and many tell the same. Unless states are
    known to last for so many `frames`, runs are as short as can be: few then have more than one state.
    """
    lengths = sequences.valid.sum(axis=1)
    enough = 2 * (prior.regression.mean.shape[1] + 1)  # to tell regressions apart
    size = enough if frames is None else int(np.clip(frames, enough, max(lengths.max(), enough)))
    runs = [(i, start) for i, long in enumerate(lengths) for start in range(0, max(1, long - size + 1), size)]
    chosen = rng.permutation(len(runs))[: max(MOST_RUNS, num_states)]
    which = np.array([runs[j][0] for j in chosen])
    flat = np.stack([sequences.features[i, s : s + size].sum(axis=0) for i, s in (runs[j] for j in chosen)])

    group = group_by_evidence(prior, flat, num_states)
    states = np.zeros((len(sequences), group.max() + 1))
    stats = np.zeros((*states.shape, flat.shape[1]))
    np.add.at(stats, (which, group), flat)
    nothing = SequenceStats(stats, states, states[:, :, None] * states[:, None], np.zeros(len(sequences)))
    return global_step(prior, nothing)


def group_by_evidence(
    prior: Prior, flat: Float[ndarray, "runs size"], num_groups: int
) -> Int[ndarray, "runs"]:
    """The group of each run. The two whose merger gains most evidence are merged, over and over."""
    n, m = prior.regression.mean.shape
    evidence = lambda x: log_evidence(prior.regression, stats_from_flat(x, n, m))
    total, group = flat.copy(), np.arange(len(flat))
    alone = evidence(total)
    gain = np.full((len(flat), len(flat)), -np.inf)  # above the diagonal

    def compare(a: int, others: Bool[ndarray, "runs"]) -> None:
        b = np.flatnonzero(others)
        found = evidence(total[a] + total[b]) - alone[a] - alone[b]
        gain[np.minimum(a, b), np.maximum(a, b)] = found

    everyone = np.arange(len(flat))
    for a in range(len(flat) - 1):
        compare(a, everyone > a)
    alive = np.ones(len(flat), bool)
    for _ in range(len(flat) - num_groups):
        a, b = divmod(int(np.argmax(gain)), len(flat))
        total[a] += total[b]
        alone[a] = evidence(total[a])
        group[group == b] = a
        alive[b] = False
        gain[b] = gain[:, b] = -np.inf
        compare(a, alive & (everyone != a))
    return np.unique(group, return_inverse=True)[1]
