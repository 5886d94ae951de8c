"""Scores of draws: closed forms, Monte Carlo with error bars, and sequences small enough to work by hand."""

import numpy as np
import pytest
from scipy.stats import norm

from svae.evaluation import (
    average_draw_scores,
    crps,
    edge_jumps,
    energy_score,
    interval_coverage,
    score_draws,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def every_pair(draws, truth):
    """E‖X - y‖ - ½ E‖X - X'‖ over pairs of different draws, written out."""
    count = len(draws)
    apart = sum(np.linalg.norm(draws[i] - draws[j]) for i in range(count) for j in range(count) if i != j)
    error = sum(np.linalg.norm(draw - truth) for draw in draws) / count
    return error - apart / (2 * count * (count - 1))


def gap(time, start, stop, features=1):
    where = np.zeros((time, features), bool)
    where[start:stop] = True
    return where


def within(values, expected, errors=4.0):
    """The mean of `values` is `expected`, up to some standard errors."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    assert abs(np.mean(values) - expected) < errors * error, (np.mean(values), expected, error)


@pytest.mark.parametrize("count", [2, 5, 40])
@pytest.mark.parametrize("truth", [-2.0, 0.3, 1.5])
def test_crps_of_a_gaussian_whatever_the_number_of_draws(rng, count, truth):
    mean, deviation = 0.5, 1.7
    z = (truth - mean) / deviation
    closed = deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    draws = rng.normal(mean, deviation, (count, 20_000))
    within(crps(draws, np.full(20_000, truth)), closed)


def test_crps_is_that_of_all_pairs(rng):
    draws, truth = rng.normal(size=(7, 3)) + 1e6, rng.normal(size=3) + 1e6
    expected = [every_pair(draws[:, [i]], truth[[i]]) for i in range(3)]
    np.testing.assert_allclose(crps(draws, truth), expected, atol=1e-9)


def test_crps_of_one_draw_is_its_absolute_error(rng):
    draw, truth = rng.normal(size=(1, 4)), rng.normal(size=4)
    np.testing.assert_allclose(crps(draw, truth), np.abs(draw[0] - truth))
    assert energy_score(draw, truth) == pytest.approx(np.linalg.norm(draw[0] - truth))


def test_energy_score_is_that_of_all_pairs(rng):
    draws, truth = rng.normal(size=(6, 5)), rng.normal(size=5)
    assert energy_score(draws, truth) == pytest.approx(every_pair(draws, truth))


def test_energy_score_of_one_entry_is_the_crps(rng):
    draws, truth = rng.normal(size=(9, 1)), rng.normal(size=1)
    assert energy_score(draws, truth) == pytest.approx(crps(draws, truth)[0])


def test_energy_score_sees_what_varies_together(rng):
    together = np.repeat(rng.normal(size=(200, 300, 1)), 4, axis=2)
    apart = rng.normal(size=(200, 300, 4))
    truths = np.repeat(rng.normal(size=(200, 1)), 4, axis=1)
    scores = [
        [energy_score(x, truth) for x, truth in zip(draws, truths, strict=True)]
        for draws in (together, apart)
    ]
    gain = np.subtract(scores[1], scores[0])
    assert gain.mean() > 4 * gain.std() / np.sqrt(len(gain))


@pytest.mark.parametrize("count", [3, 19, 39])
def test_coverage_of_the_true_model_is_the_level(rng, count):
    draws, truth = rng.gamma(2, size=(count, 40_000)), rng.gamma(2, size=40_000)
    for level, share in interval_coverage(draws, truth, [0.5, 0.9, 0.95]).items():
        if count + 1 >= 2 / (1 - level) - 1e-9:
            assert abs(share - level) < 4 * np.sqrt(level * (1 - level) / 40_000), (count, level, share)
        else:
            assert np.isnan(share)


def test_coverage_by_hand():
    draws = np.arange(1.0, 20.0)[:, None] + np.zeros(4)
    truth = np.array([1.0, 1.9, 10.0, 19.1])
    assert interval_coverage(draws, truth, [0.9, 0.5, 0.8]) == {0.9: 0.75, 0.5: 0.25, 0.8: 0.25}


def test_narrow_draws_cover_too_little(rng):
    draws, truth = 0.5 * rng.normal(size=(39, 5000)), rng.normal(size=5000)
    assert interval_coverage(draws, truth, [0.9])[0.9] < 0.65


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
def test_a_level_is_a_probability(level):
    with pytest.raises(ValueError, match="levels must lie between 0 and 1"):
        interval_coverage(np.zeros((3, 1)), np.zeros(1), [level])


def test_errors_of_the_mean_and_of_the_best_draw_by_hand():
    draws = np.array([[9, 0, 0, 9], [9, 4, 1, 9], [9, 2, 5, 9]], float)[:, :, None]
    truth = np.array([9, 1, 1, 9], float)[:, None]
    scores = score_draws(draws, truth, gap(4, 1, 3))
    # the mean is (2, 2); the draws are off by (1, 1), (3, 0) and (1, 4)
    assert scores.mae == pytest.approx(1)
    assert scores.rmse == pytest.approx(1)
    assert scores.best_mae == pytest.approx(1)
    assert scores.best_rmse == pytest.approx(1)
    scores = score_draws(draws[1:], truth, gap(4, 1, 3))  # the mean is (3, 3)
    assert scores.mae == pytest.approx(2)
    assert scores.best_mae == pytest.approx(1.5)
    assert scores.best_rmse == pytest.approx(np.sqrt(4.5))


def test_the_record_holds_the_scores_of_the_marked_entries(rng):
    draws, truth = rng.normal(size=(20, 6, 2)), rng.normal(size=(6, 2))
    where = gap(6, 2, 4, 2)
    where[4, 1] = True
    scores = score_draws(draws, truth, where)
    chosen, values = draws[:, where], truth[where]
    assert scores.crps == pytest.approx(crps(chosen, values).mean())
    assert scores.energy == pytest.approx(every_pair(chosen, values))
    frames = [every_pair(draws[:, t, where[t]], truth[t, where[t]]) for t in (2, 3, 4)]
    assert scores.frame_energy == pytest.approx(np.mean(frames))
    assert scores.coverage == interval_coverage(chosen, values)
    assert (scores.left, scores.right) == edge_jumps(draws, truth, where)
    assert scores.samples == 20


def test_what_is_not_marked_does_not_matter(rng):
    draws, truth = rng.normal(size=(20, 6, 2)), rng.normal(size=(6, 2))
    where = gap(6, 2, 4, 2)
    blank = np.where(where, draws, np.nan)
    assert score_draws(blank, truth, where) == score_draws(draws, truth, where)
    unknown = score_draws(draws, np.where(where, truth, np.nan), where)
    assert unknown[:8] == score_draws(draws, truth, where)[:8]
    assert np.isnan(unknown.left.ratio)


def test_single_precision_is_scored_in_double(rng):
    draws, truth = rng.normal(size=(3, 5, 1)).astype(np.float32), np.zeros((5, 1), np.float32)
    where = gap(5, 1, 4)
    doubled = score_draws(draws.astype(np.float64), truth.astype(np.float64), where, [0.5])
    assert score_draws(draws, truth, where, [0.5]) == doubled


def test_jumps_by_hand():
    truth = np.array([0.0, 1, 2, 3, 4, 5])[:, None]
    draws = np.array([[9, 9, 5, 4, 9, 9], [9, 9, 1, 2, 9, 9]], float)[:, :, None]
    left, right = edge_jumps(draws, truth, gap(6, 2, 4))
    # into the gap: from 1 to 5 and to 1; out of it: from 4 and from 2 to 4
    assert left == pytest.approx((np.sqrt(8), 1))
    assert right == pytest.approx((np.sqrt(2), 1))
    assert right.ratio == pytest.approx(np.sqrt(2))


def test_jumps_are_measured_by_the_steps_nearby():
    truth = np.cumsum(np.repeat([100.0, 1, 2, 100], [5, 5, 6, 5]))[:, None]
    # the edge is the step from frame 9 to 10, between five steps of 1 and six of 2
    left, _ = edge_jumps(truth[None], truth, gap(21, 10, 21))
    assert left == pytest.approx((2, np.sqrt((5 * 1 + 6 * 4) / 11)))


def test_the_truth_does_not_jump(rng):
    truth = np.cumsum(rng.normal(size=(4000, 3)), axis=0)
    where = np.repeat(rng.random((100, 3)) < 0.5, 40, axis=0)
    left, right = edge_jumps(truth[None], truth, where)
    for jump in left, right:
        assert jump.ratio == pytest.approx(1, abs=0.3)
    # a filling that knows only the past ends far from where the gap ends
    walk = np.where(where, truth + 20, truth)
    walk[1:][where[1:] & ~where[:-1]] -= 20
    left, right = edge_jumps(walk[None], truth, where)
    assert left.ratio == pytest.approx(1, abs=0.3)
    assert right.ratio > 10


def test_a_forecast_has_no_right_edge(rng):
    truth = rng.normal(size=(8, 2))
    left, right = edge_jumps(truth[None], truth, gap(8, 5, 8, 2))
    assert left.drawn > 0
    assert np.isnan(right).all()
    assert np.isnan(right.ratio)


def test_data_that_stand_still():
    truth = np.zeros((4, 1))
    draws = np.ones((1, 4, 1))
    assert edge_jumps(draws, truth, gap(4, 1, 2))[0].ratio == np.inf
    assert np.isnan(edge_jumps(truth[None], truth, gap(4, 1, 2))[0].ratio)


def test_averages_by_hand(rng):
    draws, truth = rng.normal(size=(2, 20, 6, 2)), rng.normal(size=(2, 6, 2))
    one = score_draws(draws[0], truth[0], gap(6, 2, 4, 2))
    two = score_draws(draws[1], truth[1], gap(6, 4, 6, 2))
    both = average_draw_scores([one, two])
    for name in "crps", "energy", "frame_energy", "mae", "best_mae":
        assert getattr(both, name) == pytest.approx((getattr(one, name) + getattr(two, name)) / 2)
    for name in "rmse", "best_rmse":
        assert getattr(both, name) == pytest.approx(np.hypot(getattr(one, name), getattr(two, name)) / 2**0.5)
    assert both.coverage == pytest.approx(
        {x: (one.coverage[x] + two.coverage[x]) / 2 for x in (0.5, 0.8, 0.9)}
    )
    assert both.left == pytest.approx(np.hypot(one.left, two.left) / np.sqrt(2))
    assert both.right == one.right  # the forecast has none
    assert both.samples == 20


def test_scores_that_cannot_be_averaged(rng):
    truth, where = rng.normal(size=(6, 2)), gap(6, 2, 4, 2)
    few, many = (score_draws(rng.normal(size=(n, 6, 2)), truth, where) for n in (3, 5))
    with pytest.raises(ValueError, match=r"\[3, 5\] draws"):
        average_draw_scores([few, many])
    other = score_draws(rng.normal(size=(3, 6, 2)), truth, where, levels=[0.3])
    with pytest.raises(ValueError, match="different levels"):
        average_draw_scores([few, other])
    with pytest.raises(ValueError, match="no scores"):
        average_draw_scores([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": np.zeros((4, 2))}, "draws must be"),
        ({"draws": np.zeros((0, 4, 2))}, "draws must be"),
        ({"truth": np.zeros((4, 3))}, "truth must have the shape of one draw"),
        ({"where": np.ones(4, bool)}, "where must be True or False for each entry"),
        ({"where": np.ones((4, 2))}, "got float64"),
        ({"where": np.zeros((4, 2), bool)}, "no entry to score"),
        ({"truth": np.full((4, 2), np.nan)}, "truth holds NaN or infinite values in 8"),
        ({"draws": np.full((3, 4, 2), np.inf)}, "draws holds NaN or infinite values in 24"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    arguments = {"draws": np.zeros((3, 4, 2)), "truth": np.zeros((4, 2)), "where": np.ones((4, 2), bool)}
    with pytest.raises(ValueError, match=message):
        score_draws(**(arguments | change))
