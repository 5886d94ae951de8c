"""Which windows training does not see."""

import numpy as np
from jaxtyping import Bool, Int


def held_out(
    labels: Int[np.ndarray, "windows"], recording: Int[np.ndarray, "windows"], share: float, seed: int
) -> Bool[np.ndarray, "windows"]:
    """About this share of every class.

    Neighbouring windows of a recording are much alike, so all that a recording has of a class is held out
    or none of it. Only a class that a single recording has is split within it. At least one window of each
    class is left to train on, and one is held out if there are two.
    """
    if not 0 < share < 1:
        raise ValueError(f"the share of held-out windows must be between 0 and 1, got {share:g}")
    rng = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        units = recording[members]
        if len(np.unique(units)) == 1:
            units = members
        order = rng.permutation(np.unique(units))
        count = min(max(round(share * len(order)), 1), len(order) - 1)
        chosen[members[np.isin(units, order[:count])]] = True
    return chosen
