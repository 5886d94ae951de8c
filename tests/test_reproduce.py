"""The paper's tables and figures again: each runs, goes on where it stopped, and is made of its rows."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from helpers import users_rules
from svae import words
from svae.cli import app
from svae.config import load_config
from svae.contest import BUDGETS, Budget
from svae.contest import contest as contests
from svae.data import Recording, Recordings, Skeleton, laplacian
from svae.presets import MODELS as NAMES
from svae.reproduce import (
    drawing,
    efforts,
    fig_gradients,
    fig_interpolations,
    fig_natural_gradients,
    fig_segmentations,
    fig_speech_generation,
    material,
    packing,
    published,
    registry,
    request,
    scores,
    sources,
    sticks,
    table1,
    table2,
)
from svae.reproduce.results import Results
from svae.reproduce.run import module_of
from svae.studies.natural.setting import METHODS, RATES, checkpoints
from svae.training.build import GraphPrior, untrained

FRAMES, JOINTS = 30, 2
TINY = replace(
    efforts.EFFORTS["tiny"],
    changes=(*efforts.EFFORTS["tiny"].changes, "joint.steps=2", "pretrain.steps=2"),
    window=10,
    training=8,
    test=6,
    width=2,
    together=3,
)


def motions(count=6):
    """Two joints going around, slowly or fast."""
    rng, items = np.random.default_rng(0), []
    for number in range(count):
        speed = (0.1, 0.5)[number % 2]
        angles = speed * np.arange(FRAMES)[:, None] + np.arange(3 * JOINTS)
        values = np.sin(angles) + 0.1 * rng.normal(size=angles.shape)
        items.append(Recording(f"walk {number}", values, np.full(FRAMES, number % 2)))
    channels = tuple(f"{joint}.{axis}" for joint in ("hand", "foot") for axis in "xyz")
    skeleton = Skeleton(("hand", "foot"), (-1, 0))
    return Recordings(tuple(items), channels, 30.0, ("slow", "fast"), skeleton)


def speech(labelled):
    """Powers over several orders of magnitude."""
    rng = np.random.default_rng(1)
    power = lambda: np.exp(rng.normal(size=(20, 4)).cumsum(axis=0))
    labels = lambda number: np.full(20, number % 2) if labelled else None
    items = tuple(Recording(f"chunk {i}", power(), labels(i)) for i in range(12))
    return Recordings(items, tuple(f"bin_{i}" for i in range(4)), 62.5)


DATA = {"walks": motions(), "voices": speech(False), "words": speech(True)}


@pytest.fixture(autouse=True)
def as_users_run(tmp_path, monkeypatch):
    """In an empty folder, with small data and little work."""
    monkeypatch.chdir(tmp_path)
    for module in sources, material:
        monkeypatch.setattr(module, "load", DATA.__getitem__)
    monkeypatch.setitem(efforts.EFFORTS, "tiny", TINY)
    with users_rules("raise"):
        yield


def run(*arguments, code=0):
    result = CliRunner().invoke(app, ["reproduce", *arguments])
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def rows_of(name):
    return json.loads(Path(f"results/{name}.json").read_text())


def check_again(name, tmp_path):
    """Page and picture are made of the rows alone."""
    page, picture = (tmp_path / "results" / f"{name}.{ending}" for ending in ("md", "png"))
    text = page.read_text()
    assert picture.stat().st_size > 5_000
    page.unlink()
    picture.unlink()
    run(name, "--from-results")
    assert page.read_text() == text
    assert picture.stat().st_size > 5_000
    return text


def test_every_entry_is_a_module_with_the_same_parts():
    for name, entry in registry.ENTRIES.items():
        module = module_of(name)
        assert module.KEY
        assert callable(module.measure)
        assert callable(module.show)
        assert entry.line in run()
        assert name in run()


def test_published_numbers_are_complete():
    for table in published.TABLE2.values():
        assert list(table) == list(request.PAPER)
        assert all(list(row) == list(published.COLUMNS) for row in table.values())
    assert set(published.ARCHITECTURES) <= set(request.PAPER) <= set(NAMES)


def test_every_budget_has_settings_for_every_model():
    """As in any comparison, all models have as many steps; the sizes are the paper's but in the tiny one."""
    for name, effort in efforts.EFFORTS.items():
        for task in efforts.TASKS.values():
            made = [efforts.config_for(task, effort, "here", model, 3) for model in request.PAPER]
            assert len({x.pretrain.steps + x.joint.steps for x in made}) == 1
            assert {x.data.path for x in made} == {"here"}
            if name != "tiny":
                assert {(x.model.num_states, x.model.latent_dim) for x in made} == {(50, 16)}
                assert {x.data.window for x in made} == {task.window}
    transformer = efforts.config_for(task, effort, "here", "transformer-dvae", 0)
    assert transformer.joint.network_rate == 1e-4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table3"], "nearest first: table1"),
        (["table1", "--data", "x"], "--data means nothing to table1"),
        (["table1", "--models", "srnn"], "--models means nothing to table1"),
        (["table2-mocap", "--budget", "huge"], "choose from tiny, small, full"),
        (["table2-mocap", "--budget", "tiny"], "table2-mocap needs --data"),
        (["table2-mocap", "--budget", "tiny", "--data", "walks", "--models", "x"], "there is no model 'x'"),
        (
            ["table2-speech", "--budget", "tiny", "--data", "voices", "--models", "srnn"],
            "give --features-data",
        ),
        (["fig-toy", "--from-results"], "there are no results to show"),
        (["--from-results"], "there are no results in results"),
    ],
)
def test_wrong_questions_are_answered_in_words(arguments, message):
    assert message in run(*arguments, code=2)


