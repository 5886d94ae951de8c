"""The engine's benchmark: it measures what it says. How fast anything is, no test asks."""

import json
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from svae.bench import engine, rows, smoothers
from svae.bench.setting import Setting
from svae.bench.timing import Compiled, Program, Timing, compile_program, time_in_turns

TINY = Setting(batch=2, num_steps=3, num_states=2, latent_dim=2, sweeps=2, repeats=2)


def ignore(line):
    pass


@pytest.fixture(scope="module")
def programs():
    return engine.programs(TINY)


def test_every_program_is_listed_once(programs):
    listed = [(program.group, program.name) for program in programs]
    adjoints = "implicit", "unrolled", "conjugate gradients"
    steps = [("gradient step", f"{o}, {a}") for o in ("sequential", "parallel") for a in adjoints]
    assert listed == [("sweep", "sequential"), ("sweep", "parallel"), *steps]


def test_report(monkeypatch, programs):
    few = programs[:3]
    monkeypatch.setattr(engine, "programs", lambda setting: few)
    report = engine.run(TINY, ignore, compare=False)
    assert json.loads(json.dumps(report)) == report
    assert report["setting"] == TINY._asdict()
    assert report["machine"]["jax"] == jax.__version__
    assert report["dynamax"] == {"status": "not asked for", "rows": []}
    assert [(row["group"], row["name"]) for row in report["rows"]] == [(p.group, p.name) for p in few]
    for row in report["rows"]:
        assert row["seconds"] > 0
        assert row["compile_seconds"] > 0
        assert row["temp_bytes"] >= 0
        assert row["runs"] == TINY.repeats
        first = next(other for other in report["rows"] if other["group"] == row["group"])
        np.testing.assert_allclose(row["ratio"], row["seconds"] / first["seconds"])

    text = engine.table(report)
    assert "sequential, implicit" in text
    assert "dynamax: not asked for" in text


def test_slow_programs_drop_out():
    fakes = [Compiled(Program("g", name, abs, (1.0,)), FakeExecutable(), 0.1) for name in ("a", "b")]
    timings = time_in_turns(fakes, repeats=4, budget=0.0, say=ignore)
    assert [(t.name, t.runs) for t in timings] == [("a", 1), ("b", 1)]


def test_compiled_program_runs():
    compiled = compile_program(Program("g", "double", lambda x: 2 * x, (jnp.arange(3.0),)), ignore)
    np.testing.assert_array_equal(compiled.run(), [0.0, 2.0, 4.0])
    assert compiled.temp_bytes >= 0


class FakeExecutable:
    def __call__(self, x):
        return x

    def memory_analysis(self):
        return None


def test_both_libraries_get_the_problem_that_is_meant():
    """Our answers are those of the joint distribution of two steps, written out."""
    gaussian, discrete = smoothers.jobs(batch=2, num_steps=2, num_states=3, latent_dim=2)
    weights, covariance, emissions, variances = map(np.asarray, gaussian.problem)
    mean, second = jax.jit(smoothers.our_smoother, static_argnums=1)(gaussian.problem, False)
    step, precision = np.hstack([-weights, np.eye(2)]), np.linalg.inv(covariance)
    for n in range(2):
        joint = step.T @ precision @ step + np.diag(1 / variances[n].ravel() + np.array([1, 1, 0, 0]))
        expected = np.linalg.solve(joint, (emissions[n] / variances[n]).ravel())
        np.testing.assert_allclose(np.ravel(mean[n]), expected)
        last = np.linalg.inv(joint)[2:, 2:] + np.outer(expected[2:], expected[2:])
        np.testing.assert_allclose(second[n, 1], last)

    start, transition, scores = map(np.asarray, discrete.problem)
    node, counts = jax.jit(smoothers.our_marginals, static_argnums=1)(discrete.problem, False)
    for n in range(2):
        likelihood = np.exp(scores[n])
        pair = (start * likelihood[0])[:, None] * transition * likelihood[1][None]
        pair /= pair.sum()
        np.testing.assert_allclose(counts[n], pair)
        np.testing.assert_allclose(node[n], [pair.sum(1), pair.sum(0)])


class TestDynamax:
    """The comparison runs elsewhere; what comes back is read, or why nothing came is said."""

    def result(self, monkeypatch, outcome):
        monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: name)
        monkeypatch.setattr(engine.subprocess, "run", outcome)
        return engine.compare_with_dynamax(TINY, ignore)

    def test_missing(self, monkeypatch):
        monkeypatch.setattr(engine.importlib.util, "find_spec", lambda name: None)
        assert "not installed" in engine.compare_with_dynamax(TINY, ignore)["status"]

    def test_timeout(self, monkeypatch):
        def hang(command, timeout, **_):
            raise subprocess.TimeoutExpired(command, timeout)

        assert self.result(monkeypatch, hang)["status"] == "timed out after 900 s"

    def test_failure(self, monkeypatch):
        def fail(command, **_):
            return subprocess.CompletedProcess(command, 1, "", "Traceback\nValueError: no")

        assert self.result(monkeypatch, fail)["status"] == "failed: ValueError: no"

    def test_success(self, monkeypatch):
        def succeed(command, env, **_):
            assert env["PJRT_NPROC"] == "32"
            assert json.loads(command[-1])["num_steps"] == TINY.num_steps
            timings = [
                Timing("chain", name, seconds, 1.0, 0, 2) for name, seconds in (("svae", 2), ("dynamax", 3))
            ]
            output = json.dumps({"timings": [t._asdict() for t in timings], "differences": {"chain": 0.0}})
            return subprocess.CompletedProcess(command, 0, f"noise\n{output}\n", "")

        monkeypatch.delenv("PJRT_NPROC", raising=False)
        result = self.result(monkeypatch, succeed)
        assert result["status"] == "measured"
        assert [row["ratio"] for row in result["rows"]] == [1.0, 1.5]


def test_rows_are_summarised_and_kept(tmp_path):
    found = [{"method": name, "seed": i, "ari": ari} for name, i, ari in (("a", 0, 0.25), ("a", 1, 0.75))]
    assert rows.line(found[0]) == "method a  seed 0  ari 0.25"
    assert rows.table(found, "method", ("ari",)).splitlines()[1].split() == [
        "a",
        "0.5",
        "(0.25",
        "to",
        "0.75)",
    ]
    rows.write(found, tmp_path / "new" / "rows.json", "python it.py")
    kept = json.loads((tmp_path / "new" / "rows.json").read_text())
    assert (kept["command"], kept["rows"]) == ("python it.py", found)
