"""The study of natural gradients: its arithmetic, and what it must show."""

import json

import numpy as np
import pytest

from helpers import users_rules
from svae.reproduce import fig_natural_gradients
from svae.reproduce.request import Request
from svae.reproduce.run import from_results, reproduce
from svae.studies.natural import climbing, summary
from svae.studies.natural.setting import Case, Setting

CASE = Case("mocap6", latent_dim=2, pretraining=0)
SETTING = Setting({"Motion capture, principal components": CASE}, 1, 60, 16, hidden=(8,))


@pytest.mark.slow
def test_study(tmp_path, monkeypatch):
    """One test, and without Adam, because compiling takes most of its time."""
    monkeypatch.delitem(climbing.METHODS, "Adam")
    monkeypatch.setitem(fig_natural_gradients.SETTINGS, "tiny", SETTING)
    said, out = [], tmp_path / "figure"
    with users_rules("raise"):
        page, picture = reproduce(Request("fig-natural-gradients", out, "tiny", say=said.append))
    assert len(said) == 2
    assert "exercises of mocap6" in page.read_text()
    assert picture.stat().st_size > 10_000
    (case,) = json.loads((tmp_path / "figure.json").read_text())
    assert (case["case"], case["seeds"]) == (*SETTING.cases, 1)
    biased, unbiased = case["methods"].values()

    # what it is about: the correction leads higher, and sooner to where the biased one gets at all
    assert unbiased["final"][0] > biased["final"][0] > case["first"][0]
    steps = lambda method: method["steps_at_the_quickest_rate"][summary.BIASED_END]["steps"][0]
    assert steps(unbiased) <= steps(biased) <= SETTING.steps

    for method in case["methods"].values():
        assert method["below_best"][0][0] == pytest.approx(case["best"][0] - case["first"][0], abs=0.01)
        taken = [np.inf if steps[0] is None else steps[0] for steps in method["steps"].values()]
        assert taken[:3] == sorted(taken[:3])
        quickest = [row["steps"][0] for row in method["steps_at_the_quickest_rate"].values()]
        assert all(q is None or q <= t for q, t in zip(quickest, taken, strict=True))

    assert [line[0] for line in summary.table(case)] == ["method", *case["methods"]]
    text = page.read_text()
    from_results("fig-natural-gradients", out)
    assert page.read_text() == text


def test_steps_to_a_mark():
    curves = np.array([[[0.0, 2.0, 1.0, 3.0], [0.0, 0.0, 1.0, 1.0]]])
    steps = summary.steps_to(curves, np.array([2.0]), np.array([0, 1, 5, 10]))
    np.testing.assert_array_equal(steps, [[1, np.inf]])