def test_motion_capture(tmp_path, monkeypatch):
    """The table, model by model, and the figures that show its models; one test, as they share runs."""
    first = ["table2-mocap", "--budget", "tiny", "--data", "walks"]
    run(*first, "--models", "vq-vae")
    (row,) = rows_of("table2-mocap")
    assert (row["model"], row["seed"]) == ("vq-vae", 0)
    for name in (*published.COLUMNS, "parameters", "train_seconds", "epochs", "steps", "nmi"):
        assert np.isfinite(row[name]), name
    for name in published.COLUMNS[1:]:
        assert row[f"{name}_spread"] >= 0
    assert "fid_0.2_0.8_seen" not in row  # an SVAE's has it
    assert row["device"]
    assert row["jax"]
    assert load_config(tmp_path / "results/table2-mocap/vq-vae/seed-0/config.toml").data.window == 10
    about = Results(tmp_path / "results/table2-mocap", ()).about()
    assert about["data"] == "walks in place of Human3.6M"
    assert 0 <= about["classifier"]["accuracy"] <= 1
    assert about["floor"]["real_halves"] > 0
    assert about["network"] == row["frechet network"]
    assert "walks in place of Human3.6M" in check_again("table2-mocap", tmp_path)

    def never(*args, **more):
        raise AssertionError("done again")

    with monkeypatch.context() as once:
        once.setattr(contests, "fit", never)
        run(*first, "--models", "vq-vae")
        (tmp_path / "results/table2-mocap.json").unlink()  # the run's own scores are still there
        for name in "completed", "bounds":  # each part of the scores by itself, too
            once.setattr(drawing, name, never)
        (tmp_path / "results/table2-mocap/vq-vae/seed-0/evaluation.json").unlink()
        run(*first, "--models", "vq-vae")
        assert rows_of("table2-mocap") == [row]
        once.setattr(scores, "row", never)
        (tmp_path / "results/table2-mocap.json").unlink()
        run(*first, "--models", "vq-vae")
        assert rows_of("table2-mocap") == [row]
    assert "holds results with budget 'tiny'" in run(
        "table2-mocap", "--budget", "small", "--data", "walks", code=2
    )

    with monkeypatch.context() as once:  # all that follows has its model
        once.setattr(contests, "fit", never)
        given = ["--budget", "tiny", "--data", "walks", "--models", "vq-vae"]
        run("fig-segmentations", *given)
        found = rows_of("fig-segmentations")
        assert [row["label"] for row in found] == ["fast", "slow"]
        assert all(len(row["states"]) == FRAMES for row in found)
        poses = packing.unpacked(found[0]["poses"])
        np.testing.assert_allclose(poses, DATA["walks"][found[0]["clip"]].values[12:13], atol=0.01)  # noise
        assert "slow" in check_again("fig-segmentations", tmp_path)
        run("fig-interpolations", *given)
        truth, drawn = rows_of("fig-interpolations")
        assert (truth["model"], drawn["model"]) == ("the truth", "vq-vae")
        shapes = [packing.unpacked(row["draws"]).shape for row in (truth, drawn)]
        assert shapes == [(1, 11, 6), (2, 11, 6)]
        outside = packing.unpacked(drawn["draws"])[:, 0]  # what was seen is not touched
        np.testing.assert_allclose(outside[0], outside[1], atol=1e-12)
        check_again("fig-interpolations", tmp_path)

    page = tmp_path / "all.md"
    assert "table2-mocap, fig-segmentations, fig-interpolations" in run("--from-results", "--out", str(page))
    assert "(results/table2-mocap.png)" in page.read_text()

    (tmp_path / "results/table2-mocap/features/features.json").unlink()
    again = replace(TINY, epochs=2)
    monkeypatch.setitem(efforts.EFFORTS, "tiny", again)
    message = "holds results with network"  # distances by two networks cannot stand in one table
    assert message in run(*first, "--models", "svae-gmm", code=2)


