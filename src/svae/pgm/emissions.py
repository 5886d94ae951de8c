"""Completions of models whose steps are normal given their states: exact, states first."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.expfam import ExponentialFamily, GaussianParameters, GaussianTerms, Terms
from svae.pgm.base import sample_normal
from svae.pgm.particles import absorb


def absorb_steps(
    emission: GaussianParameters, potential: GaussianTerms
) -> tuple[Float[Array, "time k"], Float[Array, "time k n"], Float[Array, "time k n n"]]:
    """`absorb` for every step and every state, whose normals the potentials meet."""
    precision = -2 * jnp.diagonal(potential.second, axis1=-2, axis2=-1)
    return jax.vmap(lambda r, R: absorb(*emission, r, R))(potential.first, precision)


def draw_states_first(
    key: PRNGKeyArray,
    states: ExponentialFamily,
    natural: Terms,
    means: Float[Array, "time k n"],
    covariances: Float[Array, "time k n n"],
    count: int,
) -> tuple[Float[Array, "draws time n"], Int[Array, "draws time"]]:
    """Paths of states, of which the continuous variables were integrated out, then those given the states."""

    def one(key):
        state_key, key = jax.random.split(key)
        path = states.sample(state_key, natural)
        step = jnp.arange(path.shape[0])
        return sample_normal(key, means[step, path], covariances[step, path]), path

    return jax.vmap(one)(jax.random.split(key, count))
