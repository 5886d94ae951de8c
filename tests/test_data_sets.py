import re

import numpy as np
import pytest
import soundfile
from scipy.spatial.transform import Rotation
from typer.testing import CliRunner

import data_set_files as files
from svae.cli import app
from svae.data import (
    DataError,
    Skeleton,
    as_recordings,
    audio,
    chunks,
    load,
    mocap6,
    power_spectrogram,
    trim,
    validation_starts,
    validation_windows,
)
from svae.data.human36m import ACTIONS, joint_positions
from svae.training import pipeline

# joint:parent:(offset in mm), as it is published with the data
SKELETON = """0:-1:(0,0,0); 1:0:(-132.949,0,0); 2:1:(0,-442.895,0); 3:2:(0,-454.206,0); 4:3:(0,0,162.767);
5:4:(0,0,74.9994); 6:0:(132.949,0,0); 7:6:(0,-442.894,0); 8:7:(0,-454.207,0); 9:8:(0,0,162.767);
10:9:(0,0,74.9999); 11:0:(0,0.1,0); 12:11:(0,233.383,0); 13:12:(0,257.078,0); 14:13:(0,121.135,0);
15:14:(0,115.002,0); 16:12:(0,257.078,0); 17:16:(0,151.034,0); 18:17:(0,278.883,0); 19:18:(0,251.733,0);
20:19:(0,0,0); 21:20:(0,0,99.9996); 22:19:(0,100,0); 23:22:(0,0,0); 24:12:(0,257.078,0); 25:24:(0,151.031,0);
26:25:(0,278.893,0); 27:26:(0,251.729,0); 28:27:(0,0,0); 29:28:(0,0,99.9999); 30:27:(0,137.5,0);
31:30:(0,0,0)"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SVAE_CACHE", str(tmp_path / "cache"))


def slow_positions(angles):
    """One joint of one frame at a time, in column vectors: the inverse rotations, from the other side."""
    joints = [re.fullmatch(r"(\d+):(-?\d+):\((.*)\)", x.strip()).groups() for x in SKELETON.split(";")]
    positions = np.zeros((len(angles), 32, 3))
    for t, row in enumerate(angles):
        turned = {}
        for number, parent, offset in joints:
            j, parent, offset = int(number), int(parent), np.array(list(map(float, offset.split(","))))
            own = Rotation.from_rotvec(-row[3 + 3 * j : 6 + 3 * j])
            if parent < 0:
                turned[j] = Rotation.identity()
                continue
            positions[t, j] = positions[t, parent] + turned[parent].apply(offset)
            turned[j] = turned[parent] * own
    return positions / 1000


def test_forward_kinematics_joint_by_joint():
    angles = np.random.default_rng(0).uniform(-3, 3, (5, 99))
    angles[0] = 0
    positions = joint_positions(angles)
    np.testing.assert_allclose(positions, slow_positions(angles), atol=1e-12)
    unmoved = np.ptp(positions, axis=0) == 0
    assert unmoved.sum() == 12
    assert np.flatnonzero(unmoved.all(axis=1)).tolist() == [0, 1, 6, 11]


def test_a_pose_by_hand():
    angles = np.zeros((2, 99))
    angles[1, 6] = np.pi / 2  # the right hip turns the leg about x, from downwards to forwards
    angles[:, :6] = 1.0  # where the body is in the room does not count
    upright, kicking = joint_positions(angles)
    np.testing.assert_allclose(upright[15], [0, 0.726698, 0], atol=1e-9)
    np.testing.assert_allclose(upright[3], [-0.132949, -0.897101, 0], atol=1e-9)
    np.testing.assert_allclose(kicking[2], [-0.132949, 0, 0.442895], atol=1e-9)
    np.testing.assert_allclose(kicking[4], [-0.132949, 0.162767, 0.897101], atol=1e-9)
    np.testing.assert_allclose(kicking[6:], upright[6:])


def test_human36m(tmp_path):
    folder = files.human36m(tmp_path / "h36m", ["walking", "eating"], frames=7, subjects=(1, 7))
    recordings = load(folder)
    assert recordings.names == tuple(
        f"{subject}/{action}_{n}"
        for subject in ("S1", "S7")
        for action in ("eating", "walking")
        for n in (1, 2)
    )
    assert recordings.lengths == (4,) * 8  # every second of 7
    assert (recordings.rate, recordings.num_features) == (25.0, 84)
    assert recordings.channels[:3] == ("RightLeg.x", "RightLeg.y", "RightLeg.z")
    assert recordings.label_names == ACTIONS
    assert len(ACTIONS) == 15
    assert set(recordings["S1/walking_1"].labels) == {ACTIONS.index("walking")}
    angles = np.loadtxt(folder / "S7" / "eating_2.txt", delimiter=",")[::2]
    moving = [j for j in range(32) if j not in (0, 1, 6, 11)]
    np.testing.assert_allclose(
        recordings["S7/eating_2"].values, slow_positions(angles)[:, moving].reshape(4, 84), atol=1e-6
    )
    skeleton = recordings.skeleton
    assert skeleton.moving == tuple(moving)
    assert dict(skeleton.still)[1] == (-0.132949, 0, 0)


def test_human36m_splits(tmp_path):
    folder = files.human36m(tmp_path, ACTIONS, frames=4)
    parts = {split: load(folder, split=split).names for split in ("train", "valid", "test")}
    assert {split: len(names) for split, names in parts.items()} == {"train": 105, "valid": 43, "test": 60}
    everything = [name for names in parts.values() for name in names]
    assert len(set(everything)) == len(everything)
    assert set(load(folder).names) - set(everything) == {"S7/phoning_2", "S7/discussion_2"}
    assert {name.split("/")[0] for name in parts["valid"]} == {"S5", "S6", "S7"}


def test_noise_is_a_millimetre_and_the_training_split_s(tmp_path):
    folder = files.human36m(tmp_path, ["walking"], frames=400, subjects=(1, 5))
    clean, noisy = load(folder, split="train", noise=0.0), load(folder, split="train")
    added = noisy["S1/walking_1"].values - clean["S1/walking_1"].values
    assert np.std(added) == pytest.approx(1e-3, rel=0.02)
    assert abs(np.mean(added)) < 5e-5
    again, other = load(folder, noise=1e-3), load(folder, noise=1e-3, seed=1)  # in other company, the same
    np.testing.assert_array_equal(again["S1/walking_1"].values, noisy["S1/walking_1"].values)
    assert not np.array_equal(other["S1/walking_1"].values, noisy["S1/walking_1"].values)
    test = load(folder, split="valid")["S5/walking_2"].values
    np.testing.assert_array_equal(test, load(folder)["S5/walking_2"].values)


@pytest.mark.parametrize(
    ("frames", "spread", "count"), [(249, 1, 0), (250, 1, 1), (300, 1, 51), (313, 2, 64), (1000, 12, 64)]
)
def test_validation_starts(frames, spread, count):
    starts = validation_starts(frames)
    assert len(starts) == len(set(starts.tolist())) == count
    regular = range(0, max(0, frames - 249), spread)
    assert starts[: len(regular)].tolist() == list(regular)[:64]
    others = [x for x in range(max(0, frames - 249)) if x not in regular]
    assert starts[len(regular) :].tolist() == others[: 64 - len(regular)]


def test_validation_windows():
    values = np.arange(700.0)[:, None]
    cut = validation_windows(as_recordings([values[:350], values[350:680]]))
    assert cut.values.shape == (128, 250, 1)
    np.testing.assert_array_equal(cut.values[70, :, 0], 350 + cut.start[70] + np.arange(250))
    with pytest.raises(DataError, match="no recording has 250 frames"):
        validation_windows(as_recordings([values[:100]]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,2,3\n4,5,6\n", r"walking_1\.txt: expected 99 numbers in each row, got 3"),
        ("a,b\n", r"walking_1\.txt: expected 99 numbers in each row, between commas"),
    ],
)
def test_bad_human36m_files(tmp_path, content, message):
    files.human36m(tmp_path, ["walking"], subjects=(1,))
    (tmp_path / "S1" / "walking_1.txt").write_text(content)
    with pytest.raises(DataError, match=message):
        load(tmp_path)
    (tmp_path / "S1" / "notes.txt").write_text("")
    with pytest.raises(DataError, match=r"notes\.txt: Human3\.6M names its files by an action"):
        load(tmp_path)


def expected_chunks(path, top_db=30.0):
    signal, _ = soundfile.read(path)
    signal = signal if top_db is None else trim(signal, top_db)
    return [power_spectrogram(chunk) for chunk in chunks(signal)]


def test_wsj0(tmp_path):
    folder = files.wsj0(tmp_path)
    train = load(folder, split="train")
    # 2 s less two quiet ends of 0.2 s: 100 frames or a few more
    assert train.names == tuple(f"si_tr_s/{x}/{n}" for x in ("011/011c0201", "01a/01ao0301") for n in (0, 1))
    assert (train.rate, train.num_features, set(train.lengths)) == (62.5, 513, {50})
    expected = expected_chunks(folder / "si_tr_s" / "01a" / "01ao0301.wav")
    for number, values in enumerate(expected):
        found = train[f"si_tr_s/01a/01ao0301/{number}"].values
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-6)
    test = load(folder, split="test")
    assert {name.split("/")[1] for name in test.names} == {"440"}
    assert len(load(folder)) == 4 + 2 + 2
    with pytest.raises(DataError, match="there is no split 'dev'; there are train, valid, test"):
        load(folder, split="dev")
    for path in (folder / "si_dt_05").rglob("*.wav"):
        path.unlink()
    with pytest.raises(DataError, match=r"si_dt_05: WSJ0's split 'valid' is wav files.*there are none"):
        load(folder)


def test_long_files_are_read_piece_by_piece(tmp_path, monkeypatch):
    path = files.sound(tmp_path / "long.flac", seconds=5.3, quiet=0.7)
    monkeypatch.setattr(audio, "BLOCK", 3)  # of 512 samples, to find the quiet
    found = list(audio.chunk_spectrograms(path))
    expected = expected_chunks(path)
    assert len(found) == len(expected) == 5  # of 5.3 s, at least 3.9 s are loud
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("within", ["", "AudioWAV"])
def test_crema_d(tmp_path, within):
    files.crema_d(tmp_path / within)
    train, valid, test = (load(tmp_path, split=split) for split in ("train", "valid", "test"))
    assert train.names == ("1001_DFA_ANG_XX/0", "1001_IEO_SAD_HI/0", "1002_DFA_NEU_XX/0")
    assert valid.names == ("1009_DFA_HAP_XX/0",)
    assert test.names == ("1010_DFA_FEA_XX/0",)
    labels = lambda part: [part.label_names[item.labels[0]] for item in part]
    assert labels(train) == ["anger", "sadness", "neutral"]
    assert labels(load(tmp_path)) == [*labels(train), "happiness", "fear"]
    files.sound(tmp_path / within / "zebra.wav")
    with pytest.raises(DataError, match=r"zebra\.wav: CREMA-D names its files as 1001_DFA_ANG_XX\.wav"):
        load(tmp_path)


def test_keywords(tmp_path):
    folder = files.keywords(tmp_path)
    train, test = load(folder, split="train"), load(folder, split="test")
    assert train.names == ("train/yes/01_NO_01/0", "train/no/01_NO_01/0")
    assert train.label_names == test.label_names == ("no", "yes")  # numbered alike in all splits
    assert [item.labels[0] for item in train] == [1, 0]
    expected = expected_chunks(folder / "train" / "no" / "01_NO_01.flac", top_db=None)
    np.testing.assert_allclose(train[1].values, expected[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(DataError, match=r"none of 2 sounds is as long as 50 frames \(0\.78 s\)"):
        load(folder, split="train", top_db=30.0)
    (folder / "test" / "yes" / "03_NO_01.flac").unlink()
    with pytest.raises(DataError, match=r"03_NO_01\.flac: there is no such file, but index\.csv lists it"):
        load(folder)


def test_sentences(tmp_path):
    folder = files.sentences(tmp_path)
    assert [len(load(folder, split=split)) for split in ("train", "valid", "test")] == [3, 1, 2]
    assert [len(load(folder, split=x, frames=20)) for x in ("train", "valid", "test")] == [9, 3, 6]
    rows = [{"path": "train/speaker_train/000.flac", "split": "dev"}]
    with pytest.raises(DataError, match=r"index\.csv, train/.*: there is no split 'dev'"):
        load(files.write_index(folder, rows))


def test_chunks_of_any_sounds(tmp_path):
    files.sound(tmp_path / "yes" / "a.wav", 2.0)
    files.sound(tmp_path / "no" / "b.wav", 1.0)
    recordings = load(tmp_path, frames=50)
    assert recordings.names == ("no/b/0", "yes/a/0", "yes/a/1")
    assert recordings.label_names == ("no", "yes")
    assert load(tmp_path / "yes", frames=50).names == load(tmp_path / "yes" / "a.wav", frames=50).names
    assert len(load(tmp_path / "yes", frames=20)) == 6
    files.sound(tmp_path / "yes" / "c.wav", rate=8000)
    with pytest.raises(DataError, match=r"c\.wav: sampled at 8000 Hz, and b\.wav at 16000 Hz"):
        load(tmp_path, frames=50)
    (tmp_path / "yes" / "c.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match=r"c\.wav: cannot be read as sound"):
        load(tmp_path, frames=50)
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"x\.npy: frames is for sounds"):
        load(tmp_path / "x.npy", frames=50)
    with pytest.raises(DataError, match="frames must be a whole number from 4 on"):
        load(tmp_path / "no", frames=3)


STILL = Skeleton(tuple(files.JOINTS), tuple(files.PARENTS))


def test_cmu_mocap(tmp_path):
    folder = files.cmu_mocap(tmp_path)
    train = load(folder, split="train")
    assert train.names == ("train_0", "train_1")
    assert (train.rate, train.channels) == (30.0, tuple(f"{x}.{y}" for x in ("Knee", "Foot") for y in "xyz"))
    np.testing.assert_allclose(train[1].values, 0.0005 * files.motion(8, 1)[:, 2:].reshape(8, 6), rtol=1e-6)
    assert train[0].values.dtype == np.float32
    assert train.skeleton == STILL
    assert train.skeleton.moving == (2, 3)
    assert train.skeleton.still == ((0, (0.0, 0.0, 0.0)), (1, (0.0, 0.0, 0.0)))
    assert train.label_names == load(folder, split="test").label_names == ("dance", "run", "walk")
    assert [set(item.labels) for item in load(folder)] == [{2}, {1}, {0}, {1}]
    assert load(folder / "test.npz").label_names == ("run",)
    for spoil in (lambda path: np.savez(path, x=np.zeros(3)), lambda path: path.unlink()):
        spoil(folder / "valid.npz")
        with pytest.raises(
            DataError, match=r"valid\.npz: CMU motion capture is train\.npz, valid\.npz and test"
        ):
            load(folder, split="train")
    (folder / "train.npz").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"train\.npz: cannot be read; is the file whole"):
        load(folder)


def test_mocap6_body(tmp_path):
    recordings = load(files.mocap6_body(tmp_path))
    assert recordings.names == ("mocap6_body/13_29", "mocap6_body/13_30")
    assert load(tmp_path / "mocap6_body.npz").names == ("13_29", "13_30")
    assert recordings.num_features == 6
    assert recordings.skeleton.moving == (2, 3)
    whole = (0.0005 * files.motion(9)).astype(np.float32)[:, 2:].reshape(9, 6)
    np.testing.assert_array_equal(np.concatenate([item.values for item in recordings]), whole)
    assert recordings.label_names == mocap6().label_names
    assert np.concatenate([item.labels for item in recordings]).tolist() == [0] * 3 + [11] * 3 + [2] * 3


def test_packed_motion_that_is_not_whole(tmp_path):
    path = files.packed(tmp_path / "clips.npz")
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **{**arrays, "lengths": np.array([5, 9])})
    with pytest.raises(DataError, match=r"clips\.npz: 2 clips of 14 frames are announced, but there are 13"):
        load(path)
    np.savez(path, **{**arrays, "kept_columns": np.arange(5, 11)})
    with pytest.raises(DataError, match="all three columns of a joint or none"):
        load(path)


def test_splits_and_options_that_are_not_there(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    for place in (tmp_path, tmp_path / "x.npy", "mocap6"):
        with pytest.raises(
            DataError, match="there is no split 'train' of these; folders that have splits are"
        ):
            load(place, split="train")
    with pytest.raises(DataError, match="nowhere: no such file or folder"):
        load(tmp_path / "nowhere", split="train")
    folder = files.cmu_mocap(tmp_path / "cmu")
    with pytest.raises(DataError, match="unknown option 'frames'; this format has none"):
        load(folder, frames=50)
    folder = files.human36m(tmp_path / "h36m", ["walking"], subjects=(1,))
    with pytest.raises(DataError, match="unknown option 'frames'; known are noise, seed"):
        load(folder, frames=50)
    with pytest.raises(DataError, match="there are no files of the split 'valid'"):
        load(folder, split="valid")


def test_inspect_names_the_set_and_the_split(tmp_path):
    folder = str(files.cmu_mocap(tmp_path))
    shown = CliRunner().invoke(app, ["inspect", folder, "--split", "train"])
    assert shown.exit_code == 0
    assert "CMU motion capture, split train\n2 recordings, 13 frames" in shown.output
    assert (
        "CMU motion capture, all splits\n4 recordings" in CliRunner().invoke(app, ["inspect", folder]).output
    )
    wrong = CliRunner().invoke(app, ["inspect", folder, "--split", "dev"])
    assert wrong.exit_code == 2
    assert "there are train, valid, test" in wrong.output


def test_fit_takes_a_split(tmp_path, monkeypatch):
    folder, seen = str(files.cmu_mocap(tmp_path / "cmu")), []
    monkeypatch.setattr(pipeline, "fit", lambda recordings, *rest: seen.append(recordings.names) or 1 / 0)
    run = lambda *more: CliRunner().invoke(app, ["fit", folder, "--out", str(tmp_path / "run"), *more])
    wrong = run("--split", "dev")
    assert wrong.exit_code == 2
    assert "data.split: input should be 'train', 'valid' or 'test', got \"dev\"" in wrong.output
    run("--split", "valid")
    run("--set", "data.split=test")
    assert seen == [("valid_0",), ("test_0",)]
