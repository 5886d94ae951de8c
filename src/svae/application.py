"""A fitted model at work on whole recordings, one at a time.

Each recording is padded to one of a few lengths that depend on nothing but its own, so a recording gets
the same answer alone and in company, and few programs are compiled.
"""

import dataclasses
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int, PRNGKeyArray
from numpy import ndarray

from svae.compiling import often
from svae.completion import Completion
from svae.data import DataError, Recording, Recordings, interpolate
from svae.durations import whole_frames
from svae.meanfield import CoordinateAscent
from svae.models import SVAE, Batch, Draws, Latents, Model, Segmentation, partly_seen, with_decoder_potentials
from svae.models import Reading as Readings
from svae.pgm import bridge
from svae.segments import segments_table
from svae.training.artifact import Fitted

Allowed = Bool[ndarray, "time k"]  # the states that a recording may have, frame by frame

SWEEPS = 200  # at most; training can do with fewer, but an answer should have converged

# How to complete: with parameters drawn from q(theta), then states and paths given these (of a switching
# model, many paths of states at once); or by mean field with the expected potentials of all parameters.
ANCESTRAL, EXPECTED = METHODS = "ancestral", "expected"


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


class Certificate(NamedTuple):
    """How inference of one recording ended."""

    converged: bool
    sweeps: int
    residual: float  # nats between the last two sweeps


class Reading(NamedTuple):
    """All that one inference tells of a recording; the bound is in nats, in the units of the data."""

    path: Path
    states: States | None  # None for models that have none
    certificate: Certificate
    bound: float


def padded_length(frames: int) -> int:
    """The next of 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, ...: at most a quarter is padding."""
    base = 16
    while base * 2 < frames:
        base *= 2
    step = base // 4
    return max(16, -(-frames // step) * step)


def matched(fitted: Fitted, recordings: Recordings) -> Recordings:
    """The recordings with the model's channels in the model's order."""
    return with_channels(fitted.channels, recordings, "model")


def with_channels(ours: tuple[str, ...], recordings: Recordings, whose: str) -> Recordings:
    """The recordings with these channels in this order; where either has no names, they go by position."""
    theirs = recordings.channels
    if ours == theirs:
        return recordings
    if set(ours) <= set(theirs):
        return recordings.select_channels(ours)
    named = [not all(x.startswith("channel_") for x in names) for names in (ours, theirs)]
    if all(named):
        missing = ", ".join([x for x in ours if x not in theirs][:5])
        raise DataError(f"the {whose} was fitted to {len(ours)} channels and these recordings lack {missing}")
    if len(ours) != len(theirs):
        raise DataError(
            f"the {whose} was fitted to {len(ours)} channels and these recordings have {len(theirs)}; "
            "channels without names go by their position, so all must be there"
        )
    return dataclasses.replace(recordings, channels=ours)


def batch_of(fitted: Fitted, recording: Recording, allowed: Allowed | None = None) -> Batch:
    """One recording, standardised and padded, as a batch of one."""
    values = np.asarray(fitted.standardizer.apply(recording.values), np.float32)
    padding = padded_length(len(values)) - len(values)
    values = np.pad(values, [(0, padding), (0, 0)])
    if allowed is not None:
        if allowed.shape != (len(recording), num_states(fitted)):
            wanted = f"({len(recording)}, {num_states(fitted)})"
            raise ValueError(f"allowed states of '{recording.name}' must be {wanted}, got {allowed.shape}")
        allowed = np.pad(allowed, [(0, padding), (0, 0)], constant_values=True)[None]
    return Batch(
        jnp.asarray(values)[None],
        jnp.asarray([len(recording.values)], jnp.int32),
        None if allowed is None else jnp.asarray(allowed),
    )


def num_states(fitted: Fitted) -> int:
    """How many states the model has; an error if it has none."""
    count, settings = fitted.model.num_states, fitted.config.model
    if count is None:
        named = settings.graph if settings.kind == "svae" else settings.kind
        raise ValueError(f"this model has no discrete states ({named}): there is nothing to segment")
    return count


def only(fitted: Fitted, states: Int[ndarray, "time"], without: Sequence[int] = ()) -> Allowed:
    """What is allowed where `states` are known (-1: unknown) and those in `without` are forbidden."""
    count = num_states(fitted)
    if np.ndim(without) != 1:
        raise ValueError(f"without must be a list of states, such as [2], got {without!r}")
    for name, values, least in ("states", np.asarray(states), -1), ("without", np.asarray(without, int), 0):
        if values.size and not (values.min() >= least and values.max() < count):
            got = f"{values.min()} to {values.max()}"
            raise ValueError(f"{name} must lie between 0 and {count - 1}, got {got}")
    possible = ~np.isin(np.arange(count), without)
    if not possible.any():
        raise ValueError("all states are forbidden")
    known = np.asarray(states)[:, None]
    return np.where(known < 0, possible, np.arange(count) == known)


def _each(
    fitted: Fitted,
    recordings: Recordings,
    method: Callable[..., Any],
    *args: Any,
    key: PRNGKeyArray | None = None,
    allowed: Sequence[Allowed] | None = None,
) -> Iterator[tuple[Recording, Any]]:
    """`method(model, batch, ...)` of every recording, without the batch axis.

    With a key, `method(model, batch, key, ...)`: noise that recordings do not share, and that depends on what
    a recording holds and not on its company.
    """
    model = answering(fitted)
    if allowed is not None and not isinstance(model, SVAE):
        raise ValueError(
            f"states can be given to models with a graph only, not to {fitted.config.model.kind}"
        )
    masks = [None] * len(recordings) if allowed is None else allowed
    for recording, mask in zip(matched(fitted, recordings), masks, strict=True):
        batch = prepared(model, batch_of(fitted, recording, mask))
        own = () if key is None else (jax.random.fold_in(key, _checksum(recording.values)),)
        result = method(model, batch, *own, *args)
        yield recording, jax.tree.map(lambda x: np.asarray(x[0]), result)


def _checksum(values: Float[ndarray, "time features"]) -> np.uint32:
    return np.uint32(zlib.crc32(values.astype(np.float32).tobytes()))


def answering(fitted: Fitted) -> Model:
    """The model, with all the sweeps that it may need."""
    model, settings = fitted.model, fitted.config.joint
    if not isinstance(model, SVAE):
        return model
    solver = CoordinateAscent(max(settings.max_sweeps, SWEEPS), settings.tolerance)
    return dataclasses.replace(model, solver=solver)


def prepared(model: Model, batch: Batch) -> Batch:
    """With potentials of the decoder if a frame was seen in part; otherwise as it is, at no cost."""
    if not isinstance(model, SVAE) or not np.any(partly_seen(batch)):
        return batch
    gappy = np.where(batch.inside[:, :, None], batch.values, np.nan)
    filled = np.stack([interpolate(values) for values in gappy])
    return _with_decoder_potentials(model, batch, jnp.asarray(filled))


@often
def _with_decoder_potentials(model: SVAE, batch: Batch, filled: jax.Array) -> Batch:
    return with_decoder_potentials(model, batch, filled)


@often
def _segment(model: Model, batch: Batch) -> Segmentation:
    return model.segment(batch)


@often
def _encode(model: Model, batch: Batch) -> Latents:
    return model.encode(batch)


@often
def _reconstruct(model: Model, batch: Batch) -> jax.Array:
    return model.reconstruct(batch)


@often
def _impute(model: Model, batch: Batch, key: PRNGKeyArray, count: int, parameters: Any) -> Draws:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), model.impute(key, batch, count, parameters))


