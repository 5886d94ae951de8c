"""Boundaries of segments, counted by hand and matched by brute force."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svae.evaluation import boundary_f1

FRAMES = 14


def path(*starts, frames=20):
    """A new state at each of these frames."""
    return np.cumsum(np.isin(np.arange(frames), starts))


def most_pairs(real, found, tolerance):
    """By trying every order of the longer list."""
    short, long = sorted((real, found), key=len)
    return max(
        sum(abs(a - b) <= tolerance for a, b in zip(short, order, strict=False))
        for order in permutations(long, len(short))
    )


@pytest.mark.parametrize(
    ("found", "tolerance", "right"),
    [
        ((5, 10, 15), 0, 3),
        ((6, 10, 13), 0, 1),
        ((6, 10, 13), 1, 2),
        ((6, 10, 13), 2, 3),
        ((4, 5, 6), 1, 1),  # three at one boundary: one is right
        ((4, 5, 6), 4, 2),  # 6 also reaches the one at 10
        ((7, 8), 3, 2),  # 7 must go back to 5, so that 8 may have 10
        ((), 2, 0),
    ],
)
def test_counted_by_hand(found, tolerance, right):
    real = 5, 10, 15
    scores = boundary_f1([path(*real)], [path(*found)], tolerance)
    precision = right / len(found) if found else 1
    assert scores == pytest.approx((2 * right / (3 + len(found)), precision, right / 3))


@given(
    st.sets(st.integers(1, FRAMES - 1), max_size=5),
    st.sets(st.integers(1, FRAMES - 1), max_size=5),
    st.integers(0, 4),
)
def test_matching_is_the_best_there_is(real, found, tolerance):
    scores = boundary_f1([path(*real, frames=FRAMES)], [path(*found, frames=FRAMES)], tolerance)
    right = most_pairs(sorted(real), sorted(found), tolerance)
    assert scores.f1 == pytest.approx(2 * right / (len(real) + len(found)) if real or found else 1)
    assert scores.recall == pytest.approx(right / len(real) if real else 1)
    assert scores.precision == pytest.approx(right / len(found) if found else 1)


def test_numbering_does_not_matter():
    labels = np.array([0, 0, 3, 3, 1, 0, 0])
    assert boundary_f1([labels], [np.array([7, 2, 5, 1])[labels]], 0) == (1, 1, 1)


def test_recordings_are_pooled_and_their_joints_are_no_boundaries():
    labels = [path(5), path(3, 9) + 4, np.zeros(6, int)]
    states = [path(5), path(9), path(2, frames=6)]
    # 1 + 2 + 0 real, 1 + 1 + 1 found, 1 + 1 + 0 right
    assert boundary_f1(labels, states, 0) == pytest.approx((2 / 3, 2 / 3, 2 / 3))


def test_boundaries_beside_frames_without_a_label_do_not_count():
    labels = np.array([0, 0, -1, -1, 1, 1, 2, 2])
    states = np.array([0, 0, 0, 1, 1, 1, 2, 2])
    assert boundary_f1([labels], [states], 0) == (1, 1, 1)


def test_nothing_to_find_and_nothing_found():
    flat = np.zeros(5, int)
    assert boundary_f1([flat], [flat], 1) == (1, 1, 1)
    assert boundary_f1([flat], [path(2, frames=5)], 1) == (0, 0, 1)


def test_wrong_arguments_are_named():
    flat = np.zeros(5, int)
    with pytest.raises(ValueError, match="tolerance"):
        boundary_f1([flat], [flat], -1)
    with pytest.raises(ValueError, match="one label and one state for each frame"):
        boundary_f1([flat], [flat[:4]], 0)
    with pytest.raises(ValueError, match="one label and one state for each frame"):
        boundary_f1(flat, flat, 0)
    with pytest.raises(ValueError, match="zip"):
        boundary_f1([flat, flat], [flat], 0)
