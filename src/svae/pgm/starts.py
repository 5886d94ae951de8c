"""Where inference begins: the states that the potentials alone suggest.

Coordinate ascent finds the nearest optimum, and from random state probabilities that is often a poor one:
averaged dynamics fit nothing, and the continuous posterior then confirms them. The potentials know better.
Read as independent Gaussians they give every state a score at each observed step; where nothing was
observed all states score alike, and the chain of states bridges the gap. No randomness is involved, so
the same sequence always gets the same answer.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from svae.chains import DiscreteChain, DiscreteChainTerms, GaussianChainTerms
from svae.chains.padding import choose
from svae.expfam import DirichletTerms, Gaussian, GaussianTerms, MNIWTerms, NIWTerms
from svae.linalg import outer
from svae.pgm.factors import normal_log_density, transition_log_density


def _independent_moments(potential: GaussianTerms) -> tuple[GaussianTerms, Bool[Array, "time"]]:
    """Moments of the potentials as densities, and the steps at which they are densities."""
    proper = jnp.all(jnp.diagonal(potential.second, axis1=-2, axis2=-1) < 0, axis=-1)
    harmless = Gaussian().harmless(potential)
    filled = GaussianTerms(*(choose(proper, x, y) for x, y in zip(potential, harmless, strict=True)))
    return Gaussian().expected_stats(filled), proper


def emission_scores(theta: NIWTerms, potential: GaussianTerms) -> Float[Array, "time *k"]:
    """Expected log-density of each step under each state, zero where nothing was observed."""
    moments, observed = _independent_moments(potential)
    scores = normal_log_density(theta, *moments)
    return choose(observed, scores, jnp.zeros_like(scores))


def transition_scores(theta: MNIWTerms, potential: GaussianChainTerms) -> Float[Array, "time_minus_1 *k"]:
    """Expected log-density of each transition under each state, zero next to missing steps."""
    (first, second), observed = _independent_moments(GaussianTerms(potential.first, potential.second))
    moments = GaussianChainTerms(first, second, outer(first[:-1], first[1:]))
    scores = transition_log_density(theta, moments)
    return choose(observed[1:] & observed[:-1], scores, jnp.zeros_like(scores))


def state_chain(
    block: DiscreteChain,
    start: DirichletTerms,
    transition: DirichletTerms,
    scores: Float[Array, "time k"],
    potential: DiscreteChainTerms,
) -> DiscreteChainTerms:
    """Statistics of the chain of states, given its scores."""
    node = (scores + potential.node).at[:1].add(start.log_probability[None])
    return block.expected_stats(DiscreteChainTerms(node, transition.log_probability + potential.transition))
