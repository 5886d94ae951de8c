"""Graphical models through training, files and answers, by its name in the settings."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from helpers import users_rules
from svae import application
from svae.arhmm import Effort
from svae.config import Config, ConfigError, override
from svae.data import Recording, as_recordings
from svae.pgm import JumpingSLDS, PlacedSLDS, SemiMarkovSLDS
from svae.pgm.semi_markov import SIZES
from svae.results.page import report_for, state_dynamics, transition_matrix
from svae.streaming import Stream
from svae.training.artifact import load_fitted, save_fitted
from svae.training.initialise import fit_dynamics, parameters_from_arhmm, shared_place
from svae.training.pipeline import fit

GRAPHS = {name: (f"model.graph={name}",) for name in ("hmm", "normal", "jslds", "hsmm-slds")}
GRAPHS["placed"] = "model.graph=slds", "model.own_starts=true"  # the others have tests of their own
# Three whose states are ways of moving, of which the one with the most of its own goes first
moving = pytest.param("hsmm-slds"), *(pytest.param(x, marks=pytest.mark.slow) for x in ("jslds", "placed"))
TINY = [
    "pretrain.steps=2",
    "joint.steps=4",
    "dynamics.laps=2",
    "model.hidden=[4]",
    "model.num_states=3",
    "model.latent_dim=2",
    "model.form=sequential",
    "chunk=2",
    "batch_size=2",
]


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


def plateaus(count=3, length=30):
    """Two channels that stay at one of two places for ten frames at a time."""
    rng = np.random.default_rng(0)
    places = np.array([[2.0, -1.0], [-2.0, 1.0]])
    truth = [(np.arange(length) // 10 + i) % 2 for i in range(count)]
    values = [places[k] + 0.3 * rng.normal(size=(length, 2)) for k in truth]
    return as_recordings(values, rate=10.0), truth


def settings(graph, *more):
    return override(Config(), [*TINY, *GRAPHS.get(graph, (f"model.graph={graph}",)), *more])


@cache
def fitted(graph):
    """One of each that is asked for."""
    return fit(plateaus()[0], settings(graph))


@pytest.mark.parametrize("graph", ["hmm", "normal", *moving])
def test_trained_stored_and_loaded(graph, tmp_path):
    recordings, _ = plateaus()
    loaded = load_fitted(save_fitted(fitted(graph), tmp_path))
    bounds = application.bounds(loaded, recordings)
    assert np.all(np.isfinite(bounds))
    assert bounds == application.bounds(fitted(graph), recordings)


@pytest.mark.parametrize("graph", ["hmm", "normal"])
def test_all_questions_have_answers(graph, tmp_path):
    recordings, _ = plateaus()
    model = fitted(graph)
    drawn = application.impute(model, recordings.hide(lambda length: slice(8, 12)), 3, 0)
    for completion, truth in zip(drawn, recordings, strict=True):
        kept = ~completion.missing
        np.testing.assert_array_equal(completion.values[:, kept][0], truth.values[kept])
        assert np.all(np.isfinite(completion.values))
        assert np.all(completion.values[:, ~kept].std(axis=0) > 0)
    assert np.all(np.isfinite(application.forecast(model, recordings, 5, 2, 0)[0].values))
    assert np.all(np.isfinite(application.generate(model, 7, 2, 0).values))
    page = report_for(model, recordings, tmp_path)
    if graph == "hmm":
        states = application.segment(model, recordings)
        assert [x.states.shape for x in states] == [(30,)] * 3
        np.testing.assert_allclose(page.transition.sum(axis=1), 1, rtol=1e-5)
    else:
        assert page.transition.size == 0


@pytest.mark.parametrize("graph", moving)
def test_a_report_shows_dynamics_and_transitions(graph):
    recordings, _ = plateaus()
    found = application.segment(fitted(graph), recordings)
    matrix, dynamics = transition_matrix(fitted(graph), found), state_dynamics(fitted(graph))
    assert len(matrix) == len(dynamics) == fitted(graph).model.num_states
    np.testing.assert_allclose(matrix.sum(axis=1), 1, rtol=1e-5)


def labelled(recordings, labels):
    together = zip(recordings, labels, strict=True)
    return replace(recordings, items=tuple(Recording(x.name, x.values, labels=k) for x, k in together))


def test_what_a_graph_lacks_is_named():
    recordings, truth = plateaus()
    with pytest.raises(ValueError, match=r"no discrete states \(normal\)"):
        application.segment(fitted("normal"), recordings)
    with pytest.raises(ValueError, match="no discrete states"):
        Stream(fitted("normal"))
    for graph in "normal", "mixture", "lds":
        with pytest.raises(ValueError, match=rf"switching model, and model\.graph is {graph}, not .*hmm"):
            fit(labelled(recordings, truth), settings(graph, "data.labels=true"))
    with pytest.raises(ConfigError, match=r"model\.graph"):
        settings("markov")
    for graph in "jslds", "hmm":
        with pytest.raises(ValueError, match=rf"own_starts is for graph slds, not {graph}"):
            fit(recordings, settings(graph, "model.own_starts=true"))
    with pytest.raises(ValueError, match="own_starts is for graph slds, not SIN"):
        fit(recordings, settings("placed", "model.own_recognition=true"))


def test_the_second_stage_finds_the_places_of_an_hmm():
    """Without joint training: states are the plateaus, and their means lie where the encoder put them."""
    recordings, truth = plateaus(count=6)
    config = settings("hmm", "joint.steps=0", "pretrain.steps=0", "dynamics.laps=10")
    found = fit(recordings, config)
    assert found.prior.num_states == 2
    states = np.concatenate([x.states for x in application.segment(found, recordings)])
    share = np.mean(states == np.concatenate(truth))
    assert max(share, 1 - share) > 0.98
    means = found.model.pgm.family.standard_from_unconstrained(found.model.parameters).emission.mean
    encoded = np.asarray(application.read(found, recordings)[0].path.mean)
    centres = np.stack([encoded[truth[0] == k].mean(axis=0) for k in (0, 1)])
    distance = np.linalg.norm(np.asarray(means)[:, None] - centres[None], axis=-1)
    assert distance.min(axis=0).max() < 0.2 * np.linalg.norm(centres[0] - centres[1])


def test_labels_are_the_first_states_of_an_hmm():
    recordings, truth = plateaus()
    labels = [np.where(np.arange(30) < 20, k, -1) for k in truth]
    found = fit(labelled(recordings, labels), settings("hmm", "data.labels=true"))
    states = application.segment(found, recordings)
    assert np.mean(np.concatenate([x.states for x in states]) == np.concatenate(truth)) > 0.95


def test_the_plain_vae_has_no_parameters_to_learn():
    assert jax.tree.leaves(fitted("normal").model.parameters) == []


def found_by_the_second_stage(pgm, truth):
    """Standard parameters from paths that go up in one state and down in the other."""
    rng = np.random.default_rng(0)
    steps = [np.where(k == 0, 1.0, -1.0)[:, None] + 0.1 * rng.normal(size=(len(k), 1)) for k in truth]
    series = [np.cumsum(np.concatenate([np.zeros((1, 1)), x]), axis=0) for x in steps]
    return parameters_from_arhmm(pgm, fit_dynamics(pgm, series, effort=Effort(10)), series)


def test_dwells_of_the_second_stage_are_those_of_its_segments():
    """Segments of 8 steps and, in the other state, of 3: each state's mean dwell is one less."""
    truth = [np.tile(np.repeat([0, 1], [8, 3]), 6) for _ in range(10)]
    pgm = SemiMarkovSLDS(2, 1, stay=5.0, innovation=1.0)
    found = found_by_the_second_stage(pgm, truth)
    size, again, end = (np.asarray(x, np.float64) for x in (np.exp(found.dwell.log_weight), *found.dwell[1:]))
    mean = np.sum(size * SIZES * again / (end - 1), axis=1)  # E[r p / (1 - p)]
    up = int(np.argmax(np.asarray(found.dynamics.mean)[:, 0, 1]))
    np.testing.assert_allclose(mean[[up, 1 - up]], [7, 2], rtol=0.1)
    assert np.all(size[:, 0] < 0.01)  # the same length every time is nothing like a geometric distribution


