import pickle
import re

import numpy as np
import pandas as pd
import pytest
from jaxtyping import TypeCheckError

from svae.data import DataError, Recording, Recordings, as_recordings


def table(length=5, width=2, start=0.0):
    return start + np.arange(length * width, dtype=np.float64).reshape(length, width)


def values_of(recordings):
    return [item.values for item in recordings]


def assert_same(arrays, others):
    assert len(arrays) == len(others)
    for x, y in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(x, y)


PARTS = [table(5), table(3, start=100.0)]
FORMS = {
    "list": (PARTS, {}),
    "tuple": (tuple(PARTS), {}),
    "dict": ({"recording_0": PARTS[0], "recording_1": PARTS[1]}, {}),
    "concatenated": (np.concatenate(PARTS), {"lengths": [5, 3]}),
    "padded": (np.stack([PARTS[0], np.pad(PARTS[1], ((0, 2), (0, 0)))]), {"lengths": np.array([5, 3])}),
    "nested lists": ([part.tolist() for part in PARTS], {}),
    "integers": ([part.astype(np.int16) for part in PARTS], {}),
    "frames": ([pd.DataFrame(part, columns=["channel_0", "channel_1"]) for part in PARTS], {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_recordings(form):
    data, options = FORMS[form]
    recordings = as_recordings(data, rate=30.0, **options)
    assert_same(values_of(recordings), PARTS)
    assert recordings.names == ("recording_0", "recording_1")
    assert recordings.channels == ("channel_0", "channel_1")
    assert recordings.rate == 30
    assert recordings.lengths == (5, 3)
    assert all(values.dtype == np.float64 for values in values_of(recordings))


def test_a_batch_and_a_single_table():
    assert_same(values_of(as_recordings(np.stack([PARTS[0], PARTS[0] + 1]))), [PARTS[0], PARTS[0] + 1])
    recordings = as_recordings(PARTS[0], channels=["a", "b"])
    assert_same(values_of(recordings), [PARTS[0]])
    assert recordings.channels == ("a", "b")


def test_recordings_come_back_as_they_are():
    recordings = as_recordings(PARTS)
    assert as_recordings(recordings) is recordings


def test_a_frame_with_special_columns():
    frame = pd.DataFrame(
        {
            "time": [0.0, 0.5, 0.0, 0.5, 1.0],
            "recording": ["b", "b", "a", "a", "a"],
            "x": [1, 2, 3, 4, 5],
            "label": ["sit", "run", None, "run", "run"],
            "y": pd.array([1, None, 3, 4, 5], "Int64"),
        }
    )
    recordings = as_recordings(frame)
    assert recordings.names == ("b", "a")
    assert recordings.channels == ("x", "y")
    assert recordings.rate == 2
    assert recordings.label_names == ("run", "sit")
    np.testing.assert_array_equal(recordings["b"].values, [[1, 1], [2, np.nan]])
    np.testing.assert_array_equal(recordings["a"].labels, [-1, 0, 0])


def test_a_frame_indexed_by_dates():
    index = pd.date_range("2024-01-01", periods=4, freq="100ms")
    assert as_recordings(pd.DataFrame({"x": range(4)}, index=index)).rate == 10


def test_a_mask_means_missing():
    masked = np.ma.MaskedArray(table(3), mask=np.eye(3, 2, dtype=bool))
    expected = np.where(np.eye(3, 2), np.nan, table(3))
    assert_same(values_of(as_recordings(masked)), [expected])
    assert_same(values_of(as_recordings(masked[None])), [expected])
    assert_same(values_of(as_recordings(np.ma.concatenate([masked] * 2), lengths=[3, 3])), [expected] * 2)


def test_single_precision_stays():
    assert as_recordings(table().astype(np.float32))[0].values.dtype == np.float32
    assert as_recordings(table().astype(np.float16))[0].values.dtype == np.float64


def test_indexing_and_selection():
    recordings = as_recordings({"a": PARTS[0], "b": PARTS[1]}, channels=["x", "y"])
    assert recordings["b"] is recordings[1]
    assert recordings.select(["b", "a"]).names == ("b", "a")
    swapped = recordings.select_channels(["y", "x"])
    assert_same(values_of(swapped), [part[:, ::-1] for part in PARTS])
    assert swapped.channels == ("y", "x")
    assert_same(values_of(recordings.map(lambda x: 2 * x)), [2 * part for part in PARTS])
    with pytest.raises(DataError, match="no recording 'c'; there are a, b"):
        recordings["c"]
    with pytest.raises(DataError, match="no channel 'z'; there are x, y"):
        recordings.select_channels(["z"])


def test_labels_given_by_number_or_by_name():
    numbered = Recordings((Recording("a", table(2), np.array([0, 3])),), ("x", "y"))
    assert numbered["a"].labels[1] == 3
    with pytest.raises(DataError, match="recording 'a': label 3, but there are 2 names"):
        Recordings(numbered.items, numbered.channels, label_names=("run", "sit"))


def object_table(entry):
    rows = table(3).astype(object)
    rows[2, 1] = entry
    return rows


INFINITE = np.where(np.arange(10).reshape(5, 2) == 7, np.inf, table())
NAMED = {"channels": ["x", "y"]}
WRONG = {
    "one axis": (np.arange(5.0), {}, r"recording 'recording_0': a 1-D array .* x\[:, None\]"),
    "no axes": (None, {}, r"expected shape \(time, features\)"),
    "four axes": (np.zeros((2, 2, 2, 2)), {}, r"expected shape \(time, features\), got \(2, 2, 2, 2\)"),
    "list of rows": ([[1.0, 2.0], [3.0, 4.0]], {}, "a list must hold one 2-D array"),
    "nothing": ([], {}, "no recordings"),
    "no names": ({}, {}, "no recordings"),
    "no channels": (np.zeros((5, 0)), {}, "no channels"),
    "widths": ({"a": table(), "b": table(5, 3)}, {}, "'a' and 'b' have different channels: 'channel_2'"),
    "names for widths": (table(), {"channels": ["x"]}, "recording 'recording_0': 2 columns, but there are 1"),
    "columns": (
        {"a": pd.DataFrame(table(), columns=["x", "y"]), "b": pd.DataFrame(table(), columns=["y", "x"])},
        {},
        "'a' and 'b' have different channels: their order differs",
    ),
    "rates": (
        {name: pd.DataFrame({"t": step * np.arange(4.0), "x": 1.0}) for name, step in (("a", 1), ("b", 2))},
        {},
        "'a' and 'b' have different rates: 1.0 and 0.5 Hz",
    ),
    "ragged rows": ({"a": [[1.0, 2.0], [3.0]]}, {}, "recording 'a': rows have different lengths"),
    "text": ({"a": object_table("hot")}, NAMED, "recording 'a', column 'y': 'hot' in row 2"),
    "texts": ({"a": np.array([["1", "2"], ["3", "x"]])}, NAMED, "recording 'a', column 'y': 'x' in row 1"),
    "None": (object_table(None), NAMED, "column 'y': 'None' in row 2"),
    "objects": (object_table(1), {}, "numbers stored as object; convert"),
    "complex": (table() * 1j, {}, "recording 'recording_0': complex numbers"),
    "dates": (np.full((3, 2), "2024-01-01", "M8[D]"), {}, "'2024-01-01' in row 0"),
    "infinity": ({"a": INFINITE}, NAMED, r"recording 'a', column 'y': infinite value in row 3 .* put NaN"),
    "all missing": ([np.full((5, 2), (1, np.nan))] * 2, NAMED, "column 'y': all entries are missing"),
    "too short": ({"a": table(), "b": table(1)}, {}, "recording 'b': too short: 1 of at least 2 frames"),
    "minimum": ({"a": table()}, {"min_length": 6}, "recording 'a': too short: 5 of at least 6 frames"),
    "lengths": (table(), {"lengths": [2, 2]}, r"add up to 4, but the array has shape \(5, 2\)"),
    "padded lengths": (np.zeros((2, 5, 2)), {"lengths": [5, 6]}, "2 numbers from 0 to 5"),
    "lengths of a list": ([table()], {"lengths": [5]}, "`lengths` belongs to one array"),
    "channel twice": (table(), {"channels": ["x", "x"]}, "two channels are named 'x'"),
    "rate": (table(), {"rate": 0.0}, "rate must be a positive number"),
    "frame and channels": (pd.DataFrame(table()), {"channels": ["x", "y"]}, "bring their own channel names"),
    "frame entry": (pd.DataFrame({"x": [1, 2], "y": [1, "b"]}), {}, "column 'y': 'b' in row 1"),
    "frame texts": (pd.DataFrame({"x": ["1", "2"]}), {}, "column 'x': numbers stored as text"),
    "frame complex": (pd.DataFrame({"x": [1j, 2j]}), {}, "complex numbers"),
    "frame names": (pd.DataFrame(table(), columns=["x", "x"]), {}, "column 'x': two columns have this name"),
    "unnamed": (pd.DataFrame(table(), columns=["x", ""]), {}, "column 1 .* has no name"),
    "two times": (pd.DataFrame(table(), columns=["time", "t"]), {}, "'time' and 't' all claim"),
    "rate and time": (pd.DataFrame(table(), columns=["t", "x"]), {"rate": 3.0}, "the data say 0.5 frames"),
    "odd labels": (
        pd.DataFrame({"x": [1, 2], "label": [0.5, 1]}),
        {},
        "column 'label': labels must be whole",
    ),
    "no recording": (pd.DataFrame({"x": [1, 2], "recording": ["a", None]}), {}, "column 'recording'|row 1"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_data_are_named(wrong):
    data, options, message = WRONG[wrong]
    with pytest.raises(DataError, match=message):
        as_recordings(data, **options)


def test_uneven_time():
    frame = pd.DataFrame({"time": [0, 1, 2, 4, 5], "x": range(5)})
    with pytest.raises(DataError, match=r"'recording_0': time is not evenly spaced: 2 s from row 2 to row 3"):
        as_recordings(frame)
    with pytest.raises(DataError, match="time does not increase"):
        as_recordings(pd.DataFrame({"time": [1, 1, 1], "x": range(3)}))
    with pytest.raises(DataError, match="column 'time': the time must be given"):
        as_recordings(pd.DataFrame({"time": [1, None, 3], "x": range(3)}))


def test_time_rounded_to_milliseconds():
    time = np.round(np.arange(1000) / 120, 3)
    np.testing.assert_allclose(as_recordings(pd.DataFrame({"t": time, "x": time})).rate, 120, rtol=1e-4)


def test_a_channel_missing_in_one_recording_only():
    assert len(as_recordings([table(), np.full((5, 2), np.nan)])) == 2


def test_wrong_records():
    with pytest.raises((DataError, TypeCheckError), match=r"give one label to each frame|'labels'"):
        Recording("a", table(), np.zeros(4, np.int64))
    with pytest.raises(DataError, match="two recordings are named 'a'"):
        Recordings((Recording("a", table()),) * 2, ("x", "y"))


def test_recordings_with_their_own_rate():
    with pytest.raises(DataError, match="say 10 frames per second, but rate=20"):
        as_recordings(as_recordings(table(), rate=10.0), rate=20.0)
    assert as_recordings(as_recordings(table()), rate=20.0).rate == 20


def test_named_labels_of_several_tables_are_merged():
    frames = {
        "a": pd.DataFrame({"x": [1, 2, 3], "label": ["walk", "run", None]}),
        "b": pd.DataFrame({"x": [1, 2], "label": ["walk", "sit"]}),
    }
    recordings = as_recordings(frames)
    assert recordings.label_names == ("run", "sit", "walk")
    np.testing.assert_array_equal(recordings["a"].labels, [2, 0, -1])
    np.testing.assert_array_equal(recordings["b"].labels, [2, 1])
    frames["c"] = pd.DataFrame({"x": [1, 2], "label": [0, 1]})
    with pytest.raises(DataError, match="some recordings have named labels, others numbers"):
        as_recordings(frames)


def test_error_survives_pickling():
    error = DataError("too short", file="walk.csv", recording="a", column="x")
    assert str(error) == "walk.csv, recording 'a', column 'x': too short"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert re.match("too short$", str(DataError("too short")))