def test_speech(tmp_path):
    """Features are learned from other speech, which has labels."""
    given = ["--budget", "tiny", "--data", "voices", "--models", "vq-vae"]
    run("table2-speech", *given, "--features-data", "words")
    (row,) = rows_of("table2-speech")
    assert np.isfinite(row["fid_0.2_0.8"])
    assert "nmi" not in row
    config = load_config(tmp_path / "results/table2-speech/vq-vae/seed-0/config.toml")
    assert config.model.likelihood == "gamma"
    assert "voices in place of WSJ0" in check_again("table2-speech", tmp_path)
    run("fig-speech-generation", *given)
    real, made = rows_of("fig-speech-generation")
    assert packing.unpacked(made["picture"]).shape == (100, 1)
    assert packing.unpacked(real["picture"]).shape == (60, 1)  # all that there is
    assert len(made["states"]) == 100
    check_again("fig-speech-generation", tmp_path)


def test_toy(tmp_path, monkeypatch):
    changes = ("joint.steps=2", "pretrain.steps=0", "chunk=2", "model.latent_dim=2", "batch_size=2")
    monkeypatch.setitem(BUDGETS, "tiny", Budget(changes, draws=2, completed=1, epochs=1, width=2))
    bumps = lambda data, rate=None: laplacian(8, 40, num_points=4)
    monkeypatch.setattr(contests, "load", bumps)
    monkeypatch.setattr(contests, "WINDOW", 10)
    monkeypatch.setattr(module_of("fig-toy"), "load", bumps)
    run("fig-toy", "--budget", "tiny", "--models", "vq-vae", "--seeds", "2")
    first, second = rows_of("fig-toy")
    assert packing.unpacked(first["picture"]).shape == (40, 4)
    assert "picture" not in second  # one of each model is shown
    assert first["bound"] != second["bound"]
    page = check_again("fig-toy", tmp_path)
    assert "vq-vae" in page
    assert "±" in page


def test_timing(tmp_path, monkeypatch):
    monkeypatch.setattr(table1.table1, "default_methods", lambda: ["implicit, sequential"])
    run("table1", "--budget", "tiny")
    (row,) = rows_of("table1")
    assert (row["method"], row["batch"]) == ("implicit, sequential", 1)
    assert row["median_ms"] > 0
    assert "implicit, sequential" in check_again("table1", tmp_path)
    monkeypatch.setattr(table1.table1, "measure", None)  # nothing is measured again
    run("table1", "--budget", "tiny")


def test_architectures(tmp_path):
    run("table-architectures")
    found = {
        row["model"]: (row["encoder"], row["decoder"], row["latent"])
        for row in rows_of("table-architectures")
    }
    for name in ("svae-lds", "sin-lds", "transformer-dvae", "srnn", "dks"):
        assert found[name] == published.ARCHITECTURES[name]
    for name in ("svae-slds", "sin-slds"):  # the paper leaves out one symmetric matrix
        assert found[name][2] == published.ARCHITECTURES[name][2] + 16 * 17 // 2
    check_again("table-architectures", tmp_path)


def test_gradients_of_an_svae(monkeypatch):
    """Windows and models are those of the table."""
    config = efforts.config_for(efforts.TASKS["mocap"], TINY, "walks", "svae-slds", 0)
    model = untrained(config, 3 * JOINTS, GraphPrior())
    standardizer = SimpleNamespace(apply=lambda values: 2 * values)
    fitted = SimpleNamespace(
        model=model, config=config, standardizer=standardizer, channels=DATA["walks"].channels
    )
    monkeypatch.setattr(fig_gradients, "models_of", lambda *asked: iter([("svae-slds", fitted)]))
    asked = request.Request("fig-gradients", None, "tiny", "walks")
    values, models = fig_gradients._windows_and_models(asked, 4)
    assert values.shape == (4, 10, 6)
    test = material.material("mocap", asked).test
    np.testing.assert_array_equal(values[0], 2 * test[0].values)
    assert models["trained"] is model


