"""The command line: quick to start, clear about mistakes."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import svae
from svae.bench import engine
from svae.bench.setting import QUICK
from svae.cli import app


@pytest.fixture
def call():
    runner = CliRunner(env={"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"})
    return lambda *arguments: runner.invoke(app, arguments)


@pytest.fixture
def pretend_run(monkeypatch):
    """Measure nothing; keep what was asked for."""
    asked = {}

    def run(setting, say, compare):
        asked.update(setting=setting, compare=compare)
        say("a line of progress")
        row = {"group": "sweep", "name": "sequential", "seconds": 0.5, "compile_seconds": 1.0}
        rows = [row | {"temp_bytes": 2**20, "runs": 1, "ratio": 1.0}]
        return {"machine": {"cpus": 2}, "rows": rows, "dynamax": {"status": "not asked for", "rows": []}}

    monkeypatch.setattr(engine, "run", run)
    return asked


def test_help_names_the_commands(call):
    assert "bench" in call("--help").output
    assert "--num-states" in call("bench", "engine", "--help").output


def test_version(call):
    result = call("--version")
    assert result.exit_code == 0
    assert result.output.strip() == f"svae {svae.__version__}"


def test_bench_engine_passes_sizes_on_and_writes_json(call, pretend_run, tmp_path):
    path = tmp_path / "new folder" / "engine.json"
    result = call("bench", "engine", "--quick", "--batch", "3", "--no-dynamax", "--json", str(path))
    assert result.exit_code == 0, result.output
    assert pretend_run == {"setting": QUICK._replace(batch=3), "compare": False}
    assert "sequential" in result.output
    assert "500 ms" in result.output
    report = json.loads(path.read_text())
    assert report["command"] == f"svae bench engine --quick --no-dynamax --batch 3 --json {path.name}"
    assert report["rows"][0]["seconds"] == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", "0"), "--batch"),
        (("--num-steps", "one"), "--num-steps"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_wrong_options_are_named(call, pretend_run, arguments, message):
    result = call("bench", "engine", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not pretend_run


def test_importing_the_command_line_is_light():
    heavy = "jax", "equinox", "numpy", "matplotlib"
    code = f"import sys, svae.cli; print(*sorted(set({heavy}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
