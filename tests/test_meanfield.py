"""The solver and the adjoints: monotone ascent, per-sequence stopping, and gradients three ways."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from helpers import astype, relative_error, tree_close
from models import ITERATIVE, MODELS, infer, random_case
from svae.expfam import (
    BIASED,
    PLAIN,
    UNBIASED,
    Categorical,
    CategoricalTerms,
    add,
    parameter_posterior,
    prior_kl,
)
from svae.meanfield import (
    ConjugateGradients,
    CoordinateAscent,
    GaussSeidel,
    NoSolve,
    Problem,
    Richardson,
    Unrolled,
    fixed_point,
    objective_per_sweep,
)
from svae.meanfield.adjoints import LinearSystem

TO_THE_END = CoordinateAscent(max_sweeps=400, tolerance=1e-22)
PRECISE = {
    "unrolled": Unrolled(),
    "richardson": Richardson(steps=400, step=0.5, fallback=False),
    "gauss-seidel": GaussSeidel(steps=200, fallback=False),
    "conjugate-gradients": ConjugateGradients(max_steps=80, tolerance=1e-13),
}


@eqx.filter_jit
def objectives(model, case, start, sweeps):
    problem = model.problem()
    return objective_per_sweep(problem, case.posterior.stats, case.potentials, start, sweeps)


@pytest.mark.parametrize("name", ITERATIVE)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31 - 1), sharpness=st.sampled_from([0.1, 1.0, 30.0]))
def test_surrogate_never_falls_between_sweeps(name, seed, sharpness):
    model = MODELS[name]
    case = random_case(model, seed)
    case = case._replace(potentials=jax.tree.map(lambda x: sharpness * np.asarray(x), case.potentials))
    start = infer(model, random_case(model, seed + 1).posterior, case.potentials).solution.stats
    objective = np.asarray(objectives(model, case, start, 12))
    assert np.all(np.isfinite(objective))
    assert np.all(np.diff(objective) >= -1e-9 * np.abs(objective[:-1]))


@pytest.mark.parametrize("name", ITERATIVE)
def test_solution_is_a_fixed_point_and_its_objective_is_the_last(name):
    model = MODELS[name]
    case = random_case(model)
    inference = infer(model, case.posterior, case.potentials, solver=TO_THE_END)
    solution = inference.solution
    assert solution.converged
    assert 1 < solution.sweeps < 400
    messages = jax.jit(jax.grad(model.problem().energy, 1))(case.posterior.stats, solution.stats)
    tree_close(jax.jit(add)(messages, case.potentials), solution.naturals, rtol=1e-7, atol=1e-8)
    start = jax.jit(lambda case: model.start(case.posterior.stats, case.potentials, None))(case)
    np.testing.assert_allclose(objectives(model, case, start, 300)[-1], inference.surrogate, rtol=1e-10)


def test_each_sequence_stops_by_itself():
    model = MODELS["slds"]
    cases = [random_case(model, seed) for seed in range(4)]
    potentials = jax.tree.map(lambda *x: np.stack(x), *(case.potentials for case in cases))
    solver = CoordinateAscent(max_sweeps=12, tolerance=1e-5)
    posterior = cases[0].posterior
    together = eqx.filter_jit(jax.vmap(lambda p: model.infer(posterior, p, solver=solver)))(
        potentials
    ).solution
    alone = [infer(model, posterior, case.potentials, solver=solver).solution for case in cases]
    together = jax.tree.map(np.asarray, together)
    assert len(set(map(int, together.sweeps))) > 1
    for i, solution in enumerate(alone):
        tree_close(jax.tree.map(lambda x: x[i], together), solution, rtol=1e-10, atol=1e-10)


def test_convergence_is_reported_not_hidden():
    model = MODELS["slds"]
    case = random_case(model)
    short = infer(model, case.posterior, case.potentials, solver=CoordinateAscent(2, 1e-12)).solution
    assert short.sweeps == 2
    assert not short.converged
    assert 1e-12 < short.residual < np.inf


@pytest.mark.parametrize("max_sweeps", [0, -1])
def test_solver_rejects_a_cap_below_one(max_sweeps):
    with pytest.raises(ValueError, match="max_sweeps"):
        CoordinateAscent(max_sweeps=max_sweeps)


@pytest.mark.parametrize("tolerance", [-1e-3, float("nan")])
def test_solver_rejects_a_bad_tolerance(tolerance):
    with pytest.raises(ValueError, match="tolerance"):
        CoordinateAscent(tolerance=tolerance)


# Gradients


def loss(model, unconstrained, linear, precision, solver, adjoint, rule=PLAIN):
    """A bound with a nonlinear stand-in for the reconstruction, through a sample of z."""
    posterior = parameter_posterior(model.family, unconstrained, rule)
    inference = model.infer(posterior, model.potentials(linear, precision), solver=solver, adjoint=adjoint)
    z = model.sample(jax.random.key(3), inference.solution)[0]
    reconstruction = jnp.sum(jnp.sin(z)) + jnp.sum(inference.solution.log_partitions[0])
    return inference.kl_local + 0.1 * reconstruction + prior_kl(model.family, posterior, model.prior())


@eqx.filter_jit
def gradient(model, case, solver, adjoint, rule=PLAIN):
    f = lambda u, linear: loss(model, u, linear, case.precision, solver, adjoint, rule)
    return jax.grad(f, argnums=(0, 1))(case.unconstrained, case.linear)


@eqx.filter_jit
def light_gradient(model, case, solver, adjoint):
    """Of the KL alone, with respect to the potentials alone."""

    def kl(linear):
        potentials = model.potentials(linear, case.precision)
        return model.infer(case.posterior, potentials, solver=solver, adjoint=adjoint).kl_local

    return jax.grad(kl)(case.linear)


@eqx.filter_jit
def difference_quotient(model, case, direction, eps):
    f = lambda u, linear: loss(model, u, linear, case.precision, TO_THE_END, NoSolve())
    at = jax.vmap(lambda scale: f(*add((case.unconstrained, case.linear), direction, scale)))
    values = at(eps * jnp.array([-2.0, -1.0, 1.0, 2.0]))
    return jnp.vdot(jnp.array([1.0, -8.0, 8.0, -1.0]), values) / (12 * eps)


slowly = lambda *values: pytest.param(*values, marks=pytest.mark.slow)
# Each adjoint takes long to compile: all of them for a model of two blocks and for one of three
WAYS = {name: ("unrolled", "gauss-seidel") for name in ("lds", "mixture", "hmm", "jslds", "hsmm-slds")}
WAYS |= {"slds": tuple(PRECISE), "coupled": tuple(PRECISE)}
FEW = "slds", ("unrolled", "gauss-seidel")


@pytest.mark.parametrize(("name", "ways"), [FEW, *(slowly(*item) for item in WAYS.items())])
def test_gradients_agree_three_ways(name, ways):
    model = MODELS[name]
    case = random_case(model)
    gradients = {key: gradient(model, case, TO_THE_END, PRECISE[key]) for key in ways}
    truth = gradients["unrolled"]
    for key, value in gradients.items():
        assert relative_error(value, truth) < 1e-6, key

    flat, unflatten = ravel_pytree(truth)
    for seed in range(2):
        vector = np.random.default_rng(seed).normal(size=flat.shape)
        vector /= np.linalg.norm(vector)
        measured = difference_quotient(model, case, unflatten(vector), 1e-3)
        np.testing.assert_allclose(measured, np.vdot(flat, vector), rtol=1e-6)


@pytest.mark.parametrize("name", ["lds", slowly("slds")])
def test_parallel_form_has_the_same_gradient(name):
    one, other = (MODELS[n] for n in (name, name + "-parallel"))
    case = random_case(one)
    adjoint = PRECISE["conjugate-gradients"]
    single, double = (light_gradient(model, case, TO_THE_END, adjoint) for model in (one, other))
    assert relative_error(double, single) < 1e-8


@pytest.mark.parametrize("adjoint", [Richardson, GaussSeidel])
def test_unconverged_sequences_get_no_solve(adjoint):
    model = MODELS["hmm"]
    case = random_case(model)
    short = CoordinateAscent(max_sweeps=2, tolerance=1e-12)
    thresholded = light_gradient(model, case, short, adjoint())
    tree_close(thresholded, light_gradient(model, case, short, NoSolve()))
    capped = light_gradient(model, case, short, adjoint(fallback=False))
    assert relative_error(capped, thresholded) > 1e-4
    steps = {Richardson: 2, GaussSeidel: 1}[adjoint]
    tree_close(capped, light_gradient(model, case, short, adjoint(steps=steps, fallback=False)))


@pytest.mark.parametrize("seed", [0, 1])
def test_conjugate_gradients_beat_the_series(seed):
    model = MODELS["hmm"]  # slow to converge here, so the series is, too
    case = random_case(model, seed)
    truth = light_gradient(model, case, TO_THE_END, Unrolled())
    error = lambda adjoint: relative_error(light_gradient(model, case, TO_THE_END, adjoint), truth)
    conjugate, sweeps, series = (
        error(adjoint)
        for adjoint in (
            ConjugateGradients(max_steps=10),
            GaussSeidel(steps=10, fallback=False),
            Richardson(steps=10, fallback=False),
        )
    )
    assert conjugate < 0.1 * series
    assert sweeps < 0.5 * series
    assert series < 0.5 * error(NoSolve())


def explicit_system(sizes, strength):
    """Small dense H and M, cotangents a and c, the solution, and what `NoSolve` gives."""
    rng = np.random.default_rng(0)
    total = sum(sizes)
    x, y = rng.normal(size=(total, 2 * total)), rng.normal(size=(total, total))
    block = np.repeat(np.arange(len(sizes)), sizes)
    same = block[:, None] == block[None, :]
    H, M = np.where(same, x @ x.T / (2 * total), 0.0), strength * np.where(same, 0.0, y + y.T)
    pack = lambda v: tuple(jnp.split(v, np.cumsum(sizes)[:-1]))
    propagation = tuple(lambda v, own=H[block == m][:, block == m]: own @ v for m in range(len(sizes)))
    coupling = lambda y, m: M[block == m] @ jnp.concatenate(y)
    system = LinearSystem(propagation, coupling, jnp.asarray(5), jnp.asarray(True))
    a, c = rng.normal(size=(2, total))
    exact = np.linalg.solve(np.eye(total) - H @ M, H @ c + a)
    return system, *map(pack, (a, c, exact, H @ c + a))


def solve(adjoint, system, a, c):
    return jax.jit(lambda a, c: adjoint.solve(system, a, c))(a, c)


@pytest.mark.parametrize("sizes", [(3, 4), (2, 3, 4)])
def test_adjoints_solve_an_explicit_system(sizes):
    system, a, c, exact, _ = explicit_system(sizes, 0.05)
    tree_close(solve(ConjugateGradients(max_steps=30, tolerance=1e-14), system, a, c), exact, rtol=1e-8)
    tree_close(solve(Richardson(steps=300), system, a, c), exact, rtol=1e-8)
    tree_close(solve(Richardson(steps=300, step=0.5), system, a, c), exact, rtol=1e-8)
    tree_close(solve(GaussSeidel(steps=150), system, a, c), exact, rtol=1e-8)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_sweep_over_two_blocks_is_worth_two_terms_of_the_series(steps):
    system, a, c, *_ = explicit_system((3, 4), 0.05)
    first, second = solve(GaussSeidel(steps=steps, fallback=False), system, a, c)
    series = lambda terms: solve(Richardson(steps=terms, fallback=False), system, a, c)
    tree_close(first, series(2 * steps + 1)[0], rtol=1e-12)
    tree_close(second, series(2 * steps)[1], rtol=1e-12)


def test_capped_sweeps_have_at_least_the_terms_of_the_capped_series():
    system, a, c, *_ = explicit_system((3, 4), 0.05)
    for sweeps, steps in (1, 1), (2, 1), (9, 5), (10, 5):
        capped = solve(GaussSeidel(fallback=False), system._replace(sweeps=jnp.asarray(sweeps)), a, c)
        tree_close(capped, solve(GaussSeidel(steps=steps, fallback=False), system, a, c), rtol=1e-12)
        assert 2 * steps >= sweeps  # see the test above


def test_sweeps_converge_at_any_optimum_where_the_series_need_not():
    # With H = I and -0.9 off the diagonal of M, I - M has the eigenvalues 0.1 and 2.8, and HM has -1.8
    M = -0.9 * (np.ones((3, 3)) - np.eye(3))
    couple = lambda y, m: M[m : m + 1] @ jnp.concatenate(y)
    system = LinearSystem((lambda v: v,) * 3, couple, jnp.asarray(5), jnp.asarray(True))
    a, c = np.split(np.arange(3.0), 3), np.split(np.ones(3), 3)
    exact = np.split(np.linalg.solve(np.eye(3) - M, np.arange(3.0) + 1), 3)
    tree_close(solve(GaussSeidel(steps=300), system, tuple(a), tuple(c)), tuple(exact), rtol=1e-8)
    series = solve(Richardson(steps=300, fallback=False), system, tuple(a), tuple(c))
    assert not np.all(np.abs(np.concatenate(series)) < 1e6)


def test_no_sweep_is_another_adjoint():
    with pytest.raises(ValueError, match="NoSolve"):
        GaussSeidel(steps=0)


@pytest.mark.parametrize(
    "adjoint",
    [
        ConjugateGradients(max_steps=30),
        Richardson(),
        Richardson(steps=40),
        GaussSeidel(),
        GaussSeidel(steps=20),
    ],
)
def test_adjoints_fall_back_where_the_point_is_no_optimum(adjoint):
    system, a, c, _, no_solve = explicit_system((3, 4), 3.0)
    tree_close(solve(adjoint, system, a, c), no_solve)


def test_undamped_series_without_fallback_may_diverge():
    system, a, c, *_ = explicit_system((3, 4), 3.0)
    y = solve(Richardson(steps=200, fallback=False), system, a, c)
    assert not np.all(np.abs(np.concatenate(y)) < 1e6)


def test_zero_cotangents_give_zero():
    system, a, *_ = explicit_system((3, 4), 0.05)
    zero = jax.tree.map(np.zeros_like, a)
    for adjoint in (ConjugateGradients(), Richardson(), GaussSeidel(), NoSolve()):
        tree_close(solve(adjoint, system, zero, zero), zero)


# Natural gradients of the whole bound


@pytest.mark.parametrize("name", ["mixture", slowly("slds")])
def test_unbiased_natural_gradient_is_fisher_inverse_times_plain(name):
    model = MODELS[name]
    case = random_case(model)
    adjoint = PRECISE["conjugate-gradients"]
    plain, _ = gradient(model, case, TO_THE_END, adjoint, PLAIN)
    natural, _ = gradient(model, case, TO_THE_END, adjoint, UNBIASED)

    flat, unflatten = ravel_pytree(case.unconstrained)
    eta, unflatten_eta = ravel_pytree(case.posterior.natural)
    to_natural = lambda u: ravel_pytree(model.family.natural_from_unconstrained(unflatten(u)))[0]
    to_stats = lambda e: ravel_pytree(model.family.expected_stats(unflatten_eta(e)))[0]
    J, F = map(np.asarray, (jax.jit(jax.jacfwd(to_natural))(flat), jax.jit(jax.jacfwd(to_stats))(eta)))
    fisher = J.T @ F @ J
    expected = np.linalg.solve(fisher, ravel_pytree(plain)[0])
    assert relative_error(ravel_pytree(natural)[0], expected) < 1e-6


@pytest.mark.parametrize("name", ["lds", slowly("slds")])
def test_biased_gradient_is_the_svi_update(name):
    # eta - (eta_0 + E[t(z)]), pushed through the inverse of unconstrained -> natural
    model = MODELS[name]
    case = random_case(model)
    biased, _ = gradient(model, case, TO_THE_END, PRECISE["conjugate-gradients"], BIASED)
    stats = infer(model, case.posterior, case.potentials, solver=TO_THE_END).solution.stats

    @jax.jit
    def update(eta, theta):
        counts = jax.grad(model.energy)(theta, stats, None)
        step = add(add(eta, model.prior(), -1.0), counts, -1.0)
        return jax.jvp(model.family.unconstrained_from_natural, (eta,), (step,))[1]

    assert relative_error(biased, update(case.posterior.natural, case.posterior.stats)) < 1e-9


def test_biased_and_unbiased_agree_where_inference_is_exact_and_potentials_are_the_likelihood():
    # maximise the surrogate itself: then dL/d omega = 0 and the correction vanishes
    model = MODELS["lds"]
    case = random_case(model)

    def cost(u, rule):
        posterior = parameter_posterior(model.family, u, rule)
        inference = model.infer(posterior, case.potentials)
        return prior_kl(model.family, posterior, model.prior()) - inference.surrogate

    one, other = (
        jax.jit(jax.grad(lambda u: cost(u, rule)))(case.unconstrained) for rule in (BIASED, UNBIASED)
    )
    assert relative_error(one, other) < 1e-10


def test_float32_stays_float32_and_close():
    model = MODELS["slds"]
    case = random_case(model)
    single = astype(case, jnp.float32)
    fast = light_gradient(model, single, CoordinateAscent(30, 1e-6), GaussSeidel())
    assert fast.dtype == jnp.float32
    slow = light_gradient(model, case, CoordinateAscent(30, 1e-6), GaussSeidel())
    assert relative_error(fast, slow) < 1e-3


def test_a_problem_can_be_written_without_a_model():
    # two coupled coins: energy = w [first = second], enumerated
    energy = lambda w, stats: w * jnp.sum(stats[0].one_hot * stats[1].one_hot)
    problem = Problem(energy, (Categorical(2), Categorical(2)))
    potentials = (CategoricalTerms(jnp.array([0.3, 0.0])), CategoricalTerms(jnp.array([0.0, 0.5])))
    start = (CategoricalTerms(jnp.array([0.5, 0.5])), CategoricalTerms(jnp.array([0.6, 0.4])))
    solution = jax.jit(lambda w: fixed_point(problem, w, potentials, start, TO_THE_END))(jnp.asarray(0.7))
    p, q = (np.asarray(s.one_hot) for s in solution.stats)
    np.testing.assert_allclose(p, jax.nn.softmax(np.array([0.3, 0.0]) + 0.7 * q), rtol=1e-9)
    np.testing.assert_allclose(q, jax.nn.softmax(np.array([0.0, 0.5]) + 0.7 * p), rtol=1e-9)