def test_natural_gradients_of_given_data(monkeypatch):
    """One case, on the windows of the table; the study itself has tests of its own."""
    seen = {}

    def curves(name, case, recordings, setting, say):
        seen.update(case=name, windows=len(recordings), seeds=setting.seeds)
        rising = np.linspace(0, 1, len(checkpoints(setting)))
        return {title: np.tile(rising, (setting.seeds, len(RATES), 1)) for title in METHODS}

    monkeypatch.setattr(fig_natural_gradients, "curves_of", curves)
    run("fig-natural-gradients", "--budget", "tiny", "--data", "walks", "--seeds", "2")
    assert seen == {"case": "walks in place of Human3.6M", "windows": 8, "seeds": 2}
    (row,) = rows_of("fig-natural-gradients")
    assert (row["case"], row["seeds"]) == (seen["case"], 2)


def test_captions_tell_what_stands_for_what():
    assert sources.caption("/data/cmu_mocap", "Human3.6M") == "CMU motion capture in place of Human3.6M"
    assert sources.caption("/data/speechocean/", "WSJ0") == "speechocean762 in place of WSJ0"
    for name in ("h3.6m", "Human3.6M", "h36m"):
        assert sources.caption(name, "Human3.6M") == "Human3.6M"
    assert sources.caption("mine.npz", "WSJ0") == "mine.npz in place of WSJ0"


