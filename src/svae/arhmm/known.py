"""States that are known for some frames: they come first, and found ones that mean the same join them."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from svae.arhmm.local import SequenceStats, pad, sequence_stats
from svae.arhmm.model import Fit, Prior, global_step


def with_known_states(
    prior: Prior,
    fit: Fit,
    series: list[Float[ndarray, "_ n"]],
    known: Sequence[Int[ndarray, "_"]],
    num_known: int,
) -> Fit:
    """The same fit with known states as states 0 to `num_known` - 1, and their frames in them.

    `known` has a state for each frame, -1 where it is not known. A found state most of whose known frames
    are of one known state becomes that one elsewhere, too; the others follow behind.
    """
    sequences = pad(series)
    _, probability = sequence_stats(sequences, *fit.posterior.scores())
    given = np.full(sequences.valid.shape, -1)
    for i, states in enumerate(known):
        given[i, : len(states) - 1] = states[1:]  # a frame's state is that of the step to it
    shown = given >= 0
    overlap = np.zeros((probability.shape[2], num_known))
    np.add.at(overlap.T, given[shown], probability[shown])
    names = _names(overlap)
    total = max(num_known, max(names) + 1)
    probability = probability @ np.eye(total)[names]
    probability[shown] = np.eye(total)[given[shown]]
    probability = probability * sequences.valid[:, :, None]
    stats = SequenceStats(
        np.swapaxes(probability, 1, 2) @ sequences.features,
        probability[:, 0],
        np.swapaxes(probability[:, :-1], 1, 2) @ probability[:, 1:],
        np.zeros(len(sequences)),
    )
    return global_step(prior, stats)


def _names(overlap: Float[ndarray, "found known"]) -> list[int]:
    """What each found state is called: the known state that has most of its known frames, or a new number."""
    names, free = [], overlap.shape[1]
    for row in overlap:
        if row.max(initial=0) > 0.5 * max(row.sum(), 1):
            names.append(int(row.argmax()))
        else:
            names.append(free)
            free += 1
    return names
