"""A switching system and data drawn from it, with the potentials that a perfect encoder would give."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from svae.chains import DiscreteChainTerms
from svae.expfam import GaussianParameters, LinearGaussian, Terms, add
from svae.meanfield import Blocks, CoordinateAscent, fixed_point, surrogate
from svae.pgm import SLDS, SLDSGlobals
from svae.studies.gradients.problems import Case, System, make_case

PRECISION = 1.0  # of the observations: low, so that the prior matters and inference takes many sweeps
STEP_NOISE = 0.05  # variance of the true dynamics
STAY = 0.95  # probability of keeping the state


class Sizes(NamedTuple):
    """Of the system, and of the data."""

    num_states: int = 8
    latent_dim: int = 4
    num_steps: int = 100
    batch: int = 32
    fit_rounds: int = 40


class Data(NamedTuple):
    """Noisy observations of latent paths, and the states that ruled them."""

    observations: Float[Array, "batch time n"]
    states: Int[Array, "batch time_minus_1"]


class Bent(eqx.Module):
    """g(z) = z + sin(2z)/2 against g(target): a nonlinear stand-in for a decoder."""

    def __call__(self, path: Array, target: Array) -> Array:
        """Half the squared distance, as surely as things were observed."""
        shown, wanted = (z + 0.5 * jnp.sin(2 * z) for z in (path, target))
        return 0.5 * PRECISION * jnp.sum((shown - wanted) ** 2)


def cases(sizes: Sizes, seed: int = 0) -> dict[str, tuple[System, Case]]:
    """A system as it is first initialised, and one that was fitted to the data."""
    graph = SLDS(sizes.num_states, sizes.latent_dim)
    data = draw_data(graph, sizes, seed)
    naturals = {
        "new": eqx.filter_jit(graph.initial)(jax.random.key(seed)),
        "trained": fit(graph, data, sizes.fit_rounds)[0],
    }
    linear, precision = encode(data)
    make = lambda natural: make_case(graph, natural, linear, precision, data.observations, seed + 1)
    return {name: (System(graph, Bent()), make(natural)) for name, natural in naturals.items()}


def true_parameters(rng: np.random.Generator, num_states: int, latent_dim: int) -> SLDSGlobals:
    """Each state turns about its own centre, in its own plane, at its own speed."""
    weights = []
    for angle in np.linspace(0.1, 0.9, num_states):
        basis = np.linalg.qr(rng.normal(size=(latent_dim, latent_dim)))[0]
        turn = np.eye(latent_dim)
        turn[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        matrix = 0.95 * basis @ turn @ basis.T
        centre = 2 * rng.normal(size=latent_dim)
        weights.append(np.column_stack([matrix, centre - matrix @ centre]))
    noise = np.broadcast_to(STEP_NOISE * np.eye(latent_dim), (num_states, latent_dim, latent_dim))
    move = (1 - STAY) / max(num_states - 1, 1)
    changes = np.full((num_states, num_states), move) + (STAY - move) * np.eye(num_states)
    return SLDSGlobals(
        GaussianParameters(jnp.zeros(latent_dim), jnp.eye(latent_dim)),
        LinearGaussian(jnp.asarray(np.stack(weights)), jnp.asarray(noise)),
        jnp.full(num_states, 1 / num_states),
        jnp.asarray(changes),
    )


def draw_data(graph: SLDS, sizes: Sizes, seed: int) -> Data:
    """Paths of the true model, seen through noise of the potentials' precision."""
    parameters = true_parameters(np.random.default_rng(seed), sizes.num_states, sizes.latent_dim)
    path_key, noise_key = jax.random.split(jax.random.key(seed))
    generate = jax.jit(jax.vmap(lambda key: graph.generate(key, parameters, sizes.num_steps)))
    paths, states = generate(jax.random.split(path_key, sizes.batch))
    return Data(paths + PRECISION**-0.5 * jax.random.normal(noise_key, paths.shape), states)


def encode(data: Data) -> tuple[Array, Array]:
    """Linear terms and precisions of the potentials."""
    precision = jnp.full_like(data.observations, PRECISION)
    return precision * data.observations, precision


def fit(graph: SLDS, data: Data, rounds: int) -> tuple[Terms, list[float]]:
    """Coordinate ascent between q(z) and q(theta) from a rough idea of the states; and its bounds."""
    states = 0.6 * jax.nn.one_hot(data.states, graph.num_states) + 0.4 / graph.num_states
    pairs = jnp.einsum("bti,btj->bij", states[:, :-1], states[:, 1:])
    chain, _ = graph.blocks(None)
    stats = jax.vmap(chain.sufficient_stats)(data.observations), DiscreteChainTerms(states, pairs)
    potentials, bounds = jax.vmap(graph.potentials)(*encode(data)), []
    for _ in range(rounds):
        stats, bound = _infer_all(graph, _conjugate_update(graph, stats), potentials, stats)
        bounds.append(float(bound))
    return _conjugate_update(graph, stats), bounds


@jax.jit
def _conjugate_update(graph: SLDS, stats: Blocks) -> Terms:
    r"""The best q(theta) given q(z): $\eta = \eta_0 + \sum_n \partial E_n / \partial\theta$."""

    def energy(theta: Terms) -> Float[Array, ""]:
        return jnp.sum(jax.vmap(lambda own: graph.problem().energy(theta, own))(stats))

    return add(graph.prior(), jax.grad(energy)(graph.prior()))  # linear in theta: any point serves


@jax.jit
def _infer_all(graph: SLDS, natural: Terms, potentials: Blocks, start: Blocks) -> tuple[Blocks, Array]:
    """Statistics of every sequence, and the evidence lower bound of the whole data."""
    theta, problem = graph.family.expected_stats(natural), graph.problem()

    def infer(potentials: Blocks, start: Blocks) -> tuple[Blocks, Array]:
        solution = fixed_point(problem, theta, potentials, start, CoordinateAscent(10, 1e-6))
        return solution.stats, surrogate(problem, theta, potentials, solution.posterior)

    stats, objectives = jax.vmap(infer)(potentials, start)
    return stats, jnp.sum(objectives) - graph.family.kl(natural, graph.prior())
