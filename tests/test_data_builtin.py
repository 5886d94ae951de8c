import subprocess
import sys

import numpy as np
import pytest

from svae.data import DataError, as_recordings, laplacian, load, mocap6

COUNTS = {
    "JumpJack": 187,
    "Jog": 180,
    "Squat": 203,
    "KneeRaise": 382,
    "ArmCircle": 304,
    "Twist": 352,
    "SideReach": 48,
    "Box": 72,
    "UpDown": 76,
    "ToeTouchOneHand": 99,
    "SideBend": 66,
    "ToeTouchTwoHands": 89,
}


def test_mocap6():
    recordings = mocap6()
    assert dict(zip(recordings.names, recordings.lengths, strict=True)) == {
        "13_29": 382,
        "13_30": 205,
        "13_31": 251,
        "14_06": 446,
        "14_14": 387,
        "14_20": 387,
    }
    assert recordings.rate == 10
    assert recordings.num_features == 12
    assert recordings.channels[:2] == ("root.ty", "lowerback.rx")
    labels = np.concatenate([item.labels for item in recordings])
    assert dict(zip(recordings.label_names, np.bincount(labels).tolist(), strict=True)) == COUNTS
    assert recordings["13_29"].values[0, 0] == pytest.approx(-0.697724747387, abs=1e-12)
    # centred before release: the means are small, though not zero
    for item in recordings:
        assert np.all(np.isfinite(item.values))
        assert np.all(np.abs(np.mean(item.values, axis=0)) < 1)


def test_names_of_built_in_sets(tmp_path, monkeypatch):
    assert load("mocap6").names == mocap6().names
    assert as_recordings("mocap6").names == mocap6().names
    assert len(load("synthetic")) == len(load("laplacian")) == len(load("laplace")) == 128
    assert load("synthetic", num_sequences=2, length=30, rate=25.0).lengths == (30, 30)
    with pytest.raises(DataError, match="mocap6: the data say 10 frames per second, but rate=25"):
        load("mocap6", rate=25.0)
    with pytest.raises(DataError, match="synthetic: unknown option 'size'; known are num_sequences"):
        load("synthetic", size=2)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mocap6").mkdir()
    np.save(tmp_path / "mocap6" / "mine.npy", np.ones((3, 2)))
    assert load("mocap6").names == ("mine",)


def test_laplacian_shapes_and_seeds():
    recordings = laplacian(3, length=40, seed=1, num_points=50)
    assert recordings.lengths == (40, 40, 40)
    assert recordings.num_features == 50
    assert recordings.channels[0] == "-2"
    np.testing.assert_array_equal(
        recordings[2].values, laplacian(3, length=40, seed=1, num_points=50)[2].values
    )
    assert not np.array_equal(recordings[0].values, laplacian(1, 40, 2, 50)[0].values)


def test_laplacian_dynamics():
    labels = np.concatenate([np.append(item.labels, -1) for item in laplacian(300)])
    ends = np.flatnonzero((labels[1:] != labels[:-1]) & (labels[1:] >= 0) & (labels[:-1] >= 0))
    before, after = labels[ends], labels[ends + 1]
    partner = (before ^ 1) == after
    error = 4 * np.sqrt(0.1 * 0.9 / len(ends))
    assert abs(np.mean(partner) - 0.9) < error
    # between the pairs both targets are as likely
    crossing = after[~partner]
    assert np.all((before[~partner] < 2) == (crossing >= 2))
    assert abs(np.mean(crossing % 2) - 0.5) < 2 / np.sqrt(len(crossing))
    # a segment ends with probability 0.1 at each step
    steps = np.sum((labels[1:] >= 0) & (labels[:-1] >= 0))
    assert abs(len(ends) / steps - 0.1) < 4 * np.sqrt(0.1 * 0.9 / steps)
    assert all(item.labels[0] == 0 for item in laplacian(5))


def test_laplacian_frames():
    """Position and width are read off the frames again: the step of each label is as it should be."""
    grid = np.linspace(-2, 2, 2001)
    moves, growths, heights = {0: [], 1: [], 2: [], 3: []}, {0: [], 1: [], 2: [], 3: []}, []
    for item in laplacian(5, length=60, num_points=2001):
        m, s = np.transpose([fit_bump(grid, frame) for frame in item.values])
        free = np.log(np.expm1(s)) + 1
        for t in range(1, 60):
            moves[item.labels[t]].append(m[t] - m[t - 1])
            growths[item.labels[t]].append(free[t] - free[t - 1])
        model = np.sqrt(s + 1)[:, None] * np.exp(-np.abs(grid - m[:, None]) / (2 * s[:, None]))
        heights.append(np.std(item.values - model))
    for state, (move, growth) in enumerate([(0.03, 0), (-0.03, 0), (0, -0.1), (0, 0.1)]):
        assert abs(np.mean(moves[state]) - move) < 2e-3
        assert abs(np.mean(growths[state]) - growth) < 1e-2
    np.testing.assert_allclose(heights, 0.02, rtol=0.05)


def fit_bump(grid, frame):
    """log(frame) is linear on both sides of m where the frame is well above the noise."""
    clear = frame > 0.3
    log = np.log(frame[clear])
    peak = grid[clear][np.argmax(np.convolve(log, np.ones(5) / 5, mode="same"))]
    candidates = peak + np.linspace(-0.03, 0.03, 61)
    residuals = []
    for m in candidates:
        design = np.stack([np.ones(np.sum(clear)), -np.abs(grid[clear] - m)], axis=1)
        solution, residual, *_ = np.linalg.lstsq(design, log, rcond=None)
        residuals.append((residual[0], m, 1 / (2 * solution[1])))
    _, m, s = min(residuals)
    return m, s


def test_importing_data_is_light():
    heavy = "jax pandas pyarrow h5py soundfile scipy"
    code = f"import sys, svae.data; print([m for m in '{heavy}'.split() if m in sys.modules])"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"
