"""Training: steps, failures, stages, checkpoints, and the same result whatever happens on the way."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import tensorboardX.proto.event_pb2 as events

from helpers import TINY, users_rules, waves
from svae.config import Config, override
from svae.data import DataError, Recording, as_recordings
from svae.models import Batch, make_svae
from svae.networks import Gaussian, mlp_decoder, mlp_encoder
from svae.pgm import LDS, SLDS, GaussianMixture, StandardNormal
from svae.results.summary import training_log
from svae.training.artifact import load_fitted, save_fitted
from svae.training.build import GraphPrior, graph_for, require_possible, untrained
from svae.training.checkpoint import MetricsFile, read_metrics
from svae.training.initialise import (
    encoded_paths,
    fit_dynamics,
    parameters_from_arhmm,
    shared_dynamics,
    standard_prior,
)
from svae.training.loop import Plan, TrainingError, train
from svae.training.pipeline import fit, split, training_batch
from svae.training.sinks import sink
from svae.training.stages import (
    SURE,
    Rates,
    optimiser_for,
    with_principal_components,
    with_sure_potentials,
)
from svae.training.start import find_start
from svae.training.step import GRAPH, NETWORKS, NOISE, batch_indices, begin, groups, make_optimiser, run_steps
from svae.training.trees import arrays_from_tree


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


@pytest.fixture(scope="module")
def fitted():
    with users_rules("raise"):
        return fit(waves(), override(Config(), TINY))


def small_model(pgm):
    key = jax.random.key(0)
    encoder, decoder = mlp_encoder(3, 2, key, (8,)), mlp_decoder(2, 3, key, (8,))
    return make_svae(pgm, Gaussian(3), 3, key, encoder=encoder, decoder=decoder)


def small_data() -> Batch:
    return training_batch(waves(), Config())


def test_every_leaf_has_the_optimiser_that_it_should():
    model = small_model(LDS(2))
    labels = groups(eqx.filter(model, eqx.is_inexact_array))
    assert set(jax.tree.leaves(labels.parameters)) == {GRAPH}
    assert labels.encoder.log_precision == NOISE
    assert labels.likelihood.raw_scale == NOISE
    assert set(jax.tree.leaves(labels.decoder)) == {NETWORKS}


@pytest.mark.parametrize("per_step", [False, True])
def test_potentials_are_made_sure_but_never_less_so(per_step):
    key, data = jax.random.key(0), small_data()
    encoder = mlp_encoder(3, 2, key, (8,), per_step)
    model = make_svae(LDS(2), Gaussian(3), 3, key, encoder=encoder, decoder=mlp_decoder(2, 3, key, (8,)))
    precise = lambda model: np.asarray(model.evidence(data).precision)[np.asarray(data.present).any(-1)]
    surer = with_sure_potentials(model, data, innovation=0.1)
    np.testing.assert_allclose(np.median(precise(surer), axis=0), SURE / 0.1, rtol=1e-4)
    np.testing.assert_array_equal(precise(with_sure_potentials(surer, data, 0.2)), precise(surer))


def test_an_epoch_visits_every_sequence_once():
    key = jax.random.key(0)
    visited = np.concatenate([batch_indices(key, jnp.asarray(i), 12, 4) for i in range(3)])
    assert sorted(visited) == list(range(12))


def test_training_raises_the_bound():
    data = small_data()
    model = small_model(StandardNormal(2))
    optimiser = optimiser_for(model, Rates(1e-2, 3e-2), 100, 4)
    bounds = []
    train(
        begin(model, optimiser),
        data,
        jax.random.key(0),
        optimiser,
        Plan(100, 4),
        lambda r: bounds.append(r["elbo"]),
    )
    assert len(bounds) == 4
    assert bounds[-1] > bounds[0] + 20


def test_steps_do_not_depend_on_how_they_are_grouped():
    data, model = small_data(), small_model(GaussianMixture(2, 2))
    optimiser = optimiser_for(model, Rates(), 4, 4)
    together, _ = run_steps(begin(model, optimiser), data, jax.random.key(0), optimiser, 2, 4)
    state = begin(model, optimiser)
    for _ in range(2):
        state, _ = run_steps(state, data, jax.random.key(0), optimiser, 2, 2)
    for a, b in zip(
        *(jax.tree.leaves(eqx.filter(s.model, eqx.is_array)) for s in (together, state)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_failure_names_the_sequence_and_ends_in_an_error():
    data = small_data()
    broken = Batch(data.values.at[2, 5, 1].set(1e30), data.lengths)  # its square is not a float any more
    model = small_model(StandardNormal(2))
    optimiser = optimiser_for(model, Rates(), 4, 4)
    records = []
    with pytest.raises(TrainingError, match=r"log_likelihood of sequence 2"):
        train(begin(model, optimiser), broken, jax.random.key(0), optimiser, Plan(4, 4), records.append)
    assert [record["failures"] for record in records] == [1, 2, 3, 4, 5, 6]
    assert {(record["quantity"], record["sequence"]) for record in records} == {("log_likelihood", 2)}


def test_after_a_failure_training_goes_on_with_smaller_steps():
    data, model = small_data(), small_model(StandardNormal(2))

    def spoil_second(updates, state, params=None):
        del params
        bad = state == 1
        return jax.tree.map(lambda x: jnp.where(bad, jnp.nan, -1e-3 * x), updates), state + 1

    spoiler = optax.GradientTransformation(lambda params: jnp.zeros((), jnp.int32), spoil_second)
    optimiser = make_optimiser(spoiler, optax.adam(1e-3), optax.set_to_zero())
    records = []
    with pytest.raises(TrainingError, match="an update"):
        train(begin(model, optimiser), data, jax.random.key(0), optimiser, Plan(4, 4, 2), records.append)
    assert records[0]["step"] == 1  # the first step was good, and was kept


def test_ctrl_c_ends_with_the_last_state():
    data, model = small_data(), small_model(StandardNormal(2))
    optimiser = optimiser_for(model, Rates(), 50, 4)

    def press(record):
        if record["step"] >= 10:
            raise KeyboardInterrupt

    trained = train(begin(model, optimiser), data, jax.random.key(0), optimiser, Plan(50, 4, 5), press)
    assert trained.ending == "interrupted"
    assert int(trained.state.step) == 10


def test_training_stops_at_a_plateau():
    data, model = small_data(), small_model(StandardNormal(2))
    optimiser = optimiser_for(model, Rates(0.0, 0.0, 0.0), 500, 4)
    trained = train(begin(model, optimiser), data, jax.random.key(0), optimiser, Plan(500, 4, 2, patience=3))
    assert trained.ending == "plateau"
    assert int(trained.state.step) < 100


def test_held_out_data_choose_the_model():
    """Far too large steps make a model worse; the one that was best on held-out data stays known."""
    model, data = small_model(StandardNormal(2)), small_data()
    held_out = Batch(data.values[:1], data.lengths[:1])
    optimiser = optimiser_for(model, Rates(network=0.01, noise=3.0, graph=0.0), 12, 4)
    state, records = begin(model, optimiser), []
    ended = train(
        state, data, jax.random.key(1), optimiser, Plan(12, 4, 1), records.append, held_out=held_out
    )
    bounds = [record["held_out"] for record in records]
    assert float(ended.state.best) == pytest.approx(max(bounds))
    assert int(ended.state.waited) == 11 - int(np.argmax(bounds)) > 0
    again = train(state, data, jax.random.key(1), optimiser, Plan(1 + int(np.argmax(bounds)), 4, 1))
    for best, last in zip(
        jax.tree.leaves(eqx.filter(ended.state.best_model, eqx.is_array)),
        jax.tree.leaves(eqx.filter(again.state.model, eqx.is_array)),
        strict=True,
    ):
        np.testing.assert_allclose(best, last, rtol=1e-5, atol=1e-6)


def test_held_out_windows_are_not_trained_on():
    data, config = small_data(), Config()
    kept, held_out = split(data, override(config, ["data.held_out=0.25"]))
    assert kept.values.shape[0] == 3
    assert held_out.values.shape[0] == 1
    together = np.concatenate([kept.values, held_out.values])
    assert {x.tobytes() for x in together} == {x.tobytes() for x in np.asarray(data.values)}
    assert split(data, config)[1] is None
    with pytest.raises(ValueError, match=r"data\.held_out=0\.01 of 4 windows is 0"):
        split(data, override(config, ["data.held_out=0.01"]))


@pytest.mark.parametrize(("total", "share", "count"), [(200, 0.1, 20), (9, 0.9, 8), (1281, 0.1, 128)])
def test_held_out_windows_are_neighbours(total: int, share: float, count: int):
    """So that few of them overlap with windows of the training data."""
    data = Batch(np.arange(total, dtype=np.float32)[:, None, None], np.ones(total, int))
    order = lambda batch: np.asarray(batch.values).ravel()
    kept, held_out = map(order, split(data, override(Config(), [f"data.held_out={share}"])))
    assert len(held_out) == count
    np.testing.assert_array_equal(np.sort(np.concatenate([kept, held_out])), np.arange(total))
    runs = 1 + np.count_nonzero(np.diff(held_out) > 1)
    assert runs <= 8
    other = order(split(data, override(Config(), [f"data.held_out={share}", "seed=1"]))[1])
    assert count == total - 1 or not np.array_equal(held_out, other)


RECORD = {"stage": "joint", "step": 50, "elbo": 2.5, "states": 3, "steps": 100, "seconds": 1.0}


def test_tensorboard_gets_every_number(tmp_path):
    sink("tensorboard", tmp_path, {})(RECORD)
    (path,) = (tmp_path / "tensorboard").iterdir()
    before, deadline = path.stat().st_size, time.monotonic() + 60
    while path.stat().st_size == before and time.monotonic() < deadline:  # it writes in the background
        time.sleep(0.1)
    content, found = path.read_bytes(), {}
    while content:  # a record is its length, a checksum, itself, a checksum
        size = int.from_bytes(content[:8], "little")
        event = events.Event.FromString(content[12 : 12 + size])
        found |= {value.tag: (event.step, value.simple_value) for value in event.summary.value}
        content = content[16 + size :]
    assert found == {"joint/elbo": (50, 2.5), "joint/states": (50, 3.0)}


def test_wandb_gets_every_number(tmp_path, monkeypatch):
    """A stand-in for the library, which would want an account."""
    logged = []
    run = SimpleNamespace(define_metric=lambda *args, **kwargs: None, log=logged.append)
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=lambda **kwargs: run))
    sink("wandb", tmp_path, {})(RECORD)
    assert logged == [{"joint/elbo": 2.5, "joint/states": 3.0, "joint/at": 50}]


def test_logs_that_cannot_be_are_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"pip install 'svae\[wandb\]'"):
        sink("wandb", tmp_path, {})
    with pytest.raises(ValueError, match="tensorboard, wandb"):
        sink("mlflow", tmp_path, {})


def test_principal_components_are_where_the_networks_begin():
    config = override(Config(), [*TINY, "model.latent_dim=3"])
    data = small_data()
    model = with_principal_components(untrained(config, 3, GraphPrior()), data)
    paths = np.concatenate(encoded_paths(model, data))
    np.testing.assert_allclose(np.cov(paths.T), np.eye(3), atol=1e-3)
    decoded = model.decoder(model.encoder.network(data.values))
    np.testing.assert_allclose(decoded, data.values, atol=1e-4)  # as many components as channels


def test_the_dynamics_of_a_linear_system_are_the_regression_of_each_step_on_the_last():
    rng = np.random.default_rng(1)
    series = [rng.normal(size=(30, 2)).cumsum(axis=0) for _ in range(3)]
    pgm = LDS(2)
    found = parameters_from_arhmm(pgm, fit_dynamics(pgm, series), series)
    inputs = np.concatenate([np.c_[z[:-1], np.ones(len(z) - 1)] for z in series])
    outputs = np.concatenate([z[1:] for z in series])
    prior = pgm.family.standard_from_natural(pgm.prior()).dynamics
    precision = inputs.T @ inputs + np.asarray(prior.input_precision)
    cross = outputs.T @ inputs + np.asarray(prior.mean @ prior.input_precision)
    np.testing.assert_allclose(found.dynamics.mean, cross @ np.linalg.inv(precision), rtol=1e-4, atol=1e-5)
    assert float(found.dynamics.dof) == pytest.approx(len(inputs) + 4)


def test_states_that_the_arhmm_does_not_use_stay_at_their_prior():
    rng = np.random.default_rng(1)
    series = [rng.normal(size=(30, 2)) for _ in range(3)]
    pgm = SLDS(6, 2)
    dynamics = fit_dynamics(pgm, series)
    used = dynamics.posterior.num_states
    assert used < 6
    found = parameters_from_arhmm(pgm, dynamics, series)
    prior = pgm.family.standard_from_natural(pgm.prior())
    np.testing.assert_allclose(found.dynamics.dof[used:], prior.dynamics.dof[used:])
    np.testing.assert_allclose(found.transition.concentration[used:], prior.transition.concentration[used:])


def test_a_shared_prior_is_what_some_frames_of_the_common_dynamics_would_leave():
    rng = np.random.default_rng(1)
    series = [rng.normal(size=(30, 2)).cumsum(axis=0) for _ in range(3)]
    series[1][7] = np.nan  # two steps less
    inputs = np.concatenate([np.c_[z[:-1], np.ones(len(z) - 1)] for z in series])
    outputs = np.concatenate([z[1:] for z in series])
    whole = np.isfinite(inputs).all(axis=1) & np.isfinite(outputs).all(axis=1)
    inputs, outputs = inputs[whole], outputs[whole]
    assert len(inputs) == 85
    # 17 frames' worth are a fifth of each: the weak prior's posterior with weights of 0.2
    weak = SLDS(4, 2, innovation=0.5)
    prior = jax.tree.map(lambda x: np.asarray(x[0], float), standard_prior(weak).dynamics)
    precision = prior.input_precision + 0.2 * inputs.T @ inputs
    mean = (prior.mean @ prior.input_precision + 0.2 * outputs.T @ inputs) @ np.linalg.inv(precision)
    far, off = outputs - inputs @ mean.T, prior.mean - mean
    scale = prior.scale + 0.2 * far.T @ far + off @ prior.input_precision @ off.T
    shared = replace(weak, dynamics=shared_dynamics(weak, series, 17))
    found = standard_prior(shared).dynamics
    for expected, states in zip((scale, mean, precision, 4 + 17), found, strict=True):
        assert len(states) == 4
        np.testing.assert_allclose(states, np.broadcast_to(expected, states.shape), rtol=1e-3, atol=1e-4)


def test_a_shared_prior_counts_no_frame_twice_and_needs_one():
    series = [np.arange(6.0).reshape(3, 2)]
    assert shared_dynamics(SLDS(4, 2), series, 1000)[3] == pytest.approx(4 + 2)
    assert shared_dynamics(SLDS(4, 2), [np.zeros((1, 2))], 1000) is None


def test_a_shared_prior_is_saved_with_the_model(tmp_path):
    stage_two_alone = "pretrain.steps=0", "joint.steps=0"
    shared = fit(waves(), override(Config(), [*TINY, *stage_two_alone, "dynamics.shared=10"]))
    loaded = load_fitted(save_fitted(shared, tmp_path))
    assert shared.model.pgm.dynamics is not None
    assert loaded.model.pgm == shared.model.pgm


def test_a_duration_that_is_asked_for_has_its_price_in_the_model():
    config = override(Config(), [*TINY, "model.typical_duration=20"])
    model, data, key = untrained(config, 3, GraphPrior()), small_data(), jax.random.key(0)
    notes = []
    start = find_start(config, model, data, 4, 10.0, key, notes.append)
    assert notes[0] == {
        "event": "price",
        "price": start.prior.price,
        "frames": notes[0]["frames"],
        "asked": 20,
    }
    assert graph_for(config, start.prior).price == start.prior.price >= 1
    free = find_start(override(Config(), TINY), model, data, 40, 10.0, key)
    assert free.prior.price == 1


def test_the_same_seed_gives_the_same_model_twice_and_a_saved_one_is_the_same(fitted, tmp_path, caplog):
    with jax.log_compiles():
        second = fit(waves(), override(Config(), TINY))
        assert any("Compiling" in line for line in caplog.messages)  # something small
        assert not any("Compiling jit(take_steps)" in line for line in caplog.messages)
        caplog.clear()
        loaded = load_fitted(save_fitted(fitted, tmp_path))
        assert not any("Compiling" in line for line in caplog.messages)
    for name, array in arrays_from_tree(fitted.model).items():
        np.testing.assert_array_equal(array, arrays_from_tree(second.model)[name])
        np.testing.assert_array_equal(array, arrays_from_tree(loaded.model)[name])


@pytest.mark.slow  # in test_baseline_training.py, the same graphs go the same way
@pytest.mark.parametrize("graph", ["lds", "mixture"])
def test_other_graphical_models_train_too(graph):
    fitted = fit(waves(), override(Config(), [*TINY, f"model.graph={graph}"]))
    assert all(np.isfinite(x).all() for x in arrays_from_tree(fitted.model).values())


def test_labelled_frames_are_held_to_their_labels():
    data = waves()
    known = np.full(40, -1)
    known[10:20], known[25:35] = 2, 0
    items = tuple(Recording(item.name, item.values, known) for item in data)
    config = override(Config(), [*TINY, "data.labels=true", "model.num_states=4"])
    labelled = replace(data, items=items)
    batch = training_batch(labelled, config)
    assert batch.allowed.shape == (4, 40, 4)
    assert np.asarray(batch.allowed).sum(axis=2)[0].tolist() == np.where(known < 0, 4, 1).tolist()
    fitted = fit(labelled, config)
    count = fitted.model.pgm.num_states
    assert 3 <= count <= 4
    found = eqx.filter_jit(lambda model, batch: model.segment(batch))(
        fitted.model, batch._replace(allowed=batch.allowed[..., :count])
    )
    assert (np.asarray(found.states)[:, known >= 0] == known[known >= 0]).all()
    with pytest.raises(ValueError, match="the highest here is 2"):
        training_batch(labelled, override(config, ["model.num_states=2"]))
    with pytest.raises(ValueError, match="needs a switching model"):
        training_batch(labelled, override(config, ["model.graph=lds"]))


@pytest.mark.parametrize(
    ("likelihood", "good", "bad"),
    [("gamma", 0.5, -1.0), ("bernoulli", 1.0, 0.5), ("poisson", 3.0, 2.5), ("categorical", 2.0, 4.0)],
)
def test_data_that_a_likelihood_cannot_have_are_named(likelihood, good, bad, tmp_path):
    changes = [f"model.likelihood={likelihood}", "model.num_classes=4"]
    config = override(Config(), changes)
    values = np.full((20, 3), good)
    require_possible(as_recordings({"fine": values}), config)
    values[7, 1] = bad
    with pytest.raises(DataError, match=rf"strange.*{likelihood}.*frame 7 of channel 'channel_1' is {bad:g}"):
        fit(as_recordings({"strange": values}), config, tmp_path / "run")
    assert not (tmp_path / "run").exists()  # nothing to resume, nothing in the way of another try


def test_weights_that_do_not_fit_are_refused(fitted, tmp_path):
    folder = save_fitted(fitted, tmp_path)
    text = (folder / "model.json").read_text()
    (folder / "model.json").write_text(text.replace('"latent_dim": 2', '"latent_dim": 3'))
    with pytest.raises(ValueError, match="shape"):
        load_fitted(folder)
    with pytest.raises(FileNotFoundError, match=r"model\.json"):
        load_fitted(tmp_path / "nowhere")


def test_the_log_forgets_what_came_after_the_checkpoint(tmp_path):
    log = MetricsFile(tmp_path / "metrics.ndjson")
    for step in range(4):
        log({"stage": "joint", "step": step})
    with log.path.open("a") as file:
        file.write('{"stage": "joi')
    log.forget("joint", 1)
    assert [record["step"] for record in read_metrics(log.path)] == [0, 1]


def test_the_log_is_json_whatever_a_step_gave(tmp_path):
    log = MetricsFile(tmp_path / "metrics.ndjson")
    log({"stage": "joint", "step": 0, "elbo": float("nan")})
    log({"stage": "joint", "step": 1, "elbo": 2.0})
    log.forget("joint", 1)
    assert "NaN" not in log.path.read_text()
    assert [record["elbo"] for record in read_metrics(log.path)] == [None, 2.0]
    shown = training_log(tmp_path)["elbo"]
    assert np.isnan(shown[0])
    assert shown[1] == 2


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import numpy as np
from helpers import TINY, waves
from svae.config import Config, override
from svae.training.build import GraphPrior, untrained
from svae.training.artifact import save_fitted
from svae.training.pipeline import fit
folder = Path(sys.argv[1])
config = override(Config(), [*TINY, "model.graph=lds", "pretrain.steps=6", "joint.steps=60"])
save_fitted(fit(waves(), config, folder, checkpoint_seconds=0), folder / "model")
"""


def _start(folder: Path) -> subprocess.Popen:
    code = textwrap.dedent(RUN).format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], env={**os.environ, "JAX_PLATFORMS": "cpu"}
    )


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_parameters(tmp_path):
    whole = _start(tmp_path / "whole")
    killed = _start(tmp_path / "killed")
    log = tmp_path / "killed" / "metrics.ndjson"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and killed.poll() is None:
        if sum(record["stage"] == "joint" for record in read_metrics(log)) >= 3:
            break
        time.sleep(0.05)
    assert killed.poll() is None, "the run ended before it could be killed"
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert whole.wait() == 0
    assert not (tmp_path / "killed" / "model").exists()
    assert _start(tmp_path / "killed").wait() == 0
    expected, found = (load_fitted(tmp_path / name / "model") for name in ("whole", "killed"))
    for name, array in arrays_from_tree(expected.model).items():
        np.testing.assert_array_equal(array, arrays_from_tree(found.model)[name], err_msg=name)
    steps = [record["step"] for record in read_metrics(log) if record["stage"] == "joint"]
    assert steps == list(range(2, 61, 2))
