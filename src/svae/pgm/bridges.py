"""Completions by expected potentials, as in the paper: mean field with what is expected of the parameters.

A model of one block is solved as it is. With states, coordinate ascent keeps one explanation of a gap, the
nearest to where it starts. So it is started from a path of states that is drawn: those at the edges of the
gap from their posterior, those inside from the model's prior between them. Each draw has its own.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from svae.chains import Length
from svae.chains.padding import choose
from svae.expfam import ParameterPosterior, Terms, add
from svae.meanfield import Blocks, CoordinateAscent
from svae.pgm.base import GraphicalModel


def bridge(
    model: GraphicalModel,
    posterior: ParameterPosterior,
    key: PRNGKeyArray,
    potentials: Blocks,
    count: int,
    length: Length = None,
    solver: CoordinateAscent | None = None,
) -> tuple[Array, Array | None]:
    """`count` draws of the latent path and of the states, frame by frame."""
    seen = model.infer(posterior, potentials, length=length, solver=solver).solution
    keys = jax.random.split(key, count)
    if len(potentials) == 1:
        return jax.vmap(lambda key: model.sample(key, seen, length)[0])(keys), None
    observed = jnp.any(potentials[0].second != 0, axis=(-2, -1))
    if len(potentials[1][0]) < len(observed):  # a state rules a transition, which two frames show
        observed = observed[1:] & observed[:-1]
    states = model.blocks(length)[1]
    alone = lambda states: model.states_cost(posterior.inference_stats, states)
    prior = add(potentials[1], jax.grad(alone)(potentials[1]))
    chain = _where(observed, seen.naturals[1], prior)

    def one(key):
        path_key, key = jax.random.split(key)
        drawn = states.sufficient_stats(states.sample(path_key, chain))
        begin = jax.tree.map(jnp.zeros_like, potentials[0]), _where(observed, seen.stats[1], drawn)
        inference = model.infer(posterior, potentials, length=length, start=begin, solver=solver)
        latents, path = model.sample(key, inference.solution, length)
        return latents, model.frame_states(path)

    return jax.lax.map(one, keys)


def _where(observed: Array, seen: Terms, other: Terms) -> Terms:
    """Step by step; what joins the steps is the other's."""
    return type(other)(choose(observed, seen[0], other[0]), *other[1:])
