"""Asking a model: every question on awkward recordings, from Python and from the command line."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from helpers import users_rules
from svae import application
from svae.answers import read_states
from svae.cli import app
from svae.completion import Completion
from svae.config import Config, override, write_config
from svae.data import (
    Recording,
    Recordings,
    Standardizer,
    as_recordings,
    interpolate,
    load,
    repeat_last,
    windows,
)
from svae.evaluation import evidence_lower_bound, importance_weighted
from svae.features import FeatureNetwork, save_features
from svae.features.artifact import make_settings
from svae.features.artifact import untrained as untrained_network
from svae.features.inputs import Inputs
from svae.scoring import bounds, evaluate, likeness
from svae.streaming import Stream, agreement, segment_online
from svae.training.artifact import FORMAT, Fitted, load_fitted, save_fitted
from svae.training.build import GraphPrior, untrained

CHANNELS = ("x", "y", "z")
SMALL = "model.hidden=[8]", "model.num_states=3", "model.latent_dim=2"


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules():
        yield


def fitted_model(graph: str) -> Fitted:
    """Not trained, but all there."""
    config = override(Config(), [*SMALL, f"model.graph={graph}"])
    prior = GraphPrior(innovation=0.1)
    standardizer = Standardizer.fit(waves(), "channel")
    return Fitted(untrained(config, 3, prior), config, standardizer, CHANNELS, 10.0, prior)


def waves() -> Recordings:
    """Of different lengths; one with a gap, and one with a single missing entry."""
    rng = np.random.default_rng(0)
    wave = lambda n: np.sin(np.arange(n)[:, None] / np.array([3.0, 4, 5])) + 0.1 * rng.normal(size=(n, 3))
    gappy, pierced = wave(22), wave(23)
    gappy[5:9] = np.nan
    pierced[5, 1] = np.nan
    items = Recording("gappy", gappy), Recording("pierced", pierced), Recording("whole", wave(22))
    return Recordings(items, CHANNELS, 10.0)


def whole_frames() -> Recordings:
    """Without the one of which a frame was seen in part, for which there are programs of its own."""
    return Recordings(waves().items[::2], CHANNELS, 10.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    with users_rules():
        for name in "slds", "lds":
            save_fitted(fitted_model(name), folder / name / "model")
        for name, data in ("data", waves()), ("frames", whole_frames()):
            np.savez(folder / f"{name}.npz", **{item.name: item.values for item in data})
        write_config(load_fitted(folder / "slds").config, folder / "slds" / "config.toml")
        save_features(feature_network(), folder / "features")
    return folder


@pytest.fixture(scope="module")
def slds(saved):
    """As commands load it: what is compiled for one serves the other."""
    with users_rules():
        return load_fitted(saved / "slds")


@pytest.fixture(scope="module")
def lds(saved):
    with users_rules():
        return load_fitted(saved / "lds")


def test_what_was_seen_comes_back_unchanged_and_gaps_have_paths(slds):
    recordings = waves()
    found = application.impute(slds, recordings, 5, seed=0)
    for item, completion in zip(recordings, found, strict=True):
        seen = ~np.isnan(item.values)
        assert completion.values.shape == (5, *item.values.shape)
        assert np.isfinite(completion.values).all()
        assert (completion.values[:, seen] == item.values[seen]).all()
    assert [completion.gaps() for completion in found] == [[(5, 9)], [(5, 6)], []]
    assert sum(path.probability for path in found[0].paths(5, 9)) == pytest.approx(1)


def test_recordings_share_no_noise_and_answers_are_the_same_alone_and_in_company(slds):
    one = whole_frames()["whole"]
    other = Recording("other", one.values + 1e-4)
    both = Recordings((one, other), CHANNELS, 10.0)
    drawn = [x.values for x in application.forecast(slds, both, 4, 5, seed=0)]
    same_noise = np.corrcoef(drawn[0].ravel(), drawn[1].ravel())[0, 1]
    assert abs(same_noise) < 0.9
    (alone,) = application.forecast(slds, dataclasses.replace(both, items=both.items[1:]), 4, 5, seed=0)
    np.testing.assert_array_equal(alone.values, drawn[1])
    (again,) = application.forecast(slds, dataclasses.replace(both, items=both.items[1:]), 4, 5, seed=1)
    assert not np.array_equal(again.values, drawn[1])


def test_every_question_works_on_one_frame_and_with_all_missing(slds, lds):
    one = Recordings((Recording("one", np.ones((1, 3))),), CHANNELS, 10.0)
    nothing = Recordings((Recording("nothing", np.full((12, 3), np.nan)),), CHANNELS, 10.0)
    for fitted in (slds, lds):  # all padded to 16 frames, for which one program is enough
        for recordings, frames in (one, 1), (nothing, 12):
            (completion,) = application.impute(fitted, recordings, 5, seed=0)
            assert completion.values.shape == (5, frames, 3)
            assert np.isfinite(completion.values).all()
            (ahead,) = application.forecast(fitted, recordings, 4, 5, seed=0)
            assert ahead.values.shape == (5, 4, 3)
            assert np.isfinite(ahead.values).all()
        assert application.generate(fitted, 1, 2, seed=0).values.shape == (2, 1, 3)
    assert application.segment(slds, one)[0].states.shape == (1,)
    assert application.segment(slds, nothing)[0].probability.shape == (12, 3)


def test_forecasts_begin_where_recordings_end(slds):
    recordings = whole_frames()
    ahead = application.forecast(slds, recordings, 4, 5, seed=0)
    assert [x.values.shape for x in ahead] == [(5, 4, 3)] * 2
    assert [x.states.shape for x in ahead] == [(5, 4)] * 2
    assert all(x.missing.all() for x in ahead)
    assert application.forecast(slds, recordings, "0.4s", 5, seed=0)[0].values.shape == (5, 4, 3)
    for wrong in (0, 2.5, [3], None, True):
        with pytest.raises(ValueError, match="horizon is a whole number of frames, one at least"):
            application.forecast(slds, recordings, wrong, 1, seed=0)
    with pytest.raises(ValueError, match=r"horizon must look like 0\.5s"):
        application.forecast(slds, recordings, "soon", 1, seed=0)


@pytest.mark.slow
def test_expected_potentials_are_another_way_to_complete(slds, lds):
    """Known frames stay, draws go on from the last one, and states may be told; one frame is enough."""
    one = Recordings((Recording("one", np.ones((1, 3))),), CHANNELS, 10.0)
    how = {"seed": 0, "method": "expected"}
    for fitted in (slds, lds):
        (ahead,) = application.forecast(fitted, one, 4, 5, **how)
        assert ahead.values.shape == (5, 4, 3)
        assert np.isfinite(ahead.values).all()
        assert ahead.values.std(axis=0).min() > 0
    recordings = waves()
    states = [np.full(len(item), -1) for item in recordings]
    states[0][4:10] = 2
    allowed = [application.only(slds, x) for x in states]
    for item, found in zip(
        recordings, application.impute(slds, recordings, 5, allowed=allowed, **how), strict=True
    ):
        seen = ~np.isnan(item.values)
        assert (found.values[:, seen] == item.values[seen]).all()
        if item.name == "gappy":
            assert (found.states[:, 4:10] == 2).all()
    with pytest.raises(ValueError, match="no method 'exact'; choose from ancestral, expected"):
        application.impute(slds, recordings, 5, 0, method="exact")


def test_generation_goes_through_given_states_and_frames(slds, lds):
    states = np.repeat([0, 2, 1], 5)
    anchors = np.full((15, 3), np.nan)
    anchors[[0, -1]] = 0.5
    drawn = application.generate(slds, 15, 5, seed=0, states=states, anchors=anchors)
    assert (drawn.states == states).all()
    assert (drawn.values[:, [0, -1]] == 0.5).all()
    assert drawn.values[:, 7].std(axis=0).min() > 0
    with pytest.raises(ValueError, match="between 0 and 2, got 0 to 7"):
        application.generate(slds, 2, 1, seed=0, states=np.array([0, 7]))
    with pytest.raises(ValueError, match="states must have 15 frames, got 3"):
        application.generate(slds, 15, 1, seed=0, states=states[:3])
    with pytest.raises(ValueError, match="no discrete states"):
        application.generate(lds, 15, 1, seed=0, states=states)


def test_states_may_be_known_or_forbidden(slds, lds):
    recordings = whole_frames()
    known = [np.full(len(item), -1) for item in recordings]
    known[0][3:6] = 2
    allowed = [application.only(slds, states, without=[1]) for states in known]
    found = application.segment(slds, recordings, allowed)
    assert (found[0].states[3:6] == 2).all()
    assert not any((x.states == 1).any() for x in found)
    with pytest.raises(ValueError, match="all states are forbidden"):
        application.only(slds, known[0], without=[0, 1, 2])
    with pytest.raises(ValueError, match="nothing to segment"):
        application.segment(lds, recordings)


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["slds", "lds", "mixture"])
def test_importance_weights_average_to_the_bound_and_tighten_it(graph):
    fitted = fitted_model(graph)
    recordings = waves()
    weights = application.log_weights(fitted, recordings, 400)
    bounds = np.mean([application.bounds(fitted, recordings, seed) for seed in range(30)], axis=0)
    estimate = evidence_lower_bound(weights)
    assert np.all(np.abs(estimate.value - bounds) < 6 * estimate.standard_error + 1)
    assert np.all(importance_weighted(weights).value > estimate.value)


@pytest.mark.parametrize(("graph", "low", "high"), [("normal", -0.2, 0.2), ("lds", 0.6, 0.95)])
def test_importance_weights_of_recordings_share_parameters_and_nothing_else(graph, low, high):
    """Else the mean of a product of weights is none of their bounds: nearly equal recordings show it."""
    values = waves().items[2].values
    alike = tuple(Recording(str(i), values + 1e-3 * i) for i in range(2))
    weights = application.log_weights(fitted_model(graph), Recordings(alike, CHANNELS, 10.0), 400)
    assert low < np.corrcoef(weights.T)[0, 1] < high


def test_evaluation_has_a_number_for_every_question(slds):
    labelled = tuple(Recording(x.name, x.values, np.arange(len(x)) // 9) for x in whole_frames())
    recordings = Recordings(labelled, CHANNELS, 10.0, label_names=("a", "b", "c"))
    scores = evaluate(slds, recordings, num_samples=5)
    wanted = {"elbo, one sample", "imputation crps", "forecast crps of the last frame", "ari", "boundary f1"}
    assert wanted <= set(scores)
    assert all(np.isfinite(value) for value in scores.values())
    assert scores["importance-weighted, 5 samples"] >= scores["elbo, 5 samples"]
    assert scores["recordings"] == 2
    alone = bounds(slds, dataclasses.replace(recordings, items=recordings.items[:1]), 5, 0)
    assert "elbo, standard error" not in alone  # there is none of one recording
    assert np.isfinite(list(alone.values())).all()


def feature_network() -> FeatureNetwork:
    """Not trained; two features of windows of four frames."""
    settings = make_settings("residual", CHANNELS, ("a", "b"), 4, {"depth": 1, "width": 2})
    network = untrained_network(settings, jax.random.key(0))
    return FeatureNetwork(network, settings, Inputs(Standardizer.fit(waves(), "channel")), 0.5)


def test_generated_windows_are_as_near_as_they_are_alike(slds, monkeypatch):
    """Real windows in place of generated ones have no distance to themselves; noise is above the floor."""
    recordings = Recordings(waves().items, CHANNELS[::-1], 10.0)  # the network's channels, in another order
    backwards = dataclasses.replace(slds, channels=CHANNELS[::-1])
    real = windows(recordings, 4).values
    asked = []

    def generate(fitted, length, count, seed):
        asked.append((length, count))
        return Completion(made, np.ones((4, 3), bool), None)

    monkeypatch.setattr(application, "generate", generate)
    made = real
    same = likeness(backwards, recordings, feature_network())
    assert asked == [(4, len(real))] == [(4, same["frechet windows"])]
    assert same["frechet distance"] == pytest.approx(0, abs=1e-6)
    made = real + 5 * np.random.default_rng(0).normal(size=real.shape)
    other = likeness(backwards, recordings, feature_network())
    assert other["frechet distance of halves"] > 2 * other["frechet floor of halves"] > 0
    assert other["frechet network"] == same["frechet network"]
    with pytest.raises(
        ValueError, match="feature network was fitted to 3 channels and these recordings lack x"
    ):
        likeness(slds, recordings.select_channels(["y", "z"]), feature_network())


def test_simple_guesses_are_what_they_say():
    values = np.array([[np.nan], [1.0], [np.nan], [3.0], [np.nan]])
    assert interpolate(values)[:, 0].tolist() == [1, 1, 2, 3, 3]
    assert repeat_last(values)[:, 0].tolist() == [1, 1, 1, 3, 3]


def test_a_stream_answers_each_frame_once_and_agrees_when_it_sees_all(slds):
    recordings = Recordings(waves().items[2:], CHANNELS, 10.0)
    (online,) = segment_online(slds, recordings, lag=22, context=48)  # as many as by default
    offline = application.segment(slds, recordings)[0]
    np.testing.assert_allclose(online, offline.probability, atol=2e-2)
    assert agreement(slds, recordings, lag="0.5s") > 0.5
    stream = Stream(slds, lag=2)
    frames = recordings[0].values
    assert [stream.update(frame) for frame in frames[:2]] == [None, None]
    answers = [stream.update(frame) for frame in frames[2:]] + list(stream.finish())
    assert [answer.frame for answer in answers] == list(range(22))
    assert answers[0].probability.sum() == pytest.approx(1, abs=1e-4)
    with pytest.raises(ValueError, match="3 channels"):
        stream.update(np.zeros(2))


def call(*arguments: object):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(x) for x in arguments])


def test_commands_write_what_they_found(saved, tmp_path):
    result = call("impute", saved / "slds", saved / "data.npz", "--out", tmp_path / "i", "--num-samples", 5)
    assert result.exit_code == 0, result.output
    assert "2 gaps in 3 recordings, 5 draws of each" in result.output
    again = load(tmp_path / "i" / "draws.npz")
    assert len(again) == 15
    assert load(tmp_path / "i" / "mean.csv").channels == CHANNELS
    paths = pd.read_csv(tmp_path / "i" / "paths.csv")
    assert paths.groupby(["recording", "start"])["probability"].sum().round(3).tolist() == [1, 1]

    result = call(
        "forecast",
        saved / "lds",
        saved / "frames.npz",
        "--horizon",
        "0.4s",
        "--num-samples",
        5,
        "--out",
        tmp_path / "f",
        "--method",
        "expected",
    )
    assert result.exit_code == 0, result.output
    assert set(load(tmp_path / "f" / "draws.npz").lengths) == {4}
    assert not (tmp_path / "f" / "paths.csv").exists()

    (tmp_path / "states.csv").write_text("state\n" + "0\n" * 4 + "2\n" * 4)
    given = "--states", tmp_path / "states.csv"
    result = call("sample", saved / "slds", *given, "--out", tmp_path / "s", "--num-samples", 5)
    assert result.exit_code == 0, result.output
    with np.load(tmp_path / "s" / "states.npz") as stored:
        assert stored["sample"].tolist() == [[0] * 4 + [2] * 4] * 5

    given = "--num-samples", 5, "--features", saved / "features"
    result = call("evaluate", saved / "slds", saved / "frames.npz", *given)
    assert result.exit_code == 0, result.output
    scores = json.loads((saved / "slds" / "evaluation.json").read_text())
    assert scores["recordings"] == 2
    assert scores["frechet distance"] > 0
    assert scores["frechet network"] == feature_network().fingerprint
    assert scores["frechet network"] in result.output

    result = call("segment", saved / "slds", saved / "frames.npz", "--without", 0, "--out", tmp_path / "g")
    assert result.exit_code == 0, result.output
    assert 0 not in set(pd.read_csv(tmp_path / "g" / "segments.csv")["state"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("segment", "lds"), "no discrete states"),
        (("forecast", "slds", "--horizon", "soon"), "must look like 0.5s"),
        (("segment", "slds", "--without", 9), "between 0 and 2"),
        (("segment", "slds", "--without", -1), "without must lie between 0 and 2, got -1 to -1"),
        (("impute", "nowhere"), "there is no model"),
        (("forecast", "lds", "--method", "best"), "no method 'best'; choose from ancestral, expected"),
    ],
)
def test_mistakes_are_named(saved, tmp_path, arguments, message):
    command, model, *rest = arguments
    result = call(command, saved / model, saved / "data.npz", "--out", tmp_path / "out", *rest)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["segment", "impute", "forecast", "sample"])
def test_results_do_not_go_into_a_file(saved, command):
    data = () if command == "sample" else (saved / "data.npz",)
    result = call(command, saved / "slds", *data, "--out", saved / "data.npz")
    assert result.exit_code == 2
    assert (
        result.output == f"error: --out {saved / 'data.npz'} is a file, not a folder: choose another name\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.json", "{", r"model\.json is not valid JSON"),
        ("model.json", "[1]", r"model\.json must hold names and values, and holds list"),
        (
            "model.json",
            json.dumps({"format": FORMAT}),
            r"model\.json is not the card of a model: it has no config",
        ),
        ("model.safetensors", "", r"model\.safetensors cannot be read; is the file whole"),
    ],
)
def test_broken_models_are_named(saved, tmp_path, name, content, message):
    shutil.copytree(saved / "lds" / "model", tmp_path / "model")
    (tmp_path / "model" / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load_fitted(tmp_path)


def test_recordings_without_names_must_have_all_channels(slds):
    with pytest.raises(
        ValueError, match="fitted to 3 channels and these recordings have 2; channels without"
    ):
        application.segment(slds, as_recordings(np.ones((20, 2))))
    with pytest.raises(ValueError, match=r"without must be a list of states, such as \[2\], got 2"):
        application.only(slds, np.zeros(4, int), without=2)


def test_states_from_a_file_are_checked(tmp_path):
    path = tmp_path / "states.csv"
    path.write_text("frame,state\n0,1\n1,-1\n")
    assert read_states(path).tolist() == [1, -1]
    path.write_text("frame\n0\n")
    with pytest.raises(ValueError, match="no column named state; it has frame"):
        read_states(path)
    path.write_text("")
    with pytest.raises(ValueError, match=r"states\.csv cannot be read as CSV with a column named state"):
        read_states(path)
    path.write_text("state\nwalk\n")
    with pytest.raises(ValueError, match="whole number"):
        read_states(path)


def test_runs_are_compared(tmp_path):
    for name, steps, accuracy in ("first", 10, 0.5), ("second", 20, 0.75):
        folder = tmp_path / name
        write_config(override(Config(), [f"joint.steps={steps}"]), folder / "config.toml")
        (folder / "summary.json").write_text(json.dumps({"accuracy": accuracy, "warnings": []}))
    result = call("compare", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "table.csv")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "table.csv", index_col=0)
    assert table.loc["joint.steps"].tolist() == [10, 20]
    assert table.loc["accuracy"].tolist() == [0.5, 0.75]
    assert "frechet" not in result.output
    scores = {"recordings": 3, "frechet distance": 1.5, "frechet network": "0123"}
    (tmp_path / "first" / "evaluation.json").write_text(json.dumps(scores))
    result = call("compare", tmp_path / "first", tmp_path / "second")
    assert re.search(r"frechet distance +1\.5 +-\n", result.output)
    (tmp_path / "second" / "evaluation.json").write_text(json.dumps(scores | {"frechet network": "4567"}))
    result = call("compare", tmp_path / "first", tmp_path / "second", "--out", tmp_path / "table.csv")
    assert "different feature networks (0123, 4567) cannot be compared" in result.output
    assert "frechet distance" not in set(pd.read_csv(tmp_path / "table.csv", index_col=0).index)
    assert re.search(r"recordings +3 +3\n", result.output)
    result = call("compare", tmp_path / "first", tmp_path / "nowhere")
    assert result.exit_code == 2
    assert "summary.json is missing" in result.output
