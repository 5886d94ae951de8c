"""Lengths of time: "0.5s", "200ms", "2min", or a number of frames."""

import math
import re
from numbers import Real

UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
FORM = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)\s*([a-z]*)\s*")


def frames_from_duration(duration: str | float | int, rate: float | None, name: str = "duration") -> float:
    """How many frames last as long as `duration`; a bare number counts frames already."""
    if isinstance(duration, str):
        match = FORM.fullmatch(duration)
        unit = match.group(2) if match else ""
        if match is None or (unit and unit not in UNITS and unit not in ("frame", "frames")):
            raise ValueError(f"{name} must look like 0.5s, 200ms, 2min or 30frames, got '{duration}'")
        value = float(match.group(1))
        if unit in UNITS:
            if rate is None:
                raise ValueError(
                    f"{name} is in {unit}, but the sampling rate is unknown: give it (rate=, or --rate)"
                )
            value *= UNITS[unit] * rate
    else:
        value = float(duration)
    if not 0 < value < math.inf:
        raise ValueError(f"{name} must be longer than nothing and finite, got {duration}")
    return value


def whole_frames(duration: str | float | int, rate: float | None, name: str = "duration") -> int:
    """The same in whole frames, one at least; a bare number must be whole."""
    number = isinstance(duration, Real) and not isinstance(duration, bool)
    if not isinstance(duration, str) and not (number and duration >= 1 and duration == round(duration)):
        raise ValueError(
            f"{name} is a whole number of frames, one at least, or a text such as 2s; got {duration!r}"
        )
    return max(1, round(frames_from_duration(duration, rate, name)))
