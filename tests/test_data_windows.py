import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from svae.data import DataError, Standardizer, as_recordings, stitch, windows


def recordings_of(lengths, width=2):
    """Every entry differs from all others."""
    total = np.cumsum([0, *lengths])
    return as_recordings(
        [
            np.arange(start * width, stop * width, dtype=np.float64).reshape(-1, width) + 1
            for start, stop in itertools.pairwise(total)
        ],
        min_length=1,
    )


@st.composite
def cuts(draw):
    lengths = draw(st.lists(st.integers(1, 30), min_size=1, max_size=4))
    size = draw(st.integers(1, 12))
    return lengths, size, draw(st.integers(1, size)), draw(st.integers(1, size))


@given(cuts())
def test_windows_cover_and_stitch_restores(cut):
    lengths, size, stride, min_size = cut
    recordings = recordings_of(lengths)
    cut = windows(recordings, size, stride, min_size)
    assert cut.values.shape[1:] == (size, 2)
    for w in range(len(cut)):
        number, start, length = cut.recording[w], cut.start[w], cut.lengths[w]
        np.testing.assert_array_equal(
            cut.values[w, :length], recordings[int(number)].values[start : start + length]
        )
        assert np.all(cut.values[w, length:] == 0)
        assert length >= min(min_size, lengths[number])
        if start + length < lengths[number]:
            assert length == size
    for part, item in zip(stitch(cut, cut.values, recordings), recordings, strict=True):
        np.testing.assert_array_equal(part, item.values)


@pytest.mark.parametrize(
    ("length", "size", "stride", "starts", "lengths"),
    [
        (10, 5, None, [0, 5], [5, 5]),
        (12, 5, None, [0, 5, 10], [5, 5, 2]),
        (11, 5, None, [0, 5, 6], [5, 5, 5]),
        (9, 5, 2, [0, 2, 4], [5, 5, 5]),
        (10, 5, 2, [0, 2, 4, 6], [5, 5, 5, 4]),
        (3, 5, None, [0], [3]),
        (1, 5, None, [0], [1]),
    ],
)
def test_where_windows_lie(length, size, stride, starts, lengths):
    cut = windows(recordings_of([length]), size, stride)
    np.testing.assert_array_equal(cut.start, starts)
    np.testing.assert_array_equal(cut.lengths, lengths)


def test_whole_recordings():
    cut = windows(recordings_of([4, 7]), None)
    assert cut.values.shape == (2, 7, 2)
    np.testing.assert_array_equal(cut.lengths, [4, 7])
    np.testing.assert_array_equal(cut.recording, [0, 1])


def test_missing_entries_stay_and_padding_is_zero():
    values = np.full((3, 1), np.nan, np.float32)
    values[0] = 1
    cut = windows(as_recordings(values), 5)
    np.testing.assert_array_equal(cut.values[0, :, 0], [1, np.nan, np.nan, 0, 0])
    assert cut.values.dtype == np.float32


def test_stitch_takes_the_deepest_window():
    recordings = recordings_of([9])
    cut = windows(recordings, 5, 2)
    marks = np.broadcast_to(np.arange(3)[:, None], (3, 5)).copy()
    (chosen,) = stitch(cut, marks, recordings)
    # frame 3 lies one frame from an edge of windows 0 and 1: the earlier one keeps it
    np.testing.assert_array_equal(chosen, [0, 0, 0, 0, 1, 1, 2, 2, 2])
    assert chosen.dtype == marks.dtype


def test_wrong_windows():
    recordings = recordings_of([9])
    with pytest.raises(DataError, match="stride of windows must be from 1 to their size"):
        windows(recordings, 4, 5)
    with pytest.raises(DataError, match="no recordings"):
        windows(recordings.select([]), 4)
    cut = windows(recordings, 5)
    with pytest.raises(DataError, match="do not cover"):
        stitch(cut, cut.values, recordings_of([12]))


def scaled_recordings(rng):
    scale, shift = np.array([1.0, 50.0, 0.01]), np.array([0.0, 1e3, -5.0])
    parts = [shift + scale * rng.normal(size=(length, 3)) for length in (40, 25)]
    parts[0][3:9, 1] = np.nan
    return as_recordings(parts, channels=["a", "b", "c"])


def test_standardizer_by_channel():
    recordings = scaled_recordings(np.random.default_rng(0))
    together = np.concatenate([item.values for item in recordings])
    standardizer = Standardizer.fit(recordings)
    np.testing.assert_allclose(standardizer.mean, np.nanmean(together, axis=0))
    np.testing.assert_allclose(standardizer.scale, np.nanstd(together, axis=0))
    scaled = np.concatenate([item.values for item in recordings.map(standardizer.apply)])
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scaled, axis=0), 1)
    np.testing.assert_allclose(standardizer.undo(scaled), together)
    np.testing.assert_allclose(standardizer.undo_scale(np.ones((2, 3))), [standardizer.scale] * 2)


def test_standardizer_with_one_scale():
    recordings = scaled_recordings(np.random.default_rng(0))
    together = np.concatenate([item.values for item in recordings])
    standardizer = Standardizer.fit(recordings, "global")
    centred = together - np.nanmean(together, axis=0)
    np.testing.assert_allclose(standardizer.scale, np.full(3, np.sqrt(np.nanmean(centred**2))))


def test_standardizer_that_does_nothing():
    recordings = scaled_recordings(np.random.default_rng(0))
    standardizer = Standardizer.fit(recordings, "none")
    np.testing.assert_array_equal(standardizer.apply(recordings[0].values), recordings[0].values)


@pytest.mark.parametrize("mode", ["channel", "global"])
def test_constant_channels_are_only_centred(mode):
    # the mean of many 0.1 is not 0.1
    standardizer = Standardizer.fit(as_recordings(np.full((1001, 2), 0.1)), mode)
    np.testing.assert_array_equal(standardizer.scale, [1, 1])
    np.testing.assert_array_equal(standardizer.apply(np.full((1, 2), 0.1)), [[0, 0]])


def test_standardizer_keeps_single_precision_and_goes_through_json():
    recordings = as_recordings(np.random.default_rng(0).normal(1e4, 1, (50, 2)).astype(np.float32))
    standardizer = Standardizer.from_dict(json.loads(json.dumps(Standardizer.fit(recordings).to_dict())))
    scaled = standardizer.apply(recordings[0].values)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(np.std(scaled, axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(standardizer.undo(scaled), recordings[0].values, rtol=1e-6)


def test_wrong_standardizers():
    recordings = as_recordings([np.ones((2, 2)), np.full((2, 2), np.nan)])
    with pytest.raises(DataError, match="column 'channel_0': all entries are missing"):
        Standardizer.fit(recordings.select(["recording_1"]))
    with pytest.raises(DataError, match="mode must be one of channel, global, none"):
        Standardizer.fit(recordings, "robust")
