"""Sets of speech, each known by how its folder is laid out. See docs/data.md for sources and terms."""

import csv
import re
from pathlib import Path

from svae.data.audio import CHUNK_FRAMES, QUIET_DB
from svae.data.errors import DataError
from svae.data.recordings import Recordings
from svae.data.sounds import Sound, find_sounds, name_below, read_chunks
from svae.data.splits import EmptySplit, Split, all_without_split, as_split

WSJ0_FOLDERS: dict[Split, str] = {"train": "si_tr_s", "valid": "si_dt_05", "test": "si_et_05"}
WSJ0_LEFT_OUT = {"test": "442"}  # the speaker that the paper leaves out

EMOTIONS = {
    "ANG": "anger",
    "DIS": "disgust",
    "FEA": "fear",
    "HAP": "happiness",
    "NEU": "neutral",
    "SAD": "sadness",
}
CREMA_D_NAME = re.compile(rf"(\d{{4}})_[A-Z]{{3}}_({'|'.join(EMOTIONS)})_[A-Z]{{1,2}}")

INDEX = "index.csv"


def is_wsj0(folder: Path) -> bool:
    """Whether there are folders of the Wall Street Journal corpus."""
    return any((folder / name).is_dir() for name in WSJ0_FOLDERS.values())


@all_without_split
def read_wsj0(
    folder: Path, split: Split, frames: int = CHUNK_FRAMES, top_db: float | None = QUIET_DB
) -> Recordings:
    """Folders si_tr_s, si_dt_05 and si_et_05 are the splits; names of files begin with the speaker."""
    part = folder / WSJ0_FOLDERS[split]
    paths = find_sounds(part) if part.is_dir() else []
    if not paths:
        raise DataError(
            f"WSJ0's split '{split}' is wav files in the folder {part.name}: there are none", file=str(part)
        )
    used = [path for path in paths if path.name[:3] != WSJ0_LEFT_OUT.get(split)]
    return read_chunks(
        folder,
        [Sound(path, name_below(folder, path)) for path in used],
        None,
        f"wsj0-{split}",
        frames,
        top_db,
    )


def is_crema_d(folder: Path) -> bool:
    """Whether the first sound is named as 1001_DFA_ANG_XX.wav."""
    sounds = _crema_d_files(folder)
    return bool(sounds) and CREMA_D_NAME.fullmatch(sounds[0].stem) is not None


@all_without_split
def read_crema_d(
    folder: Path, split: Split, frames: int = CHUNK_FRAMES, top_db: float | None = QUIET_DB
) -> Recordings:
    """Emotions as labels. Speakers whose number ends in 9 are there to choose by, in 0 to test on."""
    sounds = []
    for path in _crema_d_files(folder):
        match = CREMA_D_NAME.fullmatch(path.stem)
        if match is None:
            raise DataError(
                "CREMA-D names its files as 1001_DFA_ANG_XX.wav; move this one away", file=str(path)
            )
        speaker, emotion = match.groups()
        if {"9": "valid", "0": "test"}.get(speaker[-1], "train") == split:
            sounds.append(Sound(path, path.stem, list(EMOTIONS).index(emotion)))
    if not sounds:
        raise EmptySplit(f"there are no speakers of the split '{split}'", file=str(folder))
    return read_chunks(folder, sounds, tuple(EMOTIONS.values()), f"crema_d-{split}", frames, top_db)


def _crema_d_files(folder: Path) -> list[Path]:
    within = folder / "AudioWAV"  # as the set is distributed
    place = within if within.is_dir() else folder
    return sorted(path for path in place.glob("*.wav") if not path.name.startswith("."))


def is_sentences(folder: Path) -> bool:
    """Whether index.csv lists sounds, each with its path and its split."""
    return {"path", "split"} <= set(_index_columns(folder))


@all_without_split
def read_sentences(
    folder: Path, split: Split, frames: int = CHUNK_FRAMES, top_db: float | None = QUIET_DB
) -> Recordings:
    """The sounds that index.csv lists in columns path and split."""
    sounds = [Sound(path, name) for path, name, _ in _listed(folder, split)]
    return read_chunks(folder, sounds, None, f"sentences-{split}", frames, top_db)


def is_keywords(folder: Path) -> bool:
    """Whether index.csv also tells the word that each sound is."""
    return {"path", "split", "keyword"} <= set(_index_columns(folder))


@all_without_split
def read_keywords(
    folder: Path, split: Split, frames: int = CHUNK_FRAMES, top_db: float | None = None
) -> Recordings:
    """Labelled with their words. They are short: without the quiet around it hardly one would be a chunk."""
    with (folder / INDEX).open(newline="", encoding="utf-8-sig") as file:
        words = tuple(sorted({row["keyword"] for row in csv.DictReader(file)}))
    sounds = [Sound(path, name, words.index(row["keyword"])) for path, name, row in _listed(folder, split)]
    return read_chunks(folder, sounds, words, f"keywords-{split}", frames, top_db)


def _index_columns(folder: Path) -> list[str]:
    if not (folder / INDEX).is_file():
        return []
    with (folder / INDEX).open(newline="", encoding="utf-8-sig", errors="replace") as file:
        return next(csv.reader(file), [])


def _listed(folder: Path, split: Split) -> list[tuple[Path, str, dict[str, str]]]:
    """File, name and row of each sound of the split, in the order of the index."""
    found = []
    with (folder / INDEX).open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            path = folder / row["path"]
            if as_split(row["split"], f"{folder / INDEX}, {row['path']}") != split:
                continue
            if not path.is_file():
                raise DataError(f"there is no such file, but {INDEX} lists it", file=str(path))
            found.append((path, name_below(folder, path), row))
    if not found:
        raise DataError(f"no sound is of the split '{split}'", file=str(folder / INDEX))
    return found
