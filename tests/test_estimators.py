"""The front door, as users knock: forms of data, scikit-learn's conventions, saving and loading."""

import equinox as eqx
import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import svae
from helpers import STEPS, users_rules
from helpers import waves as recordings
from svae.application import padded_length
from svae.data import DataError, load
from svae.models import Batch

TINY = {"model.hidden": "[8]", "dynamics.laps": 2, "chunk": 2}  # as in helpers.py


@pytest.fixture(autouse=True)
def as_users_run():
    """Single precision, and JAX's own rules for mixing types."""
    with users_rules():
        yield


def waves() -> np.ndarray:
    return np.stack([item.values for item in recordings()])


@pytest.fixture(scope="module")
def fitted():
    with users_rules():
        steps = {"pretrain_steps": STEPS, "joint_steps": STEPS}
        model = svae.SwitchingSVAE(2, 2, **steps, batch_size=2, settings=TINY, random_state=0)
        return model.fit(waves(), rate=10.0)


def test_parameters_follow_scikit_learn():
    model = svae.SwitchingSVAE(5, typical_duration="0.5s", settings={"joint.graph_rate": 0.01})
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    config = twin.set_params(num_states=7).config()
    assert (config.model.num_states, config.model.typical_duration, config.joint.graph_rate) == (
        7,
        "0.5s",
        0.01,
    )
    assert svae.LinearSVAE(3).config().model.graph == "lds"
    assert svae.MixtureSVAE(3).config().model.graph == "mixture"


def test_an_unknown_setting_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match=r"joint\.graph_rate"):
        svae.SwitchingSVAE(settings={"joint.graph_rat": 1}).config()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"random_state": "lucky"}, "random_state must be None or a whole number from 0 on, got 'lucky'"),
        ({"random_state": 1.5}, "got 1.5"),
        ({"random_state": -1}, "got -1"),
        (
            {"settings": ["joint.steps=3"]},
            r"settings must be a dictionary of values by name, such as .*, got \['joint.steps=3'\]",
        ),
    ],
)
def test_wrong_parameters_are_named(parameters, message):
    with pytest.raises(ValueError, match=message):
        svae.SwitchingSVAE(**parameters).config()


def test_using_a_model_before_fitting_it_says_so():
    with pytest.raises(NotFittedError, match="call fit first"):
        svae.SwitchingSVAE().segment(waves())


def test_results_have_the_form_of_the_data(fitted):
    data = waves()
    assert fitted.segment(data).shape == (4, 40)
    ragged = fitted.segment([data[0], data[1, :35]])  # padded alike
    assert [len(x) for x in ragged] == [40, 35]
    assert set(fitted.predict({"a": data[0], "b": data[1]})) == {"a", "b"}
    assert fitted.segment(data[0]).shape == (40,)
    assert fitted.transform(data).shape == (4, 40, 2)
    np.testing.assert_allclose(fitted.segment_proba(data).sum(axis=-1), 1, atol=1e-5)
    assert fitted.sample(2, 30).shape == (2, 30, 3)
    assert np.isfinite(fitted.score(data))


def test_a_recording_gets_the_same_answer_alone_and_in_company(fitted):
    data = [waves()[0], waves()[1, :33]]
    together = fitted.transform(data)
    for one, x in zip(data, together, strict=True):
        np.testing.assert_array_equal(fitted.transform([one])[0], x)


def test_what_is_known_stays_and_what_is_missing_is_drawn(fitted):
    data = waves()[:1].copy()
    data[0, 10:15] = np.nan
    data[0, 20, 1] = np.nan
    drawn = fitted.impute(data, n_samples=4)
    assert drawn.shape == (1, 4, 40, 3)
    missing = np.isnan(data[0])
    assert np.isfinite(drawn).all()
    assert (drawn[0][:, ~missing] == data[0][~missing]).all()
    assert (drawn[0][:, missing].std(axis=0) > 0).all()


def test_segments_cover_every_frame_once(fitted):
    table = fitted.segments(waves())
    assert list(table.columns[:3]) == ["recording", "start", "stop"]
    lengths = (table["stop"] - table["start"]).groupby(table["recording"]).sum()
    assert (lengths == 40).all()
    assert table["seconds"].sum() == pytest.approx(16.0)


def test_a_saved_model_gives_the_same_answers(fitted, tmp_path):
    loaded = svae.SwitchingSVAE.load(fitted.save(tmp_path))
    np.testing.assert_array_equal(loaded.segment_proba(waves()), fitted.segment_proba(waves()))
    assert (loaded.rate_, loaded.num_states) == (10.0, 2)
    assert loaded.settings == {"model.hidden": [8], "dynamics.laps": 2, "chunk": 2}
    assert loaded.config() == fitted.config()
    with pytest.raises(ValueError, match="kind slds, not lds"):
        svae.LinearSVAE.load(tmp_path)


def test_forbidden_states_are_a_list(fitted):
    with pytest.raises(ValueError, match=r"such as \[2\], got 2"):
        fitted.segment(waves(), without=2)


def test_other_channels_are_refused(fitted):
    with pytest.raises(DataError, match="3 channels"):
        fitted.segment(waves()[..., :2])


def test_lengths_of_padding_are_few_and_never_short():
    lengths = {padded_length(n) for n in range(1, 2000)}
    assert len(lengths) < 40
    assert all(n <= padded_length(n) <= max(16, 1.34 * n) for n in range(1, 2000))


def test_a_forecast_continues_each_sequence_at_its_own_end(fitted):
    model = fitted.fitted_.model
    values = jax.numpy.asarray(waves()[:3], jax.numpy.float32)
    batch = Batch(values, jax.numpy.array([40, 30, 20]))
    ahead = eqx.filter_jit(lambda key, batch: model.forecast(key, batch, 5, 2))(jax.random.key(0), batch)
    assert ahead.values.shape == (2, 3, 5, 3)
    assert ahead.states.shape == (2, 3, 5)
    assert np.isfinite(ahead.values).all()


def test_import_starts_nothing_and_finds_everything():
    assert {"SwitchingSVAE", "LinearSVAE", "MixtureSVAE", "load"} <= set(dir(svae))
    assert svae.load("mocap6").rate == load("mocap6").rate == 10.0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = svae.nothing
