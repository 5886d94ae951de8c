"""Pictures in JSON: arrays as short texts, rounded to what an eye can tell apart."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy import ndarray

LEVELS: dict[int, np.dtype[Any]] = {8: np.dtype("u1"), 16: np.dtype("<u2")}  # by bits


def packed(values: ndarray, bits: int = 8) -> dict[str, Any]:
    """The array in 2 ** bits levels between its extremes; what is not finite counts as the lowest."""
    values = np.asarray(values, np.float64)
    finite = np.isfinite(values)
    low, high = (float(f(values[finite])) if finite.any() else 0.0 for f in (np.min, np.max))
    span = max(high - low, np.finfo(float).tiny)
    shares = np.where(finite, (np.where(finite, values, low) - low) / span, 0)
    whole = np.round(shares * (2**bits - 1)).astype(LEVELS[bits])
    text = base64.b64encode(zlib.compress(whole.tobytes(), 9)).decode()
    return {"bits": bits, "shape": list(values.shape), "low": low, "high": high, "levels": text}


def unpacked(text: dict[str, Any]) -> ndarray:
    """The inverse, up to rounding."""
    raw = zlib.decompress(base64.b64decode(text["levels"]))
    whole = np.frombuffer(raw, LEVELS[text["bits"]]).reshape(text["shape"])
    return text["low"] + whole / (2 ** text["bits"] - 1) * (text["high"] - text["low"])
