"""Long natural-gradient steps: straight in the natural parameters, and never out of the domain."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import betaln, logsumexp

from helpers import tree_close
from svae.expfam import (
    Dirichlet,
    DirichletParameters,
    DirichletTerms,
    MatrixNormalInverseWishart,
    MNIWParameters,
    MNIWTerms,
    NegativeBinomialParameters,
    NegativeBinomialPrior,
    NegativeBinomialTerms,
    NIWParameters,
    NormalInverseWishart,
    add,
    inner,
    natural_descent,
    parameter_posterior,
)


def mniw(seed: int = 0) -> MNIWParameters:
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(4, 2, 2)), rng.normal(size=(4, 3, 3))
    spd = lambda x: jnp.asarray(x @ np.swapaxes(x, 1, 2) + np.eye(x.shape[-1]))
    return MNIWParameters(spd(a), jnp.asarray(rng.normal(size=(4, 2, 3))), spd(b), jnp.full(4, 7.0))


def niw() -> NIWParameters:
    scale, mean, _, dof = mniw()
    return NIWParameters(scale, mean[..., 0], jnp.full(4, 2.0), dof)


FAMILIES = {
    "mniw": (MatrixNormalInverseWishart(), mniw()),
    "niw": (NormalInverseWishart(), niw()),
    "dirichlet": (Dirichlet(), DirichletParameters(jnp.array([[0.5, 2.0], [3.0, 4.0]]))),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_step_adds_to_the_natural_parameters(name):
    family, standard = FAMILIES[name]
    natural_from_standard = jax.jit(family.natural_from_standard)
    natural = natural_from_standard(standard)
    # towards other parameters of the family: always inside, as the domain is convex
    other = jax.tree.map(lambda x: 1.7 * x, natural)
    step = jax.tree.map(lambda a, b: 0.4 * (b - a), natural, other)
    moved = natural_from_standard(jax.jit(family.advance)(standard, step))
    tree_close(moved, add(natural, step), 1e-10)


def test_sizes_follow_their_betas():
    """Counts add up, and the weights of sizes are those of the sum; no Beta loses more than nine tenths."""
    family = NegativeBinomialPrior(2)
    standard = NegativeBinomialParameters(*(jnp.asarray(x) for x in ([-0.1, -2.3], [2.0, 3.0], [4.0, 1.0])))
    log_weight, a, b = (np.asarray(x) for x in standard)
    normalised = standard._replace(log_weight=jnp.asarray(log_weight - logsumexp(log_weight)))
    step = NegativeBinomialTerms(*(jnp.asarray(x) for x in ([1.0, 0.0], [5.0, 7.0], [-9.0, 2.0])))
    moved = jax.jit(family.advance)(normalised, step)
    new_a, new_b = a + np.array([5.0, 7.0]), np.array([0.4, 3.0])
    scores = log_weight - betaln(a, b) + np.array([1.0, 0.0]) + betaln(new_a, new_b)
    np.testing.assert_allclose(moved.again, new_a)
    np.testing.assert_allclose(moved.end, new_b)
    np.testing.assert_allclose(moved.log_weight, scores - logsumexp(scores), rtol=1e-9)


def test_a_step_out_of_the_domain_is_shortened_for_its_own_batch_entry_alone():
    family, standard = FAMILIES["mniw"]
    output = np.zeros((4, 2, 2))
    output[2] = -100 * np.eye(2)
    step = MNIWTerms(*map(jnp.asarray, (output, np.zeros((4, 2, 3)), np.zeros((4, 3, 3)), np.zeros(4))))
    moved = jax.jit(family.advance)(standard, step)
    for k in (0, 1, 3):
        np.testing.assert_allclose(moved.scale[k], standard.scale[k], rtol=1e-12)
    assert np.linalg.eigvalsh(moved.scale[2]).min() > 0
    assert not np.allclose(moved.scale[2], standard.scale[2])


def test_a_weak_prior_takes_a_strong_observation():
    """The case in which unconstrained coordinates overshoot by orders of magnitude."""
    family = MatrixNormalInverseWishart()
    weak = MNIWParameters(jnp.eye(1), jnp.zeros((1, 1)), jnp.full((1, 1), 1e-3), jnp.asarray(3.0))
    step = MNIWTerms(jnp.full((1, 1), 9.0), jnp.full((1, 1), 15.0), jnp.full((1, 1), 25.0), jnp.asarray(1.0))
    moved = jax.jit(family.advance)(weak, step)
    assert float(moved.input_precision[0, 0]) == pytest.approx(25.001)
    assert float(moved.mean[0, 0]) == pytest.approx(15 / 25.001)


def test_concentrations_keep_a_tenth_and_stay_above_their_minimum():
    family = Dirichlet(minimum=0.01)
    old = DirichletParameters(jnp.array([5.0, 0.02]))
    moved = family.advance(old, DirichletTerms(jnp.array([-100.0, -100.0]))).concentration
    assert float(moved[0]) == pytest.approx(0.5)
    assert 0.01 < float(moved[1]) < 0.02


def test_descent_with_rate_one_ends_at_the_optimum_of_a_conjugate_model():
    """The natural gradient of KL(q || p) is eta - eta_0: one whole step, and q is p."""
    family, standard = FAMILIES["mniw"]
    target = mniw(1)._replace(dof=jnp.full(4, 9.0))

    @jax.jit
    def descend(standard, target):
        params, target = family.unconstrained_from_standard(standard), family.natural_from_standard(target)
        natural = family.natural_from_unconstrained(params)
        difference = add(natural, target, -1.0)
        _, gradient = jax.jvp(family.unconstrained_from_natural, (natural,), (difference,))
        descent = natural_descent(family, 0.5, scale=2.0)
        updates, _ = descent.update(gradient, descent.init(params), params)
        return family.natural_from_unconstrained(add(params, updates)), target

    tree_close(*descend(standard, target), 1e-6)


@pytest.mark.parametrize("spread", [0.03, 0.01])
def test_a_state_that_knows_one_pose_stays_sound_in_single_precision(spread):
    """Inputs [z; 1] that hardly move make V all but singular: of its small directions float32 keeps nothing.

    Long training must neither end in NaN nor lose what the state does know, its noise.
    """
    n, frames, weight = 16, 40, 100.0
    rng = np.random.default_rng(0)
    z = 5 * rng.normal(size=n) + spread * np.cumsum(rng.normal(size=(frames, n)), axis=0)
    y, u = z[1:], np.hstack([z[:-1], np.ones((frames - 1, 1))])
    prior = 0.06 * np.eye(n), 0.9 * np.eye(n, n + 1), 1e-3 * np.eye(n + 1)
    inputs = prior[2] + weight * u.T @ u
    cross = prior[1] @ prior[2] + weight * y.T @ u
    output = prior[0] + prior[1] @ prior[2] @ prior[1].T + weight * y.T @ y
    mean = np.linalg.solve(inputs, cross.T).T
    scale, dof = output - mean @ inputs @ mean.T, n + 2 + weight * (frames - 1)
    assert np.linalg.cond(inputs) > 1e8
    single = lambda tree: jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)
    target = single(MNIWTerms(output, cross, inputs, np.asarray(dof + 2 * n + 2)))
    family = MatrixNormalInverseWishart()
    params = family.unconstrained_from_standard(
        single(MNIWParameters(1.5 * (scale + scale.T) / 2, mean, 1.5 * inputs, np.asarray(dof)))
    )
    optimiser = natural_descent(family, 0.05)

    def loss(params):  # KL divergence from the target, but for a constant
        q = parameter_posterior(family, params)
        return inner(add(q.natural, target, -1.0), q.stats) - q.log_partition

    @jax.jit
    def descend(params):
        def step(carry, _):
            params, state = carry
            updates, state = optimiser.update(jax.grad(loss)(params), state, params)
            return (jax.tree.map(jnp.add, params, updates), state), None

        return jax.lax.scan(step, (params, optimiser.init(params)), None, length=200)[0][0]

    found = family.standard_from_unconstrained(descend(params))
    assert all(np.isfinite(x).all() for x in found)
    known = np.linalg.eigvalsh(scale) / dof
    np.testing.assert_allclose(
        np.linalg.eigvalsh(np.float64(found.scale)) / float(found.dof), known, rtol=0.1
    )
