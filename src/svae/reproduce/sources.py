"""Data of the paper's experiments, or open ones in their place, cut into windows."""

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from svae.data import DataError, Recording, Recordings, load

TEST_SHARE = 0.25  # of recordings that come without a split
NAMES = {  # of folders, as captions call what is in them
    "cmu_mocap": "CMU motion capture",
    "speechocean": "speechocean762",
    "keywords": "Arabic speech commands",
}
LICENSED = {
    "Human3.6M": r"h(uman)?_?3\.?6m",
    "WSJ0": r"wsj0|chime",
    "CREMA-D": r"crema",
}


class Source(NamedTuple):
    """Recordings as they are, to train on and to score; and what they are called."""

    training: Recordings
    test: Recordings
    caption: str


def source(path: str, original: str) -> Source:
    """Both parts of a data set that stands for, or is, the paper's."""
    return Source(recordings(path, "train"), recordings(path, "test"), caption(path, original))


def recordings(path: str, split: str) -> Recordings:
    """One part of a data set. Single files and built-in sets have no parts: the last quarter is for tests."""
    if Path(path).is_dir():
        return load(path, split=split)
    found = load(path)
    if len(found) < 2:
        raise DataError("two recordings at least: one to train on and one to score", file=path)
    cut = len(found) - max(1, round(TEST_SHARE * len(found)))
    return replace(found, items=found.items[:cut] if split == "train" else found.items[cut:])


def caption(path: str, original: str) -> str:
    """What the data are, and what they stand for."""
    name = Path(path).name or path
    if re.search(LICENSED[original], name.lower()):
        return original
    return f"{NAMES.get(name, name)} in place of {original}"


def cut(recordings: Recordings, size: int, stride: int, most: int | None = None) -> Recordings:
    """Windows of `size` frames every `stride` frames, each a recording; at most so many, spread out."""
    places = [
        (number, start)
        for number, length in enumerate(recordings.lengths)
        for start in range(0, length - size + 1, stride)
    ]
    if not places:
        raise DataError(
            f"no recording has the {size} frames of a window; the longest: {max(recordings.lengths)}"
        )
    if most is not None and len(places) > most:
        places = [places[i] for i in np.linspace(0, len(places) - 1, most).round().astype(int)]
    return replace(recordings, items=tuple(_piece(recordings[n], start, size) for n, start in places))


def _piece(item: Recording, start: int, size: int) -> Recording:
    inside = slice(start, start + size)
    labels = None if item.labels is None else item.labels[inside]
    return Recording(f"{item.name}, frame {start}", item.values[inside], labels)


def with_noise(recordings: Recordings, deviation: float, seed: int) -> Recordings:
    """With normal noise added, always the same."""
    if deviation == 0:
        return recordings
    rng = np.random.default_rng(seed)
    noise = lambda values: (deviation * rng.normal(size=values.shape)).astype(values.dtype)
    return recordings.map(lambda values: values + noise(values))
