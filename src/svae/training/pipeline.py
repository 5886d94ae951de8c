"""From recordings and settings to a fitted model: the three stages in a row, resumable at any moment."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from numpy import ndarray

from svae.compiling import once
from svae.config import Config, write_config
from svae.data import Recordings, Standardizer, places
from svae.durations import frames_from_duration
from svae.models import SVAE, Batch, Model, with_graph
from svae.training.artifact import Fitted
from svae.training.build import (
    GraphPrior,
    graph_for,
    recognition_for,
    require_possible,
    untrained,
)
from svae.training.checkpoint import Checkpoints, MetricsFile
from svae.training.loop import Plan, Record, Watch, train
from svae.training.stages import (
    Rates,
    optimiser_for,
    with_principal_components,
    with_simple_prior,
    with_sure_potentials,
)
from svae.training.start import Start, find_start
from svae.training.step import TrainState, begin
from svae.training.windows import TrainingWindows

LONGEST_WINDOW = 500  # frames, unless the settings say otherwise
HELD_OUT_RUNS = 8  # in all data; more of them would overlap more of what is trained on
PRETRAIN, DYNAMICS, JOINT = "vae", "dynamics", "joint"
TIMELESS = "mixture", "normal"  # graphs to which the order of frames means nothing
MOVING = "slds", "jslds", "hsmm-slds"  # graphs whose states are ways of moving
SWITCHING = *MOVING, "hmm"  # graphs with a chain of states that the second stage finds


def fit(
    recordings: Recordings,
    config: Config,
    folder: Path | None = None,
    watch: Watch = lambda record: None,
    checkpoint_seconds: float = 30.0,
) -> Fitted:
    """Train on recordings. With a `folder`, settings, metrics and checkpoints go there, and a second call
    with the same arguments goes on where the first one stopped."""
    require_possible(recordings, config)
    standardizer = standardizer_for(recordings, config)
    data, held_out = split(training_windows(recordings, config, standardizer).with_frames(), config)
    if folder is not None:  # not before data and settings are known to go together
        write_config(config, folder / "config.toml")
    return _Fit(recordings, config, folder, watch, checkpoint_seconds, standardizer, data, held_out).run()


def standardizer_for(recordings: Recordings, config: Config) -> Standardizer:
    """Only Gaussian data may be shifted and scaled."""
    mode = config.data.standardise if config.model.likelihood == "gaussian" else "none"
    return Standardizer.fit(recordings, mode)


def training_windows(
    recordings: Recordings, config: Config, standardizer: Standardizer | None = None
) -> TrainingWindows:
    """Where the training windows lie, as long and as far apart as the settings say."""
    longest = max(recordings.lengths)
    frames = lambda duration, name: round(frames_from_duration(duration, recordings.rate, name))
    size = LONGEST_WINDOW if config.data.window is None else max(2, frames(config.data.window, "data.window"))
    size = min(size, longest)
    stride = None if config.data.stride is None else frames(config.data.stride, "data.stride")
    if stride is not None and not 1 <= stride <= size:
        raise ValueError(f"data.stride must be from 1 frame to the window's {size}, got {config.data.stride}")
    if standardizer is None:
        standardizer = Standardizer.fit(recordings, "none")
    found = TrainingWindows(recordings, standardizer, places(recordings.lengths, size, stride))
    return replace(found, num_states=_labelled_states(recordings, config)) if config.data.labels else found


def training_batch(recordings: Recordings, config: Config) -> Batch:
    """All training windows of recordings as they are, on the device."""
    return training_windows(recordings, config).read()


def _labelled_states(recordings: Recordings, config: Config) -> int:
    """How many states there are, the first of which labels name; an error if labels do not."""
    count = config.model.num_states
    kind, graph = config.model.kind, config.model.graph
    if kind != "svae" or graph not in SWITCHING:
        named = f"model.graph is {graph}" if kind == "svae" else f"model.kind is {kind}"
        raise ValueError(f"data.labels needs a switching model, and {named}, not {' or '.join(SWITCHING)}")
    labels = [item.labels for item in recordings if item.labels is not None]
    highest = max((int(x.max(initial=-1)) for x in labels), default=-1)
    if not 0 <= highest < count:
        raise ValueError(
            f"data.labels needs labels from 0 to model.num_states - 1 = {count - 1}, -1 for none; the "
            f"highest here is {highest}"
        )
    return count


Data = TypeVar("Data", Batch, TrainingWindows)


def split(data: Data, config: Config) -> tuple[Data, Data | None]:
    """Windows to train on, and those that only tell which model is best."""
    total = data.num_sequences
    count = round(total * config.data.held_out)
    share = config.data.held_out
    if share > 0 and not 0 < count < total:
        raise ValueError(
            f"data.held_out={share:g} of {total} windows is {count}: hold out one at least, and "
            "leave one to train on. Cut shorter ones (data.window) or hold out another share."
        )
    if count == 0:
        return data, None
    aside = _runs_of_neighbours(total, count, config.seed)
    return data.select(np.flatnonzero(~aside)), data.select(np.flatnonzero(aside))


def _runs_of_neighbours(total: int, count: int, seed: int) -> ndarray:
    """Which windows are held out: a few runs all over the data, of windows that follow each other.

    Windows may overlap. One that lies between two of the training data would have been seen there; of a
    run only the ends are.
    """
    aside, draws = np.zeros(total, dtype=bool), np.random.default_rng(seed)
    runs = min(HELD_OUT_RUNS, count)
    for piece, run in zip(
        np.array_split(np.arange(total), runs), np.array_split(np.arange(count), runs), strict=True
    ):
        first = piece[0] + draws.integers(len(piece) - len(run) + 1)
        aside[first : first + len(run)] = True
    return aside


@dataclass
class _Fit:
    """One call of `fit`, stage by stage."""

    recordings: Recordings
    config: Config
    folder: Path | None
    watch: Watch
    checkpoint_seconds: float
    standardizer: Standardizer
    data: TrainingWindows
    held_out: TrainingWindows | None = None

    def __post_init__(self) -> None:
        self.started = time.monotonic()
        self.metrics = None if self.folder is None else MetricsFile(self.folder / "metrics.ndjson")
        keys = jax.random.split(jax.random.key(self.config.seed + 1), 3)
        self.keys = dict(zip((PRETRAIN, DYNAMICS, JOINT), keys, strict=True))

    def run(self) -> Fitted:
        """All stages that have steps; a model without a graph has the last one only."""
        config, features = self.config, self.recordings.num_features
        if config.model.kind != "svae":
            return self._fitted(*self._joint(untrained(config, features, GraphPrior())), GraphPrior())
        model, ending = self._pretrain(untrained(config, features, GraphPrior()))
        start = self._dynamics(model, hurry=ending == "interrupted")
        graph = graph_for(config, start.prior)
        recognition = recognition_for(config, graph)
        model = once(with_graph, model, graph, start.parameters, recognition)
        if config.model.graph in MOVING and start.prior.innovation is not None:
            model = with_sure_potentials(model, self._chosen(), start.prior.innovation)
        if ending != "interrupted":
            model, ending = self._joint(model)
        return self._fitted(model, ending, start.prior)

    def _fitted(self, model: Model, ending: str, prior: GraphPrior) -> Fitted:
        data = self.recordings
        return Fitted(model, self.config, self.standardizer, data.channels, data.rate, prior, ending)

    def _pretrain(self, model: SVAE) -> tuple[SVAE, str]:
        settings = self.config.pretrain
        persistence = 0.0 if self.config.model.graph in TIMELESS else settings.persistence
        model = with_principal_components(model, self._seen().read())
        model = once(with_simple_prior, model, persistence)
        pieces = self.data.pieces(settings.frames)
        held_out = None if self.held_out is None else self.held_out.pieces(settings.frames)
        rates = Rates(settings.network_rate, settings.noise_rate, graph=0.0)
        plan = Plan(settings.steps, settings.batch_size, self.config.chunk)
        return self._train(PRETRAIN, model, pieces, held_out, rates, plan)

    def _joint(self, model: Any) -> tuple[Any, str]:
        """States without data are gone by now, and known ones are the first."""
        settings = self.config.joint
        rates = Rates(settings.network_rate, settings.noise_rate, settings.graph_rate)
        plan = Plan(settings.steps, self.config.batch_size, self.config.chunk, settings.patience)
        held_out = None if self.held_out is None else self.held_out.with_states(model.num_states)
        return self._train(JOINT, model, self.data.with_states(model.num_states), held_out, rates, plan)

    def _train(
        self,
        stage: str,
        model: Any,
        data: TrainingWindows,
        held_out: TrainingWindows | None,
        rates: Rates,
        plan: Plan,
    ) -> tuple[Any, str]:
        """The last model, or with held-out data the best one, and why training ended."""
        optimiser = optimiser_for(model, rates, plan.steps, data.num_sequences)
        state, keep, close = begin(model, optimiser), lambda state: None, lambda: None
        if self.folder is not None and self.metrics is not None:
            checkpoints = Checkpoints(self.folder / "checkpoints" / stage)
            state = checkpoints.restore(state) or state
            self.metrics.forget(stage, int(state.step))
            keep, close = (
                _now_and_then(checkpoints.keep, self.checkpoint_seconds, plan.steps),
                checkpoints.close,
            )
        note = lambda record: self._note(stage, record, plan.steps)
        few = held_out is not None and held_out.num_sequences <= held_out.at_once
        judges = held_out.read() if held_out is not None and few else held_out
        try:
            trained = train(state, data, self.keys[stage], optimiser, plan, note, keep, judges)
        finally:
            close()
        state = trained.state
        return state.model if held_out is None else state.best_model, trained.ending

    def _dynamics(self, model: SVAE, hurry: bool) -> Start:
        """Stage 2; its result is stored, so that a resumed run need not find it again."""
        path = None if self.folder is None else self.folder / "checkpoints" / DYNAMICS / "start.npz"
        if path is not None and path.exists() and not hurry:
            return Start.load(path, self.config)
        if self.metrics is not None:
            self.metrics.forget(DYNAMICS, -1)
        settings = self.config.dynamics
        report = lambda record: self._note(DYNAMICS, record, settings.laps)
        total, rate = self.data.num_sequences, self.recordings.rate
        start = find_start(
            self.config, model, self._chosen(), total, rate, self.keys[DYNAMICS], report, hurry
        )
        if path is not None and not hurry:
            start.save(path)
        return start

    def _chosen(self) -> Batch:
        """The windows that the second stage sees."""
        return self.data.some(self.config.dynamics.sequences, self.config.seed).read()

    def _seen(self) -> TrainingWindows:
        """The windows that principal components are those of: all, unless they are too many."""
        return self.data.some(self.data.at_once, self.config.seed)

    def _note(self, stage: str, record: Record, steps: int) -> None:
        seconds = time.monotonic() - self.started
        record = {"stage": stage, **record, "steps": steps, "seconds": round(seconds, 3)}
        if self.metrics is not None:
            self.metrics(record)
        self.watch(record)


def _now_and_then(keep: Callable, seconds: float, last: int) -> Callable[[TrainState], None]:
    """`keep`, at most every so many seconds, and at the last step."""
    latest = [time.monotonic()]

    def maybe(state: TrainState) -> None:
        now = time.monotonic()
        if now - latest[0] >= seconds or int(state.step) >= last:
            latest[0] = now
            keep(state)

    return maybe
