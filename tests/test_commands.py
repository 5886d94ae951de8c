"""The commands that users run: one fit from end to end, and many mistakes."""

import errno
import importlib.metadata
import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from helpers import TINY, users_rules, waves
from svae import doctor
from svae.cli import app, training
from svae.config import ModelSettings
from svae.progress import TrainingProgress

RESULTS = (
    "config.toml",
    "metrics.ndjson",
    "segments.csv",
    "segments.parquet",
    "summary.json",
    "report.html",
    "model/model.safetensors",
)


@pytest.fixture
def call():
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    return lambda *arguments: runner.invoke(app, [str(x) for x in arguments])


@pytest.fixture
def data(tmp_path):
    """Short recordings."""
    path = tmp_path / "tiny.npz"
    np.savez(path, **{name: item.values for name, item in zip("abcd", waves(), strict=True)})
    return path


@pytest.fixture
def as_users_run():
    """JAX as it is outside these tests."""
    with users_rules():
        yield


def refused(result):
    """The one line that a mistake gets."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    (line,) = result.output.strip().splitlines()
    assert line.startswith("error: ")
    return line


def test_fit_segment_and_resume(call, data, tmp_path, as_users_run):
    run, again = tmp_path / "run", tmp_path / "again"
    settings = [x for change in (*TINY, "data.rate=10") for x in ("--set", change)]
    result = call("fit", data, "--out", run, *settings)
    assert result.exit_code == 0, result.output
    assert [name for name in RESULTS if not (run / name).is_file()] == []
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["recordings"], summary["frames"], summary["ending"]) == (4, 160, "done")
    written = pd.read_parquet(run / "segments.parquet")
    assert set(written.recording) == {"a", "b", "c", "d"}
    assert written.seconds.sum() == pytest.approx(16.0)

    result = call("segment", run, data, "--out", again)
    assert result.exit_code == 0, result.output
    pd.testing.assert_frame_equal(pd.read_parquet(again / "segments.parquet"), written)

    before = (run / "metrics.ndjson").read_text()
    result = call("resume", run)
    assert result.exit_code == 0, result.output
    assert (run / "metrics.ndjson").read_text() == before
    pd.testing.assert_frame_equal(pd.read_parquet(run / "segments.parquet"), written)


def test_interruption_between_the_stages_says_how_to_go_on(call, data, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("svae.training.pipeline.fit", interrupted)
    result = call("fit", data, "--out", tmp_path / "run")
    assert result.exit_code == 130
    assert f"go on with svae resume {tmp_path / 'run'}" in result.output


def test_nobody_who_stops_listening_is_told_of_an_error(call, data, monkeypatch):
    """As in `svae inspect ... | head -1`."""

    def gone(recordings):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr("svae.data.describe", gone)
    result = call("inspect", data)
    assert result.exit_code == 1
    assert result.output == ""


def test_help_lists_the_commands(call):
    output = call("--help").output
    for command in ("fit", "resume", "segment", "inspect", "doctor", "demo", "bench"):
        assert f" {command} " in output


def test_inspect_tells_what_is_there(call):
    result = call("inspect", "mocap6")
    assert result.exit_code == 0, result.output
    assert "6 recordings" in result.output
    assert "12 channels" in result.output
    assert "missing" in result.output
    assert "labels: " in result.output


@pytest.mark.parametrize("command", ["fit", "inspect"])
def test_missing_data_are_named(call, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    assert "nowhere.npz" in refused(call(command, "nowhere.npz"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.num_sates=3", "did you mean 'model.num_states'?"),
        ("model.num_states", "section.name=value, got 'model.num_states'"),
        ("model.num_states=few", 'got "few"'),
        ("data.window=soon", "data.window"),
    ],
)
def test_wrong_settings_are_named(call, data, tmp_path, change, message):
    assert message in refused(call("fit", data, "--out", tmp_path / "run", "--set", change))
    assert not (tmp_path / "run").exists()


def test_broken_settings_file_is_named(call, data, tmp_path):
    path = tmp_path / "broken.toml"
    path.write_text("seed = ")
    assert "broken.toml is not valid TOML" in refused(call("fit", data, "--config", path))


def test_data_may_be_called_like_a_number(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "20240101" in (line := refused(call("fit", "20240101")))
    assert "no such file" in line


def test_a_run_is_not_overwritten(call, data, tmp_path):
    (tmp_path / "config.toml").write_text("seed = 1\n")
    line = refused(call("fit", data, "--out", tmp_path))
    assert "--force" in line
    assert "svae resume" in line
    assert (tmp_path / "config.toml").read_text() == "seed = 1\n"


def test_force_keeps_a_run_whose_new_data_are_missing(call, tmp_path):
    (tmp_path / "config.toml").write_text("seed = 1\n")
    refused(call("fit", tmp_path / "nowhere.npz", "--out", tmp_path, "--force"))
    assert (tmp_path / "config.toml").exists()


def test_force_removes_a_run_and_nothing_else(call, data, tmp_path, monkeypatch):
    (tmp_path / "config.toml").write_text("seed = 1\n")
    (tmp_path / "checkpoints" / "vae").mkdir(parents=True)

    def stop(*_):
        raise ValueError("far enough")

    monkeypatch.setattr("svae.training.pipeline.fit", stop)
    assert "far enough" in call("fit", data, "--out", tmp_path, "--force").output
    assert list(tmp_path.iterdir()) == [data]


def test_a_file_is_no_run_folder(call, data):
    assert "tiny.npz" in refused(call("resume", data))
    result = call("fit", data, "--out", data)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert data.is_file()


def test_resume_needs_a_run(call, tmp_path):
    assert "config.toml is missing" in refused(call("resume", tmp_path))
    (tmp_path / "config.toml").write_text("seed = 1\n")
    assert "data.path is missing" in refused(call("resume", tmp_path))


def test_segment_needs_a_model(call, data, tmp_path):
    assert "there is no model in" in refused(call("segment", tmp_path, data, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_versions_name_what_is_missing(monkeypatch):
    assert all(finding.good for finding in doctor.versions())

    def nothing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", nothing)
    bad = [finding for finding in doctor.versions() if not finding.good]
    assert len(bad) == len(doctor.PACKAGES)
    assert bad[0] == (False, "jax is missing", "pip install jax")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=8"),
        ("JAX_DISABLE_JIT", "True"),
        ("JAX_DEBUG_NANS", "on"),
    ],
)
def test_traps_in_the_environment_are_found(monkeypatch, name, value):
    for each in ("XLA_FLAGS", "JAX_DISABLE_JIT", "JAX_DEBUG_NANS"):
        monkeypatch.delenv(each, raising=False)
    assert [finding.good for finding in doctor.traps()] == [True]
    monkeypatch.setenv(name, value)
    (finding,) = doctor.traps()
    assert not finding.good
    assert name in finding.what
    assert "unset it" in finding.advice


def test_doctor_fails_if_anything_is_bad(call, monkeypatch):
    good, bad = doctor.Finding(True, "all well"), doctor.Finding(False, "no luck", "try again")
    monkeypatch.setattr(doctor, "diagnose", lambda: [good])
    assert call("doctor").exit_code == 0
    monkeypatch.setattr(doctor, "diagnose", lambda: [good, bad])
    result = call("doctor")
    assert result.exit_code == 1
    assert "BAD  no luck (try again)" in result.output


def test_progress_shows_every_kind_of_record():
    bound = {"elbo": -1234.5, "log_likelihood": -1000.0, "kl_local": 200.0, "kl_parameters": 34.5}
    records = [
        {"stage": "vae", "step": 2, "steps": 4, **bound},
        {
            "stage": "vae",
            "step": 2,
            "steps": 4,
            "event": "not finite",
            "failures": 1,
            "quantity": "gradient of .layers[bold].weight",
            "sequence": -1,
        },
        {"stage": "dynamics", "event": "price", "price": 5.0, "frames": 12.25, "asked": 12, "steps": 3},
        {"stage": "dynamics", "lap": 0, "elbo": -10.0, "states": 5, "steps": 3},
        {"stage": "joint", "step": 4, "steps": 4, **bound, "states": 3, "sweeps": 4.5, "converged": 0.5},
        {"stage": "joint", "step": 4, "steps": 4, **bound, "elbo": float("nan")},
    ]
    console = Console(file=io.StringIO(), width=160)
    with TrainingProgress(console) as progress:
        for record in records[:-1]:
            progress(record)
    text = console.file.getvalue()
    for part in ("networks", "dynamics", "together", "ELBO -1,234", "1/3", "5 states", "50% converged"):
        assert part in text
    assert "gradient of .layers[bold].weight is not finite" in text
    assert "states last 12.2 frames at a price of 5" in text
    with TrainingProgress(console) as progress:
        progress(records[-1])


def test_progress_in_a_file_is_not_cut(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert TrainingProgress().console.width == 160  # here, too, nobody sees an edge


@pytest.fixture
def asked_to_run(monkeypatch):
    """Train nothing; keep the settings."""
    runs = []
    monkeypatch.setattr(training, "run", lambda settings, folder, **how: runs.append((settings, folder)))
    return runs


def test_the_demo_goes_through_all_stages(call, asked_to_run, tmp_path):
    result = call("demo", "--out", tmp_path / "demo", "--seed", 3, "--set", "joint.steps=7")
    assert result.exit_code == 0, result.output
    ((settings, folder),) = asked_to_run
    assert (settings.data.path, settings.model.graph, settings.seed) == ("synthetic", "slds", 3)
    assert settings.pretrain.steps > 0
    assert settings.dynamics.sequences > 0
    assert settings.joint.steps == 7
    assert folder == tmp_path / "demo"
    assert str(folder / "report.html") in result.output


def test_the_demo_refuses_a_file(call, asked_to_run, data):
    assert "is a file, not a folder" in refused(call("demo", "--out", data))
    assert asked_to_run == []


def test_built_in_data_bring_their_settings(call, asked_to_run, data, tmp_path):
    for source in ("mocap6", data):
        assert call("fit", source, "--out", tmp_path / "run").exit_code == 0
    (mocap, _), (other, _) = asked_to_run
    assert mocap.model.typical_duration is not None
    assert other.model == ModelSettings()
