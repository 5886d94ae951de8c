"""Sound as power spectrograms, computed as in the experiments on speech of the paper."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Float

from svae.data.errors import DataError
from svae.data.recordings import Recording, Recordings

# The paper's sequences: 50 frames, which centred frames of hop 256 reach with 49 hops.
CHUNK_FRAMES = 50
QUIET_DB = 30.0
BLOCK = 4096


def read_audio(path: Path, fft_size: int = 1024, hop: int = 256) -> Recordings:
    """A power spectrogram of the loudness-normalised sound; channels of stereo sound are averaged.

    Channels are named by frequency, as '1000 Hz'; the rate is the sampling rate divided by `hop`. For the
    paper's chunks, which `load(path, frames=50)` gives, see `read_chunks`.
    """
    import soundfile

    samples, sampling_rate = soundfile.read(path, dtype="float64", always_2d=True)
    signal = np.mean(samples, axis=1)
    peak = np.max(np.abs(signal), initial=0.0)
    if peak == 0:
        raise DataError("the sound is silent")
    values = power_spectrogram(signal / peak, fft_size, hop)
    channels = frequencies(sampling_rate, fft_size)
    return Recordings((Recording(path.stem, values),), channels, rate=sampling_rate / hop)


def frequencies(sampling_rate: int, fft_size: int) -> tuple[str, ...]:
    """Names of the channels of a spectrogram."""
    return tuple(f"{frequency:.8g} Hz" for frequency in np.fft.rfftfreq(fft_size, 1 / sampling_rate))


def power_spectrogram(
    signal: Float[np.ndarray, " samples"], fft_size: int = 1024, hop: int = 256
) -> Float[np.ndarray, "frames frequencies"]:
    """|STFT|² with the window sin(pi (n + 1/2) / N), frames centred on multiples of `hop`.

    The signal is reflected at its ends; there are 1 + floor(samples / hop) frames.
    """
    if fft_size < 2 or fft_size % 2 or hop < 1:
        raise DataError(f"fft_size must be even and hop positive, got {fft_size=}, {hop=}")
    half = fft_size // 2
    if len(signal) <= half:
        raise DataError(f"{len(signal)} samples are too few for fft_size={fft_size}")
    window = np.sin(np.pi * (np.arange(fft_size) + 0.5) / fft_size)
    padded = np.pad(signal, half, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(padded, fft_size)[::hop]
    power = np.empty((len(frames), half + 1), signal.dtype)
    for start in range(0, len(frames), BLOCK):  # frames overlap: all at once they need many times the memory
        spectrum = np.fft.rfft(frames[start : start + BLOCK] * window, axis=-1)
        power[start : start + BLOCK] = spectrum.real**2 + spectrum.imag**2
    return power


def trim(signal: Float[np.ndarray, " samples"], top_db: float = QUIET_DB) -> Float[np.ndarray, " rest"]:
    """The signal without the quiet at both ends.

    Quiet is a stretch of 2048 samples, taken every 512, whose power lies more than `top_db` decibels below
    that of the loudest one.
    """
    start, stop = _loud(_energies([signal]), len(signal), top_db)
    return signal[start:stop]


STEP, STEPS = 512, 4  # a stretch is so many steps of so many samples, around a multiple of the step


def _energies(blocks: Iterable[np.ndarray]) -> Float[np.ndarray, " steps"]:
    """The energy of each step; blocks hold whole steps, but for the last one."""
    found = [np.zeros(0)]
    for block in blocks:
        squares = np.pad(block**2, (0, -len(block) % STEP))
        found.append(squares.reshape(-1, STEP).sum(axis=1))
    return np.concatenate(found)


def _loud(energies: Float[np.ndarray, " steps"], samples: int, top_db: float) -> tuple[int, int]:
    """Where the first loud stretch begins and the last one ends."""
    if samples == 0:
        return 0, 0
    around = np.pad(energies, STEPS // 2)
    stretches = np.lib.stride_tricks.sliding_window_view(around, STEPS).sum(axis=1)[: 1 + samples // STEP]
    (loud,) = np.nonzero(stretches > np.max(stretches) * 10 ** (-top_db / 10))
    if len(loud) == 0:
        return 0, 0
    return int(loud[0]) * STEP, min(samples, (int(loud[-1]) + 1) * STEP)


def chunks(
    signal: Float[np.ndarray, " samples"], frames: int = CHUNK_FRAMES, hop: int = 256
) -> Float[np.ndarray, "chunks samples_each"]:
    """Successive stretches that give spectrograms of `frames` frames, each divided by its peak.

    As in the paper there are floor((1 + floor(samples / hop)) / frames) of them.
    """
    size = (frames - 1) * hop
    count = (1 + len(signal) // hop) // frames
    pieces = signal[: count * size].reshape(count, size)
    peaks = np.max(np.abs(pieces), axis=1, keepdims=True, initial=0.0)
    return pieces / np.where(peaks == 0, 1.0, peaks)


def chunk_spectrograms(
    path: Path,
    frames: int = CHUNK_FRAMES,
    top_db: float | None = QUIET_DB,
    fft_size: int = 1024,
    hop: int = 256,
) -> Iterator[Float[np.ndarray, "frames frequencies"]]:
    """`power_spectrogram` of each of the `chunks` of what `trim` leaves of a file (all, if top_db=None).

    The file is read piece by piece, however long it is.
    """
    import soundfile

    with soundfile.SoundFile(path) as file:
        start, stop = 0, file.frames
        if top_db is not None:
            blocks = file.blocks(BLOCK * STEP, dtype="float64", always_2d=True)
            start, stop = _loud(_energies(np.mean(block, axis=1) for block in blocks), file.frames, top_db)
        file.seek(start)
        for _ in range((1 + (stop - start) // hop) // frames):
            piece = np.mean(file.read((frames - 1) * hop, dtype="float64", always_2d=True), axis=1)
            yield power_spectrogram(chunks(piece, frames, hop)[0], fft_size, hop)
