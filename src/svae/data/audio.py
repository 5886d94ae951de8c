"""Sound as power spectrograms, computed as in the experiments on speech of the paper."""

from pathlib import Path

import numpy as np
from jaxtyping import Float

from svae.data.errors import DataError
from svae.data.recordings import Recording, Recordings

# The paper's sequences: 50 frames, which centred frames of hop 256 reach with 49 hops.
CHUNK_FRAMES = 50
BLOCK = 4096


def read_audio(path: Path, fft_size: int = 1024, hop: int = 256) -> Recordings:
    """A power spectrogram of the loudness-normalised sound; channels of stereo sound are averaged.

    Channels are named by frequency, as '1000 Hz'; the rate is the sampling rate divided by `hop`.
    """
    import soundfile

    samples, sampling_rate = soundfile.read(path, dtype="float64", always_2d=True)
    signal = np.mean(samples, axis=1)
    peak = np.max(np.abs(signal), initial=0.0)
    if peak == 0:
        raise DataError("the sound is silent")
    values = power_spectrogram(signal / peak, fft_size, hop)
    frequencies = np.fft.rfftfreq(fft_size, 1 / sampling_rate)
    channels = tuple(f"{frequency:.8g} Hz" for frequency in frequencies)
    return Recordings((Recording(path.stem, values),), channels, rate=sampling_rate / hop)


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


def trim(signal: Float[np.ndarray, " samples"], top_db: float = 30.0) -> Float[np.ndarray, " rest"]:
    """The signal without the quiet at both ends.

    Quiet is a stretch of 2048 samples, taken every 512, whose power lies more than `top_db` decibels below
    that of the loudest one.
    """
    size, hop = 2048, 512
    if len(signal) == 0:
        return signal
    padded = np.pad(signal, size // 2)
    power = np.mean(np.lib.stride_tricks.sliding_window_view(padded, size)[::hop] ** 2, axis=-1)
    (loud,) = np.nonzero(power > np.max(power) * 10 ** (-top_db / 10))
    if len(loud) == 0:
        return signal[:0]
    return signal[loud[0] * hop : (loud[-1] + 1) * hop]


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
