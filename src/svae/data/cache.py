"""What slow preprocessing gives, kept on disk and memory-mapped from there.

An entry is a folder: the frames of all recordings one after the other (values.f32), their labels
(labels.npy), and names, lengths and what it was made from (about.json). It may be removed at any time.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from svae.data.recordings import Recording, Recordings

VERSION = 1  # of the preprocessing and of the entries: a higher one makes all of them anew

VALUES, LABELS, ABOUT = "values.f32", "labels.npy", "about.json"


def cache_folder() -> Path:
    """$SVAE_CACHE, or svae in $XDG_CACHE_HOME, or svae in ~/.cache."""
    own, common = os.environ.get("SVAE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else Path(common or Path.home() / ".cache") / "svae"


def cached(
    kind: str,
    folder: Path,
    files: Sequence[Path],
    options: dict[str, Any],
    about: Recordings,
    make: Callable[[], Iterable[Recording]],
    content: Any = None,
) -> Recordings:
    """The recordings that `make` gives, or those that it gave for the same `folder`, `kind` and `options`.

    These count if names, sizes and times of `files` are as they were, and `content`, which is anything else
    that matters. `about` has everything but the recordings themselves. Values are float32. Where nothing can
    be written they are made each time, in memory.
    """
    name = hashlib.sha256(json.dumps([str(folder.resolve()), options]).encode()).hexdigest()[:16]
    entry, made_from = cache_folder() / f"{kind}-{name}", _fingerprint(folder, files, content)
    found = _open(entry, made_from, about)
    if found is None and _store(entry, made_from, lambda: _checked(about, make())):
        found = _open(entry, made_from, about)
    return replace(about, items=tuple(_checked(about, make()))) if found is None else found


def _fingerprint(folder: Path, files: Sequence[Path], content: Any) -> str:
    """Of names, sizes and times of change, and of this code's version."""
    known = hashlib.sha256(json.dumps([VERSION, content]).encode())
    for path in files:
        status = path.stat()
        known.update(f"\n{path.relative_to(folder)} {status.st_size} {status.st_mtime_ns}".encode())
    return known.hexdigest()


def _checked(about: Recordings, items: Iterable[Recording]) -> Iterator[Recording]:
    """In single precision, each as good as recordings must be."""
    for item in items:
        item = replace(item, values=item.values.astype(np.float32))
        yield replace(about, items=(item,))[0]


def _store(entry: Path, made_from: str, make: Callable[[], Iterable[Recording]]) -> bool:
    """Writes an entry in place of what is there, if something can be written."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{entry.name}-", dir=entry.parent))
    except OSError:
        return False
    try:
        _write(draft, made_from, make())
        shutil.rmtree(entry, ignore_errors=True)
        with suppress(OSError):  # another process was faster, and has written the same
            draft.rename(entry)
        return True
    except OSError:  # the disk is full, say
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write(entry: Path, made_from: str, items: Iterable[Recording]) -> None:
    """One recording in memory at a time."""
    names, labels, lengths = [], [], []
    with (entry / VALUES).open("wb") as file:
        for item in items:
            file.write(item.values.tobytes())
            names.append(item.name)
            lengths.append(len(item))
            if item.labels is not None:
                labels.append(item.labels)
    if labels:
        np.save(entry / LABELS, np.concatenate(labels))
    about = {"made_from": made_from, "names": names, "lengths": lengths, "labelled": bool(labels)}
    (entry / ABOUT).write_text(json.dumps(about), encoding="utf-8")


def _open(entry: Path, made_from: str, about: Recordings) -> Recordings | None:
    """An entry, unless it is not there, made from something else, or broken."""
    try:
        stored = json.loads((entry / ABOUT).read_text(encoding="utf-8"))
        names, lengths = stored["names"], stored["lengths"]
        shape = sum(lengths), about.num_features
        if stored["made_from"] != made_from or (entry / VALUES).stat().st_size != 4 * shape[0] * shape[1]:
            return None
        if not names:
            return about
        values = np.memmap(entry / VALUES, np.float32, "r", shape=shape)
        labels = np.load(entry / LABELS) if stored["labelled"] else None
        items, stop = [], 0
        for name, length in zip(names, lengths, strict=True):
            here, stop = slice(stop, stop + length), stop + length
            items.append(Recording(name, values[here], None if labels is None else labels[here]))
        return replace(about, items=tuple(items))
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None
