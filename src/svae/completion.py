"""Several answers to one question: draws of what is missing or to come, and what they have in common."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from svae.states import runs


class PathSummary(NamedTuple):
    """The draws that went through the same states in the same order, whatever their timing.

    All draws of a model without states are one path.
    """

    states: tuple[int, ...]
    probability: float  # share of the draws
    mean: Float[ndarray, "time features"]
    low: Float[ndarray, "time features"]  # of a band that holds nine tenths of these draws
    high: Float[ndarray, "time features"]

    def __str__(self) -> str:
        return f"{self.probability:.0%} {' → '.join(map(str, self.states))}" if self.states else "all draws"


class Completion(NamedTuple):
    """Draws of one recording, on the original scale; what was known is the same in all of them."""

    values: Float[ndarray, "draws time features"]
    missing: Bool[ndarray, "time features"]
    states: Int[ndarray, "draws time"] | None  # None for models without states

    @property
    def mean(self) -> Float[ndarray, "time features"]:
        """Over the draws."""
        return self.values.mean(axis=0)

    def quantiles(self, levels: Sequence[float]) -> Float[ndarray, "levels time features"]:
        """Over the draws, entry by entry."""
        return np.quantile(self.values, levels, axis=0)

    def gaps(self) -> list[tuple[int, int]]:
        """Start and stop of each stretch of frames in which something is missing."""
        hidden = np.any(self.missing, axis=1).astype(bool)
        return [(start, stop) for start, stop in runs(hidden) if hidden[start]]

    def paths(self, start: int, stop: int) -> list[PathSummary]:
        """What happened from frame `start` to `stop` (exclusive), the likeliest path of states first."""
        count, frames = self.values.shape[:2]
        if not 0 <= start < stop <= frames:
            raise ValueError(f"frames {start} to {stop} are not within the {frames} there are")
        if self.states is None:
            return [_summary((), self.values[:, start:stop], count)]
        taken = [tuple(int(path[i]) for i, _ in runs(path)) for path in self.states[:, start:stop]]
        return [
            _summary(path, self.values[[x == path for x in taken], start:stop], len(taken))
            for path in sorted(set(taken), key=lambda path: (-taken.count(path), path))
        ]


def _summary(path: tuple[int, ...], values: ndarray, total: int) -> PathSummary:
    low, high = np.quantile(values, [0.05, 0.95], axis=0)
    return PathSummary(path, len(values) / total, values.mean(axis=0), low, high)
