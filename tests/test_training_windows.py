"""Windows by their places: the same batches and fits from the device, from the host and from disk."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import data_set_files as files
from helpers import users_rules
from svae.config import Config, override
from svae.data import Recording, Standardizer, as_recordings, load, places
from svae.models import Batch, Complete
from svae.training import windows
from svae.training.build import GraphPrior, untrained
from svae.training.feeding import Feed, batch_indices
from svae.training.loop import explain
from svae.training.pipeline import fit, training_batch, training_windows
from svae.training.stages import Rates, optimiser_for
from svae.training.step import begin
from svae.training.trees import arrays_from_tree

SMALL = (
    *("model.latent_dim=2", "model.hidden=[4]", "model.graph=normal", "data.window=12", "data.stride=5"),
    *("pretrain.steps=4", "pretrain.frames=5", "pretrain.batch_size=3", "joint.steps=4", "chunk=2"),
    *("batch_size=2", "data.held_out=0.2"),
)


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


def recordings(labels=False):
    rng = np.random.default_rng(0)
    values = [3 + rng.normal(size=(length, 3)).astype(np.float32) for length in (30, 12, 41)]
    values[0][4, 1] = np.nan
    plain = as_recordings(values, rate=10.0)
    if not labels:
        return plain
    known = lambda item: Recording(item.name, item.values, rng.integers(-1, 3, len(item)))
    return replace(plain, items=(*map(known, plain.items[:2]), plain[2]))


def same(first, second):
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    assert (first.allowed is None) == (second.allowed is None)
    if first.allowed is not None:
        np.testing.assert_array_equal(first.allowed, second.allowed)


@pytest.mark.parametrize("labels", [False, True])
def test_the_same_batches_from_device_and_host(labels):
    data = recordings(labels)
    config = override(
        Config(),
        ["data.window=12", "data.stride=5", f"data.labels={str(labels).lower()}", "model.num_states=4"],
    )
    standardizer = Standardizer.fit(data)
    cut = training_windows(data, config, standardizer)
    whole = training_batch(data.map(standardizer.apply), config)
    same(cut.read(), whole)
    key = jax.random.key(3)
    host, device, all_there = (Feed(x, key, 4) for x in (cut, cut.with_frames(), whole))
    assert (host.cuts_on_host, device.cuts_on_host, all_there.cuts_on_host) == (True, False, False)
    assert all_there(0, 2) is whole
    for first in (0, 3, 2):  # the last as after a failure; epochs have three steps
        ours, theirs = host(first, 3), device(first, 3)
        assert ours.num_sequences == theirs.num_sequences == whole.num_sequences
        for step in range(first, first + 3):
            which = batch_indices(jax.random.split(key)[0], jnp.asarray(step), whole.num_sequences, 4)
            for fed in (ours, theirs):
                numbers, batch = fed.at(jnp.asarray(step, jnp.int32))
                np.testing.assert_array_equal(numbers, which)
                same(batch, whole.select(which))


def test_batches_of_which_nothing_is_missing_say_so():
    rng = np.random.default_rng(0)
    whole, short, gappy = (rng.normal(size=(n, 2)).astype(np.float32) for n in (20, 7, 20))
    gappy[3, 1] = np.nan
    for values, kind in ([whole, whole], Complete), ([whole, short], Batch), ([whole, gappy], Batch):
        cut = training_windows(as_recordings(values), override(Config(), ["data.window=10"]))
        for data in cut, cut.with_frames():
            feed = Feed(data, jax.random.key(0), 2)
            assert type(feed(0, 1).batches) is kind
    known, plain = (
        Complete(jnp.asarray(whole)[None], jnp.asarray([20])),
        Batch(jnp.asarray(whole)[None], [20]),
    )
    np.testing.assert_array_equal(known.filled, plain.values)
    assert known.present.shape == plain.values.shape
    assert known.present.all()
    assert known.inside.all()


def test_pieces_hold_the_same_frames():
    lengths = (7, 4)
    pieces = places(lengths, 7).pieces(3)
    spans = zip(pieces.recording, pieces.start, pieces.lengths, strict=True)
    assert [tuple(map(int, span)) for span in spans] == [
        (0, 0, 3),
        (0, 3, 3),
        (0, 6, 1),
        (1, 0, 3),
        (1, 3, 1),
    ]
    assert pieces.size == 3


def test_strides():
    data = recordings()
    counted = lambda *changes: training_windows(data, override(Config(), changes)).num_sequences
    assert counted("data.window=12") == 3 + 1 + 4
    assert counted("data.window=12", "data.stride=2") == 10 + 1 + 16
    assert counted("data.window=1.2s", "data.stride=200ms") == 10 + 1 + 16
    with pytest.raises(ValueError, match=r"data\.stride must be from 1 frame to the window's 12, got 13"):
        counted("data.window=12", "data.stride=13")


def test_overlapping_windows_take_no_memory():
    cut = training_windows(
        recordings(), override(Config(), ["data.window=12", "data.stride=1"])
    ).with_frames()
    assert cut.num_sequences == 19 + 1 + 30
    assert cut.frames.values.shape == (83, 3)


def fitted_arrays(data, *changes):
    records = []
    fitted = fit(data, override(Config(), [*SMALL, *changes]), None, records.append)
    bounds = [record["held_out"] for record in records if "held_out" in record]
    return arrays_from_tree(fitted.model), bounds


def test_fits_are_the_same_from_device_and_host(monkeypatch):
    device, bounds = fitted_arrays(recordings())
    monkeypatch.setattr(windows, "DEVICE_BYTES", 0)
    host, others = fitted_arrays(recordings())
    assert bounds == others
    assert len(bounds) == 4
    for name, array in device.items():
        np.testing.assert_array_equal(array, host[name], err_msg=name)


def test_a_fit_of_what_lies_on_disk_copies_little_of_it(tmp_path, monkeypatch):
    """In parts where much is looked at at once: held-out windows, and principal components of a few."""
    monkeypatch.setenv("SVAE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(windows, "DEVICE_BYTES", 0)
    monkeypatch.setattr(windows, "BATCH_BYTES", 4 * 20 * 513 * 2)  # two windows
    data = load(files.sentences(tmp_path / "sounds"), frames=20)
    assert all(isinstance(item.values, np.memmap) for item in data)
    read, sizes = windows.TrainingWindows.read, []

    def counted(self):
        batch = read(self)
        sizes.append(batch.num_sequences)
        return batch

    monkeypatch.setattr(windows.TrainingWindows, "read", counted)
    changes = "data.window=20", "data.stride=20", "pretrain.steps=2", "dynamics.sequences=0", "joint.steps=0"
    arrays, bounds = fitted_arrays(data, *changes)
    assert all(np.isfinite(x).all() for x in arrays.values())
    assert np.isfinite(bounds).all()
    # principal components of two windows; two steps of three pieces; pieces are a quarter of a window
    assert sizes[:2] == [2, 6]
    assert max(sizes) == 8 < 4 * len(data) // 5


def test_batches_know_how_many_they_are():
    batch = Batch(jnp.zeros((3, 4, 2)), jnp.array([4, 4, 2]))
    assert batch.num_sequences == 3
    assert batch.select(np.array([2, 0])).lengths.tolist() == [2, 4]


def test_a_failure_names_the_same_window_wherever_it_lies():
    data = recordings()
    data[2].values[30] = 1e30  # its square is too much for single precision
    config = override(
        Config(), ["data.window=12", "model.latent_dim=2", "model.hidden=[4]", "model.graph=normal"]
    )
    cut = training_windows(data, config)
    model = untrained(config, 3, GraphPrior())
    state = begin(model, optimiser_for(model, Rates(), 1, cut.num_sequences))
    stories = [
        explain(state, x, jax.random.key(0), cut.num_sequences) for x in (cut.read(), cut, cut.with_frames())
    ]
    assert stories == [{"quantity": "log_likelihood", "sequence": 6}] * 3