def test_folders_have_splits_and_files_are_split(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(sources, "load", lambda *args, **more: asked.append((args, more)) or DATA["walks"])
    sources.recordings(str(tmp_path), "test")
    assert asked == [((str(tmp_path),), {"split": "test"})]
    train, test = (sources.recordings("a file", part) for part in ("train", "test"))
    assert train.names + test.names == DATA["walks"].names
    assert len(test) == 2


def test_windows_are_whole_and_spread_out():
    cut = sources.cut(DATA["walks"], 20, 5)
    assert len(cut) == 6 * 3
    assert set(cut.lengths) == {20}
    np.testing.assert_array_equal(cut[1].values, DATA["walks"][0].values[5:25])
    some = sources.cut(DATA["walks"], 20, 5, most=2)
    assert some.names == (cut.names[0], cut.names[-1])
    with pytest.raises(ValueError, match="the longest: 30"):
        sources.cut(DATA["walks"], 31, 1)
    noisy = sources.with_noise(cut, 0.1, 0)
    assert 0.05 < np.std(noisy[0].values - cut[0].values) < 0.2
    assert sources.with_noise(cut, 0.0, 0) is cut


def test_pictures_survive_packing():
    values = np.random.default_rng(0).normal(size=(3, 4, 5))
    for bits in (8, 16):
        back = packing.unpacked(json.loads(json.dumps(packing.packed(values, bits))))
        assert np.max(np.abs(back - values)) <= np.ptp(values) / 2**bits
    assert np.all(packing.unpacked(packing.packed(np.full((2, 2), 7.0))) == 7)
    assert packing.unpacked(packing.packed(np.array([np.nan, 1.0, 2.0])))[0] == 1


def test_tables_compare_with_the_paper():
    row = {"model": "srnn", "seed": 0, "states": None, "parameters": 1000, "train_seconds": 60.0}
    ours = {"bound": 3.0, "fid_sample": 2.0, "fid_sample_spread": 0.5}
    rest = {name: None for name in published.COLUMNS if name not in ours}
    rows = [row | ours | rest, row | ours | rest | {"seed": 1, "bound": 5.0}]
    rows.append(rows[0] | {"model": "svae-slds", "fid_sample": 9.0, "seed": 0})
    ordered = table2.in_order(rows, ["svae-slds", "srnn"])
    assert [(x["model"], x["seed"]) for x in ordered] == [("svae-slds", 0), ("srnn", 0), ("srnn", 1)]
    found = table2.summarised(rows)
    assert found["srnn"]["bound"] == 4.0
    assert found["srnn"]["bound_spread"] == pytest.approx(np.sqrt(2))
    assert found["svae-slds"]["fid_sample_spread"] == 0.5
    assert table2.floors(rows) == ""
    seen = {f"{name}_seen": 0.5 for name in published.COLUMNS[2:]}
    assert "srnn, 0" in table2.floors([rows[0] | seen])
    text = table2.reading(found, published.TABLE2["mocap"])
    ours, theirs = (line.split("|") for line in text.splitlines()[2:])
    assert (ours[2].strip(), ours[3].strip()) == ("srnn", "srnn")
    assert (theirs[2].strip(), theirs[3].strip()) == ("srnn", "svae-slds")
    assert table2.reading({"vae": found["srnn"]}, published.TABLE2["mocap"]) == ""


def test_models_are_compared_by_the_seeds_that_all_have():
    row = lambda model, seed: {"model": model, "seed": seed}
    rows = [row("srnn", 0), row("dks", 0), row("dks", 1)]
    assert table2.comparable(rows) == rows[:2]
    assert table2.comparable(rows[::2]) == rows[::2]
    assert words.number(1234.6) == "1,235"
    assert words.number(1.234, 0.01) == "1.23 ± 0.01"
    assert words.number(None) == "-"


def test_hidden_frames_are_those_that_are_drawn_anew(monkeypatch):
    windows = [SimpleNamespace(values=np.zeros((10, 2))) for _ in range(3)]
    effort = replace(efforts.EFFORTS["tiny"], window=10, together=2)
    about = efforts.TASKS["mocap"], effort, "", ""
    given = material.Material(*about, training=None, test=windows, known=None, clips=None)
    monkeypatch.setattr(drawing, "replicated", lambda fitted, test, together, seed: np.ones((3, 10, 2)))
    judge = SimpleNamespace(distance=lambda values: values.mean(axis=(0, 2)).tolist())
    found = scores.replications(SimpleNamespace(config=SimpleNamespace(seed=0)), given, judge)
    assert found == {
        "fid_0.0_0.8_seen": [1] * 8 + [0] * 2,
        "fid_0.2_1.0_seen": [0] * 2 + [1] * 8,
        "fid_0.2_0.8_seen": [0] * 2 + [1] * 6 + [0] * 2,
    }
    assert not any(item.values.any() for item in windows)


def test_results_keep_one_row_for_each_part(tmp_path):
    results = Results(tmp_path / "some", ("model", "seed"))
    results.settle(budget="tiny")
    for seed, bound in ((0, 1.0), (1, 2.0), (0, 3.0)):
        results.add({"model": "a", "seed": seed, "bound": bound})
    assert [row["bound"] for row in results.rows()] == [3.0, 2.0]
    assert results.has("a", 1)
    assert not results.has("b", 0)
    with pytest.raises(ValueError, match="with budget 'tiny', and these would have 'full'"):
        results.settle(budget="full")
    results.path.write_text("{}")
    with pytest.raises(ValueError, match="must hold a list of rows"):
        results.rows()


def test_clips_of_every_action_come_first():
    clips = motions(5)
    chosen = fig_segmentations.various(clips)
    assert chosen.names == ("walk 1", "walk 3", "walk 0", "walk 2", "walk 4")
    bare = replace(clips, items=tuple(replace(item, labels=None) for item in clips), label_names=None)
    assert fig_segmentations.various(bare).names == clips.names


def test_a_jump_is_measured_by_usual_steps():
    truth = np.arange(10.0)[:, None] * np.ones(3)
    draws = np.stack([truth, truth])
    draws[1, 5] -= 2.0
    assert fig_interpolations.jump(draws, truth, 6) == pytest.approx((1 + 3) / 2)


def test_bones_hang_on_joints_that_move():
    skeleton = Skeleton(tuple("abcd"), (-1, 0, 1, 2), still=((0, (0.0, 0.0, 0.0)),))
    assert sticks.moving_parents(skeleton) == [-1, 0, 1]
    assert sticks.moving_parents(Skeleton(("a", "b"), (-1, 0))) == [-1, 0]


def test_the_pieces_of_a_stick_figure():
    axes = Figure().subplots()
    sticks.stick_figure(axes, np.array([0, 1, 0, 0, 2, 0.0]), (-1, 0), 3.0, "black")
    first, second = axes.collections[0].get_segments()
    assert (first[:, 1].tolist(), second[:, 1].tolist()) == ([0, 1], [1, 2])
    assert first[0, 0] == 3.0


def test_loudness_is_relative_to_the_loudest():
    power = np.array([[1.0, 1, 1, 100, 100, 100], [0.0, 0, 0, np.nan, np.inf, 1]])
    found = fig_speech_generation.loudness(power[:1])
    np.testing.assert_allclose(found, [[-20, 0]])
    assert np.isfinite(fig_speech_generation.loudness(power)).all()


def test_given_data_make_one_case():
    assert set(fig_natural_gradients.GIVEN) == set(fig_natural_gradients.SETTINGS) == set(efforts.EFFORTS)
