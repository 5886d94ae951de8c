"""`load`: recordings from a file, a folder of files, or the name of a built-in set."""

import inspect
import zipfile
from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from svae.data.arrays import read_npy, read_npz
from svae.data.audio import read_audio
from svae.data.bvh import read_bvh
from svae.data.convert import with_rate
from svae.data.deeplabcut import (
    is_deeplabcut_csv,
    is_deeplabcut_h5,
    read_deeplabcut_csv,
    read_deeplabcut_h5,
)
from svae.data.errors import DataError
from svae.data.hdf5 import read_hdf5
from svae.data.joining import join
from svae.data.mocap import mocap6
from svae.data.packed_motion import is_packed_motion, read_packed_motion
from svae.data.recordings import Recordings, require_usable
from svae.data.sets import SETS, DataSet, known_set
from svae.data.sounds import ENDINGS as SOUNDS
from svae.data.sounds import Sound, read_chunks
from svae.data.splits import as_split
from svae.data.synthetic import laplacian
from svae.data.tables import read_csv, read_parquet

Reader = Callable[..., Recordings]

READERS: dict[str, Reader] = {
    ".npz": read_npz,
    ".npy": read_npy,
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".h5": read_hdf5,
    ".hdf5": read_hdf5,
    ".wav": read_audio,
    ".flac": read_audio,
    ".bvh": read_bvh,
}
ENDINGS = ", ".join(READERS)
CHUNKED = "frames"  # the option that cuts sounds into chunks
GIVEN = "path", "folder", "split", "sounds", "label_names", "kind"  # what readers get that is no option


def _synthetic(num_sequences: int = 128, length: int = 250, seed: int = 0) -> Recordings:
    return laplacian(num_sequences, length, seed)


BUILT_IN: dict[str, Reader] = {
    "mocap6": mocap6,
    **dict.fromkeys(("synthetic", "laplace", "laplacian"), _synthetic),
}

# What readers and the libraries beneath them raise at a file that is broken.
BROKEN = (OSError, ValueError, RuntimeError, KeyError, EOFError, IndexError, zipfile.BadZipFile)


def load(
    path: str | PathLike[str],
    *,
    split: str | None = None,
    rate: float | None = None,
    min_length: int = 2,
    **options: Any,
) -> Recordings:
    """Recordings from a file, from all files of a folder, or a built-in set (mocap6, synthetic).

    The ending of the name tells the format; `options` are those of its reader: see `read_csv`,
    `read_audio`, `read_bvh`, `read_deeplabcut_csv`. A folder holds one format; its files are read in the
    order of their names, and files of unknown endings are left alone. A folder of folders holds classes:
    their names label the frames. `rate` (frames per second) is for files that do not tell theirs. With
    `frames=50`, sounds are cut into chunks as in the paper, see `read_chunks`.

    A folder that is laid out as one of `svae.data.sets` is read as that set. It has the splits train, valid
    and test; without `split` all of it is read.
    """
    place = Path(path)
    known = known_set(place) if place.is_dir() else None
    if known is not None:
        recordings = _load_set(place, known, split, options)
    elif split is not None and (place.exists() or str(path) in BUILT_IN):
        names = ", ".join(each.name for each in SETS)
        raise DataError(
            f"there is no split '{split}' of these; folders that have splits are {names}", file=str(path)
        )
    elif CHUNKED in options and place.exists():
        recordings = _load_chunks(place, options)
    elif place.is_dir():
        recordings = _load_folder(place, options)
    elif place.exists():
        recordings = _load_file(place, _reader(place), options)
    elif str(path) in BUILT_IN:
        reader = BUILT_IN[str(path)]
        _require_known(options, reader, str(path))
        recordings = reader(**options)
    else:
        raise DataError(f"no such file or folder; built-in sets are {', '.join(BUILT_IN)}", file=str(path))
    try:
        return require_usable(with_rate(recordings, rate), min_length)
    except DataError as error:
        error.file = error.file or str(path)
        raise


def _load_set(folder: Path, known: DataSet, split: str | None, options: dict[str, Any]) -> Recordings:
    _require_known(options, known.read, str(folder))
    part = None if split is None else as_split(split, str(folder))
    try:
        return known.read(folder, part, **options)
    except DataError as error:
        error.file = error.file or str(folder)
        raise
    except BROKEN as error:
        raise DataError(
            f"cannot be read as {known.name}; is it whole? ({error})", file=str(folder)
        ) from error


