"""Many sounds as the paper's sequences: chunks of a power spectrogram, one recording each, on disk."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from svae.data.audio import CHUNK_FRAMES, QUIET_DB, chunk_spectrograms, frequencies
from svae.data.cache import cached
from svae.data.errors import DataError
from svae.data.recordings import Recording, Recordings

FFT_SIZE, HOP = 1024, 256
ENDINGS = ".wav", ".flac"


class Sound(NamedTuple):
    """A file, the name of its recordings before their numbers, and its class, -1 if it has none."""

    path: Path
    name: str
    label: int = -1


def read_chunks(
    folder: Path,
    sounds: Sequence[Sound],
    label_names: tuple[str, ...] | None = None,
    kind: str = "sounds",
    frames: int = CHUNK_FRAMES,
    top_db: float | None = QUIET_DB,
) -> Recordings:
    """Sounds below `folder` without the quiet at their ends, cut into chunks of `frames` frames.

    A file becomes the recordings name/0, name/1, ...; one that is shorter than a chunk becomes none.
    `top_db=None` leaves the quiet. Parts of one folder are of different `kind`s in the cache.
    """
    if not isinstance(frames, int) or (frames - 1) * HOP <= FFT_SIZE // 2:
        raise DataError(f"frames must be a whole number from {2 + FFT_SIZE // 2 // HOP} on, got {frames}")
    sampling_rate = _sampling_rate(sounds[0].path)

    def make() -> Iterator[Recording]:
        for sound in sounds:
            rate = _sampling_rate(sound.path)
            if rate != sampling_rate:
                raise DataError(
                    f"sampled at {rate} Hz, and {sounds[0].path.name} at {sampling_rate} Hz; resample one of "
                    "them",
                    file=str(sound.path),
                )
            labels = None if label_names is None else np.full(frames, sound.label)
            for number, values in enumerate(_chunks(sound.path, frames, top_db)):
                yield Recording(f"{sound.name}/{number}", values, labels)

    about = Recordings((), frequencies(sampling_rate, FFT_SIZE), sampling_rate / HOP, label_names)
    options, content = {"frames": frames, "top_db": top_db}, [sound[1:] for sound in sounds]
    found = cached(kind, folder, [sound.path for sound in sounds], options, about, make, content)
    if len(found) == 0:
        shortest = f"{frames} frames ({(frames - 1) * HOP / sampling_rate:.2f} s)"
        raise DataError(f"none of {len(sounds)} sounds is as long as {shortest}", file=str(folder))
    return found


def find_sounds(folder: Path) -> list[Path]:
    """Sounds in a folder and in all folders within it, in the order of their names."""
    wanted = lambda path: path.suffix.lower() in ENDINGS and not path.name.startswith(".") and path.is_file()
    return sorted(filter(wanted, folder.rglob("*")))


def name_below(folder: Path, path: Path) -> str:
    """As 'speaker/file', without the ending."""
    return path.relative_to(folder).with_suffix("").as_posix()


def _sampling_rate(path: Path) -> int:
    import soundfile

    try:
        return soundfile.info(path).samplerate
    except (OSError, RuntimeError) as error:
        raise _broken(path, error) from error


def _chunks(path: Path, frames: int, top_db: float | None) -> Iterator[np.ndarray]:
    try:
        yield from chunk_spectrograms(path, frames, top_db, FFT_SIZE, HOP)
    except (OSError, RuntimeError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> DataError:
    return DataError(f"cannot be read as sound; is the file whole? ({error})", file=str(path))