def test_places_of_the_second_stage_are_where_paths_of_that_state_begin():
    """Paths that begin to go up do so at 5, the others at -5."""
    rng = np.random.default_rng(0)
    first = np.arange(20) % 2
    truth = [np.repeat([k, 1 - k], 10) for k in first]
    steps = [np.where(k == 0, 1.0, -1.0)[:, None] + 0.1 * rng.normal(size=(len(k), 1)) for k in truth]
    begin = np.where(first == 0, 5.0, -5.0) + 0.5 * rng.normal(size=20)
    series = [np.cumsum(np.concatenate([[[z]], x]), axis=0) for z, x in zip(begin, steps, strict=True)]
    pgm = PlacedSLDS(2, 1, stay=5.0, innovation=1.0, places=_nested(shared_place(series)))
    found = parameters_from_arhmm(pgm, fit_dynamics(pgm, series, effort=Effort(10)), series)
    up = int(np.argmax(np.asarray(found.dynamics.mean)[:, 0, 1]))
    np.testing.assert_allclose(np.asarray(found.initial.mean)[[up, 1 - up], 0], [5, -5], atol=0.5)
    prior = pgm.family.standard_from_natural(pgm.prior()).initial
    points = np.concatenate(series)
    np.testing.assert_allclose(prior.mean[:, 0], points.mean(), rtol=1e-4)
    np.testing.assert_allclose(prior.scale[:, 0, 0], points.var(), rtol=1e-4)  # E Sigma, with n + 2 of them


def _nested(values):
    return tuple(_nested(x) if isinstance(x, list | tuple) else x for x in values)


def test_jumps_of_the_second_stage_are_the_steps_that_change_the_state():
    truth = [np.tile(np.repeat([0, 1], [8, 3]), 6) for _ in range(10)]
    found = found_by_the_second_stage(JumpingSLDS(2, 1, stay=5.0, innovation=1.0), truth)
    counts = np.asarray(found.jump.dof) - 3, np.asarray(found.dynamics.dof) - 3
    assert sorted(np.round(counts[0])) == [50, 60]
    assert sorted(np.round(counts[1])) == [120, 430]
