"""The baselines through training, files and answers, as the graphical models go."""

import json
from dataclasses import replace

import equinox as eqx
import jax
import numpy as np
import pytest

from helpers import users_rules
from svae import application
from svae.config import Config, ConfigError, override
from svae.data import Recording, as_recordings
from svae.estimators import SwitchingSVAE
from svae.meanfield import Unrolled
from svae.models import SVAE, Model
from svae.networks import COLDEST
from svae.presets import MODELS, settings_for, with_model
from svae.runs import write_results
from svae.scoring import evaluate
from svae.streaming import Stream
from svae.training.artifact import load_fitted, save_fitted
from svae.training.build import GraphPrior, blank, untrained
from svae.training.pipeline import fit

SEQUENTIAL = ["srnn", "dks", "dks-concrete", "dks-straight-through", "transformer-dvae", "vq-vae"]
# in test_training.py and test_graph_training.py
ELSEWHERE = ["svae-slds", "svae-lds", "vae", "svae-hmm", "svae-jslds", "svae-hsmm-slds"]
# There is one of a kind without them: one with recognition dynamics, and one with states in its networks
LONGEST = ["svae-slds-bias", "sin-slds", "transformer-dvae", "dks-straight-through"]
TINY = [
    "pretrain.steps=0",
    "pretrain.batch_size=3",
    "dynamics.laps=2",
    "joint.steps=4",
    "model.hidden=[6, 4]",
    "model.num_states=3",
    "model.latent_dim=2",
    "chunk=2",
    "batch_size=2",
]


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


def waves(count=3, length=20):
    rng = np.random.default_rng(0)
    steps = np.arange(length)[:, None]
    wave = lambda i: np.sin(steps / np.array([3.0, 5.0]) + i) + 0.1 * rng.normal(size=(length, 2))
    return as_recordings([wave(i) for i in range(count)], rate=10.0)


def slowest(name):
    return pytest.param(name, marks=pytest.mark.slow) if name in LONGEST else name


def settings(name, *more):
    return override(with_model(Config(), name), [*TINY, *more])


@pytest.fixture(scope="module")
def concrete(tmp_path_factory):
    """A run with everything that a user finds in its folder."""
    folder = tmp_path_factory.mktemp("run")
    with users_rules("raise"):
        fitted = fit(waves(), settings("dks-concrete"), folder)
        write_results(fitted, waves(), folder, "waves", 1.0)
    return fitted, folder


@pytest.mark.parametrize("name", [slowest(name) for name in MODELS if name not in ELSEWHERE])
def test_trained_stored_and_loaded(name, concrete, tmp_path):
    """The same bound after the files as before; training has moved what it should."""
    config = settings(name, *(["pretrain.steps=1"] if name == "sin-lds" else []))
    fitted = concrete[0] if name == "dks-concrete" else fit(waves(), config)
    begun = untrained(config, 2, fitted.prior)
    same = jax.tree.map(
        lambda x, y: bool(np.all(x == y)), *(eqx.filter(m, eqx.is_array) for m in (fitted.model, begun))
    )
    assert not any(jax.tree.leaves(same.likelihood))
    assert np.mean(jax.tree.leaves(same)) < 0.1
    loaded = load_fitted(save_fitted(fitted, tmp_path))
    assert loaded.config == config
    assert application.bounds(loaded, waves()) == application.bounds(fitted, waves())


def test_a_run_folder_has_all_that_it_should(concrete):
    _, folder = concrete
    names = {path.name for path in folder.iterdir()}
    assert {"config.toml", "metrics.ndjson", "model", "report.html", "summary.json", "checkpoints"} <= names
    summary = json.loads((folder / "summary.json").read_text())
    assert np.isfinite(summary["score"])
    assert 1 <= summary["states_used"] <= 3
    stages = {json.loads(line)["stage"] for line in (folder / "metrics.ndjson").read_text().splitlines()}
    assert stages == {"joint"}


def test_the_end_of_training_is_the_coldest(concrete):
    """Geometrically, and stored with the model."""
    _, folder = concrete
    assert float(load_fitted(folder).model.relaxation.temperature) == pytest.approx(COLDEST, rel=1e-4)
    half = fit(waves(), settings("dks-concrete"), watch=interrupt_at(2)).model
    assert float(half.relaxation.temperature) == pytest.approx(COLDEST**0.5, rel=1e-4)


