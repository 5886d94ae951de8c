"""The study of gradient errors: its arithmetic, and what it must show."""

import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import relative_error
from svae.meanfield import CoordinateAscent
from svae.models import make_svae
from svae.networks import Gaussian
from svae.pgm import LDS, SLDS
from svae.reproduce import fig_gradients
from svae.reproduce.request import Request
from svae.reproduce.run import from_results, reproduce
from svae.studies.gradients import encoded, estimators, summary, synthetic
from svae.studies.gradients.experiments import find_truth

SIZES = synthetic.Sizes(num_states=3, latent_dim=2, num_steps=30, batch=8, fit_rounds=10)


@pytest.mark.slow
def test_study(tmp_path, monkeypatch):
    """One test, because compiling takes most of its time."""
    monkeypatch.setitem(fig_gradients.SIZES, "tiny", fig_gradients.Sizes(SIZES, windows=1, sweeps=(30,)))
    page, picture = reproduce(Request("fig-gradients", tmp_path / "figure", "tiny"))
    assert "a synthetic switching system" in page.read_text()
    assert picture.stat().st_size > 10_000
    rows = json.loads((tmp_path / "figure.json").read_text())
    assert [row["system"] for row in rows] == ["new", "trained"]
    numbers = {row["system"]: row for row in rows}
    for own in numbers.values():
        assert own["truth"]["largest_residual"] < 1e-20
        assert own["truth"]["largest_difference_to_conjugate_gradients"] < 1e-6
        curves = own["relative_error_by_passes"]
        # a series that is exact to rounding cannot be beaten
        series = curves[estimators.SERIES]["p90"][-1]
        assert curves[estimators.CONJUGATE]["p90"][-1] < max(0.1 * series, 1e-10)
        assert curves[estimators.SWEEPS]["p90"][-1] <= max(series, 1e-10)

    # after convergence every solve beats none
    trained = numbers["trained"]
    assert trained["converged"] == [1]
    for name in set(estimators.ESTIMATORS) - {estimators.NO_SOLVE}:
        assert trained["ratio_to_no_solve"][name]["median"][0] < 1e-3, name
        assert trained["ratio_to_no_solve"][name]["p90"][0] < 0.1, name

    json.dumps(numbers, allow_nan=False)
    assert [line[0] for line in summary.table(trained)][2:] == list(estimators.ESTIMATORS)
    text = page.read_text()
    from_results("fig-gradients", tmp_path / "figure")
    assert page.read_text() == text
    monkeypatch.setattr(fig_gradients, "study", None)  # nothing is studied again
    reproduce(Request("fig-gradients", tmp_path / "figure", "tiny"))

    # before convergence the threshold is no worse than none; and these are the gradients of training
    system, case = synthetic.cases(SIZES)["new"]
    truth = find_truth(system, case)
    for sweeps in (1, 3):
        solution = estimators.advance(system, case, estimators.begin(case), jnp.asarray(sweeps))
        gradients = estimators.gradients_at(system, case, solution, estimators.ADJOINTS)
        safe, plain = (
            estimators.error(gradients[name], truth.gradient)
            for name in (estimators.THRESHOLD, estimators.NO_SOLVE)
        )
        assert jnp.max(safe / plain) < 1.01
    capped = estimators.ADJOINTS[estimators.CAPPED]
    trained = estimators.gradient_through(system, case, CoordinateAscent(3, 0.0), capped)
    assert relative_error(gradients[estimators.CAPPED], trained) < 1e-12


def test_problems_of_an_svae_are_those_of_its_training():
    """Its own potentials, parameters and likelihood: KL and reconstruction are those of its bound."""
    model = eqx.filter_jit(make_svae)(SLDS(2, 2), Gaussian(3), 3, jax.random.key(0))
    values = np.random.default_rng(0).normal(size=(2, 12, 3))
    system, case = encoded.case_of(model, values, seed=0)
    posterior = model.posterior()
    assert relative_error(case.theta, posterior.inference_stats) < 1e-5
    assert case.linear.dtype == jnp.float64
    path = jnp.zeros((12, 2))
    single = jnp.asarray(path, jnp.float32), jnp.asarray(values[0], jnp.float32)
    expected = -jnp.sum(model.likelihood.log_density(model.decoder(single[0]), single[1]))
    assert relative_error(system.reconstruction(path, case.target[0]), expected) < 1e-6
    part = case.part(slice(1, 2))
    assert relative_error(part.linear[0], case.linear[1]) == 0
    assert part.theta is case.theta
    other = eqx.filter_eval_shape(make_svae, LDS(2), Gaussian(3), 3, jax.random.key(0))
    with pytest.raises(ValueError, match="switching linear"):
        encoded.case_of(other, values, seed=0)


def test_fit_never_gets_worse():
    graph = SLDS(SIZES.num_states, SIZES.latent_dim)
    _, bounds = synthetic.fit(graph, synthetic.draw_data(graph, SIZES, seed=0), rounds=6)
    assert np.all(np.diff(bounds) > -1e-8)


def test_percentiles_count_failures_as_large():
    values = np.array([[1.0, np.nan, 2.0], [0.0, 1.0, 2.0]])
    assert summary.over_batch(values) == {"median": [2.0, 1.0], "p90": [summary.FAILED, 2.0]}
