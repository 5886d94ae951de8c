"""The study of gradient errors: its arithmetic, and what it must show."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import benchmark, relative_error
from svae.meanfield import CoordinateAscent
from svae.pgm import SLDS


@pytest.fixture(scope="module")
def study():
    return benchmark("gradient_error")


@pytest.fixture
def setting(study):
    return study.Setting(num_states=3, latent_dim=2, num_steps=30, batch=8, fit_rounds=10, sweeps=(30,))


def test_study(study, setting, tmp_path):
    """One test, because compiling takes most of its time."""
    report = study.summarise(setting, study.run(setting, say=lambda line: None))
    for numbers in report["models"].values():
        assert numbers["truth"]["largest_residual"] < 1e-20
        assert numbers["truth"]["largest_difference_to_conjugate_gradients"] < 1e-6
        curves = numbers["relative_error_by_passes"]
        assert curves[study.CONJUGATE]["p90"][-1] < 0.1 * curves[study.SERIES]["p90"][-1]
        assert curves[study.SWEEPS]["p90"][-1] <= curves[study.SERIES]["p90"][-1]

    # after convergence every solve beats none
    fitted = report["models"]["fitted"]
    assert fitted["converged"] == [1]
    for name in set(study.ESTIMATORS) - {study.NO_SOLVE}:
        assert fitted["ratio_to_no_solve"][name]["median"][0] < 1e-3, name
        assert fitted["ratio_to_no_solve"][name]["p90"][0] < 0.1, name

    json.dumps(report, allow_nan=False)
    assert study.IMPLICIT in study.table(report)
    study.plot(report, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000

    # before convergence the threshold is no worse than none; and these are the gradients of training
    model = SLDS(setting.num_states, setting.latent_dim)
    data = study.draw_data(model, setting)
    case = study.make_case(model, jax.jit(model.initial)(jax.random.key(1)), data, seed=0)
    truth = study.find_truth(model, case)
    for sweeps in (1, 3):
        solution = study.advance(model, case, study.begin(case), jnp.asarray(sweeps))
        gradients = study.gradients_at(model, case, solution, study.ADJOINTS)
        safe, plain = (
            study.error(gradients[name], truth.gradient) for name in (study.THRESHOLD, study.NO_SOLVE)
        )
        assert jnp.max(safe / plain) < 1.01
    trained = study.gradient_through(model, case, CoordinateAscent(3, 0.0), study.ADJOINTS[study.CAPPED])
    assert relative_error(gradients[study.CAPPED], trained) < 1e-12


def test_fit_never_gets_worse(study, setting):
    model = SLDS(setting.num_states, setting.latent_dim)
    _, bounds = study.fit(model, study.draw_data(model, setting), rounds=6)
    assert np.all(np.diff(bounds) > -1e-8)


def test_percentiles_count_failures_as_large(study):
    values = np.array([[1.0, np.nan, 2.0], [0.0, 1.0, 2.0]])
    assert study.over_batch(values) == {"median": [2.0, 1.0], "p90": [study.FAILED, 2.0]}


def test_settings_from_the_command_line(study):
    chosen = study.choose_setting(study.parse(["--batch", "5", "--max-sweeps", "7"]))
    assert chosen == study.Setting(batch=5, sweeps=(1, 2, 3, 4, 5, 6, 7))
    assert study.choose_setting(study.parse(["--quick"])) == study.QUICK