def interrupt_at(step):
    def watch(record):
        if record["step"] == step:
            raise KeyboardInterrupt

    return watch


def test_an_interrupted_run_goes_on_to_the_same_model(tmp_path):
    config = settings("vq-vae", "chunk=1")
    stopped = fit(waves(), config, tmp_path, interrupt_at(3), checkpoint_seconds=0.0)
    assert stopped.ending == "interrupted"
    resumed, whole = fit(waves(), config, tmp_path, checkpoint_seconds=0.0), fit(waves(), config)
    for x, y in zip(jax.tree.leaves(resumed.model), jax.tree.leaves(whole.model), strict=True):
        np.testing.assert_array_equal(x, y)


def test_answers_of_a_model_with_networks_only(concrete):
    fitted, recordings = concrete[0], waves()
    gappy = recordings.hide(lambda length: slice(8, 12))
    drawn = application.impute(fitted, gappy, 3, 0)
    for completion, truth in zip(drawn, recordings, strict=True):
        assert completion.values.shape == (3, 20, 2)
        kept = ~completion.missing
        np.testing.assert_array_equal(
            completion.values[:, kept], np.broadcast_to(truth.values[kept], (3, kept.sum()))
        )
    assert application.forecast(fitted, recordings, 5, 2, 0)[0].values.shape == (2, 5, 2)
    assert application.generate(fitted, 7, 2, 0).values.shape == (2, 7, 2)
    assert application.segment(fitted, recordings)[0].states.shape == (20,)
    scores = evaluate(fitted, recordings, num_samples=3)
    assert np.isfinite(scores["elbo, 3 samples"])
    assert np.isfinite(scores["imputation crps"])


def test_what_only_a_graph_can_do_is_refused_in_words(concrete):
    fitted, folder = concrete
    with pytest.raises(ValueError, match="no potentials to expect"):
        application.impute(fitted, waves(), 1, 0, method="expected")
    with pytest.raises(ValueError, match="models with a graph only"):
        application.segment(fitted, waves(), [np.ones((20, 3), bool)] * 3)
    with pytest.raises(ValueError, match="needs a model with a graph"):
        Stream(fitted)
    with pytest.raises(ValueError, match="of kind dks-concrete, not slds"):
        SwitchingSVAE.load(folder)
    config = settings("dks")
    plain = replace(fitted, config=config, model=untrained(config, 2, GraphPrior()))
    with pytest.raises(ValueError, match=r"no discrete states \(dks\)"):
        application.segment(plain, waves())


def test_settings_that_cannot_be_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"two widths, and model\.hidden is \[8\]"):
        fit(waves(), settings("srnn", "model.hidden=[8]"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match=r"no model 'srn'; nearest first: srnn, "):
        settings("srn")
    with pytest.raises(ConfigError, match=r"model\.kind"):
        settings("dks", "model.kind=rnn")
    with pytest.raises(ValueError, match="graphs lds and slds, not mixture"):
        fit(waves(), settings("svae-gmm", "model.own_recognition=true"), tmp_path / "run")
    labelled = replace(
        waves(), items=tuple(Recording(x.name, x.values, labels=np.zeros(20, int)) for x in waves())
    )
    with pytest.raises(ValueError, match=r"switching model, and model\.kind is dks"):
        fit(labelled, settings("dks", "data.labels=true"))


def test_names_are_settings():
    """Stages that a model leaves out give their steps to the last one; a name undoes another."""
    bias = with_model(settings_for("laplace"), "svae-slds-bias")
    assert (bias.pretrain.steps, bias.dynamics.sequences, bias.joint.steps) == (0, 0, 3300)
    assert (bias.joint.gradient, bias.joint.adjoint, bias.model.form) == ("biased", "unrolled", "sequential")
    assert isinstance(untrained(bias, 2, GraphPrior()).adjoint, Unrolled)
    own = with_model(settings_for("laplace"), "sin-lds")
    assert own.pretrain.steps == 3000
    assert with_model(own, "svae-lds").model == with_model(settings_for("laplace"), "svae-lds").model
    assert with_model(settings_for("mocap6"), "dks").model.hidden == (256, 128)


def test_models_of_all_names_meet_the_contract_of_one():
    for name in MODELS:
        model = blank(settings(name), 2, GraphPrior())
        assert issubclass(type(model), Model)
        assert isinstance(model, SVAE) == (name not in SEQUENTIAL)
