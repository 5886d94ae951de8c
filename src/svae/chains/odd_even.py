"""Odd-even (cyclic) reduction: the bookkeeping.

Number the nodes of a chain 0, 1, 2, ... Given their even neighbours, the odd nodes are independent of
each other, so all of them can be eliminated at once; the even ones form a chain of half the length. After
log2(T) rounds one or two nodes are left, and the odd nodes are restored on the way back.

Each of these rearrangements ends in an optimisation barrier: XLA's GPU compiler (seen with JAX 0.11.2)
aborts when it fuses strided slices and pads of odd lengths into the matrix products that follow.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def split(x: Array) -> tuple[Array, Array]:
    """Even and odd entries along the first axis."""
    return lax.optimization_barrier((x[::2], x[1::2]))


def interleave(even: Array, odd: Array) -> Array:
    """The inverse of `split`."""
    total = even.shape[0] + odd.shape[0]
    out = jnp.zeros((total, *even.shape[1:]), even.dtype)
    return lax.optimization_barrier(out.at[::2].set(even).at[1::2].set(odd))
