"""Segmentation while data come in: each frame's states, a fixed lag after the frame.

The newest frames are kept, inference runs on them alone, and the frame that is `lag` frames old is
answered. What lies further back than the frames that are kept has no say; how much that costs, `agreement`
measures.
"""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy import ndarray

from svae import application
from svae.data import Recordings
from svae.durations import frames_from_duration
from svae.meanfield import CoordinateAscent
from svae.models import SVAE, Batch
from svae.training.artifact import Fitted

CONTEXT = 3  # frames that are kept, in lags ...
LEAST_CONTEXT = 48  # ... and at least
SWEEPS = 30


class Answer(NamedTuple):
    """The states of one frame."""

    frame: int  # counted from the first
    probability: Float[ndarray, "k"]
    newest: Float[ndarray, "k"]  # of the newest frame, from the past alone

    @property
    def state(self) -> int:
        """The likeliest."""
        return int(np.argmax(self.probability))


class Stream:
    """Frames in, states out. One program is compiled for all frames, and one more if some are partly seen."""

    def __init__(self, fitted: Fitted, lag: float | str = "1s", context: int | None = None):
        """`lag` is a number of frames or a duration; `context` frames are kept."""
        self.num_states = application.num_states(fitted)
        if not isinstance(fitted.model, SVAE):
            raise ValueError(f"a stream needs a model with a graph, and this is {fitted.config.model.kind}")
        self.lag = max(0, round(frames_from_duration(lag, fitted.rate, "lag"))) if lag != 0 else 0
        kept = max(CONTEXT * self.lag, LEAST_CONTEXT) if context is None else context
        if kept <= self.lag:
            raise ValueError(f"context must be longer than the lag of {self.lag} frames, got {kept}")
        self._standardizer = fitted.standardizer
        self._model = dataclasses.replace(
            fitted.model, solver=CoordinateAscent(SWEEPS, fitted.config.joint.tolerance)
        )
        self._window = np.full((kept, len(fitted.channels)), np.nan, np.float32)
        self._seen = 0

    def update(self, frame: Float[ndarray, "features"]) -> Answer | None:
        """Take one frame, in the units of the data; None until a frame is as old as the lag."""
        frame = np.asarray(frame, np.float64)
        if frame.shape != self._window.shape[1:]:
            raise ValueError(f"a frame has {self._window.shape[1]} channels, got shape {frame.shape}")
        here = min(self._seen, len(self._window) - 1)
        if self._seen >= len(self._window):
            self._window[:-1] = self._window[1:]
        self._window[here] = self._standardizer.apply(frame[None])[0]
        self._seen += 1
        if self._seen <= self.lag:
            return None
        probability = self._probability(here + 1)
        return Answer(self._seen - 1 - self.lag, probability[here - self.lag], probability[here])

    def finish(self) -> Iterator[Answer]:
        """The states of the frames that are not yet as old as the lag, when no more come."""
        here = min(self._seen, len(self._window)) - 1
        left = min(self.lag, self._seen)
        if left:
            probability = self._probability(here + 1)
            for back in reversed(range(left)):
                yield Answer(self._seen - 1 - back, probability[here - back], probability[here])

    def _probability(self, length: int) -> Float[ndarray, "time k"]:
        batch = Batch(jnp.asarray(self._window)[None], jnp.asarray([length], jnp.int32))
        return np.asarray(_infer(self._model, application.prepared(self._model, batch))[0])


@eqx.filter_jit
def _infer(model: SVAE, batch: Batch) -> jax.Array:
    return model.segment(batch).probability


def segment_online(
    fitted: Fitted, recordings: Recordings, lag: float | str, context: int | None = None
) -> list[Float[ndarray, "time k"]]:
    """The probabilities that a stream gives, recording by recording."""
    result = []
    for item in application.matched(fitted, recordings):
        stream = Stream(fitted, lag, context)
        answers = [answer for frame in item.values if (answer := stream.update(frame)) is not None]
        result.append(np.stack([answer.probability for answer in [*answers, *stream.finish()]]))
    return result


def agreement(fitted: Fitted, recordings: Recordings, lag: float | str, context: int | None = None) -> float:
    """The share of frames to which a stream and full smoothing give the same likeliest state."""
    online = segment_online(fitted, recordings, lag, context)
    offline = application.segment(fitted, recordings)
    same = [
        np.argmax(x, axis=1) == np.argmax(y.probability, axis=1) for x, y in zip(online, offline, strict=True)
    ]
    return float(np.mean(np.concatenate(same)))
