"""What the compiled program looks like: no LAPACK, no retracing, memory that does not grow with sweeps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import random_discrete_chain, random_gaussian_chain, tree_close
from models import MODELS, random_case
from svae.chains import DiscreteChain, Form, GaussianChain
from svae.expfam import add, parameter_posterior, prior_kl
from svae.kernels import scan
from svae.meanfield import ConjugateGradients, CoordinateAscent, GaussSeidel, Unrolled
from svae.pgm import SLDS

# loops and the compiler as users have them, and not as conftest.py has them
WRITTEN_OUT = scan.WRITTEN_OUT
AS_USERS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


def step_and_arguments(model, batch, time, solver, adjoint, counter=None, sampled=True):
    """A gradient step of a batch, as training takes it."""
    start = jax.jit(lambda key: model.family.unconstrained_from_natural(model.initial(key)))
    unconstrained = start(jax.random.key(0))
    linear = jax.random.normal(jax.random.key(1), (batch, time, model.latent_dim))

    def loss(unconstrained, linear, precision, key):
        if counter is not None:
            counter.append(1)
        posterior = parameter_posterior(model.family, unconstrained)

        def one(linear, precision, key):
            potentials = model.potentials(linear, precision)
            inference = model.infer(posterior, potentials, solver=solver, adjoint=adjoint)
            if not sampled:
                return inference.kl_local
            z = model.sample(key, inference.solution)[0]
            return inference.kl_local + jnp.sum(jnp.sin(z))

        local = jax.vmap(one)(linear, precision, jax.random.split(key, batch))
        return jnp.mean(local) + prior_kl(model.family, posterior, model.prior())

    arguments = unconstrained, linear, jnp.ones_like(linear), jax.random.key(2)
    return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))), arguments


def test_gradients_pass_through_inference_that_was_compiled_before():
    # what all sequences share, such as transitions, must be shared in forward and backward passes alike
    model = SLDS(2, 2)
    linear = np.random.default_rng(1).normal(size=(2, 6, 2))
    posterior = random_case(model).posterior
    each = lambda linear: jnp.sum(jax.vmap(lambda x: infer_kl(model, posterior, x))(linear))
    direct, nested = jax.jit(jax.grad(each))(linear), jax.grad(jax.jit(each))(linear)
    tree_close(nested, direct, rtol=1e-12)


def infer_kl(model, posterior, linear):
    return model.infer(posterior, model.potentials(linear, jnp.ones_like(linear))).kl_local


@pytest.mark.slow
def test_gradient_step_is_the_same_with_the_compiler_that_users_have():
    step, arguments = step_and_arguments(SLDS(2, 2), 2, 6, CoordinateAscent(), GaussSeidel())
    tree_close(step.lower(*arguments).compile(AS_USERS)(*arguments), step(*arguments))


@pytest.mark.parametrize("chain", ["gaussian", "discrete"])
def test_parallel_chain_is_the_same_with_the_compiler_that_users_have(key, chain, monkeypatch):
    monkeypatch.setattr(scan, "WRITTEN_OUT", WRITTEN_OUT)
    if chain == "gaussian":
        family, natural = GaussianChain(form=Form.PARALLEL), random_gaussian_chain(key, 13, 3)
    else:
        family, natural = DiscreteChain(form=Form.PARALLEL), random_discrete_chain(key, 13, 3)
    step = jax.jit(lambda natural: family.infer(natural))
    tree_close(step.lower(natural).compile(AS_USERS)(natural), step(natural))


@pytest.mark.parametrize("form", [Form.SEQUENTIAL, Form.PARALLEL])
def test_gradient_step_makes_no_lapack_call(form):
    model = SLDS(3, 4, form)
    step, arguments = step_and_arguments(model, 2, 5, CoordinateAscent(), ConjugateGradients())
    program = step.lower(*arguments).as_text()  # calls are there before it is compiled
    assert " stablehlo.while(" in program  # it is the program
    assert "lapack" in jax.jit(jnp.linalg.cholesky).lower(jnp.eye(2)).as_text()  # as they would be
    assert "lapack" not in program


def test_second_call_with_the_same_shapes_does_not_retrace():
    traces = []
    step, arguments = step_and_arguments(SLDS(2, 2), 2, 6, CoordinateAscent(), GaussSeidel(), traces)
    value, gradients = step(*arguments)
    moved = jax.jit(add)(arguments[0], gradients[0], -1e-3)
    again, _ = step(moved, *arguments[1:3], jax.random.key(5))
    assert len(traces) == 1
    assert jnp.isfinite(value)
    assert jnp.isfinite(again)


def peak_memory(adjoint, sweeps):
    solver = CoordinateAscent(max_sweeps=sweeps, tolerance=0.0)
    step, arguments = step_and_arguments(SLDS(6, 4), 4, 60, solver, adjoint, sampled=False)
    # settled before code is generated: the same, to a tenth of a percent, with AS_USERS
    return step.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


@pytest.mark.slow
def test_memory_of_implicit_gradients_does_not_grow_with_sweeps_and_that_of_unrolled_ones_does():
    implicit = [peak_memory(GaussSeidel(), sweeps) for sweeps in (10, 40)]
    unrolled = [peak_memory(Unrolled(), sweeps) for sweeps in (10, 40)]
    assert implicit[1] <= 1.01 * implicit[0]
    assert unrolled[1] > 2.5 * unrolled[0]
    assert implicit[1] < 0.2 * unrolled[1]


@eqx.filter_jit
def infer_and_sample(model, posterior, potentials, length):
    inference = model.infer(posterior, potentials, length=length, solver=CoordinateAscent(5, 0.0))
    return inference, model.sample(jax.random.key(0), inference.solution, length)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mixture", "hmm", "lds", "lds-parallel", "slds", "slds-parallel", "coupled"]
)
@pytest.mark.parametrize("length", [2, 5])
def test_padding_changes_nothing(name, length):
    model = MODELS[name]
    case = random_case(model, missing=(1, 2))
    linear, precision = np.asarray(case.linear), np.asarray(case.precision)
    observed = np.arange(len(linear)) < length
    garbage = np.where(observed[:, None], linear, np.nan)
    potentials = jax.jit(model.potentials)
    cut = potentials(*map(jnp.asarray, (linear[:length], precision[:length])))
    padded = potentials(*map(jnp.asarray, (garbage, precision, observed)))
    short, _ = infer_and_sample(model, case.posterior, cut, None)
    long, path = infer_and_sample(model, case.posterior, padded, jnp.asarray(length))

    assert long.kl_local == pytest.approx(float(short.kl_local), rel=1e-6)
    assert long.surrogate == pytest.approx(float(short.surrogate), rel=1e-6)
    assert long.solution.sweeps == short.solution.sweeps
    for a, b in zip(long.solution.stats, short.solution.stats, strict=True):
        for x, y in zip(map(np.asarray, a), map(np.asarray, b), strict=True):
            same = x if x.shape == y.shape else x[: len(y)]
            np.testing.assert_allclose(same, y, rtol=1e-6, atol=1e-9, equal_nan=False)
            assert x.shape == y.shape or np.all(x[len(y) + 1 :] == 0)
    path = np.asarray(path)
    assert np.all(path[length:] == 0)
    assert np.all(np.isfinite(path))
