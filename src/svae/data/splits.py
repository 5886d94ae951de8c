"""The parts of a data set: to train on, to choose by, to test on."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Literal, get_args

from svae.data.errors import DataError
from svae.data.joining import join
from svae.data.recordings import Recordings

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


def as_split(name: str, file: str | None = None) -> Split:
    """The name of a part; an error if there is none of this name."""
    for split in SPLITS:
        if name == split:
            return split
    raise DataError(f"there is no split '{name}'; there are {', '.join(SPLITS)}", file=file)


def all_without_split(read: Callable[..., Recordings]) -> Callable[..., Recordings]:
    """A reader of one split, which then reads all of them where none is asked for."""

    @wraps(read)
    def read_any(folder: Path, split: Split | None, **options: Any) -> Recordings:
        return join([read(folder, part, **options) for part in (SPLITS if split is None else (split,))])

    return read_any
