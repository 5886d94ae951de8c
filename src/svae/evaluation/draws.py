"""Scores of draws of missing or future values against what was really there.

Draws are whole sequences; only the entries that `where` marks are scored. Scores have the units of the
data. Lower is better, except for coverage, which should be the level itself, and jumps (see `EdgeJump`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from svae.evaluation.edges import EdgeJump, edge_jumps

LEVELS = 0.5, 0.8, 0.9


class DrawScores(NamedTuple):
    """How good some draws of one sequence are, or of several on average."""

    crps: float  # mean over the scored entries
    energy: float  # of all scored entries as one vector, which grows with the root of their number
    frame_energy: float  # of each frame as a vector, mean over frames
    coverage: dict[float, float]  # by level: share of the entries inside the central interval
    mae: float  # of the draws' mean
    rmse: float
    best_mae: float  # of the best draw, which falls with their number
    best_rmse: float
    left: EdgeJump  # from what was seen into the gap
    right: EdgeJump  # from the gap to what was seen
    samples: int  # number of draws


def crps(
    draws: Float[ndarray, "samples entries"], truth: Float[ndarray, "entries"]
) -> Float[ndarray, "entries"]:
    """Continuous ranked probability score of each entry, E|X - y| - ½ E|X - X'|.

    The fair (unbiased) estimate: no draw is paired with itself, so there are n(n - 1) pairs and not n²,
    and the expected score does not depend on the number of draws. It can be slightly negative. A single
    draw has no pairs, and its score is its absolute error.
    """
    count = len(draws)
    errors = draws - truth
    # Sorted, the sum of |x_i - x_j| over all i < j is sum_i (2i - n + 1) x_i, with i from 0.
    pairs = (2.0 * np.arange(count) - count + 1) @ np.sort(errors, axis=0)
    return np.abs(errors).mean(axis=0) - pairs / max(count * (count - 1), 1)


def energy_score(draws: Float[ndarray, "samples entries"], truth: Float[ndarray, "entries"]) -> float:
    """The same for a vector, E‖X - y‖ - ½ E‖X - X'‖: it also sees whether entries vary together.

    Fair in the same way; with one entry it is the CRPS.
    """
    from scipy.spatial.distance import pdist

    count = len(draws)
    error = np.linalg.norm(draws - truth, axis=1).mean()
    return float(error - pdist(draws).sum() / max(count * (count - 1), 1))


def interval_coverage(
    draws: Float[ndarray, "samples entries"],
    truth: Float[ndarray, "entries"],
    levels: Sequence[float] = LEVELS,
) -> dict[float, float]:
    """By level: the share of entries whose truth lies inside the draws' central interval.

    Among n draws from its own distribution the truth has any rank with chance 1/(n + 1). So the p-quantile
    is the p(n + 1)-th draw ("weibull"): the usual one would make a perfect model look overconfident. Such an
    interval needs 2/(1 - level) - 1 draws; with fewer the coverage is NaN.
    """
    coverage = {}
    for level in levels:
        if not 0 < level < 1:
            raise ValueError(f"levels must lie between 0 and 1, got {level}")
        tail = (1 - level) / 2
        low, high = np.quantile(draws, [tail, 1 - tail], axis=0, method="weibull")
        enough = tail * (len(draws) + 1) > 1 - 1e-9
        coverage[level] = float(np.mean((low <= truth) & (truth <= high))) if enough else np.nan
    return coverage


def score_draws(
    draws: Float[ndarray, "samples time features"],
    truth: Float[ndarray, "time features"],
    where: Bool[ndarray, "time features"],
    levels: Sequence[float] = LEVELS,
) -> DrawScores:
    """All scores of the draws of one sequence.

    Outside `where` the draws do not matter. There the truth may be NaN, but for the jumps at the edges of a
    gap it should hold what the model was shown.
    """
    draws, truth, where = _checked(draws, truth, where)
    chosen, values = draws[:, where], truth[where]
    errors = np.abs(chosen - values)
    mean = np.abs(chosen.mean(axis=0) - values)
    frames = [
        energy_score(draws[:, t, where[t]], truth[t, where[t]]) for t in np.flatnonzero(where.any(axis=1))
    ]
    left, right = edge_jumps(draws, truth, where)
    return DrawScores(
        crps=float(crps(chosen, values).mean()),
        energy=energy_score(chosen, values),
        frame_energy=float(np.mean(frames)),
        coverage=interval_coverage(chosen, values, levels),
        mae=float(mean.mean()),
        rmse=_root_mean_square(mean),
        best_mae=float(errors.mean(axis=1).min()),
        best_rmse=min(_root_mean_square(x) for x in errors),
        left=left,
        right=right,
        samples=len(draws),
    )


def average_draw_scores(scores: Sequence[DrawScores]) -> DrawScores:
    """The mean over sequences, each of which counts the same.

    What is a root mean square is averaged before the root. A jump's two parts are averaged, not their
    ratios, which a sequence that hardly moves would dominate; sequences without such an edge do not count.
    """
    if not scores:
        raise ValueError("there are no scores to average")
    counts = {x.samples for x in scores}
    if len(counts) > 1:
        raise ValueError(f"the best of n draws depends on n, and these scores have {sorted(counts)} draws")
    if len({tuple(x.coverage) for x in scores}) > 1:
        raise ValueError("the scores have coverage at different levels")
    return DrawScores(
        crps=float(np.mean([x.crps for x in scores])),
        energy=float(np.mean([x.energy for x in scores])),
        frame_energy=float(np.mean([x.frame_energy for x in scores])),
        coverage={level: float(np.mean([x.coverage[level] for x in scores])) for level in scores[0].coverage},
        mae=float(np.mean([x.mae for x in scores])),
        rmse=_root_mean_square([x.rmse for x in scores]),
        best_mae=float(np.mean([x.best_mae for x in scores])),
        best_rmse=_root_mean_square([x.best_rmse for x in scores]),
        left=_average_jump([x.left for x in scores]),
        right=_average_jump([x.right for x in scores]),
        samples=scores[0].samples,
    )


def _average_jump(jumps: Sequence[EdgeJump]) -> EdgeJump:
    there = [x for x in jumps if not np.isnan(x.real)]
    if not there:
        return EdgeJump(np.nan, np.nan)
    return EdgeJump(_root_mean_square([x.drawn for x in there]), _root_mean_square([x.real for x in there]))


def _root_mean_square(values: Float[ndarray, "..."] | Sequence[float]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def _checked(draws: ndarray, truth: ndarray, where: ndarray) -> tuple[ndarray, ndarray, ndarray]:
    """The arguments in double precision, once they make sense."""
    draws, truth, where = np.asarray(draws, np.float64), np.asarray(truth, np.float64), np.asarray(where)
    if draws.ndim != 3 or not len(draws):
        raise ValueError(f"draws must be (samples, time, features), got shape {draws.shape}")
    if truth.shape != draws.shape[1:]:
        raise ValueError(f"truth must have the shape of one draw, {draws.shape[1:]}, got {truth.shape}")
    if where.dtype != bool or where.shape != truth.shape:
        wanted = f"where must be True or False for each entry of truth, {truth.shape}"
        raise ValueError(f"{wanted}, got {where.dtype} of shape {where.shape}")
    if not where.any():
        raise ValueError("where marks no entry to score")
    for name, values in ("truth", truth[where]), ("draws", draws[:, where]):
        if bad := np.count_nonzero(~np.isfinite(values)):
            raise ValueError(f"{name} holds NaN or infinite values in {bad} of the entries to score")
    return draws, truth, where
