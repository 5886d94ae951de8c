"""Comparing states with labels. States have no names, so every score is blind to how they are numbered."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray


class SegmentationScores(NamedTuple):
    """`accuracy` names each state by its most frequent label, `hamming` allows each label one state."""

    accuracy: float
    hamming: float  # share of frames that the best one-to-one matching gets wrong
    ari: float  # adjusted Rand index
    nmi: float  # normalised mutual information


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
