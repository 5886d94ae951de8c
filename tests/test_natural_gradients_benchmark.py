"""The study of natural gradients: its arithmetic, and what it must show."""

import json

import numpy as np
import pytest

from helpers import benchmark, users_rules


@pytest.fixture(scope="module")
def study():
    return benchmark("natural_gradients")


def test_study(study, tmp_path, capsys, monkeypatch):
    """One test, and without Adam, because compiling takes most of its time."""
    monkeypatch.delitem(study.METHODS, "Adam")
    with users_rules("raise"):
        study.main(["--quick", "--out", str(tmp_path / "figure")])
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    report = json.loads((tmp_path / "figure.json").read_text())
    ((name, case),) = report["cases"].items()
    assert name in capsys.readouterr().out
    biased, unbiased = case["methods"].values()

    # what it is about: the correction leads higher, and sooner to where the biased one gets at all
    assert unbiased["final"][0] > biased["final"][0] > case["first"][0]
    steps = lambda method: method["steps_at_the_quickest_rate"][study.BIASED_END]["steps"][0]
    assert steps(unbiased) <= steps(biased) <= report["setting"]["steps"]

    for method in case["methods"].values():
        assert method["below_best"][0][0] == pytest.approx(case["best"][0] - case["first"][0], abs=0.01)
        taken = [np.inf if steps[0] is None else steps[0] for steps in method["steps"].values()]
        assert taken[:3] == sorted(taken[:3])
        quickest = [row["steps"][0] for row in method["steps_at_the_quickest_rate"].values()]
        assert all(q is None or q <= t for q, t in zip(quickest, taken, strict=True))


def test_steps_to_a_mark(study):
    curves = np.array([[[0.0, 2.0, 1.0, 3.0], [0.0, 0.0, 1.0, 1.0]]])
    steps = study.steps_to(curves, np.array([2.0]), np.array([0, 1, 5, 10]))
    np.testing.assert_array_equal(steps, [[1, np.inf]])
