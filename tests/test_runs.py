"""What is written about a run: a page with all that the model can show, and a summary with advice."""

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers import users_rules
from svae import application
from svae.completion import Completion
from svae.config import Config, override, write_config
from svae.data import Skeleton, Standardizer, as_recordings
from svae.results.examples import fans
from svae.results.page import linear_dynamics, state_dynamics
from svae.results.summary import advice
from svae.runs import report_for, write_results
from svae.training.artifact import Fitted
from svae.training.build import GraphPrior, untrained

TINY = ["model.num_states=3", "model.latent_dim=2", "model.hidden=[4]", "model.linear=true"]


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules():
        yield


def waves(lengths=(30, 32, 31), rate=10.0):
    rng = np.random.default_rng(0)
    arrays = {f"wave {i}": rng.normal(size=(length, 3)).cumsum(0) for i, length in enumerate(lengths)}
    return as_recordings(arrays, rate=rate)


def untrained_model(recordings, *settings):
    config = override(Config(), [*TINY, *settings])
    model = untrained(config, recordings.num_features, GraphPrior())
    standardizer = Standardizer.fit(recordings)
    return Fitted(model, config, standardizer, recordings.channels, recordings.rate, GraphPrior())


@pytest.fixture(scope="module")
def fitted():
    with users_rules():
        return untrained_model(waves())


def test_a_report_has_every_part(fitted, tmp_path):
    recordings = waves()
    write_config(fitted.config, tmp_path / "config.toml")
    page = report_for(fitted, recordings, tmp_path)
    assert page.title == tmp_path.name
    assert [view.name for view in page.recordings] == list(recordings.names)
    assert [x.recording for x in page.certificates] == list(recordings.names)
    assert all(x.sweeps > 0 for x in page.certificates)
    assert "num_states = 3" in page.config
    assert page.summary["frames"] == 93
    assert len(page.dynamics) == page.num_states == 3
    for fan, item in zip(page.fans, recordings, strict=True):
        assert (fan.start, fan.stop) == (14, 17) if len(item) == 32 else fan.stop - fan.start == 3
        np.testing.assert_array_equal(fan.truth, item.values[fan.start : fan.stop])
        around = item.values[fan.first : fan.first + len(fan.values)].copy()
        around[fan.start - fan.first : fan.stop - fan.first] = np.nan
        np.testing.assert_array_equal(fan.values, around)
        assert sum(path.probability for path in fan.paths) == pytest.approx(1)
    assert [sample.values.shape for sample in page.samples] == [(32, 3)] * 4


def test_dynamics_are_the_posterior_mean(fitted):
    found = fitted.model.pgm.family.standard_from_unconstrained(fitted.model.parameters).dynamics
    own = state_dynamics(fitted)[1]
    np.testing.assert_allclose(np.column_stack([own.matrix, own.offset]), found.mean[1], rtol=1e-6)
    np.testing.assert_allclose(own.covariance, found.scale[1] / (found.dof[1] - 3), rtol=1e-6)


def test_long_recordings_are_cut_around_the_gap(fitted, monkeypatch):
    seen = []

    def impute(fitted, recordings, count, seed):
        seen.append(recordings.lengths)
        states = lambda item: np.zeros((count, len(item)), int)
        return [
            Completion(np.repeat(item.values[None], count, axis=0), np.isnan(item.values), states(item))
            for item in recordings
        ]

    monkeypatch.setattr(application, "impute", impute)
    recordings = waves((9, 1001))
    fan = fans(fitted, recordings)[0]
    assert seen == [(250,)]
    assert (fan.first, fan.start, fan.stop, len(fan.values)) == (437, 487, 512, 125)  # of 1001 frames
    assert fan.recording == "wave 1"
    assert fans(fitted, waves((9, 8))) == []


def test_results_are_files_and_a_summary(fitted, tmp_path, monkeypatch):
    recordings = waves()
    recordings = replace(recordings, skeleton=Skeleton(("stick",), (-1,)))
    for again in ("segment", "encode", "bounds"):  # what `read` has told already
        monkeypatch.delattr(application, again)
    summary = write_results(fitted, recordings, tmp_path, "waves", 1.23)
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert summary["seconds"] == 1.2
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("<h1>waves</h1>", 'id="gaps"', 'id="samples"', 'id="inference"', "<canvas"):
        assert words in page
    assert len(page) < 2e6
    assert (tmp_path / "segments.csv").exists()


def test_a_model_without_states_shows_all_that_needs_none(tmp_path):
    """Data, latent path, dynamics, gaps, samples, how inference ended, settings."""
    recordings = waves((30, 32))
    model = untrained_model(recordings, "model.graph=lds")
    write_config(model.config, tmp_path / "config.toml")
    summary = write_results(model, recordings, tmp_path, "waves", 1.0)
    assert summary["score"] == pytest.approx(application.score(model, recordings), rel=1e-5)
    assert summary["converged"] == 1
    assert summary["warnings"] == []
    assert "states_used" not in summary
    assert not (tmp_path / "segments.csv").exists()
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for part in ("recordings", "dynamics", "gaps", "samples", "inference", "training"):
        assert f'<section id="{part}">' in page
    for words in (
        "latent 0",
        "Eigenvalues",
        "Flow of the latent variables",
        "all draws",
        "graph = &quot;lds",
    ):
        assert words in page
    for words in ('<section id="states">', 'class="state', "Click a state", "colours below them are states"):
        assert words not in page
    found = model.model.pgm.family.standard_from_unconstrained(model.model.parameters).dynamics
    own = linear_dynamics(model)
    np.testing.assert_allclose(np.column_stack([own.matrix, own.offset]), found.mean, rtol=1e-6)


def test_one_inference_tells_what_three_did(fitted):
    recordings = waves()
    for reading, states, path, bound in zip(
        application.read(fitted, recordings),
        application.segment(fitted, recordings),
        application.encode(fitted, recordings),
        application.bounds(fitted, recordings),
        strict=True,
    ):
        np.testing.assert_array_equal(reading.states.states, states.states)
        np.testing.assert_allclose(reading.states.probability, states.probability, atol=1e-5)
        np.testing.assert_allclose(reading.path.mean, path.mean, atol=1e-4)
        np.testing.assert_allclose(reading.path.deviation, path.deviation, atol=1e-4)
        assert reading.bound == pytest.approx(bound, rel=1e-4)
        assert reading.certificate[:2] == (states.converged, states.sweeps)


def test_a_mixture_shows_what_it_has(tmp_path):
    recordings = waves((12, 12))
    model = untrained_model(recordings, "model.graph=mixture")
    page = report_for(model, recordings, tmp_path)
    assert page.dynamics == {}
    assert len(page.fans) == 2
    assert page.config == ""


def test_advice_is_given_where_it_is_due():
    good = {"states_used": 3, "converged": 1.0, "ending": "done"}
    assert advice(good, 5) == advice(good | {"states_used": 1}, 1) == []
    for change, words in (
        ({"states_used": 1}, "collapsed"),
        ({"converged": 0.25}, "25%"),
        ({"ending": "interrupted"}, "svae resume"),
    ):
        assert len(advice(good | change, 5)) == 1
        assert words in advice(good | change, 5)[0]
