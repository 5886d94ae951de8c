"""Motion capture as one npz file: joint positions in metres, or their differences in small steps."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from svae.data.errors import DataError
from svae.data.mocap import mocap6
from svae.data.recordings import Recording, Recordings, Skeleton
from svae.data.splits import SPLITS, Split, all_without_split

SHARED = {"lengths", "clips", "labels", "joints", "parents", "rate_hz"}
PACKED, PLAIN = {"deltas", "step_m", "kept_columns"}, {"positions_m"}  # one or the other is there as well


def is_packed_motion(path: Path) -> bool:
    """Whether an npz file holds clips and a skeleton."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return any(SHARED | form <= set(file.files) for form in (PACKED, PLAIN))
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"cannot be read; is the file whole? ({error})", file=str(path)) from error


def is_cmu_mocap(folder: Path) -> bool:
    """Whether there is a packed file for each split."""
    paths = [folder / f"{split}.npz" for split in SPLITS]
    found = [path for path in paths if path.is_file()]
    return bool(found) and is_packed_motion(found[0])


@all_without_split
def read_cmu_mocap(folder: Path, split: Split) -> Recordings:
    """train.npz, valid.npz or test.npz; labels are numbered alike in all of them."""
    names: set[str] = set()
    for path in (folder / f"{part}.npz" for part in SPLITS):
        if not path.is_file() or not is_packed_motion(path):
            wanted = ", ".join(sorted(SHARED | PACKED))
            raise DataError(
                f"CMU motion capture is train.npz, valid.npz and test.npz, each with {wanted}", file=str(path)
            )
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            names |= set(file["labels"].tolist())
    try:
        return read_packed_motion(folder / f"{split}.npz", tuple(sorted(names)))
    except DataError as error:
        error.file = str(folder / f"{split}.npz")
        raise


def read_packed_motion(path: Path, label_names: tuple[str, ...] | None = None) -> Recordings:
    """A recording for each clip; joints that never move have no channels.

    `deltas` hold, for each clip, its first frame and then the differences from frame to frame, in units of
    `step_m`: positions are their cumulative sums. `labels` are texts, one for each clip, or numbers from 1
    on, one for each frame, which are the exercises of mocap6.
    """
    with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    values = arrays["deltas"] if "deltas" in arrays else arrays["positions_m"]
    lengths, clips = arrays["lengths"].tolist(), arrays["clips"].tolist()
    if sum(lengths) != len(values) or len(lengths) != len(clips):
        raise DataError(
            f"{len(clips)} clips of {sum(lengths)} frames are announced, but there are {len(values)}"
        )
    labels, label_names = _labels(arrays["labels"], lengths, label_names)
    skeleton, columns = _skeleton(arrays)
    items, start = [], 0
    for name, length in zip(clips, lengths, strict=True):
        own = slice(start, start + length)
        start += length
        if "deltas" in arrays:
            steps = np.cumsum(values[own], axis=0, dtype=np.int64)
            positions = (steps * float(arrays["step_m"])).astype(np.float32)
        else:
            positions = values[own].reshape(length, -1)[:, columns].astype(np.float32)
        items.append(Recording(name, positions, labels[own]))
    return Recordings(tuple(items), skeleton.channels, float(arrays["rate_hz"]), label_names, skeleton)


def _labels(
    labels: np.ndarray, lengths: list[int], names: tuple[str, ...] | None
) -> tuple[Int[np.ndarray, " frames"], tuple[str, ...] | None]:
    """One for each frame."""
    if labels.dtype.kind in "iu":
        return labels.astype(np.int64) - 1, mocap6().label_names
    names = tuple(sorted(set(labels.tolist()))) if names is None else names
    return np.repeat([names.index(label) for label in labels.tolist()], lengths), names


def _skeleton(arrays: dict[str, Any]) -> tuple[Skeleton, Int[np.ndarray, " kept"]]:
    """The joints, and which of all columns 3 joint + axis are channels."""
    joints, parents = arrays["joints"].tolist(), arrays["parents"].tolist()
    if "deltas" in arrays:
        places = np.zeros((len(joints), 3))  # columns that were left out are those of joints at the origin
        moving = np.isin(np.arange(3 * len(joints)), arrays["kept_columns"]).reshape(-1, 3)
        if np.any(moving.any(axis=1) != moving.all(axis=1)):
            raise DataError("kept_columns must have all three columns of a joint or none")
    else:
        positions: Float[np.ndarray, "frames joints 3"] = arrays["positions_m"]
        places, moving = positions[0], np.ptp(positions, axis=0) > 0
    still = [j for j in range(len(joints)) if not moving[j].any()]
    known = Skeleton(
        tuple(joints), tuple(parents), tuple((j, tuple(float(x) for x in places[j])) for j in still)
    )
    return known, np.array([3 * j + axis for j in known.moving for axis in range(3)])
