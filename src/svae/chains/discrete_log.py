"""A discrete chain, node after node, with messages in log space: whatever the potentials, at a price.

Each step takes a K x K table of exponentials.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.nn import logsumexp, softmax
from jaxtyping import Array, Float, Int

from svae.chains.discrete_potentials import Potentials


def _steps(potentials: Potentials) -> tuple[Callable, tuple]:
    """Scanned inputs (linked, own transition) and how to get a step's edge from them."""
    _, transition, linked = potentials
    if potentials.shared:
        return (lambda linked, _: jnp.where(linked, transition, 0)), (linked, None)
    return (lambda linked, own: jnp.where(linked, own, 0)), (linked, transition)


def _forward(potentials: Potentials, reduce: Callable) -> tuple[Float[Array, ""], Float[Array, "time k"]]:
    """Log-normaliser and normalised forward messages."""
    edge_of, scanned = _steps(potentials)

    def normalise(message):
        level = reduce(message, axis=-1)
        return message - level, level

    def step(message, x):
        node, own = x
        message, level = normalise(node + reduce(message[:, None] + edge_of(*own), axis=0))
        return message, (message, level)

    first, level = normalise(potentials.node[0])
    _, (rest, levels) = lax.scan(jax.checkpoint(step), first, (potentials.node[1:], scanned))
    return level + jnp.sum(levels), jnp.concatenate([first[None], rest])


def marginals(potentials: Potentials) -> tuple[Float[Array, ""], Array, Array]:
    """Log-partition, marginals, and pair marginals (summed where the transition is shared)."""
    edge_of, scanned = _steps(potentials)
    log_partition, filtered = _forward(potentials, logsumexp)

    def step(carry, x):
        after, total = carry
        filtered, own = x
        backward = softmax(filtered[:, None] + edge_of(*own), axis=0)  # p(k_t | k_{t+1}, the past)
        pair = backward * after[None, :]
        marginal = jnp.sum(pair, axis=1)
        pair = jnp.where(own[0], pair, 0)
        if potentials.shared:
            return (marginal, total + pair), (marginal, ())
        return (marginal, total), (marginal, pair)

    last = softmax(filtered[-1])
    start: Any = last, jnp.zeros_like(potentials.transition) if potentials.shared else ()
    (_, total), (marginals, pairs) = lax.scan(
        jax.checkpoint(step), start, (filtered[:-1], scanned), reverse=True
    )
    transition: Array = total if potentials.shared else pairs
    return log_partition, jnp.concatenate([marginals, last[None]]), transition


def path(potentials: Potentials, noise: Array, reduce: Callable) -> Int[Array, "time"]:
    """Backwards, each state the best (after noise) given its successor.

    With `logsumexp` and Gumbel noise that is a draw, with `max` and none the most likely path.
    """
    edge_of, scanned = _steps(potentials)
    messages = _forward(potentials, reduce)[1] + noise

    def step(after, x):
        message, own = x
        state = jnp.argmax(message + edge_of(*own)[:, after])
        return state, state

    last = jnp.argmax(messages[-1])
    _, before = lax.scan(step, last, (messages[:-1], scanned), reverse=True)
    return jnp.concatenate([before, last[None]])
