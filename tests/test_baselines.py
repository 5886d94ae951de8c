"""The neural baselines: sizes, what may depend on what, the evidence that they bound, and known traps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import multivariate_normal

from helpers import astype, users_rules
from small_models import FEATURES, LATENT, SEQUENTIAL, STATES, TIME, small
from svae.models import (
    Batch,
    Complete,
    make_discrete_dks,
    make_dks,
    make_srnn,
    make_transformer_vae,
)
from svae.models.sequential import Step
from svae.networks import Dense, Gamma, Gaussian, StraightThrough

each_baseline = pytest.mark.parametrize("name", SEQUENTIAL)
STOCHASTIC = [name for name in SEQUENTIAL if name != "vq-vae"]
# The two discrete ones differ in how a state is drawn, and here that has no part
relaxed = lambda name: pytest.param(name, marks=pytest.mark.slow) if name == "dks-straight-through" else name
each_network = pytest.mark.parametrize("name", [relaxed(name) for name in SEQUENTIAL])


@pytest.fixture(autouse=True)
def as_users_run():
    with users_rules("raise"):
        yield


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def paper(make, *more):
    """A model of the size that motion capture has in the paper, as shapes only."""
    return eqx.filter_eval_shape(lambda: make(Gaussian(84), 84, jax.random.key(0), *more))


# Sizes: encoder, decoder, latent transitions, as in the paper's table


def test_size_of_the_srnn():
    model = paper(make_srnn)
    assert size((model.embed, model.backward)) == 252_288
    assert size((model.forward, model.decoder, model.likelihood)) == 190_888
    assert size((model.prior, model.posterior)) == 87_680


def test_size_of_the_dks():
    model = paper(make_dks)
    assert size(model.encoder) == 244_160
    assert size((model.decoder, model.likelihood)) == 57_640
    assert size((model.prior, model.posterior)) == 38_144


def test_size_of_the_transformer():
    model = paper(make_transformer_vae)
    assert size(model.encoder) == 360_480
    assert size((model.decoder, model.likelihood)) == 532_136
    assert size(model.prior) == 518_688


def test_size_of_the_discrete_dks():
    """Two networks from z and k (66 numbers), and one deviation; those of the posterior see y (192) as well.

    The paper's 43,724 cannot be had with any inputs: without y, four such networks have 43,924.
    """
    model = paper(make_discrete_dks, StraightThrough())
    assert size(model.prior) == 43_924 // 2 + 16
    assert size(model.posterior) == size(model.prior) + 2 * 192 * (64 + 2)
    assert size(model.encoder) == 244_160
    assert size((model.decoder, model.likelihood)) == 57_640


# What may depend on what


def _first(batch):
    return jax.tree.map(lambda x: x[0], batch)


@eqx.filter_jit
def dependence(model, z, choice, x):
    """Jacobians of the prior's mean and of the decoder's output, step by step, for given z and x.

    True at [t, s] if step t depends on step s.
    """
    nothing = jnp.zeros(TIME, bool)
    evidence = _first(model.evidence(jnp.zeros_like(x)[None], nothing[None]))

    def generative(z, x):
        past, means, outputs = model.begin(TIME), [], []
        for t in range(TIME):
            own = jax.tree.map(lambda e: e[t], evidence)
            means.append(model.latent(None, past, own, jnp.asarray(False)).z)
            outputs.append(model.decode(past, z[t]))
            step = Step(z[t], jnp.ones(LATENT), jnp.zeros(()), jnp.zeros(()), choice[t])
            past = model.advance(past, step, model.frame(x[t]))
        return jnp.stack(means), jnp.stack(outputs)

    jacobians = jax.jacfwd(generative, argnums=(0, 1))(z, x)
    return jax.tree.map(lambda j: jnp.any(j != 0, axis=(1, 3)), jacobians)


@each_network
def test_no_step_knows_what_comes_after_it(name):
    keys = jax.random.split(jax.random.key(0), 2)
    z, x = jax.random.normal(keys[0], (TIME, LATENT)), jax.random.normal(keys[1], (TIME, FEATURES))
    choice = jnp.eye(STATES)[jnp.arange(TIME) % STATES]
    (mean_z, mean_x), (output_z, output_x) = dependence(small(name), z, choice, x)
    before, so_far = np.tri(TIME, k=-1, dtype=bool), np.tri(TIME, dtype=bool)
    just_before, now = np.eye(TIME, k=-1, dtype=bool), np.eye(TIME, dtype=bool)
    never = np.zeros((TIME, TIME), bool)
    expected = {
        "srnn": (just_before, before, now, before),
        "dks": (just_before, never, now, never),
        "dks-concrete": (just_before, never, now, never),
        "dks-straight-through": (just_before, never, now, never),
        "transformer-dvae": (before, before, so_far, before),
        "vq-vae": (never, never, now, never),  # its prior remembers codes
    }[name]
    for found, wanted in zip((mean_z, mean_x, output_z, output_x), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", ["srnn", relaxed("dks-straight-through"), "transformer-dvae"])
def test_what_is_known_to_be_complete_is_scored_alike(name):
    """With one program for what may be missing and one for what is not, bound and gradient agree."""
    values = jax.random.normal(jax.random.key(0), (2, TIME, FEATURES))
    bound = lambda model, batch: jnp.mean(model.elbo(jax.random.key(1), batch).elbo(1))
    gradient = eqx.filter_jit(eqx.filter_value_and_grad(bound))
    lengths = jnp.full(2, TIME, jnp.int32)
    one, other = (gradient(small(name), kind(values, lengths)) for kind in (Batch, Complete))
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def test_the_transformer_gives_the_same_at_once_and_step_by_step():
    model = small("transformer-dvae")
    values = jax.random.normal(jax.random.key(0), (1, TIME, FEATURES))
    whole = Batch(values, jnp.asarray([TIME]))
    key = jax.random.key(1)
    at_once = eqx.filter_jit(type(model).run)(model, key, whole)
    slowly = eqx.filter_jit(type(model).walk)(model, jax.random.split(key, 1), values, whole.present)
    for x, y in zip(jax.tree.leaves(at_once), jax.tree.leaves(slowly), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_the_first_frame_of_the_transformer_depends_on_no_frame():
    model = small("transformer-dvae")
    z, x = jnp.ones((TIME, LATENT)), jax.random.normal(jax.random.key(0), (TIME, FEATURES))
    jacobian = jax.jit(jax.jacobian(lambda x: model.outputs(z, x)[0]))(x)
    np.testing.assert_array_equal(jacobian, 0)


@each_baseline
def test_each_block_of_observed_frames_is_encoded_by_itself(name):
    model, observed = small(name), jnp.asarray([True, True, False, True, True, False])
    x = jax.random.normal(jax.random.key(0), (TIME, FEATURES))
    jacobian = eqx.filter_jit(jax.jacobian(lambda x: _first(model.evidence(x[None], observed[None]))))(x)
    for leaf in jax.tree.leaves(jacobian):
        seen = np.any(np.asarray(leaf) != 0, axis=(1, 3))
        for one, other in ((slice(0, 2), slice(3, 5)), (slice(3, 5), slice(0, 2))):
            assert seen[one, one].diagonal().all()
            assert not seen[one, other].any()
            assert not seen[one][:, ~np.asarray(observed)].any()


@pytest.mark.parametrize("name", [name for name in SEQUENTIAL if name != "transformer-dvae"])
def test_a_block_is_encoded_as_if_it_were_a_sequence(name):
    """But for the Transformer, which counts positions from the start."""
    model = small(name)
    x = jax.random.normal(jax.random.key(0), (TIME, FEATURES))
    gap = jnp.asarray([True, False, True, True, True, False])
    evidence = eqx.filter_jit(type(model).evidence)
    for x_whole, x_block in zip(
        jax.tree.leaves(evidence(model, x, gap)),
        jax.tree.leaves(evidence(model, x[2:5], jnp.ones(3, bool))),
        strict=True,
    ):
        np.testing.assert_allclose(x_whole[2:5], x_block, rtol=1e-5, atol=1e-6)


# The evidence


@pytest.mark.slow
@pytest.mark.parametrize("name", STOCHASTIC)
def test_leaving_a_number_out_integrates_over_it(name):
    """E[w] is the evidence: that of what is left, and the integral of that of everything.

    Posteriors near the prior, and a decoder with much to say, make estimates sharp and their means different.
    """
    scaled = lambda by, tree: jax.tree.map(lambda x: by * x if eqx.is_inexact_array(x) else x, tree)
    model = small(name)
    for field, by in ("posterior", 0.3), ("encoder", 0.3), ("prior", 0.3), ("decoder", 1.3):
        if hasattr(model, field):
            model = eqx.tree_at(lambda m: getattr(m, field), model, replace_fn=lambda x: scaled(by, x))
    samples, grid = 10_000, jnp.linspace(-8.0, 8.0, 33)
    frame = jnp.asarray([0.3, -0.5, 0.8])
    frames = jnp.full((34, 2, FEATURES), jnp.nan).at[:, 1].set(frame).at[:33, 0, 0].set(grid)
    batch = Batch(frames, jnp.full(34, 2, jnp.int32))
    keys = jax.random.split(jax.random.key(0))
    weights = eqx.filter_jit(type(model).log_weights)(model, *keys, batch, samples)
    w = np.exp(np.asarray(weights, np.float64))
    integral = w[:, :33].sum(axis=1) * float(grid[1] - grid[0])
    alone = w[:, 33]
    error = np.sqrt((integral.var() + alone.var()) / samples)
    assert error < 0.1 * alone.mean()
    assert abs(integral.mean() - alone.mean()) < 5 * error


def linear_dks():
    """A linear Gaussian system: gates shut, decoder linear."""
    with users_rules("raise"):
        model = small("dks")
        model = eqx.tree_at(lambda m: m.decoder, model, Dense(LATENT, FEATURES, jax.random.key(3)))
    shut = eqx.tree_at(lambda m: m.prior.gate[1].bias, model, replace_fn=lambda x: x - 1e3)
    fixed = eqx.tree_at(lambda m: m.prior.deviation.weight, shut, replace_fn=jnp.zeros_like)
    return astype(fixed, jnp.float64)


def test_the_linear_smoother_bounds_the_evidence_of_a_linear_system():
    """With missing frames and entries; against the dense Gaussian of everything that was seen."""
    time, samples = 4, 20_000
    with jax.enable_x64(True):
        model = linear_dks()
        A, b = (np.asarray(x, np.float64) for x in (model.prior.linear.weight, model.prior.linear.bias))
        C, d = (np.asarray(x, np.float64) for x in (model.decoder.weight, model.decoder.bias))
        deviation = np.logaddexp(0, np.asarray(model.prior.deviation.bias))
        mean, covariance = np.zeros((time, LATENT)), np.zeros((time, LATENT, time, LATENT))
        previous = np.zeros(LATENT)
        for t in range(time):
            mean[t] = previous = A @ previous + b
            if t > 0:
                for s in range(t):
                    covariance[t, :, s] = A @ covariance[t - 1, :, s]
                    covariance[s, :, t] = covariance[t, :, s].T
                covariance[t, :, t] = A @ covariance[t - 1, :, t - 1] @ A.T
            covariance[t, :, t] += np.diag(deviation**2)
        maps = np.kron(np.eye(time), C)
        noise = np.tile(np.logaddexp(0, np.asarray(model.likelihood.raw_scale)) ** 2, time)
        everything = multivariate_normal(
            maps @ mean.ravel() + np.tile(d, time),
            maps @ covariance.reshape(time * LATENT, -1) @ maps.T + np.diag(noise),
        )
        values = everything.rvs(random_state=np.random.default_rng(0)).reshape(time, FEATURES)
        values[1], values[2, 0] = np.nan, np.nan
        seen = ~np.isnan(values).ravel()
        marginal = multivariate_normal(
            everything.mean[seen], everything.cov_object.covariance[np.ix_(seen, seen)]
        )
        evidence = marginal.logpdf(values.ravel()[seen])
        batch = Batch(jnp.asarray(values)[None], jnp.asarray([time]))
        keys = jax.random.split(jax.random.key(0))
        w = eqx.filter_jit(type(model).log_weights)(model, *keys, batch, samples)
        w = np.asarray(w)[:, 0]
    estimate = logsumexp(w) - np.log(samples)
    error = np.exp(w - w.max()).std() / np.exp(w - w.max()).mean() / np.sqrt(samples)
    assert error < 0.1
    assert abs(estimate - evidence) < 5 * error
    assert w.mean() < evidence


# Traps


@each_network
def test_a_prior_that_runs_away_in_a_gap_does_no_harm(name):
    """Weights of the prior so large that a free run leaves every bound behind."""
    model = small(name)
    if hasattr(model, "prior"):
        larger = lambda x: 30 * x
        model = eqx.tree_at(lambda m: jax.tree.leaves(m.prior), model, replace_fn=larger)
    values = jnp.full((1, 40, FEATURES), jnp.nan).at[:, :2].set(1.0).at[:, -2:].set(1.0)
    batch = Batch(values, jnp.asarray([40]))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def loss(model):
        return -jnp.mean(model.elbo(jax.random.key(0), batch).elbo(1))

    value, gradient = loss(model)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


@each_network
def test_noise_does_not_depend_on_what_comes_later(name):
    """A sequence has one bound, however long the padding."""
    values = jax.random.normal(jax.random.key(0), (1, 4, FEATURES))
    elbo = eqx.filter_jit(type(small(name)).elbo)
    short = elbo(small(name), jax.random.key(1), Batch(values, jnp.asarray([4])))
    padded = jnp.pad(values, [(0, 0), (0, 2), (0, 0)])
    long = elbo(small(name), jax.random.key(1), Batch(padded, jnp.asarray([4])))
    np.testing.assert_allclose(short.log_likelihood, long.log_likelihood, rtol=1e-5)
    np.testing.assert_allclose(short.kl_local, long.kl_local, rtol=1e-4, atol=1e-5)


def test_the_codes_bound_is_the_joint_probability():
    """log p(x, k) of the nearest codes, with no more: the pull on codes and encoder has no value."""
    model, values = small("vq-vae"), jax.random.normal(jax.random.key(0), (1, TIME, FEATURES))
    batch = Batch(values, jnp.asarray([TIME]))

    @eqx.filter_jit
    def moved(model):
        codes = model.encoder(values[0, :STATES]) + 0.1
        model = eqx.tree_at(lambda m: m.codes, model, codes)
        return model, model.encoder(values[0]), model.elbo(jax.random.key(1), batch)

    model, encoded, bound = moved(model)
    encoded, codes = np.asarray(encoded), np.asarray(model.codes)
    states = ((encoded[:, None] - codes[None]) ** 2).sum(axis=-1).argmin(axis=-1)
    assert len(np.unique(states)) > 1

    @eqx.filter_jit
    def by_hand(model, hot):
        memory, scores = model.memory.begin(), []
        for before in jnp.concatenate([jnp.zeros((1, STATES)), hot[:-1]]):
            memory = model.memory.step(memory, before)
            scores.append(model.scores(memory.output))
        density = model.likelihood.log_density(model.decoder(hot @ model.codes), values[0])
        return jnp.stack(scores), jnp.sum(density)

    scores, density = by_hand(model, jnp.eye(STATES)[states])
    total = log_softmax(np.asarray(scores), axis=-1)[np.arange(TIME), states].sum()
    np.testing.assert_allclose(bound.kl_local[0], -total, rtol=1e-5)
    np.testing.assert_allclose(bound.log_likelihood[0], density, rtol=1e-5)


def test_codes_and_encoder_are_drawn_together_and_the_prior_moves_neither():
    model = small("vq-vae")
    batch = Batch(jax.random.normal(jax.random.key(0), (1, TIME, FEATURES)), jnp.asarray([TIME]))
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: jnp.sum(m.elbo(jax.random.key(1), batch).kl_local)))(
        model
    )

    @eqx.filter_jit
    def by_hand(model):
        encoded = model.encoder(batch.values[0])
        nearest = jnp.argmin(jnp.sum((encoded[:, None] - model.codes[None]) ** 2, axis=-1), axis=-1)
        drawn = lambda codes: jnp.sum((encoded - codes[nearest]) ** 2)
        commitment = lambda encoder: 0.25 * jnp.sum((encoder(batch.values[0]) - model.codes[nearest]) ** 2)
        return jax.grad(drawn)(model.codes), eqx.filter_grad(commitment)(model.encoder)

    codes, encoder = by_hand(model)
    np.testing.assert_allclose(gradient.codes, codes, rtol=1e-4, atol=1e-5)
    for found, wanted in zip(jax.tree.leaves(gradient.encoder), jax.tree.leaves(encoder), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-5)


@each_baseline
def test_states_that_may_be_and_potentials_are_refused(name):
    values = jnp.zeros((1, TIME, FEATURES))
    batch = Batch(values, jnp.asarray([TIME]), jnp.ones((1, TIME, STATES), bool))
    with pytest.raises(TypeError, match="neither allowed states nor potentials"):
        small(name).elbo(jax.random.key(0), batch)


def test_other_likelihoods_see_their_own_features():
    """Power spectra are drawn, fed back as logarithms, and stay positive."""
    likelihood = Gamma()
    model = eqx.filter_jit(make_srnn)(likelihood, FEATURES, jax.random.key(0), LATENT, 5, 4)
    values = jnp.exp(jax.random.normal(jax.random.key(1), (1, TIME, FEATURES))).at[0, 2:4].set(jnp.nan)
    drawn = eqx.filter_jit(type(model).impute)(
        model, jax.random.key(2), Batch(values, jnp.asarray([TIME])), 2
    )
    assert np.all(np.asarray(drawn.values) > 0)
