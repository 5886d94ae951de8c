"""Feature networks: what they are, against counts and numpy; what they learn; that none is mixed up."""

import sys
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import users_rules
from svae.data import DataError, Recording, Recordings
from svae.features import (
    EfficientNet,
    Recipe,
    ResidualClassifier,
    frechet_between,
    label_recordings,
    labelled_windows,
    load_features,
    require_same_network,
    save_features,
    search_residual,
    train_classifier,
    train_features,
    windows_from_arrays,
)
from svae.features.artifact import make_settings, untrained
from svae.features.classifier import num_parameters
from svae.features.efficientnet import Block, Stage
from svae.features.inputs import Inputs
from svae.features.labelled import typical_run
from svae.features.layers import BatchNorm, ConvNorm, convolve, drop, steps_here
from svae.features.search import Space
from svae.features.splitting import held_out

SMALL = {"depth": 2, "width": 8}
TINY_IMAGE = {"width": 0.3, "depth": 0.01, "num_features": 16}  # one layer in each stage
QUICK = Recipe(epochs=12, batch_size=16, rate=1e-2)
TIME, CHANNELS = 12, 3


def toy(count=96, seed=0):
    """Three classes: a channel that swings slowly, one that swings fast, and noise alone; all noisy."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 3
    values = 0.5 * rng.normal(size=(count, TIME, CHANNELS))
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    steps = np.arange(TIME)[None, :]
    values[labels == 0, :, 0] += 2 * np.sin(0.5 * steps + phase)[labels == 0]
    values[labels == 1, :, 1] += 2 * np.sin(2.0 * steps + phase)[labels == 1]
    return values.astype(np.float32) * np.array([1, 10, 100], np.float32) + np.float32(5), labels


@pytest.fixture
def as_users_run():
    with users_rules():
        yield


@pytest.fixture(scope="module")
def trained():
    with users_rules():
        return train_classifier(windows_from_arrays(*toy()), "residual", SMALL, QUICK)


def shaken(network):
    """The network with other moments and scales, as after training."""
    rng = np.random.default_rng(0)
    change = lambda x: jnp.asarray(np.asarray(x) + rng.uniform(0, 0.5, x.shape).astype(x.dtype))
    return jax.tree.map(lambda x: change(x) if x.ndim == 1 else x, network)


# --- architecture -------------------------------------------------------------------------------------


def shapes(make):
    return eqx.filter_eval_shape(make, jax.random.key(0))


def test_residual_network_of_the_paper_has_as_many_parameters_as_its_table_says():
    network = shapes(lambda key: ResidualClassifier(84, 15, key))
    block = lambda inputs: 3 * inputs * 128 + 3 * 128 * 128 + 4 * 128
    projection, dense = 84 * 128 + 128, 128 * 15 + 15
    assert num_parameters(network) == block(84) + 3 * block(128) + projection + dense
    assert [x.second.stride for x in network.blocks] == [1, 2, 1, 1]


def test_efficientnet_has_as_many_parameters_as_published():
    colours = shapes(lambda key: EfficientNet(1000, key, image_channels=3))
    assert num_parameters(colours) == 21_458_488  # torchvision's efficientnet_v2_s
    grey = shapes(lambda key: EfficientNet(6, key))
    assert num_parameters(grey) == 21_458_488 - 2 * 24 * 9 - 994 * 1281
    assert len(grey.blocks) == 40
    spectrograms = jax.ShapeDtypeStruct((2, 50, 513), jnp.float32)
    lengths = jax.ShapeDtypeStruct((2,), jnp.int32)
    for key in (None, jax.random.key(0)):
        features = jax.eval_shape(lambda n, x, m: n.features(x, m, key), grey, spectrograms, lengths)
        assert features.shape == (2, 1280)


def test_residual_network_against_numpy(key):
    make = eqx.filter_jit(lambda key: ResidualClassifier(CHANNELS, 4, key, depth=3, width=5))
    network = shaken(make(key))
    plain = jax.tree.map(np.asarray, network)
    values = np.random.default_rng(0).normal(size=(7, CHANNELS)).astype(np.float32)

    def conv_norm(layer, x):
        weight, padded = layer.weight, np.pad(x, ((1, 1), (0, 0)))
        y = np.stack(
            [sum(padded[t + i] @ weight[i] for i in range(3)) for t in range(0, len(x), layer.stride)]
        )
        mean, variance = layer.norm.moments
        y = (y - mean) / np.sqrt(variance + 1e-5) * layer.norm.scale + layer.norm.shift
        return np.maximum(y, 0)

    x = values
    for number, block in enumerate(plain.blocks):
        y = conv_norm(block.second, conv_norm(block.first, x))
        skip = x[::2] if number == 1 else x
        x = y + (skip if number else skip @ block.skip.weight.T + block.skip.bias)
    features = np.mean(x, axis=0)
    batch, lengths = jnp.asarray(values)[None], jnp.array([7])
    found, found_scores = eqx.filter_jit(lambda n: (n.features(batch, lengths), n(batch, lengths)))(network)
    np.testing.assert_allclose(found[0], features, rtol=1e-4, atol=1e-5)
    scores = plain.head.weight @ features + plain.head.bias
    np.testing.assert_allclose(found_scores[0], scores, rtol=1e-4, atol=1e-5)


def test_convolutions_over_one_and_two_axes_agree(key):
    weight = jax.random.normal(key, (3, 2, 4), jnp.float32)
    x = jax.random.normal(key, (2, 7, 2), jnp.float32)
    wide = jnp.zeros((3, 3, 2, 4), jnp.float32).at[:, 1].set(weight)  # looks to no side but along time
    image = convolve(x[:, :, None], wide, 2, 1)
    np.testing.assert_allclose(convolve(x, weight, 2, 1), image[:, :, 0], atol=1e-5)


def test_strides_keep_what_is_here(key):
    layer = ConvNorm(2, 4, 3, 1, key, stride=2)
    y, here = layer(jnp.ones((2, 7, 2), jnp.float32), steps_here(jnp.array([7, 3]), 7), False)
    assert here.tolist() == [[True] * 4, [True, True, False, False]]
    assert not np.any(y[1, 2:])


@pytest.mark.parametrize(
    ("kind", "options", "training"),
    [("residual", SMALL, False), ("residual", SMALL, True), ("efficientnet", TINY_IMAGE, False)],
)
def test_padding_changes_nothing(kind, options, training, key):
    settings = make_settings(kind, ("x",) * 9, ("a", "b", "c"), 12, options)
    network = shaken(eqx.filter_jit(lambda key: untrained(settings, key))(key))
    values = np.random.default_rng(0).normal(size=(2, 11, 9)).astype(np.float32)
    longer = np.full((2, 14, 9), np.nan, np.float32)
    longer[:, :11] = values
    run = eqx.filter_jit(lambda n, x, m: n(x, m, key if training else None))
    short, long = (run(network, jnp.asarray(x), jnp.array([11, 7])) for x in (values, longer))
    assert short.shape == (2, 3)
    np.testing.assert_allclose(short, long, rtol=1e-4, atol=1e-5)
    if not training:  # then the others in a batch do not matter either
        twice = run(network, jnp.asarray(values[[1, 1]]), jnp.array([7, 7]))
        np.testing.assert_allclose(twice[0], short[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fused", [False, True])
def test_efficientnet_blocks_learn_and_may_be_skipped(fused, key):
    block = eqx.filter_jit(lambda key: Block(8, Stage(fused, 2, 1, 8, 1), 1, 0.5, key))(key)
    x, here = jax.random.normal(key, (6, 4, 5, 8), jnp.float32), jnp.ones((6, 4), bool)

    def run(block):
        y, _ = block(x, here, key)
        return jnp.sum(jnp.sin(y)), y

    gradient, y = eqx.filter_jit(eqx.filter_grad(run, has_aux=True))(block)
    assert all(np.any(leaf) and np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))
    skipped = np.all(np.asarray(y == x), axis=(1, 2, 3))
    assert 0 < skipped.sum() < 6


def test_batch_norm_in_training(key):
    x = 3 + 2 * jax.random.normal(key, (4, 6, 2), jnp.float32)
    here = steps_here(jnp.array([6, 5, 2, 1]), 6)
    real = np.asarray(x)[np.asarray(here)]
    norm = BatchNorm(2, 0.0)
    y = np.asarray(eqx.filter_jit(norm)(x, here, True))[np.asarray(here)]
    np.testing.assert_allclose(y, (real - real.mean(0)) / real.std(0), atol=1e-5)
    # the stored moments' gradient leads to the batch's, whatever the loss
    gradient = eqx.filter_jit(eqx.filter_grad(lambda norm: 7 * jnp.sum(norm(x, here, True)) ** 2))(norm)
    np.testing.assert_allclose(gradient.moments.mean, 0 - real.mean(0), rtol=1e-5)
    np.testing.assert_allclose(gradient.moments.variance, 1 - real.var(0), rtol=1e-5)


def test_drop_keeps_the_mean_and_drops_whole_samples(key):
    x = jnp.ones((4000, 3), jnp.float32)
    y = np.asarray(drop(x, 0.25, key, axes=1))
    assert set(np.unique(y.sum(1)).round(4)) == {0.0, 4.0}
    assert y.mean() == pytest.approx(1, abs=4 * np.sqrt(1 / 3 / 4000))
    assert drop(x, 0.25, None, axes=1) is x


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"activation": "sine"}, "activation must be one of"),
        ({"window": 4}, "odd"),
        ({"depth": 0}, "positive"),
    ],
)
def test_impossible_residual_networks_are_named(options, message, key):
    with pytest.raises(ValueError, match=message):
        ResidualClassifier(3, 2, key, **options)


# --- labelled windows ---------------------------------------------------------------------------------


def recordings():
    values = np.arange(24.0).reshape(12, 2)
    first = Recording("first", values, np.array([0, 0, 0, 2, 2, 2, 2, 2, -1, -1, -1, -1]))
    second = Recording("second", values[:5], np.array([2, 2, 2, 2, 0]))
    return Recordings((first, second, Recording("third", values)), ("x", "y"), label_names=("a", "b", "c"))


def test_windows_have_the_label_of_most_frames():
    windows = labelled_windows(recordings(), 4)
    assert windows.classes == ("a", "c")  # nobody is b
    assert windows.labels.tolist() == [0, 1, 1, 1]  # the third has no label; the last reaches back
    assert windows.recording.tolist() == [0, 0, 1, 1]
    np.testing.assert_array_equal(windows.values[3], recordings()[1].values[1:5])
    assert typical_run(recordings()) == 3


def test_data_without_labels_are_named():
    with pytest.raises(DataError, match="no frame has a label"):
        labelled_windows(recordings().select(["third"]), 4)
    with pytest.raises(DataError, match="two classes or more"):
        train_classifier(windows_from_arrays(np.zeros((4, 3, 2)), np.ones(4, int)))


def test_recordings_with_one_class_each():
    labelled = label_recordings(recordings(), ["walk", "run", "walk"])
    assert labelled.label_names == ("run", "walk")
    assert [set(item.labels.tolist()) for item in labelled] == [{1}, {0}, {1}]
    with pytest.raises(DataError, match="one class to each"):
        label_recordings(recordings(), ["walk"])


def test_held_out_windows_share_no_recording_with_training():
    labels = np.repeat([0, 1, 2], [40, 20, 8])
    recording = np.concatenate([np.repeat(np.arange(8), 5), np.repeat(np.arange(4), 5), np.full(8, 9)])
    aside = held_out(labels, recording, 0.25, seed=3)
    for label, count in ((0, 10), (1, 5), (2, 2)):
        mine = labels == label
        assert aside[mine].sum() == count
        if label < 2:
            assert not set(recording[mine & aside]) & set(recording[mine & ~aside])
    np.testing.assert_array_equal(aside, held_out(labels, recording, 0.25, seed=3))
    assert not held_out(np.array([0, 1, 1]), np.arange(3), 0.9, seed=0)[0]  # a lone window is for training


def test_inputs_are_standardised_and_whole():
    values, labels = toy()
    values[0, 0, 0] = np.nan
    windows = windows_from_arrays(values, labels)
    inputs = Inputs.fit(windows).apply(values)
    assert inputs.dtype == np.float32
    assert inputs[0, 0, 0] == 0
    np.testing.assert_allclose(inputs.std(axis=(0, 1)), 1, rtol=1e-2)
    powers = Inputs.fit(replace(windows, values=np.exp(values / 100)), logarithm=True)
    np.testing.assert_allclose(powers.apply(np.exp(values / 100)), inputs, atol=1e-3)
    assert Inputs.from_dict(powers.to_dict()).to_dict() == powers.to_dict()
    with pytest.raises(DataError, match="negative values"):
        powers.apply(-np.ones((1, 2, CHANNELS)))


# --- training -----------------------------------------------------------------------------------------


def test_learns_what_can_be_told_apart(trained):
    assert trained.accuracy > 0.9
    values, labels = toy(60, seed=1)
    assert np.mean(trained.classify(values) == labels) > 0.9
    np.testing.assert_allclose(trained.features(values, batch_size=7), trained.features(values), atol=1e-4)
    assert trained.features(values).shape == (60, 8)


@pytest.mark.usefixtures("as_users_run")
def test_training_is_determined_by_the_seed(trained):
    again = train_classifier(windows_from_arrays(*toy()), "residual", SMALL, QUICK)
    assert again.fingerprint == trained.fingerprint
    assert again.accuracy == trained.accuracy


@pytest.mark.usefixtures("as_users_run")
def test_search_keeps_the_best_network():
    windows, said = windows_from_arrays(*toy(48)), []
    space = Space(depths=(1,), widths=(2, 8), activations=("relu", "gelu"))
    found = search_residual(windows, 2, QUICK._replace(epochs=2), space=space, say=said.append)
    assert len(found.trials) == len(said) == 2
    assert found.network.accuracy == max(trial.accuracy for trial in found.trials)
    best = max(found.trials, key=lambda trial: trial.accuracy)
    assert best.options.items() <= found.network.settings.options.items()


def test_search_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"pip install 'svae\[search\]'"):
        search_residual(windows_from_arrays(*toy(12)), 1)


# --- files and distances ------------------------------------------------------------------------------


def test_files_bring_back_every_bit(trained, tmp_path):
    back = load_features(save_features(trained, tmp_path))
    assert back.fingerprint == trained.fingerprint
    assert back.settings == trained.settings
    assert back.accuracy == trained.accuracy
    values, _ = toy(10, seed=2)
    np.testing.assert_array_equal(back.features(values), trained.features(values))


def test_fingerprint_tells_networks_apart(trained):
    bias = trained.network.head.bias
    changed = eqx.tree_at(lambda n: n.head.bias, trained.network, bias.at[0].set(jnp.nextafter(bias[0], 9)))
    renamed = replace(trained.settings, classes=("x", "y", "z"))
    others = [
        replace(trained, network=changed),
        replace(trained, settings=renamed),
        replace(trained, inputs=replace(trained.inputs, logarithm=True)),
    ]
    assert len({trained.fingerprint, *(other.fingerprint for other in others)}) == 4
    assert replace(trained, accuracy=0.1).fingerprint == trained.fingerprint


def test_files_that_do_not_belong_together_are_refused(trained, tmp_path):
    save_features(trained, tmp_path / "a")
    other = eqx.tree_at(lambda n: n.head.bias, trained.network, replace_fn=lambda x: x + 1)
    save_features(replace(trained, network=other), tmp_path / "b")
    (tmp_path / "b" / "features.safetensors").replace(tmp_path / "a" / "features.safetensors")
    with pytest.raises(ValueError, match="do not belong together"):
        load_features(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match="no feature network"):
        load_features(tmp_path / "c")


def test_distance_is_small_for_real_data_and_large_for_noise(trained):
    values, _ = toy(240, seed=4)
    noise = np.random.default_rng(5).normal(values.mean((0, 1)), values.std((0, 1)), values.shape)
    real = frechet_between(trained, values[:120], values[120:])
    fake = frechet_between(trained, values[:120], noise[120:].astype(np.float32))
    assert real < fake
    assert fake.estimate.distance > 5 * real.estimate.distance
    assert real.fingerprint == trained.fingerprint
    assert require_same_network(real, fake) == trained.fingerprint
    stranger = replace(fake, fingerprint="0123456789abcdef")
    for compare in (lambda: real < stranger, lambda: real > stranger, lambda: real.difference(stranger)):
        with pytest.raises(ValueError, match="different feature networks cannot be compared"):
            compare()


def test_settings_tell_all_options():
    settings = make_settings("residual", ("x",), ("a", "b"), 12, {"width": 4})
    assert settings.options["width"] == 4
    assert settings.options["downsampling"] == [1]
    with pytest.raises(ValueError, match="no option hight of residual; there are depth, width"):
        make_settings("residual", ("x",), ("a", "b"), 12, {"hight": 4})


def test_values_of_the_wrong_shape_are_named(trained):
    with pytest.raises(ValueError, match=r"for values \(windows, time, 3\)"):
        trained.features(np.zeros((2, TIME, 5), np.float32))


@pytest.mark.usefixtures("as_users_run")
def test_command_writes_a_network(tmp_path):
    values, labels = toy(48)
    items = tuple(
        Recording(f"r{i}", x, np.full(TIME, y)) for i, (x, y) in enumerate(zip(values, labels, strict=True))
    )
    data, said = Recordings(items, ("x", "y", "z"), label_names=("slow", "fast", "noise")), []
    network = train_features(
        data, tmp_path / "out", options=SMALL, recipe=QUICK._replace(epochs=2), say=said.append
    )
    assert network.settings.classes == ("slow", "fast", "noise")
    assert said[0].startswith("48 windows of up to 12 frames, 3 classes")
    assert load_features(tmp_path / "out").fingerprint == network.fingerprint
    with pytest.raises(ValueError, match="holds a feature network"):
        train_features(data, tmp_path / "out")
    with pytest.raises(ValueError, match="choose from residual, efficientnet"):
        train_features(data, tmp_path / "new", kind="other")
