"""Models at work on many windows of one length, several in one program."""

from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray
from numpy import ndarray

from svae import application
from svae.data import Recordings
from svae.models import SVAE, Batch, Draws, Model
from svae.training.artifact import Fitted


def bounds(fitted: Fitted, windows: Recordings, num_sequences: int, together: int, seed: int) -> ndarray:
    """Of each window, in nats per number in the units of the data, its share of KL(q(theta)) included."""
    parts = _in_turn(fitted, windows, together, seed, _bound, num_sequences)
    nats = np.concatenate([np.asarray(part) for part in parts])[: len(windows)]
    per_number = nats / windows[0].values.size
    return per_number - np.mean(np.log(np.broadcast_to(fitted.standardizer.scale, windows.num_features)))


def states(fitted: Fitted, windows: Recordings, together: int) -> ndarray:
    """The most likely states, (windows, time)."""
    parts = _in_turn(fitted, windows, together, 0, _segment)
    return np.concatenate([np.asarray(part) for part in parts])[: len(windows)]


def completed(
    fitted: Fitted, windows: Recordings, hidden: slice, count: int, together: int, seed: int
) -> tuple[ndarray, ndarray | None]:
    """Draws of what is hidden, with all that was seen, (draws, windows, time, channels); and their states.

    Each by its model's own procedure in the paper.
    """
    gappy = windows.hide(lambda length: hidden)
    values, found = [], []
    for drawn in _in_turn(fitted, gappy, together, seed, _impute, count):
        values.append(fitted.standardizer.undo(np.asarray(drawn.values)))
        found.append(None if drawn.states is None else np.asarray(drawn.states))
    together_again = lambda parts: np.concatenate(parts, axis=1)[:, : len(windows)]
    drawn_values = together_again(values)
    seen = np.stack([item.values for item in windows])
    drawn_values = np.where(np.isnan(np.stack([item.values for item in gappy])), drawn_values, seen)
    return drawn_values, None if found[0] is None else together_again(found)


def replicated(fitted: Fitted, windows: Recordings, together: int, seed: int) -> ndarray:
    """All frames drawn anew by an SVAE that has seen them, (windows, time, channels)."""
    parts = _in_turn(fitted, windows, together, seed, _replicate)
    return fitted.standardizer.undo(np.concatenate([np.asarray(part) for part in parts]))[: len(windows)]


def generated(fitted: Fitted, length: int, count: int, together: int, seed: int) -> ndarray:
    """New windows, (count, time, channels)."""
    rounds = -(-count // together)
    drawn = [application.generate(fitted, length, together, 1000 * seed + i).values for i in range(rounds)]
    return np.concatenate(drawn)[:count]


def _in_turn(
    fitted: Fitted, windows: Recordings, together: int, seed: int, method: Callable[..., Any], *args: Any
) -> Iterator[Any]:
    """`method(model, batch, key, ...)` of groups of one size; the last group repeats its last window.

    On a CPU windows go one by one if inference iterates: in company each would wait for the slowest.
    """
    model = application.answering(fitted)
    known = application.matched(fitted, windows)
    alone = jax.default_backend() == "cpu" and isinstance(model, SVAE)
    size, key = 1 if alone else min(together, len(known)), jax.random.fold_in(jax.random.key(seed), 1)
    for number, first in enumerate(range(0, len(known), size)):
        which = np.minimum(np.arange(first, first + size), len(known) - 1)
        values = np.stack([fitted.standardizer.apply(known[int(i)].values) for i in which])
        batch = Batch(jnp.asarray(values, jnp.float32), jnp.full(size, values.shape[1], jnp.int32))
        yield method(model, batch, jax.random.fold_in(key, number), *args)


@eqx.filter_jit
def _bound(model: Model, batch: Batch, key: PRNGKeyArray, num_sequences: int) -> jax.Array:
    return model.elbo(key, batch).elbo(num_sequences)


@eqx.filter_jit
def _segment(model: Model, batch: Batch, key: PRNGKeyArray) -> jax.Array:
    return model.segment(batch).states


@eqx.filter_jit
def _replicate(model: SVAE, batch: Batch, key: PRNGKeyArray) -> jax.Array:
    return model.replicate(key, batch)


@eqx.filter_jit
def _impute(model: Model, batch: Batch, key: PRNGKeyArray, count: int) -> Draws:
    if isinstance(model, SVAE) and model.recognition is None:
        return application.impute_expected(model, key, batch, count)
    return model.impute(key, batch, count)
