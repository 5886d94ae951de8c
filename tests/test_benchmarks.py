"""The benchmark scripts at a size that shows nothing but that they work."""

import json
from dataclasses import replace

import numpy as np
import pytest

from helpers import benchmark, users_rules
from svae.data import Recording, Recordings, load

pytestmark = pytest.mark.slow

TINY = (
    "pretrain.steps=4",
    "joint.steps=2",
    "model.hidden=[8]",
    "model.num_states=3",
    "dynamics.laps=2",
    "dynamics.restarts=1",
    "chunk=2",
)


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules():
        yield


def tiny(*names: str) -> list[str]:
    return [word for change in TINY if change.startswith(names) for word in ("--set", change)]


def beginnings(recordings: Recordings, frames: int = 60) -> Recordings:
    """Of two recordings: few programs to compile."""
    items = tuple(Recording(x.name, x.values[:frames], x.labels[:frames]) for x in recordings.items[:2])
    return replace(recordings, items=items)


def test_segmentation_compares_three_methods(tmp_path, monkeypatch):
    module, path = benchmark("segmentation"), tmp_path / "rows.json"
    monkeypatch.setattr(module, "ITERATIONS", 2)
    monkeypatch.setattr(module, "DYNAMAX_STATES", 2)  # more would have no finite likelihood
    monkeypatch.setattr(module, "load", lambda name: beginnings(load(name)))
    short = ["--set", "model.typical_duration=null"]  # or many persistences would be tried
    rows = module.main(["--seeds", "1", "--restarts", "1", "--out", str(path), *tiny(""), *short])
    assert [row["method"] for row in rows] == ["SVAE-SLDS", "its AR-HMM stage", "dynamax AR-HMM"]
    assert all(0 <= row["hamming"] <= 1 and row["segments"] >= 2 for row in rows)
    assert json.loads(path.read_text())["command"].startswith("python benchmarks/segmentation.py")


def test_toy_training_compares_ways_with_equal_steps(tmp_path):
    module, path = benchmark("toy_training"), tmp_path / "rows.json"
    for way in module.ways(100).values():
        assert sum(int(change.split("=")[1]) for change in way if "steps" in change) == 100
    size = ["--seeds", "1", "--sequences", "3", "--steps", "4", "--only", "three stages", "--out", str(path)]
    rows = module.main([*size, *tiny("model.hidden", "dynamics", "chunk")])
    assert [row["way"] for row in rows] == ["three stages"]
    assert all(np.isfinite(row["bound"]) and 1 <= row["states"] <= 8 for row in rows)
    assert len(json.loads(path.read_text())["rows"]) == 1


def test_durations_and_jumps_compares_models(monkeypatch):
    module = benchmark("durations_and_jumps")
    monkeypatch.setattr(module, "MODELS", {"hsmm-slds": module.MODELS["hsmm-slds"]})  # the others as well
    assert module.durations(np.array([[0, 0, 1, 1, 1, 2, 0]])).tolist() == [3, 1]
    truth = np.array([[0, 0, 1, 2, 2]])
    assert module.agreement(np.array([[9, 1, 0, 2, 2]]) % 3, truth) == 1.0
    rows = module.compare(module.jumping, 0.1, count=3, steps=12, rounds=1)
    assert list(rows) == ["hsmm-slds", "truth"]
    assert np.isfinite(rows["hsmm-slds"]["bound"])
    assert rows["hsmm-slds"]["right"] > 1 / 3


def test_imputation_measures_what_it_says():
    module = benchmark("imputation")
    truth = np.zeros((100, 2))
    truth[::2] = 1.0  # every real step has size one
    values = np.repeat(truth[None], 2, axis=0)
    values[1, module.GAP.stop - 1] = 9.0  # the second draw jumps
    completion = module.Completion(values, np.zeros((100, 2), bool), np.zeros((2, 100), int))
    assert module.joined(completion.values, truth, module.GAP) == 0.5
    assert module.path(np.array([2, 2, 0, 0, 2])) == (2, 0, 2)
    states = np.zeros((4, 100), int)
    states[1:, 40:] = 1
    states[3, 50:] = 2
    shares = module.dynamics_paths(completion._replace(states=states), np.array([3, 1, 1]))
    assert shares == {(3,): 0.25, (3, 1): 0.75}
