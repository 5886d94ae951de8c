"""Segments: worked by hand."""

import numpy as np
import pandas as pd
import pytest

from svae.segments import segments_table, write_segments


def certain(states, num_states=3):
    return np.eye(num_states)[np.asarray(states)]


def test_runs_of_two_recordings():
    paths = [np.array([0, 0, 2, 2, 2, 0]), np.array([0, 1])]
    chances = [certain(path) for path in paths]
    chances[0][2:5] = [[0, 0.5, 0.5], [0, 0.1, 0.9], [0, 0, 1]]
    table = segments_table(["a", "b"], paths, chances, rate=10.0)
    assert list(table.recording) == ["a", "a", "a", "b", "b"]
    assert list(table.start) == [0, 2, 5, 0, 1]
    assert list(table.stop) == [2, 5, 6, 1, 2]
    assert list(table.state) == [0, 2, 0, 0, 1]
    np.testing.assert_allclose(table.start_seconds, [0, 0.2, 0.5, 0, 0.1])
    np.testing.assert_allclose(table.seconds, [0.2, 0.3, 0.1, 0.1, 0.1])
    np.testing.assert_allclose(table.probability, [1, 0.8, 1, 1, 1])


@pytest.mark.parametrize("length", [1, 7])
def test_one_state_is_one_segment(length):
    path = np.full(length, 2)
    table = segments_table(["only"], [path], [certain(path)], rate=2.0)
    assert table.to_dict("records") == [
        {
            "recording": "only",
            "start": 0,
            "stop": length,
            "start_seconds": 0.0,
            "seconds": length / 2,
            "state": 2,
            "probability": 1.0,
        }
    ]


def test_no_rate_no_seconds():
    table = segments_table(["a"], [np.array([1, 0])], [certain([1, 0])], rate=None)
    assert list(table.stop - table.start) == [1, 1]
    assert table[["start_seconds", "seconds"]].isna().all(axis=None)


def test_segments_tile_a_recording():
    rng = np.random.default_rng(0)
    path = rng.integers(0, 3, 200)
    table = segments_table(["a"], [path], [rng.dirichlet(np.ones(3), 200)], rate=None)
    assert table.start[0] == 0
    assert list(table.start[1:]) == list(table.stop[:-1])
    np.testing.assert_array_equal(np.repeat(table.state, table.stop - table.start), path)


def test_nothing_in_a_table_with_columns_out():
    table = segments_table([], [], [], rate=1.0)
    empty = segments_table(["a"], [np.zeros(0, int)], [np.zeros((0, 3))], rate=1.0)
    assert len(table) == len(empty) == 0
    assert table.dtypes.equals(segments_table(["a"], [np.array([0])], [certain([0])], 1.0).dtypes)


def test_wrong_shapes_name_the_recording():
    with pytest.raises(ValueError, match="'walk'"):
        segments_table(["walk"], [np.array([0, 1])], [certain([0, 1, 2])], rate=None)


def test_files_hold_the_table(tmp_path):
    table = segments_table(["ä, b"], [np.array([0, 0, 0, 1])], [certain([0, 0, 0, 1])], rate=10.0)
    text, binary = write_segments(table, tmp_path / "new" / "folder")
    pd.testing.assert_frame_equal(pd.read_parquet(binary), table)
    pd.testing.assert_frame_equal(pd.read_csv(text), table, check_dtype=False)
    assert "0.300000" in text.read_text()
