"""Human3.6M: text files of joint angles as joint positions, as in the experiments of the paper."""

import re
import warnings
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from svae.data.cache import cached
from svae.data.errors import DataError
from svae.data.recordings import Recording, Recordings, Skeleton
from svae.data.splits import Split
from svae.data.windowing import Places, Windows, cut

ACTIONS = (
    *("directions", "discussion", "eating", "greeting", "phoning", "posing", "purchases", "sitting"),
    *("sittingdown", "smoking", "takingphoto", "waiting", "walking", "walkingdog", "walkingtogether"),
)
FILE = re.compile(rf"({'|'.join(ACTIONS)})_([12])")
COLUMNS = 99  # three of the translation, three of each joint's exponential map
RATE = 25.0  # of 50, every second frame is kept
# In the paper, second repetitions of three subjects are there to choose by; it names S7 alone, for two files
# that are left out. The other two are our choice: S5, with which others validate, and S6.
VALIDATION = "S5", "S6", "S7"
LEFT_OUT = "S7/phoning_2", "S7/discussion_2"
NOISE = 1e-3  # metres

# Each joint's parent and its place relative to that, in millimetres.
JOINTS: dict[str, tuple[str | None, tuple[float, float, float]]] = {
    "Hips": (None, (0, 0, 0)),
    "RightUpLeg": ("Hips", (-132.949, 0, 0)),
    "RightLeg": ("RightUpLeg", (0, -442.895, 0)),
    "RightFoot": ("RightLeg", (0, -454.206, 0)),
    "RightToeBase": ("RightFoot", (0, 0, 162.767)),
    "RightToeEnd": ("RightToeBase", (0, 0, 74.9994)),
    "LeftUpLeg": ("Hips", (132.949, 0, 0)),
    "LeftLeg": ("LeftUpLeg", (0, -442.894, 0)),
    "LeftFoot": ("LeftLeg", (0, -454.207, 0)),
    "LeftToeBase": ("LeftFoot", (0, 0, 162.767)),
    "LeftToeEnd": ("LeftToeBase", (0, 0, 74.9999)),
    "Spine": ("Hips", (0, 0.1, 0)),
    "Spine1": ("Spine", (0, 233.383, 0)),
    "Neck": ("Spine1", (0, 257.078, 0)),
    "Head": ("Neck", (0, 121.135, 0)),
    "HeadEnd": ("Head", (0, 115.002, 0)),
    "LeftShoulder": ("Spine1", (0, 257.078, 0)),
    "LeftArm": ("LeftShoulder", (0, 151.034, 0)),
    "LeftForeArm": ("LeftArm", (0, 278.883, 0)),
    "LeftHand": ("LeftForeArm", (0, 251.733, 0)),
    "LeftHandThumb": ("LeftHand", (0, 0, 0)),
    "LeftThumbEnd": ("LeftHandThumb", (0, 0, 99.9996)),
    "LeftWristEnd": ("LeftHand", (0, 100, 0)),
    "LeftFingerEnd": ("LeftWristEnd", (0, 0, 0)),
    "RightShoulder": ("Spine1", (0, 257.078, 0)),
    "RightArm": ("RightShoulder", (0, 151.031, 0)),
    "RightForeArm": ("RightArm", (0, 278.893, 0)),
    "RightHand": ("RightForeArm", (0, 251.729, 0)),
    "RightHandThumb": ("RightHand", (0, 0, 0)),
    "RightThumbEnd": ("RightHandThumb", (0, 0, 99.9999)),
    "RightWristEnd": ("RightHand", (0, 137.5, 0)),
    "RightFingerEnd": ("RightWristEnd", (0, 0, 0)),
}
NAMES = tuple(JOINTS)
PARENTS = tuple(-1 if parent is None else NAMES.index(parent) for parent, _ in JOINTS.values())
OFFSETS = np.array([offset for _, offset in JOINTS.values()])
# With the hips at the origin and not turned, what hangs on them is where its offset says.
STILL = tuple(j for j, parent in enumerate(PARENTS) if parent in (-1, 0))
SKELETON = Skeleton(NAMES, PARENTS, tuple((j, tuple(float(x) / 1000 for x in OFFSETS[j])) for j in STILL))


def is_human36m(folder: Path) -> bool:
    """Whether there are text files of known actions in folders of subjects."""
    return any(FILE.fullmatch(path.stem) for path in _files(folder))


def read_human36m(folder: Path, split: Split | None, noise: float | None = None, seed: int = 0) -> Recordings:
    """Joint positions in metres at 25 Hz, 84 channels; labels are the 15 actions.

    The first repetition of each action is there to train on. Of the second ones, those of S5, S6 and S7 (but
    S7's phoning and discussion) are there to choose by, the others to test on. Noise of standard deviation
    `noise` is added, in metres: if not given, 0.001 to the training split as in the paper, and none to
    others. It depends on the name of a recording and on `seed` alone.
    """
    paths = _files(folder)
    labels = [_label(path) for path in paths]

    def make() -> Iterator[Recording]:
        for path, label in zip(paths, labels, strict=True):
            values = joint_positions(_read_angles(path)[::2])[:, SKELETON.moving].reshape(
                -1, 3 * len(SKELETON.moving)
            )
            yield Recording(_name(path), values, np.full(len(values), label))

    about = Recordings((), SKELETON.channels, RATE, ACTIONS, SKELETON)
    whole = cached("human36m", folder, paths, {}, about, make)
    if split is not None:
        whole = whole.select(name for name in whole.names if split_of(name) == split)
        if len(whole) == 0:
            raise DataError(f"there are no files of the split '{split}'", file=str(folder))
    deviation = (NOISE if split == "train" else 0.0) if noise is None else noise
    if deviation == 0:
        return whole
    return replace(whole, items=tuple(_with_noise(item, deviation, seed) for item in whole))


