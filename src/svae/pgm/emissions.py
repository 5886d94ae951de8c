"""States that emit: independent Gaussian variables, each drawn from its state's normal.

What the mixture and the hidden Markov model have in common.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from svae.expfam import Gaussian, GaussianTerms, NIWTerms, add
from svae.linalg import identity_like
from svae.pgm.factors import normal_log_density

FLOOR = 1e-5  # precision that makes a potential on some coordinates only a proper distribution


def emission_energy(
    theta: NIWTerms, z: GaussianTerms, responsibilities: Float[Array, "time k"]
) -> Float[Array, ""]:
    """sum_t E log N(z_t; mu_{k_t}, Sigma_{k_t})."""
    return jnp.sum(responsibilities * normal_log_density(theta, *z))


def first_scores(
    theta: NIWTerms, potential: GaussianTerms, log_probability: Float[Array, "k"]
) -> Float[Array, "time k"]:
    """Log-scores of the states from the potentials alone; the prior's where nothing was observed."""
    proper = add(potential, GaussianTerms(jnp.zeros_like(potential.first), identity_like(potential.second)), -FLOOR / 2)
    observed = jnp.any(potential.second != 0, axis=(-2, -1))
    scores = normal_log_density(theta, *Gaussian().expected_stats(proper))
    return jnp.where(observed[:, None], scores, 0) + jnp.broadcast_to(log_probability, scores.shape)


def select(parameters, states: Array) -> list[Array]:
    """Each step's parameters from its state."""
    return [x[states] for x in parameters]