def impute_expected(model: SVAE, key: PRNGKeyArray, batch: Batch, count: int) -> Draws:
    """Draws by mean field with the expected potentials of all parameters, as in the paper."""
    complete = lambda *question: bridge(model.pgm, model.posterior(), *question, solver=model.solver)
    return model.impute(key, batch, count, complete=complete)


@often
def _impute_expected(model: SVAE, batch: Batch, key: PRNGKeyArray, count: int) -> Draws:
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), impute_expected(model, key, batch, count))


@often
def draw_parameters(model: Model, key: PRNGKeyArray) -> Any:
    """A program of its own: it takes as long to compile as all the rest, and serves every length."""
    return model.draw_parameters(key)


@often
def _generate(model: Model, key: PRNGKeyArray, count: int, length: int, parameters: Any) -> Draws:
    return model.generate(key, count, length, parameters)


@often
def _log_weights(
    model: Model, batch: Batch, key: PRNGKeyArray, parameter_key: PRNGKeyArray, count: int
) -> jax.Array:
    return model.log_weights(parameter_key, key, batch, count).T


@often
def _read(model: Model, batch: Batch, key: PRNGKeyArray) -> Readings:
    return model.read(key, batch)


@often
def _bound(model: Model, batch: Batch, key: PRNGKeyArray) -> jax.Array:
    bound = model.elbo(key, batch)
    return bound.log_likelihood - bound.kl_local


def segment(fitted: Fitted, recordings: Recordings, allowed: Sequence[Allowed] | None = None) -> list[States]:
    """The discrete states of each recording; `allowed` says for each which there may be (see `only`)."""
    num_states(fitted)
    return [_states(r, x) for r, x in _each(fitted, recordings, _segment, allowed=allowed)]


def _states(recording: Recording, found: Any) -> States:
    length = len(recording)
    return States(found.states[:length], found.probability[:length], *(x.item() for x in found.certificate))


def read(fitted: Fitted, recordings: Recordings, seed: int = 0) -> list[Reading]:
    """Everything that inference tells, recording by recording, with inference done once."""
    result = []
    for r, x in _each(fitted, recordings, _read, key=jax.random.key(seed)):
        path = Path(*(y[: len(r)] for y in x.latents))
        states = None if x.segmentation is None else _states(r, x.segmentation)
        certificate = Certificate(*(y.item() for y in x.certificate))
        result.append(Reading(path, states, certificate, float(_in_units(fitted, r, x.bound))))
    return result


