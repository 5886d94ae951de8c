"""Training windows of recordings by their places; frames are read when they are needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from svae.data import Places, Recordings, Standardizer
from svae.models import Batch

DEVICE_BYTES = 2 << 30  # of frames that are kept on the device; of more, each step's batch is sent there
BATCH_BYTES = 1 << 28  # of windows that are looked at at once, where a step does not ask for them


class Frames(NamedTuple):
    """The frames of all recordings on the device, one after the other, and the states that labels name."""

    values: Float[Array, "frames features"]
    known: Int[Array, "frames"] | None
    offsets: Int[np.ndarray, "recordings"]  # place of each recording's first frame


class OnDevice(NamedTuple):
    """Windows into frames that are on the device: however much windows overlap, frames are there once."""

    frames: Float[Array, "frames features"]
    known: Int[Array, "frames"] | None  # states that are known, -1 where they are not
    first: Int[Array, "windows"]  # place of a window's first frame
    lengths: Int[Array, "windows"]
    size: int
    num_states: int | None

    def select(self, which: Int[Array, "b"]) -> Batch:
        """These windows, padded with zeros."""
        lengths = self.lengths[which]
        inside = jnp.arange(self.size)[None] < lengths[:, None]
        place = jnp.where(
            inside, self.first[which][:, None] + jnp.arange(self.size, dtype=jnp.int32)[None], 0
        )
        values = jnp.where(inside[:, :, None], self.frames[place], 0)
        if self.known is None or self.num_states is None:
            return Batch(values, lengths)
        own = jnp.where(inside, self.known[place], -1)[:, :, None]
        return Batch(
            values, lengths, (own < 0) | (own == jnp.arange(self.num_states, dtype=jnp.int32)[None, None])
        )


@dataclass(frozen=True, eq=False)
class TrainingWindows:
    """Windows, standardised. With `num_states`, labels hold frames to the first of so many states."""

    recordings: Recordings
    standardizer: Standardizer
    places: Places
    num_states: int | None = None
    frames: Frames | None = None  # on the device; None: batches are cut on the host

    @property
    def num_sequences(self) -> int:
        """How many windows there are."""
        return len(self.places)

    def select(self, which: np.ndarray) -> TrainingWindows:
        """Only these, by number."""
        return replace(self, places=self.places.select(which))

    def some(self, count: int, seed: int) -> TrainingWindows:
        """At most `count` of them."""
        if self.num_sequences <= count:
            return self
        return self.select(np.sort(np.random.default_rng(seed).permutation(self.num_sequences)[:count]))

    def pieces(self, size: int) -> TrainingWindows:
        """In pieces, without labels: many short ones make a better mixed batch than a few long ones."""
        return replace(self, places=self.places.pieces(size), num_states=None)

    def with_states(self, num_states: int | None) -> TrainingWindows:
        """Labels, if they count, name the first of so many states."""
        return self if self.num_states is None else replace(self, num_states=num_states)

    @cached_property
    def complete(self) -> bool:
        """Whether no window has missing entries, and none is shorter than others."""
        return bool((self.places.lengths == self.places.size).all()) and not any(
            np.isnan(item.values).any() for item in self.recordings
        )

    @property
    def at_once(self) -> int:
        """How many windows may be looked at at once."""
        return max(1, BATCH_BYTES // (4 * self.places.size * self.recordings.num_features))

    def read(self) -> Batch:
        """All of them, cut on the host."""
        places = self.places
        values = np.zeros((len(places), places.size, self.recordings.num_features), np.float32)
        known = np.full((len(places), places.size), -1)
        each = zip(places.recording.tolist(), places.start.tolist(), places.lengths.tolist(), strict=True)
        for window, (number, start, length) in enumerate(each):
            item, here = self.recordings[number], slice(start, start + length)
            values[window, :length] = self.standardizer.apply(np.asarray(item.values[here]))
            if self.num_states is not None and item.labels is not None:
                known[window, :length] = item.labels[here]
        batch = Batch(jnp.asarray(values), jnp.asarray(places.lengths, jnp.int32))
        if self.num_states is None:
            return batch
        allowed = (known[:, :, None] < 0) | (known[:, :, None] == np.arange(self.num_states))
        return batch._replace(allowed=jnp.asarray(allowed))

    def parts(self) -> Iterator[Batch]:
        """All of them, as many at a time as may be looked at at once."""
        for start in range(0, self.num_sequences, self.at_once):
            yield self.select(np.arange(start, min(start + self.at_once, self.num_sequences))).read()

    def with_frames(self) -> TrainingWindows:
        """The same with its frames on the device, if they are few enough."""
        lengths = self.recordings.lengths
        shape = sum(lengths), self.recordings.num_features
        if 4 * shape[0] * shape[1] > DEVICE_BYTES:
            return self
        values, known = np.empty(shape, np.float32), np.full(shape[0], -1, np.int32)
        offsets = np.cumsum([0, *lengths[:-1]])
        for item, start in zip(self.recordings, offsets.tolist(), strict=True):
            values[start : start + len(item)] = self.standardizer.apply(np.asarray(item.values))
            if item.labels is not None:
                known[start : start + len(item)] = item.labels
        labels = None if self.num_states is None else jnp.asarray(known)
        return replace(self, frames=Frames(jnp.asarray(values), labels, offsets))

    @cached_property
    def on_device(self) -> OnDevice | None:
        """The windows as places in frames that are on the device; None if these are not."""
        if self.frames is None:
            return None
        first = self.frames.offsets[self.places.recording] + self.places.start
        index = lambda x: jnp.asarray(x, jnp.int32)
        return OnDevice(
            self.frames.values,
            None if self.num_states is None else self.frames.known,
            index(first),
            index(self.places.lengths),
            self.places.size,
            self.num_states,
        )
