"""The potentials of a discrete chain, as its algorithms want them."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from svae.chains.padding import zero_padding

FORBIDDEN = -1e9  # minus infinity is read as this: a log-probability no state recovers from


class Potentials(NamedTuple):
    """Node potentials, transition potentials (shared or not), and which transitions there are."""

    node: Float[Array, "time k"]
    transition: Float[Array, "*time_minus_1 k k"]
    linked: Bool[Array, "time_minus_1"]

    @property
    def shared(self) -> bool:
        """Whether all steps have the same transition potentials."""
        return self.transition.ndim == 2

    def edges(self) -> Float[Array, "time_minus_1 k k"]:
        """Transition potentials step by step, zero where there is no link."""
        size = self.node.shape[-1]
        edges = jnp.broadcast_to(self.transition, (self.linked.shape[0], size, size))
        return zero_padding(self.linked, edges)


def largest_spread(dtype) -> float:
    """Nats that a scaled product can span, with room to divide by its square, as derivatives do."""
    return -0.45 * math.log(jnp.finfo(dtype).tiny)


def in_range(potentials: Potentials) -> Bool[Array, ""]:
    """Whether probabilities can stand for their logarithms: no transition is forbidden, or all but.

    A message may lose states that it holds for impossible, as single precision does below exp(-87). They
    are none that later evidence could bring back: whatever speaks for such a state speaks as well, but for
    the spread of a column of transitions, for changing to it later.
    """
    transition = lax.stop_gradient(potentials.transition if potentials.shared else potentials.edges())
    spread = jnp.max(transition, axis=-2) - jnp.min(transition, axis=-2)
    return _everywhere(jnp.all(spread < largest_spread(transition.dtype)))


@jax.custom_batching.custom_vmap
def _everywhere(condition: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether it holds for all that is mapped over: a branch for all of them, where each would want both."""
    return condition


@_everywhere.def_vmap
def _in_all(size, batched, condition):
    return (_everywhere(jnp.all(condition, axis=0)) if batched[0] else condition), False
