"""What every graphical model offers. A new one is its priors, its blocks and one `energy` function.

All methods work on one sequence; map over a batch with `jax.vmap`.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from svae import checks, linalg
from svae.chains import FORBIDDEN, GaussianChainTerms, Length
from svae.expfam import (
    GaussianTerms,
    ParameterFamily,
    ParameterPosterior,
    Terms,
    fixed_parameters,
    inner,
)
from svae.meanfield import (
    Adjoint,
    Blocks,
    CoordinateAscent,
    Problem,
    Solution,
    fixed_point,
    local_kl,
    surrogate,
)

PARAMETER_DRAWS = 4  # that completions and generated sequences share


class Inference(NamedTuple):
    """The posterior of one sequence's latent variables, and what it costs."""

    solution: Solution
    kl_local: Float[Array, ""]  # E_q(theta) KL(q(z) || p(z | theta)), nats
    surrogate: Float[Array, ""]  # what inference maximised: <potentials, stats> - kl_local


class GraphicalModel(eqx.Module):
    """A prior over latent variables with unknown parameters."""

    latent_dim: eqx.AbstractVar[int]
    price = 1.0  # how often the states' KL divergence to their prior counts, in models that have states

    @property
    @abstractmethod
    def family(self) -> ParameterFamily:
        """The family of the parameters' prior and posterior."""

    @abstractmethod
    def prior(self) -> Terms:
        """Natural parameters of p(theta)."""

    @abstractmethod
    def initial(self, key: PRNGKeyArray) -> Terms:
        """Natural parameters of a first guess at q(theta), different for each state."""

    @abstractmethod
    def blocks(self, length: Length) -> tuple:
        """The exponential families whose product is q(z)."""

    @abstractmethod
    def energy(self, theta: Terms, stats: Blocks, length: Length) -> Float[Array, ""]:
        """E_q[log p(z | theta)]: linear in `theta` and in the statistics of each block."""

    @abstractmethod
    def wrap(self, potential: GaussianTerms) -> Blocks:
        """Potentials for all blocks from those on the continuous variables, step by step."""

    @abstractmethod
    def start(self, theta: Terms, potentials: Blocks, length: Length) -> Blocks:
        """Statistics from which inference begins; those of the first block are never read."""

    @abstractmethod
    def generate(self, key: PRNGKeyArray, parameters: Any, num_steps: int) -> tuple:
        """Latent variables drawn from p(z | parameters), one value for each block."""

    def states_energy(self, theta: Terms, states: Terms) -> Float[Array, ""]:
        """E_q[log p(k | theta)]: the part of the energy that is the states' alone."""
        raise TypeError(f"{type(self).__name__} does not tell its states' energy from that of the path")

    def states_cost(self, theta: Terms, states: Terms) -> Float[Array, ""]:
        """What the energy has of it: as often as the states' entropy counts (`svae.expfam.priced`)."""
        return self.price * self.states_energy(theta, states)

    def problem(self, length: Length = None) -> Problem:
        """The mean-field problem of a sequence of `length` steps (None: of all steps there are)."""
        return Problem(eqx.Partial(_energy_of, self, length), self.blocks(length))

    def potentials(
        self,
        linear: Float[Array, "..."],
        precision: Float[Array, "..."],
        observed: Bool[Array, "..."] | None = None,
    ) -> Blocks:
        """Potentials exp(r'z - z' diag(R) z / 2) at each step.

        There are none where `observed` is False: at missing steps, and in the padding.
        """
        checks.require_shape("linear", linear, (self.latent_dim,))
        checks.require_shape("precision", precision, linear.shape)
        if observed is not None:
            checks.require_shape("observed", observed, linear.shape[:1])
            linear = jnp.where(observed[:, None], linear, 0)
            precision = jnp.where(observed[:, None], precision, 0)
        checks.require_finite("linear", linear)
        checks.require_finite("precision", precision)
        checks.require_not_negative("precision", precision)
        second = -0.5 * precision[:, :, None] * jnp.eye(self.latent_dim, dtype=precision.dtype)[None]
        return self.wrap(GaussianTerms(linear, second))

    def infer(
        self,
        posterior: ParameterPosterior,
        potentials: Blocks,
        *,
        length: Length = None,
        start: Blocks | None = None,
        solver: CoordinateAscent | None = None,
        adjoint: Adjoint | None = None,
    ) -> Inference:
        """Structured variational inference of one sequence.

        A potential of minus infinity forbids a state at a step.
        """
        problem = self.problem(length)
        potentials = jax.tree.map(lambda x: jnp.maximum(x, FORBIDDEN), potentials)
        theta = posterior.inference_stats
        if start is None:
            start = self.start(*jax.lax.stop_gradient((theta, potentials)), length)
        solution = fixed_point(problem, theta, potentials, start, solver, adjoint)
        kl = local_kl(problem, posterior.stats, solution.posterior)
        return Inference(solution, kl, surrogate(problem, posterior.stats, potentials, solution.posterior))

    def draw_parameters(
        self, key: PRNGKeyArray, posterior: ParameterPosterior, count: int = PARAMETER_DRAWS
    ) -> Any:
        """Draws from q(theta), along a new leading axis."""
        draw = lambda key: self.family.sample(key, posterior.natural)
        return jax.vmap(draw)(jax.random.split(key, count))

    def complete(
        self, key: PRNGKeyArray, parameters: Any, potentials: Blocks, count: int, length: Length = None
    ) -> tuple[Float[Array, "draws time n"], Int[Array, "draws time"] | None]:
        """Draws of the continuous variables and of each step's state, however much is missing.

        `parameters` are several draws (`draw_parameters`); each has its share of the completions. Of fewer
        completions than draws each has another one's, from a random one on.
        """
        key, first_key = jax.random.split(key)
        known = num_draws(parameters)
        groups = min(known, count)
        size = -(-count // groups)
        which = (jax.random.randint(first_key, (), 0, known) + jnp.arange(groups)) % known
        group = lambda x: self.complete_given(x[0], x[1], potentials, size, length)
        own = jax.tree.map(lambda x: x[which], parameters)
        drawn = jax.lax.map(group, (jax.random.split(key, groups), own))
        return jax.tree.map(lambda x: x.reshape(groups * size, *x.shape[2:])[:count], drawn)

    def complete_given(
        self, key: PRNGKeyArray, parameters: Any, potentials: Blocks, count: int, length: Length
    ) -> tuple[Float[Array, "draws time n"], Int[Array, "draws time"] | None]:
        """The same with known parameters. This is exact for models of one block; others should do better."""
        return self.draw(key, fixed_parameters(self.family, parameters), potentials, count, length)

    def draw(
        self,
        key: PRNGKeyArray,
        posterior: ParameterPosterior,
        potentials: Blocks,
        count: int,
        length: Length,
        solver: CoordinateAscent | None = None,
    ) -> tuple[Float[Array, "draws time n"], Int[Array, "draws time"] | None]:
        """From q(z), with the states of each step."""
        solution = self.infer(posterior, potentials, length=length, solver=solver).solution
        draw = lambda key: self.sample(key, solution, length)
        latents, *states = jax.vmap(draw)(jax.random.split(key, count))
        return latents, self.frame_states(states[0]) if states else None

    def log_weight(
        self, theta: Terms, solution: Solution, values: tuple, length: Length = None
    ) -> Float[Array, ""]:
        """log p(z | theta) - log q(z) of a draw z from q(z), given the statistics of parameters.

        The energy is linear in every block's statistics, so with those of a draw it is its log-density.
        """
        blocks = self.blocks(length)
        stats = tuple(block.sufficient_stats(value) for block, value in zip(blocks, values, strict=True))
        posterior = inner(solution.naturals, stats) - sum(solution.log_partitions)
        weight = self.energy(theta, stats, length) - posterior
        if self.price == 1:
            return weight
        states = inner(solution.naturals[1], stats[1]) - solution.log_partitions[1]
        return weight - (1 - 1 / self.price) * (self.states_cost(theta, stats[1]) - states)

    def restrict(self, potentials: Blocks, allowed: Bool[Array, "time k"]) -> Blocks:
        """Potentials that forbid all states but the `allowed` ones, step by step."""
        raise TypeError(f"{type(self).__name__} has no discrete states")

    def state_probabilities(self, stats: Blocks) -> Float[Array, "time k"] | None:
        """q(k_t) of each step; None for models without discrete states."""
        return None

    def most_likely_states(self, solution: Solution, length: Length = None) -> Int[Array, "time"]:
        """The discrete states of highest posterior probability, step by step."""
        raise TypeError(f"{type(self).__name__} has no discrete states")

    def frame_states(self, states: Any) -> Int[Array, "*batch time"]:
        """One state for each step, from a value of the block of states."""
        return states

    def sample(self, key: PRNGKeyArray, solution: Solution, length: Length = None) -> tuple:
        """Latent variables drawn from q(z), one value for each block."""
        keys = jax.random.split(key, len(solution.naturals))
        blocks = self.blocks(length)
        return tuple(b.sample(k, n) for b, k, n in zip(blocks, keys, solution.naturals, strict=True))


def _energy_of(model: GraphicalModel, length: Length, theta: Terms, stats: Blocks) -> Float[Array, ""]:
    return model.energy(theta, stats, length)


def chain_potential(potential: GaussianTerms) -> GaussianChainTerms:
    """The same potentials for a Gaussian chain: none on its links."""
    time, size = potential.first.shape
    return GaussianChainTerms(*potential, jnp.zeros((max(time - 1, 0), size, size), potential.first.dtype))


def shorten(length: Length) -> Length:
    """Length of the chain of transitions between `length` steps."""
    return None if length is None else length - 1


def sample_markov(
    key: PRNGKeyArray, start: Float[Array, "k"], transition: Float[Array, "k k"], num_steps: int
) -> Array:
    """States of a Markov chain."""
    if num_steps == 0:
        return jnp.zeros(0, jnp.int32)
    first_key, key = jax.random.split(key)
    first = jax.random.categorical(first_key, jnp.log(start))

    def step(state, key):
        state = jax.random.categorical(key, jnp.log(transition[state]))
        return state, state

    _, rest = jax.lax.scan(step, first, jax.random.split(key, num_steps - 1))
    return jnp.concatenate([first[None], rest])


def sample_dynamics(
    key: PRNGKeyArray,
    first: Float[Array, "n"],
    weights: Float[Array, "time_minus_1 n m"],
    covariance: Float[Array, "time_minus_1 n n"],
) -> Float[Array, "time n"]:
    """z_{t+1} = A_t z_t + b_t + L_t noise, with L_t L_t' the covariance."""
    noise = jax.random.normal(key, (weights.shape[0], first.shape[0]), first.dtype)
    shocks = weights[..., -1] + linalg.matvec(linalg.cholesky(covariance), noise)

    def step(z, x):
        matrix, shock = x
        z = linalg.matvec(matrix, z) + shock
        return z, z

    return jnp.concatenate([first[None], jax.lax.scan(step, first, (weights[..., :-1], shocks))[1]])


def sample_normal(
    key: PRNGKeyArray, mean: Float[Array, "*time n"], covariance: Float[Array, "*time n n"]
) -> Float[Array, "*time n"]:
    """Draws from normals."""
    noise = jax.random.normal(key, mean.shape, mean.dtype)
    return mean + linalg.matvec(linalg.cholesky(covariance), noise)


def num_draws(parameters: Any) -> int:
    """How many draws of parameters there are along the leading axis; one, if a model has no parameters."""
    leaves = jax.tree.leaves(parameters)
    return leaves[0].shape[0] if leaves else 1
