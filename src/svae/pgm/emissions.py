"""Completions of models whose steps are normal given their states: exact, states first."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.expfam import ExponentialFamily, GaussianParameters, GaussianTerms, Terms
from svae.pgm.base import sample_normal
from svae.pgm.particles import absorb, reading


def absorb_steps(
    emission: GaussianParameters, potential: GaussianTerms
) -> tuple[Float[Array, "time k"], Float[Array, "time k n"], Float[Array, "time k n n"]]:
    """`absorb` for every step and every state, whose normals the potentials meet."""
    return jax.vmap(lambda seen: absorb(*emission, seen))(reading(potential))


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
