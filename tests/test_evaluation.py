"""Scores of segmentations, worked by hand."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

from svae.evaluation import score_segmentation
from svae.evaluation.segmentation import contingency


def test_numbering_does_not_matter():
    labels = np.random.default_rng(0).integers(0, 4, 100)
    permuted = np.array([7, 0, 3, 2])[labels]
    assert score_segmentation(labels, permuted) == pytest.approx((1, 0, 1, 1))


def test_a_split_label_costs_hamming_and_not_accuracy():
    labels = np.array([0, 0, 0, 0, 1, 1])
    states = np.array([0, 0, 0, 2, 1, 1])
    scores = score_segmentation(labels, states)
    assert scores.accuracy == 1
    assert scores.hamming == pytest.approx(1 / 6)


def test_merged_labels_cost_both():
    scores = score_segmentation(np.array([0, 0, 0, 1]), np.zeros(4, int))
    assert scores == pytest.approx((0.75, 0.25, 0, 0))


def test_best_matching_is_not_the_greedy_one():
    labels = np.repeat([0, 0, 1, 1], [5, 4, 4, 0])
    states = np.repeat([0, 1, 0], [5, 4, 4])
    assert score_segmentation(labels, states).hamming == pytest.approx(1 - 8 / 13)


def test_frames_without_a_label_do_not_count():
    labels, states = np.array([0, 1, -1, 0, -1]), np.array([1, 0, 0, 1, 5])
    assert score_segmentation(labels, states) == score_segmentation(labels[[0, 1, 3]], states[[0, 1, 3]])
    assert score_segmentation(labels, states).accuracy == 1


def test_agrees_with_scikit_learn():
    rng = np.random.default_rng(1)
    labels, states = rng.integers(0, 3, 200), rng.integers(0, 5, 200)
    scores = score_segmentation(labels, states)
    assert scores.ari == pytest.approx(adjusted_rand_score(labels, states))
    assert scores.nmi == pytest.approx(normalized_mutual_info_score(labels, states))
    assert 1 - scores.hamming <= scores.accuracy


def test_contingency_counts_frames():
    table = contingency(np.array([5, 5, 9, 9]), np.array([2, 0, 2, 2]))
    np.testing.assert_array_equal(table, [[1, 1], [0, 2]])


@pytest.mark.parametrize("shapes", [((3,), (4,)), ((2, 3), (2, 3)), ((), ())])
def test_wrong_shapes_are_named(shapes):
    labels, states = (np.zeros(shape, int) for shape in shapes)
    with pytest.raises(ValueError, match="one label and one state for each frame"):
        score_segmentation(labels, states)


@pytest.mark.parametrize("length", [0, 3])
def test_nothing_labelled_is_an_error(length):
    with pytest.raises(ValueError, match="no frame has a label"):
        score_segmentation(np.full(length, -1), np.zeros(length, int))