def _in_units(fitted: Fitted, recording: Recording, nats: Any) -> Any:
    """Nats of standardised data as nats of the data as they are."""
    return nats - np.sum(~np.isnan(recording.values) * np.log(fitted.standardizer.scale))


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


def _require_draws(count: int) -> None:
    if count < 1:
        raise ValueError(f"the number of draws is one at least, got {count}")


def impute(
    fitted: Fitted,
    recordings: Recordings,
    count: int,
    seed: int,
    allowed: Sequence[Allowed] | None = None,
    method: str = ANCESTRAL,
) -> list[Completion]:
    """Draws of what is missing, by one of `METHODS`; what is known stays exactly as it is."""
    _require_draws(count)
    if method not in METHODS:
        raise ValueError(f"there is no method '{method}'; choose from {', '.join(METHODS)}")
    if method == EXPECTED and not isinstance(fitted.model, SVAE):
        raise ValueError(f"{fitted.config.model.kind} has no potentials to expect: choose {ANCESTRAL}")
    result, parameter_key = [], jax.random.key(seed)
    key = jax.random.fold_in(parameter_key, 1)
    ask: Callable[..., Draws] = _impute_expected
    drawn: tuple[Any, ...] = ()
    if method == ANCESTRAL:
        ask, drawn = _impute, (draw_parameters(fitted.model, parameter_key),)
    for r, x in _each(fitted, recordings, ask, count, *drawn, key=key, allowed=allowed):
        missing = np.isnan(r.values)
        values = np.where(missing, fitted.standardizer.undo(x.values[:, : len(r)]), r.values)
        states = None if x.states is None else x.states[:, : len(r)]
        result.append(Completion(values, missing, states))
    return result


def generate(
    fitted: Fitted,
    length: int | str,
    count: int,
    seed: int,
    states: Int[ndarray, "time"] | None = None,
    anchors: Float[ndarray, "time features"] | None = None,
) -> Completion:
    """New recordings, as long as `length` frames or a time such as 10s; through given `states` (-1: any)
    and given frames (`anchors`, NaN elsewhere)."""
    _require_draws(count)
    length = whole_frames(length, fitted.rate, "length")
    nothing = np.full((length, len(fitted.channels)), np.nan)
    if states is None and anchors is None:
        key = jax.random.key(seed)
        parameters = draw_parameters(fitted.model, key)
        drawn = _generate(fitted.model, jax.random.fold_in(key, 1), count, length, parameters)
        found = None if drawn.states is None else np.asarray(drawn.states)
        return Completion(fitted.standardizer.undo(np.asarray(drawn.values)), np.isnan(nothing), found)
    for name, given in ("states", states), ("anchors", anchors):
        if given is not None and len(given) != length:
            raise ValueError(f"{name} must have {length} frames, got {len(given)}")
    frame = Recording("generated", nothing if anchors is None else np.asarray(anchors, np.float64))
    allowed = None if states is None else [only(fitted, states)]
    return impute(fitted, Recordings((frame,), fitted.channels), count, seed, allowed)[0]


def forecast(
    fitted: Fitted,
    recordings: Recordings,
    horizon: int | str,
    count: int,
    seed: int,
    method: str = ANCESTRAL,
) -> list[Completion]:
    """Draws of what comes after each recording, for `horizon` frames or a time such as 2s."""
    frames = whole_frames(horizon, recordings.rate or fitted.rate, "horizon")
    unknown = lambda values: np.concatenate([values, np.full((frames, values.shape[1]), np.nan)])
    longer = tuple(Recording(item.name, unknown(item.values)) for item in recordings)
    drawn = impute(fitted, dataclasses.replace(recordings, items=longer), count, seed, method=method)
    return [
        Completion(
            x.values[:, -frames:], x.missing[-frames:], None if x.states is None else x.states[:, -frames:]
        )
        for x in drawn
    ]


def bounds(fitted: Fitted, recordings: Recordings, seed: int = 0) -> list[float]:
    """The evidence lower bound of each recording in nats, in the units of the data, parameters aside."""
    found = _each(fitted, recordings, _bound, key=jax.random.key(seed))
    return [float(_in_units(fitted, r, x)) for r, x in found]


def score(fitted: Fitted, recordings: Recordings, seed: int = 0) -> float:
    """The evidence lower bound in nats per observed number, in the units of the data."""
    return per_number(recordings, bounds(fitted, recordings, seed))


def per_number(recordings: Recordings, nats: Sequence[float]) -> float:
    """Bounds of recordings, all together, for each number that was observed."""
    return sum(nats) / sum(int(np.sum(~np.isnan(item.values))) for item in recordings)


def log_weights(
    fitted: Fitted, recordings: Recordings, count: int, seed: int = 0
) -> Float[ndarray, "samples recordings"]:
    """log p(x, z) - log q(z) of draws, in the units of the data; a sample's parameters are shared by all."""
    columns, parameter_key = [], jax.random.key(seed)
    key = jax.random.fold_in(parameter_key, 1)
    for r, x in _each(fitted, recordings, _log_weights, parameter_key, count, key=key):
        columns.append(_in_units(fitted, r, np.asarray(x, np.float64)))
    return np.stack(columns, axis=1)
