"""What a feature network sees of data: logarithms where asked for, standardised, with zeros for gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from svae.data import DataError, Recording, Recordings, Standardizer
from svae.features.labelled import LabelledWindows
from svae.networks.likelihoods import SMALLEST_POWER

Values = Float[np.ndarray, "windows time channels"]
Lengths = Int[np.ndarray, "windows"]


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs = (value - mean) / scale, or (log value - mean) / scale; missing entries are at the mean."""

    standardizer: Standardizer
    logarithm: bool = False

    @classmethod
    def fit(cls, windows: LabelledWindows, logarithm: bool = False) -> Inputs:
        """Mean and scale of each channel over these windows, padding left out."""
        values = _logarithm(windows.values) if logarithm else windows.values
        items = tuple(
            Recording(f"window {number}", window[:length])
            for number, (window, length) in enumerate(zip(values, windows.lengths, strict=True))
        )
        return cls(Standardizer.fit(Recordings(items, windows.channels)), logarithm)

    def apply(self, values: Values) -> Float[np.ndarray, "windows time channels"]:
        """In single precision and without NaN."""
        values = _logarithm(values) if self.logarithm else values
        return np.nan_to_num(self.standardizer.apply(values).astype(np.float32), copy=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"logarithm": self.logarithm, **self.standardizer.to_dict()}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Inputs:
        """The inverse of `to_dict`."""
        return cls(Standardizer.from_dict(plain), plain["logarithm"])


def _logarithm(values: Values) -> Values:
    if np.any(values < 0):
        raise DataError("logarithms are for power spectrograms, and these data have negative values")
    return np.log(np.maximum(values, SMALLEST_POWER))
