"""What the compiled program looks like: no LAPACK, no retracing, memory that does not grow with sweeps."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from models import MODELS, random_case
from svae.expfam import parameter_posterior, prior_kl
from svae.meanfield import ConjugateGradients, CoordinateAscent, Richardson, Unrolled
from svae.pgm import SLDS


def step_and_arguments(model, batch, time, solver, adjoint, counter=None, sampled=True):
    """A gradient step of a batch, as training takes it."""
    unconstrained = model.family.unconstrained_from_natural(model.initial(jax.random.key(0)))
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


@pytest.mark.parametrize("parallel", [False, True])
def test_gradient_step_makes_no_lapack_call(parallel):
    model = SLDS(3, 4, parallel=parallel)
    step, arguments = step_and_arguments(model, 2, 9, CoordinateAscent(), ConjugateGradients())
    program = step.lower(*arguments).compile().as_text()
    assert " while(" in program  # it is the program
    assert not [name for name in re.findall(r'custom_call_target="([^"]*)"', program) if "lapack" in name]


def test_second_call_with_the_same_shapes_does_not_retrace():
    traces = []
    step, arguments = step_and_arguments(SLDS(2, 2), 2, 6, CoordinateAscent(), Richardson(), traces)
    value, gradients = step(*arguments)
    moved = jax.tree.map(lambda x, g: x - 1e-3 * g, arguments[0], gradients[0])
    again, _ = step(moved, *arguments[1:3], jax.random.key(5))
    assert len(traces) == 1
    assert jnp.isfinite(value)
    assert jnp.isfinite(again)


def peak_memory(adjoint, sweeps):
    solver = CoordinateAscent(max_sweeps=sweeps, tolerance=0.0)
    step, arguments = step_and_arguments(SLDS(6, 4), 4, 60, solver, adjoint, sampled=False)
    return step.lower(*arguments).compile().memory_analysis().temp_size_in_bytes


def test_memory_of_implicit_gradients_does_not_grow_with_sweeps_and_that_of_unrolled_ones_does():
    implicit = [peak_memory(Richardson(), sweeps) for sweeps in (10, 40)]
    unrolled = [peak_memory(Unrolled(), sweeps) for sweeps in (10, 40)]
    assert implicit[1] <= 1.01 * implicit[0]
    assert unrolled[1] > 2.5 * unrolled[0]
    assert implicit[1] < 0.2 * unrolled[1]


@pytest.mark.parametrize(
    "name", ["mixture", "hmm", "lds", "lds-parallel", "slds", "slds-parallel", "coupled"]
)
@pytest.mark.parametrize("length", [2, 5])
def test_padding_changes_nothing(name, length):
    model = MODELS[name]
    case = random_case(model, missing=(1, 2))
    cut = model.potentials(case.linear[:length], case.precision[:length])
    observed = jnp.arange(len(case.linear)) < length
    garbage = jnp.where(observed[:, None], case.linear, jnp.nan)
    padded = model.potentials(garbage, case.precision, observed)

    @eqx.filter_jit
    def run(potentials, length):
        inference = model.infer(case.posterior, potentials, length=length, solver=CoordinateAscent(5, 0.0))
        return inference, model.sample(jax.random.key(0), inference.solution, length)[0]

    (short, _), (long, path) = run(cut, None), run(padded, jnp.asarray(length))
    assert long.kl_local == pytest.approx(float(short.kl_local), rel=1e-6)
    assert long.surrogate == pytest.approx(float(short.surrogate), rel=1e-6)
    assert long.solution.sweeps == short.solution.sweeps
    for a, b in zip(long.solution.stats, short.solution.stats, strict=True):
        for x, y in zip(a, b, strict=True):
            same = x if x.shape == y.shape else x[: len(y)]
            assert jnp.allclose(same, y, rtol=1e-6, atol=1e-9)
            assert x.shape == y.shape or jnp.all(x[len(y) + 1 :] == 0)
    assert jnp.all(path[length:] == 0)
    assert jnp.all(jnp.isfinite(path))
