"""Completions by mean field, as in the paper: a path of states across each gap first, then inference.

Coordinate ascent keeps one explanation of a gap, the nearest to where it starts. So it is started from a
path of states that is drawn: those at the edges of the gap from their posterior, those inside from the
Markov chain between them. Each draw has its own.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from svae.chains import DiscreteChainTerms, Length
from svae.chains.padding import choose
from svae.expfam import ParameterPosterior
from svae.meanfield import Blocks, CoordinateAscent
from svae.pgm.hmm import HMM
from svae.pgm.slds import SLDS


def bridge(
    model: SLDS | HMM,
    posterior: ParameterPosterior,
    key: PRNGKeyArray,
    potentials: Blocks,
    count: int,
    length: Length = None,
    solver: CoordinateAscent | None = None,
) -> tuple[Array, Array]:
    """`count` draws of the latent path and of the states, frame by frame."""
    seen = model.infer(posterior, potentials, length=length, solver=solver).solution
    observed = jnp.any(potentials[0].second != 0, axis=(-2, -1))
    if isinstance(model, SLDS):  # a state rules a transition, which two frames show
        observed = observed[1:] & observed[:-1]
    states = model.blocks(length)[1]
    node = choose(observed, seen.naturals[1].node, potentials[1].node)
    chain = DiscreteChainTerms(node, seen.naturals[1].transition)

    def one(key):
        path_key, key = jax.random.split(key)
        drawn = states.sufficient_stats(states.sample(path_key, chain))
        start = drawn._replace(node=choose(observed, seen.stats[1].node, drawn.node))
        begin = jax.tree.map(jnp.zeros_like, potentials[0]), start
        inference = model.infer(posterior, potentials, length=length, start=begin, solver=solver)
        latents, path = model.sample(key, inference.solution, length)
        return latents, model.frame_states(path)

    return jax.lax.map(one, jax.random.split(key, count))