def split_of(name: str) -> Split | None:
    """Where a recording such as S1/walking_2 belongs; the two that are left out belong nowhere."""
    subject, _, file = name.partition("/")
    if file.endswith("_1"):
        return "train"
    if subject not in VALIDATION:
        return "test"
    return None if name in LEFT_OUT else "valid"


def joint_positions(angles: Float[np.ndarray, "time 99"]) -> Float[np.ndarray, "time 32 3"]:
    """Forward kinematics with the hips at the origin, not turned; in metres.

    x_j = offset_j R_parent + x_parent,  R_j = r_j R_parent,  as row vectors;
    r_j is the rotation of joint j's exponential map, which is in columns 3 + 3 j to 5 + 3 j.
    """
    time, count = len(angles), len(NAMES)
    own = rotations(angles[:, 3:].reshape(time, count, 3))
    turned, positions = np.empty((time, count, 3, 3)), np.empty((time, count, 3))
    for j, parent in enumerate(PARENTS):
        if parent < 0:  # columns 0 to 5, where the body is in the room, count as zero
            turned[:, j], positions[:, j] = np.eye(3), OFFSETS[j]
        else:
            turned[:, j] = own[:, j] @ turned[:, parent]
            positions[:, j] = OFFSETS[j] @ turned[:, parent] + positions[:, parent]
    return positions / 1000


def rotations(maps: Float[np.ndarray, "*batch 3"]) -> Float[np.ndarray, "*batch 3 3"]:
    """Rodrigues: exp(K) = I + sin(a)/a K + (1 - cos(a))/a² K², where K x = m × x and a = |m|."""
    x, y, z = np.moveaxis(maps, -1, 0)
    zero = np.zeros_like(x)
    cross = np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=-1).reshape(*maps.shape, 3)
    angle = np.linalg.norm(maps, axis=-1)[..., None, None]
    # sinc(t) = sin(pi t) / (pi t), and 1 - cos(a) = 2 sin²(a / 2): both exact at zero
    first, second = np.sinc(angle / np.pi), np.sinc(angle / (2 * np.pi)) ** 2 / 2
    return np.eye(3) + first * cross + second * cross @ cross


def validation_starts(frames: int, size: int = 250, count: int = 64) -> Int[np.ndarray, " starts"]:
    """Where the validation windows of a recording begin, in the paper's scheme.

    With n = floor((frames - size + 1) / count): 0, n + 1, 2 (n + 1), ...; then the smallest others, until
    there are `count`, or no others.
    """
    possible = np.arange(max(0, frames - size + 1))
    spread = possible[:: len(possible) // count + 1]
    others = np.setdiff1d(possible, spread)[: count - len(spread)]
    return np.concatenate([spread, others])


def validation_windows(recordings: Recordings, size: int = 250, count: int = 64) -> Windows:
    """`count` windows of each recording that has as many, for the split 'valid'."""
    places = [
        (number, start, size)
        for number, length in enumerate(recordings.lengths)
        for start in validation_starts(length, size, count).tolist()
    ]
    if not places:
        raise DataError(f"no recording has {size} frames")
    number, start, length = np.array(places).T
    return cut(recordings, Places(size, number, start, length))


def _files(folder: Path) -> list[Path]:
    subjects = sorted(x for x in folder.iterdir() if x.is_dir() and re.fullmatch(r"S\d+", x.name))
    return [path for subject in subjects for path in sorted(subject.glob("*.txt"))]


def _label(path: Path) -> int:
    match = FILE.fullmatch(path.stem)
    if match is None:
        raise DataError(
            f"Human3.6M names its files by an action and a repetition, as walking_1.txt; actions are "
            f"{', '.join(ACTIONS)}",
            file=str(path),
        )
    return ACTIONS.index(match.group(1))


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _read_angles(path: Path) -> Float[np.ndarray, "time 99"]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of an empty file, which is said below
            angles = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(
            f"expected {COLUMNS} numbers in each row, between commas ({error})", file=str(path)
        ) from error
    if angles.shape[1] != COLUMNS:
        raise DataError(f"expected {COLUMNS} numbers in each row, got {angles.shape[1]}", file=str(path))
    return angles


def _with_noise(item: Recording, deviation: float, seed: int) -> Recording:
    rng = np.random.default_rng([seed, zlib.crc32(item.name.encode())])
    noise = deviation * rng.standard_normal(item.values.shape, np.float32)
    return replace(item, values=np.asarray(item.values + noise.astype(np.float32)))
