"""The front door: models with `fit`, `segment`, `transform`, `score`, `impute`, `sample`, `save`, `load`.

They follow scikit-learn's conventions. Data may be one array (time, features), a batch (batch, time,
features), a list of arrays of different lengths, a dictionary of named recordings, or a path; results come
in the same form.
"""

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from svae import application
from svae.completion import Completion
from svae.config import Config, differing_settings, make_config, override
from svae.data import Recording, Recordings, as_recordings
from svae.training.artifact import Fitted, load_fitted, save_fitted
from svae.training.loop import Record, Watch
from svae.training.pipeline import fit as fit_model


class StructuredVAE(BaseEstimator):
    """What all estimators share; use one of those below."""

    graph: ClassVar[str]

    def __init__(
        self,
        latent_dim: int = 4,
        *,
        likelihood: str = "gaussian",
        window: str | float | None = None,
        pretrain_steps: int = 1000,
        joint_steps: int = 1000,
        batch_size: int = 32,
        settings: dict[str, Any] | None = None,
        random_state: int | None = None,
    ):
        self.latent_dim = latent_dim
        self.likelihood = likelihood
        self.window = window
        self.pretrain_steps = pretrain_steps
        self.joint_steps = joint_steps
        self.batch_size = batch_size
        self.settings = settings
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        rate: float | None = None,
        channels: Any = None,
        lengths: Any = None,
        folder: str | Path | None = None,
        watch: Watch | None = None,
    ) -> Self:
        """Train on recordings. With a `folder`, the run is stored there and resumable.

        `y` are states that are known, (time,) for each recording, -1 where they are not: the model's first
        states are these.
        """
        recordings = as_recordings(X, rate=rate, channels=channels, lengths=lengths)
        config = self.config()
        if y is not None:
            recordings = _labelled(recordings, y)
            config = override(config, ["data.labels=true"])
        history: list[Record] = []

        def note(record: Record) -> None:
            history.append(record)
            if watch is not None:
                watch(record)

        where = None if folder is None else Path(folder)
        self._take(fit_model(recordings, config, where, note))
        self.history_ = pd.DataFrame(history)
        return self

    def config(self) -> Config:
        """The settings that the parameters stand for."""
        values = self._settings()
        values["seed"] = self._seed()
        values.setdefault("model", {})["graph"] = self.graph
        config = make_config(values)
        more = self.settings or {}
        if not isinstance(more, dict):
            example = '{"joint.graph_rate": 0.01}'
            raise ValueError(
                f"settings must be a dictionary of values by name, such as {example}, got {more!r}"
            )
        return override(config, [f"{name}={_text(value)}" for name, value in more.items()])

    def _settings(self) -> dict[str, Any]:
        model = {"latent_dim": self.latent_dim, "likelihood": self.likelihood}
        return {
            "model": model,
            "data": {"window": self.window},
            "pretrain": {"steps": self.pretrain_steps},
            "joint": {"steps": self.joint_steps},
            "batch_size": self.batch_size,
        }

    def transform(self, X: Any, **form: Any) -> Any:
        """The mean of the latent path, (time, latent_dim) for each recording."""
        recordings = as_recordings(X, **form)
        return _like(X, recordings, [x.mean for x in application.encode(self._fitted(), recordings)])

    def score(self, X: Any, y: Any = None, **form: Any) -> float:
        """The evidence lower bound in nats per observed number, in the units of the data."""
        recordings = as_recordings(X, **form)
        return application.score(self._fitted(), recordings)

    def reconstruct(self, X: Any, **form: Any) -> Any:
        """Each recording as the model sees it."""
        recordings = as_recordings(X, **form)
        return _like(X, recordings, application.reconstruct(self._fitted(), recordings))

    def impute(self, X: Any, n_samples: int = 1, *, method: str = application.ANCESTRAL, **form: Any) -> Any:
        """Draws of the missing entries: (n_samples, time, features) for each recording.

        By method "ancestral" dynamics are drawn, then many paths of states are weighed by how well they
        meet what is known. "expected" is mean field with the average of all dynamics, from one path of
        states for each draw, as in the paper: faster, and less exact across gaps.
        """
        recordings = as_recordings(X, **form)
        drawn = application.impute(self._fitted(), recordings, n_samples, self._seed(), method=method)
        return _like(X, recordings, [x.values for x in drawn])

    def complete(
        self, X: Any, n_samples: int = 100, *, method: str = application.ANCESTRAL, **form: Any
    ) -> list[Completion]:
        """The same, for each recording a `Completion`: draws, states, quantiles, a summary by path."""
        recordings = as_recordings(X, **form)
        return application.impute(self._fitted(), recordings, n_samples, self._seed(), method=method)

    def forecast(
        self,
        X: Any,
        horizon: int | str,
        n_samples: int = 1,
        *,
        method: str = application.ANCESTRAL,
        **form: Any,
    ) -> Any:
        """Draws of the frames after each recording: (n_samples, horizon, features) for each.

        `horizon` is a number of frames, or a time such as "2s"; methods are those of `impute`.
        """
        recordings = as_recordings(X, **form)
        drawn = application.forecast(self._fitted(), recordings, horizon, n_samples, self._seed(), method)
        return _like(X, recordings, [x.values for x in drawn])

    def sample(
        self,
        n_samples: int = 1,
        length: int | str = 100,
        *,
        states: np.ndarray | None = None,
        anchors: np.ndarray | None = None,
    ) -> np.ndarray:
        """New recordings, (n_samples, length, features), in the units of the data.

        They go through given `states`, one for each frame (-1: any), and through given frames: those of
        `anchors`, (length, features), that are not NaN.
        """
        return application.generate(self._fitted(), length, n_samples, self._seed(), states, anchors).values

    def save(self, folder: str | Path) -> Path:
        """Write the model to a folder, as safetensors and JSON."""
        return save_fitted(self._fitted(), Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A model that `save` or a run wrote."""
        fitted = load_fitted(Path(folder))
        settings = fitted.config
        held = settings.model.graph if settings.model.kind == "svae" else settings.model.kind
        if held != cls.graph:
            raise ValueError(f"{folder} holds a model of kind {held}, not {cls.graph}")
        estimator = cls(**cls._parameters(settings))
        configs = {"stored": settings, "given": estimator.config()}
        others = differing_settings(configs)["stored"]  # that have no parameter of their own
        estimator.settings = {name: x for name, x in others.items() if name != "data.path"} or None
        estimator._take(fitted)
        return estimator

    @classmethod
    def _parameters(cls, config: Config) -> dict[str, Any]:
        return {
            "latent_dim": config.model.latent_dim,
            "likelihood": config.model.likelihood,
            "window": config.data.window,
            "pretrain_steps": config.pretrain.steps,
            "joint_steps": config.joint.steps,
            "batch_size": config.batch_size,
            "random_state": config.seed,
        }

    def _take(self, fitted: Fitted) -> None:
        self.fitted_ = fitted
        self.n_features_in_ = len(fitted.channels)
        self.channels_ = fitted.channels
        self.rate_ = fitted.rate

    def _seed(self) -> int:
        seed = 0 if self.random_state is None else self.random_state
        if not isinstance(seed, Integral) or seed < 0:
            raise ValueError(f"random_state must be None or a whole number from 0 on, got {seed!r}")
        return int(seed)

    def _fitted(self) -> Fitted:
        if not hasattr(self, "fitted_"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
        return self.fitted_


class _WithStates(StructuredVAE):
    """Estimators with discrete states."""

    def __init__(
        self,
        num_states: int = 20,
        latent_dim: int = 4,
        *,
        likelihood: str = "gaussian",
        window: str | float | None = None,
        pretrain_steps: int = 1000,
        joint_steps: int = 1000,
        batch_size: int = 32,
        settings: dict[str, Any] | None = None,
        random_state: int | None = None,
    ):
        super().__init__(
            latent_dim,
            likelihood=likelihood,
            window=window,
            pretrain_steps=pretrain_steps,
            joint_steps=joint_steps,
            batch_size=batch_size,
            settings=settings,
            random_state=random_state,
        )
        self.num_states = num_states

    def segment(
        self, X: Any, *, known: Sequence[np.ndarray] | None = None, without: Sequence[int] = (), **form: Any
    ) -> Any:
        """The state of each frame, the most likely path: integers, (time,) for each recording.

        `known` has for each recording the states that are known, -1 where they are not; states in
        `without` are forbidden.
        """
        recordings, fitted = as_recordings(X, **form), self._fitted()
        allowed = None
        if known is not None or np.size(without) > 0:
            unknown = [np.full(len(item), -1) for item in recordings]
            given = zip(recordings, unknown if known is None else known, strict=True)
            allowed = [_allowed(fitted, item, states, without) for item, states in given]
        found = application.segment(fitted, recordings, allowed)
        return _like(X, recordings, [x.states for x in found])

    def predict(self, X: Any, **form: Any) -> Any:
        """The same as `segment`."""
        return self.segment(X, **form)

    def segment_proba(self, X: Any, **form: Any) -> Any:
        """The probability of each state, (time, states) for each recording; states without data are gone."""
        recordings = as_recordings(X, **form)
        found = application.segment(self._fitted(), recordings)
        return _like(X, recordings, [x.probability for x in found])

    def segments(self, X: Any, **form: Any) -> pd.DataFrame:
        """Segments as a table: recording, start, stop, seconds, state, probability."""
        recordings = as_recordings(X, **form)
        found = application.segment(self._fitted(), recordings)
        return application.table(self._fitted(), recordings, found)

    @classmethod
    def _parameters(cls, config: Config) -> dict[str, Any]:
        return {**super()._parameters(config), "num_states": config.model.num_states}

    def _settings(self) -> dict[str, Any]:
        values = super()._settings()
        values["model"]["num_states"] = self.num_states
        return values


class SwitchingSVAE(_WithStates):
    """Latent paths ruled by linear dynamics that switch: segments recordings into recurring states.

    `typical_duration` says how long a state lasts ("0.5s", "200ms", or a number of frames). `settings`
    reaches everything else by name: {"joint.graph_rate": 0.01}; see `svae.config`.
    """

    graph: ClassVar[str] = "slds"

    def __init__(
        self,
        num_states: int = 20,
        latent_dim: int = 4,
        *,
        typical_duration: str | float | None = None,
        likelihood: str = "gaussian",
        window: str | float | None = None,
        pretrain_steps: int = 1000,
        joint_steps: int = 1000,
        batch_size: int = 32,
        settings: dict[str, Any] | None = None,
        random_state: int | None = None,
    ):
        super().__init__(
            num_states,
            latent_dim,
            likelihood=likelihood,
            window=window,
            pretrain_steps=pretrain_steps,
            joint_steps=joint_steps,
            batch_size=batch_size,
            settings=settings,
            random_state=random_state,
        )
        self.typical_duration = typical_duration

    @classmethod
    def _parameters(cls, config: Config) -> dict[str, Any]:
        return {**super()._parameters(config), "typical_duration": config.model.typical_duration}

    def _settings(self) -> dict[str, Any]:
        values = super()._settings()
        values["model"]["typical_duration"] = self.typical_duration
        return values


class LinearSVAE(StructuredVAE):
    """Latent paths with one linear dynamics: smooths, imputes and forecasts, has no states."""

    graph: ClassVar[str] = "lds"


class MixtureSVAE(_WithStates):
    """Clusters points that have no order in time, (points, features), in a latent space of any shape."""

    graph: ClassVar[str] = "mixture"


def _text(value: Any) -> str:
    """A value as the command line would give it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _labelled(recordings: Recordings, y: Any) -> Recordings:
    """With known states as labels."""
    single = isinstance(y, np.ndarray) and y.ndim == 1
    given = [y] if single else list(y.values() if isinstance(y, dict) else y)
    if len(given) != len(recordings):
        raise ValueError(f"y has known states of {len(given)} recordings, and there are {len(recordings)}")
    together = zip(recordings, given, strict=True)
    items = tuple(Recording(item.name, item.values, np.asarray(states)) for item, states in together)
    return replace(recordings, items=items, label_names=None)


def _allowed(fitted: Fitted, item: Recording, states: np.ndarray, without: Sequence[int]) -> np.ndarray:
    if np.shape(states) != (len(item),):
        raise ValueError(f"known states of '{item.name}' must be ({len(item)},), got {np.shape(states)}")
    return application.only(fitted, states, without)


def _like(X: Any, recordings: Recordings, results: list[np.ndarray]) -> Any:
    """Results in the form of the data."""
    if isinstance(X, dict):
        return dict(zip(recordings.names, results, strict=True))
    if isinstance(X, np.ndarray) and X.ndim == 3:
        return np.stack(results)
    single = isinstance(X, (np.ndarray, pd.DataFrame)) and len(results) == 1
    return results[0] if single else results
