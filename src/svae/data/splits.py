"""The parts of a data set: to train on, to choose by, to test on."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Literal, get_args

from svae.data.errors import DataError
from svae.data.joining import join
from svae.data.recordings import Recordings

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)


class EmptySplit(DataError):
    """A split of which a folder has nothing; where all are asked for, the others will do."""


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
        if split is not None:
            return read(folder, split, **options)
        parts = []
        for part in SPLITS:
            with suppress(EmptySplit):
                parts.append(read(folder, part, **options))
        return join(parts)

    return read_any
