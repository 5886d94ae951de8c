"""Which sequences each step of training takes, and how their frames get to the device."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray

from svae.models import Batch, Complete
from svae.training.windows import OnDevice, TrainingWindows


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
    order = epoch_order(key, step // per_epoch, num_sequences)
    return lax.dynamic_slice(order, ((step % per_epoch) * batch_size,), (batch_size,))


class Coming(NamedTuple):
    """The batches of a few steps, from step `begin` on, out of so many sequences."""

    which: Int[Array, "steps b"]
    batches: Batch  # (steps, batch, ...)
    begin: Int[Array, ""]
    num_sequences: int

    def at(self, step: Int[Array, ""]) -> tuple[Int[Array, "b"], Batch]:
        """The sequences of a step, and their numbers."""
        row = lambda x: lax.dynamic_index_in_dim(x, step - self.begin, keepdims=False)
        return row(self.which), jax.tree.map(row, self.batches)


class Feed:
    """Batches for the steps to come: gathered from frames on the device, or cut on the host and sent there.

    Steps themselves are the same program in both cases, so their numbers are the same.
    """

    def __init__(self, data: Batch | TrainingWindows, key: PRNGKeyArray, batch_size: int):
        self.data, self.batch_size = data, batch_size
        self.key = jax.random.split(key)[0]
        self.epoch, self.order = -1, np.zeros(0, int)

    @property
    def cuts_on_host(self) -> bool:
        """Whether batches take time that is better spent while the device is at work."""
        return isinstance(self.data, TrainingWindows) and self.data.on_device is None

    def __call__(self, step: int, count: int) -> Batch | Coming:
        """What `count` steps from `step` on need."""
        if isinstance(self.data, Batch):
            return self.data
        which = np.concatenate([self._indices(x) for x in range(step, step + count)])
        if self.data.on_device is None:
            batch = self.data.select(which).read()
        else:
            batch = _gather(self.data.on_device, jnp.asarray(which))
        if self.data.complete:
            batch = Complete(*batch)
        by_step = lambda x: x.reshape(count, self.batch_size, *x.shape[1:])
        begin = jnp.asarray(step, jnp.int32)
        return Coming(
            by_step(jnp.asarray(which)), jax.tree.map(by_step, batch), begin, self.data.num_sequences
        )

    def _indices(self, step: int) -> Int[np.ndarray, "b"]:
        """As `batch_indices`, but an order is found once in an epoch."""
        per_epoch = self.data.num_sequences // self.batch_size
        if self.epoch != step // per_epoch:
            self.epoch = step // per_epoch
            self.order = np.asarray(epoch_order(self.key, self.epoch, self.data.num_sequences))
        return self.order[step % per_epoch * self.batch_size :][: self.batch_size]


@eqx.filter_jit
def _gather(data: OnDevice, which: Int[Array, "b"]) -> Batch:
    return data.select(which)
