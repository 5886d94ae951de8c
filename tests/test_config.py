"""Settings and durations: what is wrong is said by name."""

import pytest

from svae.config import Config, ConfigError, load_config, make_config, override, write_config
from svae.durations import frames_from_duration


def test_a_file_holds_all_settings(tmp_path):
    changed = override(Config(), ["data.path=ä b.npz", "model.hidden=[8, 4]", "data.window=0.5s", "seed=3"])
    for config in (Config(), changed):
        write_config(config, tmp_path / "new" / "config.toml")
        assert load_config(tmp_path / "new" / "config.toml") == config


@pytest.mark.parametrize(
    ("assignment", "section", "name", "value"),
    [
        ("model.num_states=3", "model", "num_states", 3),
        (" model.hidden = [8] ", "model", "hidden", (8,)),
        ("model.linear=false", "model", "linear", False),
        ("model.graph=lds", "model", "graph", "lds"),
        ("model.typical_duration=200ms", "model", "typical_duration", "200ms"),
        ("data.path=a=b.npz", "data", "path", "a=b.npz"),
        ("joint.patience=7", "joint", "patience", 7),
    ],
)
def test_assignments_change_one_setting(assignment, section, name, value):
    config = override(Config(), [assignment])
    assert getattr(getattr(config, section), name) == value
    untouched = Config().model_dump()
    untouched[section][name] = value
    assert config.model_dump() == untouched


def test_null_is_no_value():
    assert override(Config(), ["data.rate=5", "data.rate=null"]).data.rate is None


@pytest.mark.parametrize(
    ("assignment", "nearest"),
    [
        ("model.num_sates=3", "model.num_states"),
        ("num_states=3", "model.num_states"),
        ("modle.num_states=3", "model.num_states"),
        ("joint.stpes=3", "joint.steps"),
        ("batchsize=3", "batch_size"),
    ],
)
def test_unknown_names_get_the_nearest(assignment, nearest):
    name = assignment.partition("=")[0]
    with pytest.raises(ConfigError, match=f"'{name}'; did you mean '{nearest}'"):
        override(Config(), [assignment])


def test_names_unlike_any_other_are_told_where_settings_are():
    with pytest.raises(ConfigError, match=r"no setting 'zzz'; settings are in the sections data, model"):
        override(Config(), ["zzz=1"])


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("seed=x", 'seed: .*integer.* got "x"'),
        ("pretrain.steps=-1", "pretrain.steps: .*greater than or equal to 0, got -1"),
        ("model.hidden=8", "model.hidden: .*got 8"),
        ("model.hidden=[8, 0]", "model.hidden.1: .*got 0"),
        ("model.graph=sds", "model.graph: .*'slds'.*got \"sds\""),
        ("model=5", "model: .*got 5"),
        ("data.window=-1", "^data.window: [^;]*got -1$"),
        ("data.window=[1]", "^data.window: [^;]*0.5s[^;]*$"),
        ("data.window=true", "^data.window: "),
        ("model.typical_duration=long", "^model.typical_duration: .*0.5s.*got 'long'$"),
        ("data.path.x=1", "'path' is a setting"),
        ("seed", "section.name=value, got 'seed'"),
    ],
)
def test_wrong_values_are_named(assignment, message):
    with pytest.raises(ConfigError, match=message):
        override(Config(), [assignment])


def test_all_wrong_values_are_named_at_once():
    with pytest.raises(ConfigError, match=r"model\.num_states: .*; joint\.steps: "):
        make_config({"model": {"num_states": 0}, "joint": {"steps": "many"}})


@pytest.mark.parametrize("content", [b"seed = ", b"\xff\xfe"])
def test_broken_files_are_named(tmp_path, content):
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.toml is not valid TOML"):
        load_config(path)


@pytest.mark.parametrize(
    ("duration", "frames"),
    [("0.5s", 10), ("200ms", 4), (" 2 min ", 2400), ("1e-1h", 7200), ("30frames", 30), ("1 frame", 1)],
)
def test_durations_with_units(duration, frames):
    assert frames_from_duration(duration, rate=20.0) == pytest.approx(frames)


@pytest.mark.parametrize("duration", [12, 12.0, "12", "12frames"])
def test_frames_need_no_rate(duration):
    assert frames_from_duration(duration, rate=None) == 12


@pytest.mark.parametrize(
    "duration", ["", "soon", "-1s", "3 weeks", "1s 2s", "0s", 0, -1, float("nan"), float("inf")]
)
def test_impossible_durations_are_named(duration):
    with pytest.raises(ValueError, match=r"^wait must"):
        frames_from_duration(duration, 10.0, "wait")


def test_seconds_need_a_rate():
    with pytest.raises(ValueError, match="wait is in s, but the sampling rate is unknown"):
        frames_from_duration("1s", None, "wait")
