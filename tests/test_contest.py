"""Models trained on the same recordings and scored on the same others."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers import users_rules
from svae.cli import app
from svae.cli.comparing import seeds_of
from svae.config import load_config
from svae.contest import Budget, Contest, as_json, as_markdown, contest, hold, scores
from svae.contest.budgets import BUDGETS, settings, split
from svae.contest.picture import Imputed, imputation_figure
from svae.data import Recording, Recordings, as_recordings, laplacian
from svae.evaluation import joined
from svae.presets import MODELS

TINY = Budget(
    changes=("joint.steps=4", "pretrain.steps=0", "chunk=2", "model.latent_dim=2", "batch_size=2"),
    draws=2,
    completed=1,
    epochs=1,
    width=4,
)
NAMES = ["vq-vae", "svae-gmm"]


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


def rows():
    one = {"bound": 1.0, "frechet samples": 2.0, "states": 3, "parameters": 123456, "joined": 0.5}
    other = {"bound": 2.0, "frechet samples": 4.0, "states": 3, "parameters": 123456, "joined": 0.25}
    return [
        {"model": "a", "seed": 0, **one},
        {"model": "a", "seed": 1, **other},
        {"model": "b", "seed": 0, **one},
    ]


def test_the_table_has_means_and_their_spread():
    found = Contest("bumps", rows(), "0123", 0.25)
    first, second = as_json(found)["models"]
    assert first["bound"] == {"mean": 1.5, "deviation": pytest.approx(np.sqrt(0.5)), "seeds": 2}
    assert second["bound"] == {"mean": 1.0, "deviation": None, "seeds": 1}
    assert first["zeros"] is None
    text = as_markdown(found)
    assert "1.5 ± 0.707" in text
    assert "123,456" in text
    assert "network 0123; between real halves: 0.25" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({len(line) for line in table}) == 1
    assert [line.count("|") for line in table] == [12] * 4
    assert re.search(r"\| b .*\| +- \|", text)


def test_a_draw_joins_if_its_last_step_is_no_larger_than_those_seen():
    truth = np.arange(10.0)[:, None] * np.ones(3)
    gap = slice(4, 7)
    draws = np.stack([truth, truth, truth, truth])
    draws[1, 6] += 0.5  # to 7 by half a step
    draws[2, 6] -= 0.5  # by one and a half
    draws[3, 6, 0] -= 5  # one channel far away
    assert joined(draws, truth, gap) == 0.5
    truth[9] += 1  # now a step of two was seen
    assert joined(draws, truth, gap) == 0.75


def test_every_budget_has_settings_for_every_model():
    """Within a budget, all models have the same number of steps in all."""
    for budget in BUDGETS.values():
        made = [settings("laplace", name, budget, 3) for name in MODELS]
        assert len({x.pretrain.steps + x.joint.steps for x in made}) == 1
        assert {x.seed for x in made} == {3}
        assert {x.data.path for x in made} == {"laplace"}


def test_recordings_to_score_are_not_trained_on():
    recordings = as_recordings([np.zeros((12, 1)) + i for i in range(10)])
    training, scored = split(recordings, Budget())
    assert (len(training), len(scored)) == (8, 2)
    assert not set(training.names) & set(scored.names)
    training, scored = split(recordings, Budget(training=3, scored=1))
    assert (len(training), len(scored)) == (3, 1)
    with pytest.raises(ValueError, match="two recordings at least"):
        split(as_recordings([np.zeros((12, 1))]), Budget())
    with pytest.raises(ValueError, match="10 frames or more"):
        split(as_recordings([np.zeros((5, 1))] * 2), Budget())


def test_the_picture_shows_all_and_the_gap():
    values = np.random.default_rng(0).normal(size=(120, 4))
    states = np.repeat([5, 2, 5], 40)
    cells = [Imputed("one", values, states), Imputed("two", values, None)]
    figure = imputation_figure(Imputed("truth", values, None), slice(20, 70), cells)
    images = [ax for ax in figure.axes if ax.get_title()]
    assert [ax.get_title() for ax in images] == ["truth", "one", "two"]
    assert [line.get_xdata()[0] for line in images[0].lines] == [20, 70]
    assert len(figure.axes) == 4  # with one ribbon of states


class Perfect:
    """Stands in for a model: what it decodes is what it is shown."""

    @staticmethod
    def reconstruct(fitted, recordings):
        return [fitted * item.values + (1 - fitted) for item in recordings]


def test_zeros_are_measured_where_they_were_put(monkeypatch):
    """A perfect mirror shows zeros; one that always shows ones, as much as data of ones have."""
    monkeypatch.setattr(scores.application, "reconstruct", Perfect.reconstruct)
    recordings = Recordings((Recording("a", np.ones((100, 2))),), ("x", "y"))
    assert scores.zeros(1.0, recordings, Budget()) == 0
    assert scores.zeros(0.0, recordings, Budget()) == 1
    assert np.all(recordings[0].values == 1)


@pytest.mark.slow
def test_models_are_trained_scored_and_not_trained_again(tmp_path, monkeypatch):
    bumps = laplacian(8, 100, num_points=5)
    monkeypatch.setattr(contest, "load", lambda data, rate: bumps)
    monkeypatch.setattr(contest, "WINDOW", 10)
    said = []
    first = hold("bumps", NAMES, [0], TINY, tmp_path, say=said.append)
    assert [row["model"] for row in first.rows] == NAMES
    for row in first.rows:
        for name in ("bound", "frechet samples", "frechet 0.2-0.8", "joined", "zeros", "seconds per epoch"):
            assert np.isfinite(row[name]), name
        assert row["frechet network"] == first.network
        assert row["states"] >= 1
    assert 0 <= first.rows[0]["joined"] <= 1
    assert (tmp_path / "imputations.png").stat().st_size > 10_000
    run = tmp_path / "vq-vae" / "seed-0"
    assert load_config(run / "config.toml").model.kind == "vq-vae"
    assert {"model", "summary.json", "metrics.ndjson"} <= {x.name for x in run.iterdir()}

    def never(*args):
        raise AssertionError("trained again")

    monkeypatch.setattr(contest, "fit", never)
    again = hold("bumps", NAMES, [0], TINY, tmp_path)
    assert again.rows == first.rows
    (run / "evaluation.json").unlink()  # killed between training and scoring
    assert hold("bumps", NAMES, [0], TINY, tmp_path).rows == first.rows
    card = json.loads((run / "evaluation.json").read_text())
    (run / "evaluation.json").write_text(json.dumps(card | {"bound": 9.0, "frechet network": "another"}))
    assert hold("bumps", NAMES, [0], TINY, tmp_path).rows == first.rows  # scored anew
    (run / "evaluation.json").write_text(json.dumps(card | {"bound": 9.0}))
    assert hold("bumps", NAMES, [0], TINY, tmp_path).rows[0]["bound"] == 9.0
    with pytest.raises(ValueError, match="holds a run with other settings"):
        hold("bumps", NAMES, [0], BUDGETS["tiny"], tmp_path)
    result = CliRunner().invoke(app, ["compare", str(run), str(tmp_path / "svae-gmm" / "seed-0")])
    assert result.exit_code == 0, result.output
    assert "frechet samples" in result.output


def test_seeds_are_counted_or_named():
    assert [seeds_of(x) for x in ("3", "0,4", "2,")] == [[0, 1, 2], [0, 4], [2]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give run folders to compare"),
        (["--data", "laplace", "runs/a"], "not both"),
        (["--budget", "tiny"], "--budget is for models that are trained here"),
        (["--data", "laplace", "--models", "dkss"], "nearest first: dks, "),
        (["--data", "laplace", "--models", ","], "names nothing"),
        (["--data", "laplace", "--budget", "huge"], "choose from tiny, small, full"),
        (["--data", "laplace", "--seeds", "-1"], "--seeds is how many"),
        (["--data", "laplace", "--seeds", "0"], "--seeds is how many"),
    ],
)
def test_wrong_questions_are_answered_in_words(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["compare", *arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_the_command_writes_the_table(tmp_path, monkeypatch):
    asked = {}

    def held(data, models, seeds, budget, folder, *rest):
        asked.update(data=data, models=models, seeds=seeds, budget=budget)
        folder.mkdir()
        return Contest(data, rows(), "0123", 0.25, ["b is odd"])

    monkeypatch.setattr("svae.contest.hold", held)
    out = tmp_path / "out"
    arguments = ["compare", "--data", "laplace", "--models", "all", "--seeds", "2", "--out", str(out)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert asked == {"data": "laplace", "models": list(MODELS), "seeds": [0, 1], "budget": BUDGETS["small"]}
    assert "1.5 ± 0.707" in result.output
    assert "note: b is odd" in result.output
    assert "1.5 ± 0.707" in (out / "table.md").read_text()
    assert json.loads((out / "table.json").read_text())["rows"] == rows()
