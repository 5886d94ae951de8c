"""Padding: a sequence shorter than its array, with the same numbers as the sequence alone.

Inside the algorithms a padded step is replaced by one that stands alone and contributes nothing (its
potentials are cut off and its log-partition is zero); in the statistics that come out it is zero.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

Length = Int[Array, ""] | int | None  # None: the whole array


def valid_steps(num_steps: int, length: Length) -> Bool[Array, "time"]:
    """True at the first `length` of `num_steps` steps."""
    steps = jnp.arange(num_steps)
    return steps < num_steps if length is None else steps < length


def choose(valid: Bool[Array, "time"], inside: Array, outside: Array) -> Array:
    """`inside` where valid, `outside` elsewhere; the leading axis is time."""
    return jnp.where(valid.reshape(valid.shape + (1,) * (inside.ndim - 1)), inside, outside)


def zero_padding(valid: Bool[Array, "time"], record):
    """Zero in every leaf's padded steps."""
    return jax.tree.map(lambda leaf: choose(valid[: leaf.shape[0]], leaf, jnp.zeros_like(leaf)), record)
