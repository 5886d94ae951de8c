"""Sequences of discrete states: their runs, and which states count."""

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

IN_USE = 0.01  # share of the frames that a state must have to count as used


def runs(values: ArrayLike) -> list[tuple[int, int]]:
    """Start and stop, exclusive, of each run of equal values."""
    values = np.asarray(values)
    cuts = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(values)]
    return list(pairwise(bounds)) if len(values) else []


def num_used(counts: ArrayLike) -> int:
    """How many states have their share, of frames counted or expected."""
    counts = np.asarray(counts)
    return int(np.sum(counts >= IN_USE * counts.sum())) if counts.sum() > 0 else 0
