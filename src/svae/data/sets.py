"""Data sets that are known by how their folder is laid out; docs/data.md describes each."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from svae.data.human36m import is_human36m, read_human36m
from svae.data.packed_motion import is_cmu_mocap, read_cmu_mocap
from svae.data.recordings import Recordings
from svae.data.speech import (
    is_crema_d,
    is_keywords,
    is_sentences,
    is_wsj0,
    read_crema_d,
    read_keywords,
    read_sentences,
    read_wsj0,
)


class DataSet(NamedTuple):
    """Its name, whether a folder holds it, and what reads it: all of it for split=None."""

    name: str
    is_in: Callable[[Path], bool]
    read: Callable[..., Recordings]  # folder, split, options


SETS = (
    DataSet("Human3.6M", is_human36m, read_human36m),
    DataSet("WSJ0", is_wsj0, read_wsj0),
    DataSet("CREMA-D", is_crema_d, read_crema_d),
    DataSet("CMU motion capture", is_cmu_mocap, read_cmu_mocap),
    DataSet("keywords", is_keywords, read_keywords),
    DataSet("sentences", is_sentences, read_sentences),
)


def set_name(path: str | PathLike[str]) -> str | None:
    """The name of the set that lies there, if it is one of ours."""
    known = known_set(Path(path)) if Path(path).is_dir() else None
    return None if known is None else known.name


def known_set(folder: Path) -> DataSet | None:
    """The set that the folder holds, if it is one of ours."""
    return next((known for known in SETS if known.is_in(folder)), None)
