"""Odd arguments either work or raise an error that says what is wrong."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import astype
from models import MODELS, infer, known, random_case, random_parameters
from svae.chains import Form
from svae.expfam import parameter_posterior, prior_kl
from svae.pgm import HMM, LDS, SLDS, GaussianMixture, StandardNormal

SMALLEST = {
    "normal": StandardNormal(1),
    "mixture": GaussianMixture(1, 1),
    "hmm": HMM(1, 1),
    "lds": LDS(1),
    "lds-parallel": LDS(1, form=Form.PARALLEL),
    "slds": SLDS(1, 1),
    "slds-parallel": SLDS(1, 1, form=Form.PARALLEL),
}


@pytest.mark.slow
@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("name", SMALLEST)
def test_one_state_one_dimension_one_step(name, time):
    model = SMALLEST[name]

    @eqx.filter_jit
    def run(linear):
        unconstrained = model.family.unconstrained_from_natural(model.initial(jax.random.key(0)))
        posterior = parameter_posterior(model.family, unconstrained)
        inference = model.infer(posterior, model.potentials(linear, jnp.ones_like(linear)))
        return inference, model.sample(jax.random.key(1), inference.solution)

    (inference, sample), linear = run(jnp.ones((time, 1))), jnp.ones((time, 1))
    assert inference.solution.converged
    assert inference.kl_local > -1e-9
    assert jnp.all(jnp.isfinite(sample[0]))
    gradient = jax.jit(jax.grad(lambda linear: run(linear)[0].kl_local))(linear)
    assert jnp.all(jnp.isfinite(gradient))


@pytest.mark.parametrize(
    ("linear", "precision", "observed", "message"),
    [
        (np.zeros((5, 3)), np.ones((5, 3)), None, r"linear must have shape \(..., 2\)"),
        (np.zeros((5, 2)), np.ones((4, 2)), None, r"precision must have shape \(..., 5, 2\)"),
        (np.full((5, 2), np.nan), np.ones((5, 2)), None, "linear holds NaN"),
        (np.zeros((5, 2)), np.full((5, 2), np.inf), None, "precision holds NaN or infinite"),
        (np.zeros((5, 2)), -np.ones((5, 2)), None, "precision must not be negative"),
        (np.zeros((5, 2)), np.ones((5, 2)), np.ones(4, bool), r"observed must have shape \(..., 5\)"),
    ],
)
def test_bad_potentials_are_named(linear, precision, observed, message):
    arrays = (x if x is None else jnp.asarray(x) for x in (linear, precision, observed))
    with pytest.raises(ValueError, match=message):
        SLDS(3, 2).potentials(*arrays)


def test_nan_under_jit_is_not_hidden():
    model = MODELS["slds"]
    linear = jnp.ones((6, 2)).at[1, 0].set(jnp.nan)
    potentials = jax.jit(model.potentials)(linear, jnp.ones((6, 2)))
    inference = infer(model, random_case(model).posterior, potentials)
    assert not inference.solution.converged
    assert jnp.isnan(inference.kl_local)


def test_missing_steps_may_hold_anything():
    model = LDS(2)
    posterior = known(model, random_parameters(model, jax.random.key(0)))
    linear = jnp.ones((6, 2)).at[2:4].set(jnp.nan)
    observed = jnp.arange(6) < 2
    observed = observed | (jnp.arange(6) >= 4)
    inference = infer(model, posterior, model.potentials(linear, jnp.ones((6, 2)), observed))
    zeros = jnp.where(observed[:, None], jnp.ones((6, 2)), 0)
    same = infer(model, posterior, model.potentials(zeros, zeros))
    np.testing.assert_allclose(inference.kl_local, same.kl_local, rtol=1e-12)
    assert jnp.all(jnp.isfinite(inference.solution.stats[0].first))


def test_states_can_be_clamped_by_potentials():
    model = MODELS["slds"]
    z, k = model.potentials(jnp.ones((6, 2)), jnp.ones((6, 2)))
    labels = jnp.array([0, 2, 1, 1, 0])
    clamped = k._replace(node=jnp.where(jax.nn.one_hot(labels, 3) == 1, 0.0, -jnp.inf))
    solution = infer(model, random_case(model).posterior, (z, clamped)).solution
    np.testing.assert_allclose(solution.stats[1].node, jax.nn.one_hot(labels, 3), atol=1e-12)
    assert jnp.isfinite(solution.residual)


def test_importing_changes_nothing():
    code = """
import logging, jax
before = jax.config.values.copy(), list(logging.getLogger().handlers)
import svae, svae.expfam, svae.chains, svae.meanfield, svae.pgm, svae.plots, svae.cli
assert (jax.config.values, list(logging.getLogger().handlers)) == before
from jax._src import xla_bridge
assert not xla_bridge._backends, "a device was started"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_prior_kl_is_finite_at_full_size_in_single_precision():
    model = SLDS(50, 16)

    @jax.jit
    def start():
        return model.family.unconstrained_from_natural(model.initial(jax.random.key(0)))

    @jax.jit
    def kl(unconstrained):
        return prior_kl(model.family, parameter_posterior(model.family, unconstrained), model.prior())

    single, double = kl(astype(start(), jnp.float32)), kl(start())
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, double, rtol=1e-4)
