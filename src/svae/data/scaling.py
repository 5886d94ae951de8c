"""Bringing channels to a common scale, and results back to the original one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from svae.data.errors import DataError
from svae.data.recordings import Recordings, require_usable

MODES = ("channel", "global", "none")
BLOCK = 1 << 16  # frames


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Standardised = (value - mean) / scale, channel by channel. NaN stays NaN."""

    mean: Float[np.ndarray, " features"]
    scale: Float[np.ndarray, " features"]

    @classmethod
    def fit(cls, recordings: Recordings, mode: str = "channel") -> Standardizer:
        """Mean and scale of the observed entries of all recordings together.

        'channel': each channel gets standard deviation one. 'global': each channel gets mean zero, all are
        divided by one common scale, so that their proportions stay. 'none': nothing changes. A channel that
        never changes is divided by one.
        """
        if mode not in MODES:
            raise DataError(f"mode must be one of {', '.join(MODES)}, got '{mode}'")
        if mode == "none":
            return cls(np.zeros(recordings.num_features), np.ones(recordings.num_features))
        moments = channel_moments(recordings)
        variance, weight = moments.variance, moments.count
        if mode == "global":
            variance = np.full_like(variance, np.sum(variance * weight) / np.sum(weight))
        constant = variance == 0
        return cls(moments.mean, np.where(constant, 1.0, np.sqrt(np.where(constant, 1.0, variance))))

    def apply(self, values: Float[np.ndarray, "*batch features"]) -> Float[np.ndarray, "*batch features"]:
        """Standardised values."""
        return ((values - self.mean) / self.scale).astype(values.dtype)

    def undo(self, values: Float[np.ndarray, "*batch features"]) -> Float[np.ndarray, "*batch features"]:
        """Values on the original scale."""
        return (values * self.scale + self.mean).astype(values.dtype)

    def undo_scale(
        self, deviations: Float[np.ndarray, "*batch features"]
    ) -> Float[np.ndarray, "*batch features"]:
        """Standard deviations, or other differences, on the original scale."""
        return (deviations * self.scale).astype(deviations.dtype)

    def to_dict(self) -> dict[str, list[float]]:
        """Plain lists, for JSON."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Standardizer:
        """The inverse of `to_dict`."""
        return cls(np.asarray(plain["mean"], np.float64), np.asarray(plain["scale"], np.float64))


@dataclass(frozen=True, eq=False)
class Moments:
    """What the observed entries of each channel are like."""

    count: Float[np.ndarray, " features"]
    minimum: Float[np.ndarray, " features"]
    maximum: Float[np.ndarray, " features"]
    mean: Float[np.ndarray, " features"]
    variance: Float[np.ndarray, " features"]


def channel_moments(recordings: Recordings) -> Moments:
    """Moments over all recordings, in float64, in two passes that hold one block of frames at a time."""
    require_usable(recordings, min_length=0)
    zero = np.zeros(recordings.num_features)
    count, total, squares = zero, zero, zero
    minimum, maximum = zero + np.inf, zero - np.inf
    for x in _blocks(recordings):
        count = count + np.sum(~np.isnan(x), axis=0)
        total = total + np.nansum(x, axis=0, dtype=np.float64)
        # fmin and fmax leave NaN aside
        minimum = np.fmin(minimum, np.fmin.reduce(x, axis=0))
        maximum = np.fmax(maximum, np.fmax.reduce(x, axis=0))
    # the mean of equal numbers may differ from them by rounding
    mean = np.clip(total / count, minimum, maximum)
    for x in _blocks(recordings):
        squares = squares + np.nansum((x.astype(np.float64) - mean) ** 2, axis=0)
    return Moments(count, minimum, maximum, mean, squares / count)


def _blocks(recordings: Recordings) -> Iterator[np.ndarray]:
    """All frames, so many at a time that memory holds several copies."""
    for item in recordings:
        for start in range(0, len(item), BLOCK):
            yield item.values[start : start + BLOCK]
