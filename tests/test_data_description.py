import numpy as np
import pandas as pd
import pytest

from svae.data import as_recordings, describe, mocap6


def spoiled():
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(length, 6)) for length in (200, 100)]
    for part in parts:
        part[:, 1] = 4.0
        part[:, 2] = part[:, 0]
        part[:, 3] *= 1e5
    parts[0][5:45, 4] = np.nan
    parts[1][:, 4] = np.nan
    parts[0][[7, 9], 5] = np.nan
    parts[1][50, 5] = 500.0
    return as_recordings(parts, channels=list("abcdef"))


def test_numbers():
    recordings = spoiled()
    description = describe(recordings)
    assert description.names == recordings.names
    assert description.lengths == (200, 100)
    assert description.frames == 300
    assert description.seconds is None
    assert description.memory == 300 * 6 * 8
    assert description.missing == pytest.approx(142 / 1800)
    channels = {channel.name: channel for channel in description.channels}
    together = np.concatenate([item.values for item in recordings])
    for i, channel in enumerate(description.channels):
        found = [channel.minimum, channel.maximum, channel.mean, channel.deviation]
        expected = [function(together[:, i]) for function in (np.nanmin, np.nanmax, np.nanmean, np.nanstd)]
        np.testing.assert_allclose(found, expected, atol=1e-12)
    assert [channel.name for channel in description.channels if channel.constant] == ["b"]
    assert channels["c"].duplicate_of == "a"
    assert channels["e"].longest_gap == 100
    assert channels["e"].missing == pytest.approx(140 / 300)
    assert channels["f"].longest_gap == 1
    assert [channel.outliers for channel in description.channels] == [0, 0, 0, 0, 0, 1]


def test_warnings():
    recordings = spoiled().map(lambda values: np.where(np.arange(6) == 4, values[:, :1], values))
    text = "\n".join(describe(recordings).warnings)
    for sentence in (
        "The sampling rate is unknown",
        "Channel 'b' is constant (4)",
        "Channel 'c' is a copy of 'a'",
        "Channel 'f' has 1 entry more than 10 standard deviations",
        "Channel 'd' varies",
    ):
        assert sentence in text
    hidden = spoiled().map(lambda values: np.where(np.arange(len(values))[:, None] < 80, np.nan, values))
    assert "Channel 'e' is missing in 60 % of the frames." not in describe(spoiled()).warnings
    assert any("'e' is missing in" in sentence for sentence in describe(hidden).warnings)


def test_sound_data_give_no_warnings():
    description = describe(mocap6())
    assert description.warnings == ()
    assert description.seconds[0] == pytest.approx(38.2)
    assert description.labels["KneeRaise"] == 382
    assert sum(description.labels.values()) == 2058


def test_labels_without_names():
    frame = {"x": np.arange(4.0), "label": [2, 2, -1, 0]}
    assert describe(as_recordings(pd.DataFrame(frame), rate=1.0)).labels == {
        "unlabelled": 1,
        "0": 1,
        "2": 2,
    }
