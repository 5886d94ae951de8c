"""The default priors and first guesses that the models share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from svae.expfam import DirichletParameters, MNIWParameters, NIWParameters

WEAK = 1e-3  # pseudo-observations behind a prior mean
GUESS = 20.0  # pseudo-observations behind a first guess of the posterior
PERSISTENCE = 0.9  # prior mean of the dynamics: z_{t+1} = 0.9 z_t
SPREAD = 0.2  # standard deviation of the first guesses' other weights


def niw(mean: Float[Array, "*k n"], confidence: float = WEAK) -> NIWParameters:
    """Around `mean`, with prior scale n I and n + 2 degrees of freedom (E Sigma = n I)."""
    states, size = mean.shape[:-1], mean.shape[-1]
    scale = jnp.broadcast_to(size * jnp.eye(size), (*states, size, size))
    return NIWParameters(scale, mean, jnp.full(states, confidence), jnp.full(states, size + 2.0))


def dynamics_mean(latent_dim: int) -> Float[Array, "n m"]:
    """0.9 [I | 0]."""
    return PERSISTENCE * jnp.eye(latent_dim, latent_dim + 1)


def mniw(
    mean: Float[Array, "*k n m"], confidence: float = WEAK, innovation: float | None = None
) -> MNIWParameters:
    """Dynamics around `mean`, with n + 2 degrees of freedom and E Sigma = `innovation` I (n I if None)."""
    states, (n, m) = mean.shape[:-2], mean.shape[-2:]
    variance = n if innovation is None else innovation
    scale = jnp.broadcast_to(variance * jnp.eye(n), (*states, n, n))
    precision = jnp.broadcast_to(confidence * jnp.eye(m), (*states, m, m))
    return MNIWParameters(scale, mean, precision, jnp.full(states, n + 2.0))


def random_dynamics(
    key: PRNGKeyArray, states: tuple[int, ...], latent_dim: int, innovation: float | None = None
) -> MNIWParameters:
    """A first guess: 0.9 on the diagonal, small random weights elsewhere."""
    base = jnp.broadcast_to(dynamics_mean(latent_dim), (*states, latent_dim, latent_dim + 1))
    noise = SPREAD * jax.random.normal(key, base.shape)
    return mniw(jnp.where(base == 0, noise, base), GUESS, innovation)


def sticky_rows(num_states: int, stay: float, move: float) -> DirichletParameters:
    """Rows of a transition matrix: concentration `stay` on the diagonal, `move` off it."""
    return DirichletParameters(jnp.full((num_states, num_states), move) + (stay - move) * jnp.eye(num_states))


def flat(num_states: int, concentration: float) -> DirichletParameters:
    """The same concentration for each state."""
    return DirichletParameters(jnp.full(num_states, concentration))
