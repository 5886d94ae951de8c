import io
import json
import os

import numpy as np
import pytest

import data_set_files as files
from svae.data import DataError, load, sounds
from svae.data.cache import cache_folder


def short_labels():
    """A whole file of too few labels."""
    stream = io.BytesIO()
    np.save(stream, np.zeros(3, np.int64))
    return stream.getvalue()


SHORT = short_labels()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SVAE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def made(monkeypatch):
    """Names of the files that are really read."""
    read, found = sounds.chunk_spectrograms, []

    def counted(path, *options):
        found.append(path.name)
        return read(path, *options)

    monkeypatch.setattr(sounds, "chunk_spectrograms", counted)
    return found


def same(first, second):
    assert first.names == second.names
    assert (first.channels, first.rate, first.label_names) == (
        second.channels,
        second.rate,
        second.label_names,
    )
    for x, y in zip(first, second, strict=True):
        np.testing.assert_array_equal(x.values, y.values)
        np.testing.assert_array_equal(x.labels, y.labels)


def test_the_second_time_nothing_is_read(tmp_path, cache, made):
    folder = files.crema_d(tmp_path / "crema")
    first = load(folder)
    assert len(made) == 5
    second = load(folder)
    assert len(made) == 5
    same(first, second)
    assert all(isinstance(item.values, np.memmap) for item in second)
    assert second[0].values.dtype == np.float32
    assert not second[0].values.flags.writeable


def test_changes_are_seen(tmp_path, cache, made):
    folder = tmp_path / "sounds"
    path = files.sound(folder / "a.wav")
    files.sound(folder / "b.wav")
    assert len(load(folder, frames=50)) == 4
    made.clear()
    assert len(load(folder, frames=20)) == 12  # another option
    assert made == ["a.wav", "b.wav"]
    made.clear()
    files.sound(path, seconds=1.0)  # another content
    assert len(load(folder, frames=50)) == 3
    assert made == ["a.wav", "b.wav"]
    made.clear()
    os.utime(path, (0, 0))  # another time, as another file of this size would have
    load(folder, frames=50)
    assert made == ["a.wav", "b.wav"]
    made.clear()
    files.sound(folder / "c.wav")
    assert len(load(folder, frames=50)) == 5
    assert len(list(cache.iterdir())) == 2  # one for each option: what was made of other files is gone


@pytest.mark.parametrize("name", ["values.f32", "about.json", "labels.npy"])
@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", SHORT])
def test_broken_entries_are_made_anew(tmp_path, cache, made, name, content):
    folder = files.crema_d(tmp_path / "crema")
    whole = load(folder, split="valid")
    whole = [np.array(item.values) for item in whole]
    (entry,) = cache.iterdir()
    (entry / name).write_bytes(content)
    again = load(folder, split="valid")
    assert len(made) == 2
    np.testing.assert_array_equal([item.values for item in again], whole)
    load(folder, split="valid")
    assert len(made) == 2


def test_without_a_cache_it_only_takes_longer(tmp_path, monkeypatch, cache, made):
    folder = files.crema_d(tmp_path / "crema")
    expected = load(folder)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SVAE_CACHE", str(tmp_path / "file" / "cache"))  # no folder can be there
    same(load(folder), expected)
    same(load(folder), expected)
    assert len(made) == 15


def test_a_broken_sound_leaves_no_entry(tmp_path, cache):
    folder = files.crema_d(tmp_path / "crema")
    (folder / "1002_DFA_NEU_XX.wav").write_bytes(b"RIFF")
    with pytest.raises(DataError, match="1002_DFA_NEU_XX"):
        load(folder, split="train")
    assert list(cache.iterdir()) == []


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.setenv("SVAE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("SVAE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "svae"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "svae"


def test_entries_say_what_is_in_them(tmp_path, cache):
    load(files.human36m(tmp_path / "h36m", ["walking"], subjects=(1,)))
    (entry,) = cache.iterdir()
    assert entry.name.startswith("human36m-")
    about = json.loads((entry / "about.json").read_text())
    assert about["names"] == ["S1/walking_1", "S1/walking_2"]
    assert about["lengths"] == [4, 4]
