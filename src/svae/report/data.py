"""What a report shows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from svae.report.parts import Certificate, FanView, SampleView, Skeleton, StateDynamics


@dataclass(frozen=True, eq=False)
class RecordingView:
    """One recording, its segmentation and its latent path; arrays start with the time axis.

    `values` are on their original scale with NaN where nothing was observed; `probability` is
    (time, num_states), and None like `states` if the model has none; a negative label marks an unlabelled
    frame; `rate` is in frames per second.
    """

    name: str
    values: np.ndarray
    channels: Sequence[str]
    rate: float | None
    states: np.ndarray | None
    probability: np.ndarray | None
    latent_mean: np.ndarray
    latent_deviation: np.ndarray
    labels: np.ndarray | None = None
    label_names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        frames = len(self.values)
        arrays = ("states", "probability", "latent_mean", "latent_deviation", "labels")
        for name in arrays:
            array = getattr(self, name)
            if array is not None and len(array) != frames:
                raise ValueError(f"recording '{self.name}': {frames} frames, but {len(array)} in {name}")
        if self.values.shape != (frames, len(self.channels)):
            shape = f"values of shape {self.values.shape} for {len(self.channels)} channels"
            raise ValueError(f"recording '{self.name}': {shape}")
        if frames == 0:
            raise ValueError(f"recording '{self.name}' has no frames")

    def states_in(self, part: slice) -> np.ndarray | None:
        """The states of these frames, if there are any."""
        return None if self.states is None else self.states[part]

    def label_name(self, label: int) -> str:
        """What to call a label."""
        return str(label) if self.label_names is None else self.label_names[label]


@dataclass(frozen=True, eq=False)
class ReportData:
    """Everything on the page.

    `summary` holds key facts, one card each. `metrics` has a row for each line of the training log, with
    the columns stage ("vae", "dynamics" or "joint"), step or lap, and whichever of elbo, log_likelihood,
    kl_local, kl_parameters, states, sweeps and converged were measured. `segments` is a table as in
    `svae.segments`. `transition` (num_states, num_states) are expected probabilities and `usage`
    (num_states,) shares of frames: of a model without states there is nothing in them. `dynamics` are given
    by state, `linear` are those of a model without; `config` is text, shown as it is. What is left out is
    not on the page.
    """

    title: str
    summary: dict[str, str | float | int]
    metrics: pd.DataFrame
    recordings: list[RecordingView]
    segments: pd.DataFrame
    transition: np.ndarray
    usage: np.ndarray
    warnings: list[str]
    dynamics: Mapping[int, StateDynamics] = field(default_factory=dict)
    linear: StateDynamics | None = None
    certificates: Sequence[Certificate] = ()
    fans: Sequence[FanView] = ()
    samples: Sequence[SampleView] = ()
    skeleton: Skeleton | None = None
    config: str = ""

    def __post_init__(self) -> None:
        if self.transition.shape != (self.num_states, self.num_states):
            shapes = f"{self.transition.shape} for {self.num_states} states"
            raise ValueError(f"transition must be square and fit usage, got shape {shapes}")
        for view in self.recordings:
            shape = (len(view.values), 0) if view.probability is None else view.probability.shape
            if shape[1:] != (self.num_states,):
                got = f"shape {shape} for {self.num_states} states"
                raise ValueError(f"recording '{view.name}': probability of {got}")
        unknown = [state for state in self.dynamics if not 0 <= state < self.num_states]
        if unknown:
            raise ValueError(f"dynamics of states {unknown}, but there are {self.num_states} states")

    @property
    def num_states(self) -> int:
        """How many states the model has, in use or not."""
        return len(self.usage)
