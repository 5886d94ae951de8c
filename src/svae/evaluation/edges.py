"""Where a gap was filled: does the filling join what was seen, or jump?"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

NEIGHBOURS = 5  # steps on either side of an edge that show how far the data usually move


class EdgeJump(NamedTuple):
    """Steps at one side of the gaps, root mean squares over channels and gaps; NaN without such an edge."""

    drawn: float  # between an observed value and the draw beside it, over all draws
    real: float  # between successive real values, this step and its neighbours

    @property
    def ratio(self) -> float:
        """About 1 for the truth; below 1 for draws that move too little, far above 1 for draws that jump."""
        with np.errstate(divide="ignore", invalid="ignore"):  # data that stand still
            return float(np.divide(self.drawn, self.real))


def edge_jumps(
    draws: Float[ndarray, "samples time features"],
    truth: Float[ndarray, "time features"],
    where: Bool[ndarray, "time features"],
) -> tuple[EdgeJump, EdgeJump]:
    """The jumps into the gaps, on their left, and out of them, on their right.

    `where` marks the gaps, channel by channel. The ends of the sequence are no edges, nor is a neighbour
    whose value nobody knows.
    """
    steps = np.diff(truth, axis=0)
    drawn = np.diff(np.where(where, draws, truth), axis=1)
    known = np.isfinite(steps)
    left = ~where[:-1] & where[1:] & known
    right = where[:-1] & ~where[1:] & known
    return _jump(drawn, steps, left), _jump(drawn, steps, right)


def joined(
    draws: Float[ndarray, "samples time features"], truth: Float[ndarray, "time features"], gap: slice
) -> float:
    """The share of draws that leave the gap by a step no larger than the largest that was seen outside it."""
    size = lambda steps: np.sqrt(np.mean(steps**2, axis=-1))
    before, after = (size(np.diff(x, axis=0)) for x in (truth[: gap.start], truth[gap.stop :]))
    largest = np.nanmax(np.concatenate([before, after]))
    return float(np.mean(size(truth[gap.stop] - draws[:, gap.stop - 1]) <= largest))


def _jump(
    drawn: Float[ndarray, "samples steps features"],
    steps: Float[ndarray, "steps features"],
    edges: Bool[ndarray, "steps features"],
) -> EdgeJump:
    if not edges.any():
        return EdgeJump(np.nan, np.nan)
    # One real step may be zero by chance, its neighbourhood hardly ever.
    near = np.zeros_like(edges)
    for time, channel in np.argwhere(edges):
        near[max(time - NEIGHBOURS, 0) : time + NEIGHBOURS + 1, channel] = True
    real = steps[near & np.isfinite(steps)]
    return EdgeJump(float(np.sqrt(np.mean(drawn[:, edges] ** 2))), float(np.sqrt(np.mean(real**2))))
