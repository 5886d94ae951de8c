"""Where inference begins: the states that the potentials alone suggest.

Coordinate ascent finds the nearest optimum, and from random state probabilities that is often a poor one:
averaged dynamics fit nothing, and the continuous posterior then confirms them. The potentials know better.
Read as independent Gaussians they give every state a score at each observed step; where nothing was
observed all states score alike, and the chain of states bridges the gap. No randomness is involved, so
the same sequence always gets the same answer.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from svae import linalg
from svae.chains import GaussianChainTerms
from svae.chains.padding import choose
from svae.expfam import (
    ExponentialFamily,
    Gaussian,
    GaussianTerms,
    LinearGaussian,
    MatrixNormalInverseWishart,
    MNIWTerms,
    NIWTerms,
    Terms,
    add,
)
from svae.linalg import outer
from svae.pgm.factors import normal_log_density, transition_log_density


def _independent_moments(potential: GaussianTerms) -> tuple[GaussianTerms, Bool[Array, "time"]]:
    """Moments of the potentials as densities, and the steps at which they are densities."""
    proper = jnp.all(linalg.diagonal(potential.second) < 0, axis=-1)
    harmless = Gaussian().harmless(potential)
    filled = GaussianTerms(*(choose(proper, x, y) for x, y in zip(potential, harmless, strict=True)))
    return Gaussian().expected_stats(filled), proper


def emission_scores(theta: NIWTerms, potential: GaussianTerms) -> Float[Array, "time *k"]:
    """Expected log-density of each step under each state, zero where nothing was observed."""
    moments, observed = _independent_moments(potential)
    scores = normal_log_density(theta, *moments)
    return choose(observed, scores, jnp.zeros_like(scores))


def transition_scores(theta: MNIWTerms, potential: GaussianChainTerms) -> Float[Array, "time_minus_1 *k"]:
    """Log-density of each transition between the potentials' means, zero next to missing steps.

    The means are noisy: they move with covariance Q + R + A R A', where R is that of a typical potential.
    Expected log-densities would count R against every state in proportion to 1/Q instead. They favour
    states with much noise, which, once chosen, leave the path as noisy as that, and so are confirmed.
    """
    (first, _), observed = _independent_moments(GaussianTerms(potential.first, potential.second))
    scores = transition_log_density(
        _seen_through(theta, _typical_covariance(potential.second, observed)),
        GaussianChainTerms(first, outer(first, first), outer(first[:-1], first[1:])),
    )
    return choose(observed[1:] & observed[:-1], scores, jnp.zeros_like(scores))


def _typical_covariance(
    second: Float[Array, "time n n"], observed: Bool[Array, "time"]
) -> Float[Array, "n n"]:
    """The inverse of the mean precision of what was observed."""
    total = jnp.sum(-2 * choose(observed, second, jnp.zeros_like(second)), axis=0)
    count = jnp.sum(observed, dtype=second.dtype)
    eye = jnp.eye(second.shape[-1], dtype=second.dtype)
    return linalg.inverse(jnp.where(count > 0, total / jnp.maximum(count, 1), eye))


def _seen_through(theta: MNIWTerms, noise: Float[Array, "n n"]) -> MNIWTerms:
    """The same dynamics of a path that is seen with noise; what is unknown about them stays unknown."""
    covariance = linalg.inverse(-2 * theta.output)
    noise = jnp.broadcast_to(noise, covariance.shape)
    weights = linalg.matmul(covariance, theta.cross)
    known = MatrixNormalInverseWishart().sufficient_stats(LinearGaussian(weights, covariance))
    matrix = weights[..., :-1]
    wider = covariance + noise + linalg.matmul(linalg.matmul(matrix, noise), linalg.transpose(matrix))
    seen = MatrixNormalInverseWishart().sufficient_stats(LinearGaussian(weights, wider))
    return seen._replace(
        input=seen.input + theta.input - known.input, weight=seen.weight + theta.weight - known.weight
    )


def state_chain(
    block: ExponentialFamily,
    energy: Callable[[Terms], Float[Array, ""]],
    scores: Float[Array, "time k"],
    potential: Terms,
) -> Terms:
    """Statistics of the chain of states, given its scores and the energy that it has for itself."""
    natural = add(potential, jax.grad(energy)(potential))
    return block.expected_stats(natural._replace(node=natural.node + scores))
