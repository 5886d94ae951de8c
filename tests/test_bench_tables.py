"""The timing table and the growth of inference: rows that say what was measured. How fast, no test asks."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import users_rules
from svae.bench import accuracy, scaling, table1
from svae.bench.setting import Setting
from svae.chains import Form
from svae.cli import app
from svae.meanfield import GaussSeidel, Unrolled
from svae.reproduce.table1 import SIZES

TINY, ONE = SIZES["tiny"], 1  # as `svae reproduce table1` has them, whose program is then compiled already


@pytest.fixture(autouse=True)
def as_users():
    with users_rules():
        yield


def ignore(line):
    pass


def test_every_method_has_its_adjoint_and_form(key):
    for name in table1.METHODS:
        model = eqx.filter_eval_shape(lambda key, name=name: table1.make_model(TINY, name, key), key)
        adjoint, form = name.split(", ")
        assert model.pgm.form == Form(form)
        assert isinstance(model.adjoint, Unrolled if adjoint == "unrolled" else GaussSeidel)
        assert model.solver.max_sweeps == TINY.sweeps
        assert model.solver.tolerance == 0


def test_a_row_of_the_table(tmp_path):
    path = tmp_path / "rows.json"
    (row,) = table1.run(TINY, ["implicit, sequential"], [ONE], ignore, path)
    assert "error" not in row, row
    assert json.loads(path.read_text()) == [row]
    assert {"method", "batch", "median_ms", "peak_gib", "compile_s", "device", "jax"} <= set(row)
    assert (row["method"], row["batch"]) == ("implicit, sequential", ONE)
    assert 0 < row["fastest_ms"] <= row["median_ms"]
    assert np.isfinite(row["loss"])


def test_a_program_that_fails_leaves_the_others(monkeypatch):
    def fail(sizes, method, batch_size):
        return table1.Program("g", method, lambda x: jnp.zeros(-1), (1.0,))

    monkeypatch.setattr(table1, "make_program", fail)
    (row,) = table1.run(TINY, ["implicit, kernel"], [2], ignore, None)
    assert row["median_ms"] is None
    assert row["error"] in table1.line(row)


def test_table_stands_beside_what_others_measured():
    row = {"batch": 1, "median_ms": 2.0, "peak_gib": 0.5, "compile_s": 3.0}
    rows = [row | {"method": "implicit, sequential"}, row | {"method": "implicit, kernel", "batch": 2}]
    first, second = table1.table(rows).splitlines()[1:]
    assert " ".join(first.split()) == "implicit, sequential 1 2.0 0.50 3.0 s 284 (142x) 2560 (1280x)"
    assert second.split()[-2:] == ["-", "-"]


def test_errors_of_chains_are_small_and_wrong_answers_have_large_ones(monkeypatch):
    sizes = TINY._replace(num_steps=5, num_states=3)
    mild, middling, stiff, discrete = accuracy.chains(sizes, Form.PARALLEL)
    for row in mild, middling, discrete:
        assert 0 < row["moments"] < 1e-4, row
        assert 0 < row["linearised"] < 1e-3, row
    assert 0 < stiff["moments"] < 2 * np.finfo(np.float32).eps / accuracy.NOISES[-1]  # what rounding costs
    answers = accuracy.answers
    wrong = lambda chain, *terms: jax.tree.map(lambda x: 1.01 * x, answers(chain, *terms))
    monkeypatch.setattr(accuracy, "answers", wrong)
    for row in accuracy.chains(sizes, Form.PARALLEL):
        assert row["moments"] == pytest.approx(0.01, rel=0.1)


@pytest.mark.slow  # a reference in a process of its own, and three trainings
def test_accuracy_of_gradients_and_training(tmp_path):
    path = tmp_path / "errors.json"
    result = CliRunner().invoke(app, ["bench", "accuracy", "--quick", "--json", str(path)])
    assert result.exit_code == 0, result.output
    report = json.loads(path.read_text())
    *_, gradient, training = report["rows"]
    assert 0 < gradient["gradient"] < 1e-3
    assert 0 < training["form"] < 0.1
    mine, plain, other = report["curves"].values()
    assert len(mine) == len(plain) == len(other) > 1


@pytest.mark.parametrize("command", ["table1", "scaling", "accuracy"])
def test_wrong_choices_are_named(command):
    option = "--method" if command == "table1" else "--form"
    result = CliRunner().invoke(app, ["bench", command, option, "slow"])
    assert result.exit_code == 2
    assert "'slow' is none of" in result.output


def test_growth_varies_one_size_at_a_time():
    for name, setting in scaling.settings(long=False):
        others = {field: getattr(setting, field) for field in scaling.SIZES if field != name}
        assert others == {field: getattr(scaling.BASE, field) for field in others}
    steps = [(name, setting.num_steps, setting.batch) for name, setting in scaling.settings(long=True)]
    assert steps == [("num_steps", count, 1) for count in scaling.LONG]


def test_a_row_of_growth():
    setting = Setting(batch=2, num_steps=3, num_states=2, latent_dim=2, repeats=1)
    row = scaling.measure("batch", setting, Form.SEQUENTIAL, ignore)
    assert (row["varied"], row["B"], row["T"], row["K"], row["D"]) == ("B", 2, 3, 2, 2)
    assert row["median_ms"] > 0
    assert "sequential" in scaling.line(row)
