"""Simple guesses at what is missing, channel by channel."""

import numpy as np


def interpolate(values: np.ndarray) -> np.ndarray:
    """Straight lines across gaps; constant before the first and after the last observed value."""
    frames, filled = np.arange(len(values)), values.copy()
    for channel in filled.T:
        seen = ~np.isnan(channel)
        channel[:] = np.interp(frames, frames[seen], channel[seen]) if seen.any() else 0
    return filled


def repeat_last(values: np.ndarray) -> np.ndarray:
    """The last observed value; before the first one, the first."""
    filled = values.copy()
    for channel in filled.T:
        seen = np.flatnonzero(~np.isnan(channel))
        latest = np.searchsorted(seen, np.arange(len(channel)), side="right") - 1
        channel[:] = channel[seen[np.maximum(latest, 0)]] if len(seen) else 0
    return filled
