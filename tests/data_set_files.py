"""Small files in the formats of data sets that may not come with the project."""

import csv

import numpy as np
import soundfile

RATE = 16000
SUBJECTS = (1, 5, 6, 7, 8, 9, 11)


def write_angles(path, angles):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savetxt(path, angles, fmt="%.7f", delimiter=",")
    return path


def human36m(folder, actions, frames=7, subjects=SUBJECTS):
    rng = np.random.default_rng(0)
    for subject in subjects:
        for action in actions:
            for repetition in (1, 2):
                angles = rng.uniform(-1.5, 1.5, (frames, 99))
                write_angles(folder / f"S{subject}" / f"{action}_{repetition}.txt", angles)
    return folder


def sound(path, seconds=2.0, quiet=0.0, rate=RATE):
    """Noise, with a quiet beginning and end of so many seconds each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name))
    loudness = np.ones(int(seconds * rate))
    edge = int(quiet * rate)
    loudness[:edge] = 1e-3
    loudness[len(loudness) - edge :] = 1e-3
    soundfile.write(path, 0.3 * loudness * rng.uniform(-1, 1, len(loudness)), rate)
    return path


def wsj0(folder):
    """Two speakers to train on, one to choose by, two to test on, of whom one is left out."""
    for name in ("si_tr_s/011/011c0201", "si_tr_s/01a/01ao0301", "si_dt_05/050/050a0501"):
        sound(folder / f"{name}.wav", quiet=0.2)
    for name in ("si_et_05/440/440c0201", "si_et_05/442/442c0201"):
        sound(folder / f"{name}.wav")
    return folder


def crema_d(folder):
    for name in (
        "1001_DFA_ANG_XX",
        "1001_IEO_SAD_HI",
        "1002_DFA_NEU_XX",
        "1009_DFA_HAP_XX",
        "1010_DFA_FEA_XX",
    ):
        sound(folder / f"{name}.wav", seconds=1.0)
    return folder


def write_index(folder, rows):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "index.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder


def keywords(folder):
    rows = []
    for split, speaker in ("train", "01"), ("valid", "02"), ("test", "03"):
        for word in ("yes", "no") if split == "train" else ("yes",):
            path = f"{split}/{word}/{speaker}_NO_01.flac"
            sound(folder / path, seconds=1.0, quiet=0.3)
            rows.append({"path": path, "split": split, "keyword": word, "speaker": speaker, "seconds": 1.0})
    return write_index(folder, rows)


def sentences(folder):
    rows = []
    for split, seconds in ("train", 3.0), ("valid", 1.0), ("test", 2.0):
        path = f"{split}/speaker_{split}/000.flac"
        sound(folder / path, seconds)
        rows.append(
            {"path": path, "split": split, "speaker": split, "gender": "f", "age": 30, "seconds": seconds}
        )
    return write_index(folder, rows)


JOINTS, PARENTS = ["Hips", "Hip", "Knee", "Foot"], [-1, 0, 1, 2]  # the first two do not move


def motion(frames, seed=0):
    """(frames, joints, 3) in whole half millimetres."""
    steps = np.random.default_rng(seed).integers(-20, 20, (frames, 4, 3)).cumsum(axis=0) + 900
    steps[:, :2] = 0
    return steps


def packed(path, lengths=(5, 8), labels=("walk", "run")):
    path.parent.mkdir(parents=True, exist_ok=True)
    clips = [motion(n, seed)[:, 2:].reshape(n, -1) for seed, n in enumerate(lengths)]
    deltas = np.concatenate([np.diff(x, axis=0, prepend=0) for x in clips]).astype(np.int16)
    np.savez(
        path,
        deltas=deltas,
        lengths=np.array(lengths),
        clips=np.array([f"{path.stem}_{i}" for i in range(len(lengths))]),
        labels=np.array(labels),
        step_m=0.0005,
        kept_columns=np.arange(6, 12),
        joints=np.array(JOINTS),
        parents=np.array(PARENTS),
        rate_hz=30.0,
    )
    return path


def cmu_mocap(folder):
    packed(folder / "train.npz")
    packed(folder / "valid.npz", (6,), ("dance",))
    packed(folder / "test.npz", (4,), ("run",))
    return write_index(folder, [{"clip": "train_0", "split": "train", "label": "walk", "frames": 5}])


def mocap6_body(folder):
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "mocap6_body.npz",
        positions_m=(0.0005 * motion(9)).astype(np.float32),
        labels=np.repeat([1, 12, 3], 3).astype(np.int8),
        lengths=np.array([5, 4]),
        clips=np.array(["13_29", "13_30"]),
        joints=np.array(JOINTS),
        parents=np.array(PARENTS),
        rate_hz=30.0,
    )
    return folder
