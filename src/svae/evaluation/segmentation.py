"""Comparing states with labels. States have no names, so every score is blind to how they are numbered."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray


class SegmentationScores(NamedTuple):
    """`accuracy` names each state by its most frequent label, `hamming` allows each label one state."""

    accuracy: float
    hamming: float  # share of frames that the best one-to-one matching gets wrong
    ari: float  # adjusted Rand index
    nmi: float  # normalised mutual information


class BoundaryScores(NamedTuple):
    """How well changes of state tell when labels change, whatever they change to."""

    f1: float  # harmonic mean of the two below
    precision: float  # share of the changes of state that are right; 1 if there are none
    recall: float  # share of the changes of label that were found; 1 if there are none


def contingency(
    labels: Int[ndarray, "frames"], states: Int[ndarray, "frames"]
) -> Int[ndarray, "labels states"]:
    """How many frames have each label and each state."""
    _, rows = np.unique(labels, return_inverse=True)
    _, columns = np.unique(states, return_inverse=True)
    table = np.zeros((rows.max(initial=0) + 1, columns.max(initial=0) + 1), np.int64)
    np.add.at(table, (rows, columns), 1)
    return table


def score_segmentation(labels: Int[ndarray, "..."], states: Int[ndarray, "..."]) -> SegmentationScores:
    """All scores; frames with a negative label are left out."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    labels, states = np.asarray(labels), np.asarray(states)
    if labels.shape != states.shape or labels.ndim != 1:
        raise ValueError(f"one label and one state for each frame, got {labels.shape} and {states.shape}")
    labels, states = labels[labels >= 0], states[labels >= 0]
    if not len(labels):
        raise ValueError("no frame has a label")
    table = contingency(labels, states)
    matched = table[linear_sum_assignment(-table)].sum()
    return SegmentationScores(
        float(table.max(axis=0).sum() / table.sum()),
        float(1 - matched / table.sum()),
        float(adjusted_rand_score(labels, states)),
        float(normalized_mutual_info_score(labels, states)),
    )


def boundary_f1(
    labels: Sequence[Int[ndarray, "_"]], states: Sequence[Int[ndarray, "_"]], tolerance: int
) -> BoundaryScores:
    """Boundaries of all recordings together; a boundary is right within `tolerance` frames of a real one.

    Each real boundary makes at most one found boundary right. Boundaries beside a frame with a negative label
    do not count, on either side.
    """
    if tolerance < 0:
        raise ValueError(f"the tolerance is a number of frames, got {tolerance}")
    real = found = right = 0
    for theirs, ours in zip(map(np.asarray, labels), map(np.asarray, states), strict=True):
        if theirs.shape != ours.shape or theirs.ndim != 1:
            raise ValueError(f"one label and one state for each frame, got {theirs.shape} and {ours.shape}")
        labelled = (theirs[1:] >= 0) & (theirs[:-1] >= 0)
        edges = _boundaries(theirs, labelled), _boundaries(ours, labelled)
        real, found = real + len(edges[0]), found + len(edges[1])
        right += _matches(*edges, tolerance)
    return BoundaryScores(
        2 * right / (real + found) if real + found else 1.0,
        right / found if found else 1.0,
        right / real if real else 1.0,
    )


def _boundaries(
    values: Int[ndarray, "frames"], labelled: Bool[ndarray, "steps"]
) -> Int[ndarray, "boundaries"]:
    return np.flatnonzero((values[1:] != values[:-1]) & labelled)


def _matches(real: Int[ndarray, "real"], found: Int[ndarray, "found"], tolerance: int) -> int:
    """The largest number of pairs within the tolerance, none in two pairs.

    On a line it is found by pairing from the left: the earlier of two that are too far apart has lost its
    last chance, and crossing pairs can be uncrossed.
    """
    i = j = pairs = 0
    while i < len(real) and j < len(found):
        ahead = found[j] - real[i]
        if abs(ahead) <= tolerance:
            i, j, pairs = i + 1, j + 1, pairs + 1
        elif ahead > 0:
            i += 1
        else:
            j += 1
    return pairs
