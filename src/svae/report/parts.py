"""Parts of a report that not every run has: dynamics, certificates, completions, samples, a skeleton."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from svae.completion import PathSummary


@dataclass(frozen=True, eq=False)
class StateDynamics:
    """What a state, or a model without any, does to the latent variables: z' = matrix z + offset + noise."""

    matrix: np.ndarray
    offset: np.ndarray
    covariance: np.ndarray

    def __post_init__(self) -> None:
        size = len(self.offset)
        shapes = self.matrix.shape, self.covariance.shape
        if self.offset.shape != (size,) or shapes != ((size, size), (size, size)):
            raise ValueError(f"dynamics of {size} dimensions with matrices of shape {shapes}")


@dataclass(frozen=True)
class Certificate:
    """How inference of one recording ended; the residual is in nats between its last two sweeps."""

    recording: str
    sweeps: int
    residual: float
    converged: bool


@dataclass(frozen=True, eq=False)
class FanView:
    """What may have happened in a gap.

    `values` (time, channels) are what was known around it, from frame `first` of the recording on, NaN in
    the gap from frame `start` to `stop`; `truth` and the paths, likeliest first, have the gap's frames.
    """

    recording: str
    channels: Sequence[str]
    rate: float | None
    first: int
    start: int
    stop: int
    values: np.ndarray
    paths: Sequence[PathSummary]
    truth: np.ndarray | None = None

    def __post_init__(self) -> None:
        where = f"completion of '{self.recording}'"
        if not self.first <= self.start < self.stop <= self.first + len(self.values):
            raise ValueError(f"{where}: frames {self.start} to {self.stop} are not within its values")
        if self.values.shape[1] != len(self.channels):
            raise ValueError(f"{where}: values of shape {self.values.shape}, {len(self.channels)} channels")
        shape = (self.stop - self.start, len(self.channels))
        arrays = [array for path in self.paths for array in (path.mean, path.low, path.high)]
        arrays += [] if self.truth is None else [self.truth]
        if any(array.shape != shape for array in arrays):
            raise ValueError(f"{where}: truth and paths must have shape {shape}")


@dataclass(frozen=True, eq=False)
class SampleView:
    """What the model made up: values (time, channels) on the original scale, and states (time,) if any."""

    values: np.ndarray
    states: np.ndarray | None

    def __post_init__(self) -> None:
        if self.states is not None and len(self.values) != len(self.states):
            raise ValueError(f"a sample has {len(self.values)} frames, but {len(self.states)} states")


@dataclass(frozen=True, eq=False)
class Skeleton:
    """Joints: their names, the place of each one's parent (-1 for the root), and `columns` (joints, 3),
    the channels that hold x, y and z. Joints that are `still` have places instead, and any columns.
    """

    names: Sequence[str]
    parents: Sequence[int]
    columns: np.ndarray
    still: Sequence[tuple[int, tuple[float, float, float]]] = ()

    def __post_init__(self) -> None:
        joints = len(self.names)
        if len(self.parents) != joints or np.shape(self.columns) != (joints, 3):
            raise ValueError(f"a skeleton of {joints} joints needs as many parents and three columns each")

    def places(self, values: np.ndarray) -> np.ndarray:
        """(time, joints, 3) from the values of all channels."""
        found = values[:, np.asarray(self.columns)]
        for joint, place in self.still:
            found[:, joint] = place
        return found
