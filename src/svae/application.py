"""A fitted model at work on whole recordings, one at a time.

Each recording is padded to one of a few lengths that depend on nothing but its own, so a recording gets
the same answer alone and in company, and few programs are compiled.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, Int, PRNGKeyArray
from numpy import ndarray

from svae.completion import Completion
from svae.data import DataError, Recording, Recordings
from svae.meanfield import CoordinateAscent
from svae.models import SVAE, Batch, Draws, Latents, Segmentation
from svae.segments import segments_table
from svae.training.artifact import Fitted

SWEEPS = 200  # at most; training can do with fewer, but an answer should have converged


class States(NamedTuple):
    """The discrete states of one recording, and how their inference ended."""

    states: Int[ndarray, "time"]
    probability: Float[ndarray, "time k"]
    converged: bool
    sweeps: int
    residual: float  # nats between the last two sweeps


class Path(NamedTuple):
    """The latent path of one recording."""

    mean: Float[ndarray, "time latent"]
    deviation: Float[ndarray, "time latent"]


def padded_length(frames: int) -> int:
    """The next of 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ...: at most a quarter is padding."""
    base = 16
    while base * 2 < frames:
        base *= 2
    step = base // 4
    return max(16, -(-frames // step) * step)


def matched(fitted: Fitted, recordings: Recordings) -> Recordings:
    """The recordings with the model's channels in the model's order."""
    ours, theirs = fitted.channels, recordings.channels
    if ours == theirs:
        return recordings
    if set(ours) <= set(theirs):
        return recordings.select_channels(ours)
    nameless = any(all(x.startswith("channel_") for x in names) for names in (ours, theirs))
    if len(ours) == len(theirs) and nameless:
        return recordings
    missing = [x for x in ours if x not in theirs]
    raise DataError(
        f"the model was fitted to {len(ours)} channels and these recordings lack {', '.join(missing[:5])}"
    )


def batch_of(fitted: Fitted, recording: Recording) -> Batch:
    """One recording, standardised and padded, as a batch of one."""
    values = np.asarray(fitted.standardizer.apply(recording.values), np.float32)
    padding = padded_length(len(values)) - len(values)
    values = np.pad(values, [(0, padding), (0, 0)])
    return Batch(jnp.asarray(values)[None], jnp.asarray([len(recording.values)], jnp.int32))


def _each(
    fitted: Fitted, recordings: Recordings, method: Callable[..., Any], *args: Any
) -> Iterator[tuple[Recording, Any]]:
    """`method(model, batch, ...)` of every recording, without the batch axis."""
    settings = fitted.config.joint
    solver = CoordinateAscent(max(settings.max_sweeps, SWEEPS), settings.tolerance)
    model = dataclasses.replace(fitted.model, solver=solver)
    for recording in matched(fitted, recordings):
        result = method(model, batch_of(fitted, recording), *args)
        yield recording, jax.tree.map(lambda x: np.asarray(x[0]), result)


@eqx.filter_jit
def _segment(model: SVAE, batch: Batch) -> Segmentation:
    return model.segment(batch)


@eqx.filter_jit
def _encode(model: SVAE, batch: Batch) -> Latents:
    return model.encode(batch)


@eqx.filter_jit
def _reconstruct(model: SVAE, batch: Batch) -> jax.Array:
    return model.reconstruct(batch)


@eqx.filter_jit
def _impute(model: SVAE, batch: Batch, key: PRNGKeyArray, count: int) -> Draws:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), model.impute(key, batch, count))


@eqx.filter_jit
def _bound(model: SVAE, batch: Batch, key: PRNGKeyArray) -> jax.Array:
    bound = model.elbo(key, batch)
    return bound.log_likelihood - bound.kl_local


def segment(fitted: Fitted, recordings: Recordings) -> list[States]:
    """The discrete states of each recording."""
    return [
        States(x.states[: len(r)], x.probability[: len(r)], *(y.item() for y in x.certificate))
        for r, x in _each(fitted, recordings, _segment)
    ]


def table(fitted: Fitted, recordings: Recordings, found: list[States]) -> pd.DataFrame:
    """Their segments; where the recordings do not tell their rate, it is that of the training data."""
    states, probability = [x.states for x in found], [x.probability for x in found]
    return segments_table(recordings.names, states, probability, recordings.rate or fitted.rate)


def encode(fitted: Fitted, recordings: Recordings) -> list[Path]:
    """The latent path of each recording."""
    return [Path(*(y[: len(r)] for y in x)) for r, x in _each(fitted, recordings, _encode)]


def reconstruct(fitted: Fitted, recordings: Recordings) -> list[Float[ndarray, "time features"]]:
    """Each recording as the model sees it, on the original scale."""
    found = _each(fitted, recordings, _reconstruct)
    return [fitted.standardizer.undo(x[: len(r)]) for r, x in found]


def impute(fitted: Fitted, recordings: Recordings, count: int, seed: int) -> list[Completion]:
    """Draws of what is missing; what is known stays exactly as it is."""
    result = []
    for r, x in _each(fitted, recordings, _impute, jax.random.key(seed), count):
        missing = np.isnan(r.values)
        values = np.where(missing, fitted.standardizer.undo(x.values[:, : len(r)]), r.values)
        states = None if x.states is None else x.states[:, : len(r)]
        result.append(Completion(values, missing, states))
    return result


def forecast(fitted: Fitted, recordings: Recordings, horizon: int, count: int, seed: int) -> list[Completion]:
    """Draws of the `horizon` frames after each recording."""
    if horizon < 1:
        raise ValueError(f"the horizon is a number of frames, one at least, got {horizon}")
    unknown = lambda values: np.concatenate([values, np.full((horizon, values.shape[1]), np.nan)])
    drawn = impute(fitted, recordings.map(unknown), count, seed)
    return [
        Completion(
            x.values[:, -horizon:], x.missing[-horizon:], None if x.states is None else x.states[:, -horizon:]
        )
        for x in drawn
    ]


def bounds(fitted: Fitted, recordings: Recordings, seed: int = 0) -> list[float]:
    """The evidence lower bound of each recording in nats, in the units of the data, parameters aside."""
    result = []
    for r, x in _each(fitted, recordings, _bound, jax.random.key(seed)):
        present = ~np.isnan(r.values)
        result.append(float(x - np.sum(present * np.log(fitted.standardizer.scale))))
    return result


def score(fitted: Fitted, recordings: Recordings, seed: int = 0) -> float:
    """The evidence lower bound in nats per observed number, in the units of the data."""
    numbers = sum(int(np.sum(~np.isnan(item.values))) for item in recordings)
    return sum(bounds(fitted, recordings, seed)) / numbers