def _load_chunks(place: Path, options: dict[str, Any]) -> Recordings:
    """Chunks of sounds: of one file, of those of a folder, or of folders that are classes."""
    _require_known(options, read_chunks, str(place))
    own = [place] if place.is_file() else _files(place)
    classes = [] if own else _class_folders(place)
    found = [Sound(path, path.stem) for path in own]
    found += [Sound(x, f"{y.name}/{x.stem}", i) for i, y in enumerate(classes) for x in _files(y)]
    for sound in found:
        if sound.path.suffix.lower() not in SOUNDS:
            raise DataError(f"{CHUNKED} is for sounds ({', '.join(SOUNDS)})", file=str(sound.path))
    names = tuple(x.name for x in classes) or None
    return read_chunks(place if place.is_dir() else place.parent, found, names, **options)


def _load_folder(folder: Path, options: dict[str, Any]) -> Recordings:
    """The files of a folder; if there are none, those of the folders in it, each of which is a class."""
    if _files(folder):
        return _load_files(folder, options)
    classes = _class_folders(folder)
    try:
        return join([_labelled(_load_files(x, options), x.name) for x in classes])
    except DataError as error:
        error.file = error.file or str(folder)
        raise


def _class_folders(folder: Path) -> list[Path]:
    classes = [x for x in sorted(folder.iterdir()) if x.is_dir() and _files(x)]
    if not classes:
        raise DataError(f"the folder holds no files of a known kind ({ENDINGS})", file=str(folder))
    return classes


def _files(folder: Path) -> list[Path]:
    known = lambda x: x.is_file() and x.suffix.lower() in READERS and not x.name.startswith(".")
    return sorted(filter(known, folder.iterdir()))


def _labelled(recordings: Recordings, name: str) -> Recordings:
    """Named after their folder, and labelled with its name unless they have labels of their own."""
    items = tuple(replace(item, name=f"{name}/{item.name}") for item in recordings)
    if any(item.labels is not None for item in items):
        return replace(recordings, items=items)
    items = tuple(replace(item, labels=np.zeros(len(item), np.int64)) for item in items)
    return replace(recordings, items=items, label_names=(name,))


def _load_files(folder: Path, options: dict[str, Any]) -> Recordings:
    paths = _files(folder)
    readers = [_reader(path) for path in paths]
    for path, reader in zip(paths, readers, strict=True):
        if reader is not readers[0]:
            raise DataError(
                f"the folder holds files of different kinds, as {paths[0].name} and {path.name}; "
                "keep one kind in a folder",
                file=str(folder),
            )
    parts = [
        _name_by_file(_load_file(path, reader, options), path.stem)
        for path, reader in zip(paths, readers, strict=True)
    ]
    try:
        return join(parts)
    except DataError as error:
        error.file = error.file or str(folder)
        raise


def _name_by_file(recordings: Recordings, stem: str) -> Recordings:
    if len(recordings) == 1:
        return replace(recordings, items=(replace(recordings[0], name=stem),))
    return replace(recordings, items=tuple(replace(item, name=f"{stem}/{item.name}") for item in recordings))


def _load_file(path: Path, reader: Reader, options: dict[str, Any]) -> Recordings:
    _require_known(options, reader, str(path))
    try:
        return reader(path, **options)
    except DataError as error:
        error.file = error.file or str(path)
        raise
    except BROKEN as error:
        raise DataError(f"cannot be read; is the file whole? ({error})", file=str(path)) from error


def _reader(path: Path) -> Reader:
    ending = path.suffix.lower()
    if ending not in READERS:
        raise DataError(f"unknown ending '{ending}'; known are {ENDINGS}", file=str(path))
    try:
        if ending == ".csv" and is_deeplabcut_csv(path):
            return read_deeplabcut_csv
        if ending in (".h5", ".hdf5") and is_deeplabcut_h5(path):
            return read_deeplabcut_h5
        if ending == ".npz" and is_packed_motion(path):
            return read_packed_motion
    except OSError as error:
        raise DataError(f"cannot be read; is the file whole? ({error})", file=str(path)) from error
    return READERS[ending]


def _require_known(options: dict[str, Any], reader: Reader, place: str) -> None:
    known = [name for name in inspect.signature(reader).parameters if name not in GIVEN]
    for name in options:
        if name not in known:
            choice = f"known are {', '.join(known)}" if known else "this format has none"
            raise DataError(f"unknown option '{name}'; {choice}", file=place)
