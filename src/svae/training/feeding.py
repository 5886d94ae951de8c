"""What a step of training takes: which sequences in which order, and where on the device they are."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.models import Batch


def epoch_order(
    key: PRNGKeyArray, epoch: Int[Array, ""] | int, num_sequences: int
) -> Int[Array, "sequences"]:
    """All sequences, in another order in each epoch."""
    return jax.random.permutation(jax.random.fold_in(key, epoch), num_sequences)


def batch_indices(
    key: PRNGKeyArray, step: Int[Array, ""], num_sequences: int, batch_size: int
) -> Int[Array, "b"]:
    """The sequences of a step: each epoch has its own order; what does not fill a batch sits it out."""
    per_epoch = num_sequences // batch_size
    return part_of_epoch(epoch_order(key, step // per_epoch, num_sequences), step, batch_size)


def part_of_epoch(order: Int[Array, "sequences"], step: Int[Array, ""], batch_size: int) -> Int[Array, "b"]:
    """The sequences of a step, given the order of its epoch."""
    per_epoch = order.shape[0] // batch_size
    return lax.dynamic_slice(order, ((step % per_epoch) * batch_size,), (batch_size,))


class Resident(NamedTuple):
    """Windows into frames that are all on the device: however much windows overlap, frames are there once."""

    frames: Float[Array, "frames features"]  # of all recordings, one after the other
    known: Int[Array, "frames"] | None  # states that are known, -1 where they are not
    first: Int[Array, "windows"]  # place of a window's first frame
    lengths: Int[Array, "windows"]
    size: int
    num_states: int | None

    @property
    def num_sequences(self) -> int:
        """How many windows there are."""
        return self.first.shape[0]

    def select(self, which: Int[Array, "b"]) -> Batch:
        """These windows, padded with zeros."""
        lengths = self.lengths[which]
        inside = jnp.arange(self.size)[None] < lengths[:, None]
        place = jnp.where(inside, self.first[which][:, None] + jnp.arange(self.size)[None], 0)
        values = jnp.where(inside[:, :, None], self.frames[place], 0)
        if self.known is None or self.num_states is None:
            return Batch(values, lengths)
        own = jnp.where(inside, self.known[place], -1)[:, :, None]
        return Batch(values, lengths, (own < 0) | (own == jnp.arange(self.num_states)[None, None]))


class Coming(NamedTuple):
    """The batches of a few steps, cut on the host: those of step `begin` come first."""

    batches: Batch  # (steps, batch, ...)
    begin: Int[Array, ""]
    num_sequences: int


OnDevice = Batch | Resident | Coming


def batch_of(data: OnDevice, step: Int[Array, ""], which: Int[Array, "b"]) -> Batch:
    """The batch of a step, which takes these sequences.

    The barrier makes the rest of a step the same program wherever batches come from, so that numbers agree.
    """
    if isinstance(data, Coming):
        batch = jax.tree.map(
            lambda x: lax.dynamic_index_in_dim(x, step - data.begin, keepdims=False), data.batches
        )
    else:
        batch = data.select(which)
    return lax.optimization_barrier(batch)
