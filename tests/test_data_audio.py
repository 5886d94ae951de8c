import numpy as np
import pytest
import soundfile

from svae.data import DataError, chunks, load, power_spectrogram, trim

RATE = 16000


def tone(frequency, seconds=0.5, rate=RATE):
    return 0.5 * np.sin(2 * np.pi * frequency * np.arange(int(seconds * rate)) / rate)


def slow_spectrogram(signal, size, hop):
    """Frame by frame from the definition, samples beyond the ends found by reflection."""
    n = np.arange(size)
    frames = []
    for centre in range(0, len(signal) + 1, hop):
        index = np.abs(centre - size // 2 + n)
        index = np.where(index >= len(signal), 2 * (len(signal) - 1) - index, index)
        windowed = signal[index] * np.sin(np.pi * (n + 0.5) / size)
        frames.append(np.abs(np.fft.fft(windowed)[: size // 2 + 1]) ** 2)
    return np.stack(frames)


@pytest.mark.parametrize(
    ("samples", "size", "hop"), [(12544, 1024, 256), (3000, 1024, 256), (100, 16, 5), (5000, 8, 1)]
)
def test_spectrogram_from_its_definition(samples, size, hop):
    signal = np.random.default_rng(0).normal(size=samples)
    spectrogram = power_spectrogram(signal, size, hop)
    assert spectrogram.shape == (1 + samples // hop, size // 2 + 1)
    np.testing.assert_allclose(spectrogram, slow_spectrogram(signal, size, hop), rtol=1e-9, atol=1e-9)


def test_folders_of_sounds_are_classes(tmp_path):
    for word, name, frequency in ("no", "a", 500), ("no", "b", 600), ("yes", "a", 900):
        (tmp_path / word).mkdir(exist_ok=True)
        soundfile.write(tmp_path / word / f"{name}.wav", tone(frequency), RATE)
    (tmp_path / "notes").mkdir()  # without sounds: left alone
    recordings = load(tmp_path)
    assert recordings.names == ("no/a", "no/b", "yes/a")
    assert recordings.label_names == ("no", "yes")
    assert [set(item.labels.tolist()) for item in recordings] == [{0}, {0}, {1}]
    (tmp_path / "readme.wav").write_text("")  # files of its own come first
    with pytest.raises(DataError, match=r"readme\.wav"):
        load(tmp_path)


@pytest.mark.parametrize("ending", ["wav", "flac"])
def test_sound_files(tmp_path, ending):
    stereo = np.stack([tone(1000), np.zeros(RATE // 2)], axis=1)
    soundfile.write(tmp_path / f"beep.{ending}", stereo, RATE, subtype="PCM_24")
    recordings = load(tmp_path / f"beep.{ending}")
    assert recordings.names == ("beep",)
    assert recordings.rate == RATE / 256
    assert recordings.num_features == 513
    assert recordings.channels[64] == "1000 Hz"
    expected = power_spectrogram(tone(1000) / np.max(tone(1000)))
    np.testing.assert_allclose(recordings[0].values, expected, rtol=1e-3, atol=1e-2)
    # reflection turns the phase at both ends
    assert np.all(np.argmax(recordings[0].values[1:-1], axis=1) == 64)


def test_options_of_sound(tmp_path):
    soundfile.write(tmp_path / "beep.wav", tone(1000), RATE)
    recordings = load(tmp_path / "beep.wav", fft_size=512, hop=128)
    assert recordings.num_features == 257
    assert recordings.rate == 125
    with pytest.raises(DataError, match=r"beep.wav: the data say 62.5 frames per second, but rate=30"):
        load(tmp_path / "beep.wav", rate=30.0)


def test_bad_sound(tmp_path):
    soundfile.write(tmp_path / "still.wav", np.zeros(4000), RATE)
    with pytest.raises(DataError, match=r"still.wav: the sound is silent"):
        load(tmp_path / "still.wav")
    soundfile.write(tmp_path / "click.wav", np.ones(100), RATE)
    with pytest.raises(DataError, match=r"click.wav: 100 samples are too few for fft_size=1024"):
        load(tmp_path / "click.wav")
    with pytest.raises(DataError, match=r"fft_size must be even and hop positive"):
        load(tmp_path / "click.wav", fft_size=7)


def test_sounds_of_different_sampling_rates(tmp_path):
    soundfile.write(tmp_path / "a.wav", tone(1000), RATE)
    soundfile.write(tmp_path / "b.wav", tone(1000, rate=8000), 8000)
    with pytest.raises(DataError, match=r"recordings 'a' and 'b' have different rates: 62.5 and 31.25 Hz"):
        load(tmp_path)


def test_trim():
    quiet = 1e-3 * tone(300, 1.0)
    loud = tone(300, 1.0)
    trimmed = trim(np.concatenate([quiet, loud, quiet]))
    # within half a stretch (1024 samples) and one step (512) of the truth
    assert abs(len(trimmed) - len(loud)) < 2 * 1536
    assert len(trimmed) >= len(loud)
    assert len(trim(np.concatenate([quiet, loud, quiet]), top_db=80.0)) == 3 * RATE
    assert len(trim(np.zeros(5000))) == 0
    assert len(trim(np.zeros(0))) == 0


@pytest.mark.parametrize(("samples", "count"), [(12543, 0), (12544, 1), (25343, 1), (25344, 2), (200000, 15)])
def test_chunks(samples, count):
    signal = np.random.default_rng(0).normal(size=samples)
    pieces = chunks(signal)
    assert pieces.shape == (count, 49 * 256)
    for number, piece in enumerate(pieces):
        part = signal[number * 12544 : (number + 1) * 12544]
        np.testing.assert_allclose(piece, part / np.max(np.abs(part)))
        assert power_spectrogram(piece).shape == (50, 513)
    assert np.all(chunks(np.zeros(12544)) == 0)
