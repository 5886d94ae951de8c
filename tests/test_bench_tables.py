"""The timing table and the growth of inference: rows that say what was measured. How fast, no test asks."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import users_rules
from svae.bench import scaling, table1
from svae.bench.setting import Setting
from svae.chains import Form
from svae.cli import app
from svae.meanfield import GaussSeidel, Unrolled

TINY = table1.Sizes(num_steps=3, num_states=2, latent_dim=2, num_features=3, sweeps=2, repeats=2)


@pytest.fixture(autouse=True)
def as_users():
    with users_rules():
        yield


def ignore(line):
    pass


def test_every_method_has_its_adjoint_and_form(key):
    for name in table1.METHODS:
        model = table1.make_model(TINY, name, key)
        adjoint, form = name.split(", ")
        assert model.pgm.form == Form(form)
        assert isinstance(model.adjoint, Unrolled if adjoint == "unrolled" else GaussSeidel)
        assert model.solver.max_sweeps == TINY.sweeps
        assert model.solver.tolerance == 0


def test_a_row_of_the_table(tmp_path):
    path = tmp_path / "rows.json"
    (row,) = table1.run(TINY, ["implicit, sequential"], [2], ignore, path)
    assert "error" not in row, row
    assert json.loads(path.read_text()) == [row]
    assert {"method", "batch", "median_ms", "peak_gib", "compile_s", "device", "jax"} <= set(row)
    assert (row["method"], row["batch"]) == ("implicit, sequential", 2)
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


@pytest.mark.parametrize("command", ["table1", "scaling"])
def test_wrong_choices_are_named(command):
    option = "--method" if command == "table1" else "--form"
    result = CliRunner().invoke(app, ["bench", command, option, "slow"])
    assert result.exit_code == 2
    assert "'slow' is none of" in result.output


def test_growth_varies_one_size_at_a_time():
    for name, setting in scaling.settings(long=False):
        others = {field: getattr(setting, field) for field in scaling.SIZES if field != name}
        assert others == {field: getattr(scaling.BASE, field) for field in others}
    *_, (name, last) = scaling.settings(long=True)
    assert (name, last.num_steps, last.batch) == ("num_steps", scaling.LONG, 1)


def test_a_row_of_growth():
    setting = Setting(batch=2, num_steps=3, num_states=2, latent_dim=2, repeats=1)
    row = scaling.measure("batch", setting, Form.SEQUENTIAL, ignore)
    assert (row["varied"], row["B"], row["T"], row["K"], row["D"]) == ("B", 2, 3, 2, 2)
    assert row["median_ms"] > 0
    assert "sequential" in scaling.line(row)
