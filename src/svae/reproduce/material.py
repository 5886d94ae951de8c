"""What models of the second table are trained on and scored on: windows, and a feature network for them."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from svae.contest import feature_network
from svae.contest.scores import REGIMES, distance_of_features
from svae.data import Recordings, load
from svae.evaluation import Moments, Spread, frechet_distance, frechet_floor, moments_from_features
from svae.features import FeatureNetwork, load_features
from svae.features.artifact import CARD
from svae.reproduce.efforts import EFFORTS, TASKS, Effort, Task
from svae.reproduce.request import Request
from svae.reproduce.sources import cut, source, with_noise

# The paper's network of speech has 1,280 features, and their covariance needs more windows than that
LARGE, LARGE_FEATURES = "efficientnet", 1280
SMALL = "residual"


@dataclass(frozen=True)
class Material:
    """All that models share."""

    task: Task
    effort: Effort
    data: str
    caption: str
    training: Recordings  # windows
    test: Recordings  # windows
    known: Recordings  # that training windows are from
    clips: Recordings  # that test windows are from

    @property
    def window(self) -> int:
        """Frames of all windows."""
        return min(self.task.window, self.effort.window)

    def hidden(self, regime: str) -> slice:
        """The frames of a window that are hidden to be drawn."""
        first, last = REGIMES[regime]
        return slice(round(first * self.window), round(last * self.window))

    @property
    def label_stride(self) -> int:
        """Between windows that the feature network is trained on: about as many as the models have."""
        stride = sum(self.known.lengths) // len(self.training)
        return min(max(1, stride), self.window)


def material(kind: str, request: Request) -> Material:
    """Of mocap or speech, as the budget allows."""
    task, effort = TASKS[kind], EFFORTS[request.budget]
    what = "motion capture, such as a folder of Human3.6M" if kind == "mocap" else "speech, such as WSJ0"
    data = request.need_data(what)
    found = source(data, task.original)
    size = min(task.window, effort.window)
    strides = [max(1, round(share * size)) for share in (effort.train_stride, effort.test_stride)]
    # Before windows are cut, so that those that overlap agree, and share their memory
    known, clips = with_noise(found.training, task.noise, 0), with_noise(found.test, task.noise, 1)
    training = cut(known, size, strides[0], effort.training)
    test = cut(clips, size, strides[1], effort.test)
    return Material(task, effort, data, found.caption, training, test, known, clips)


@dataclass(frozen=True)
class Judge:
    """Real windows in the eyes of the feature network."""

    network: FeatureNetwork
    test: ndarray  # (windows, features)
    training: ndarray  # of as many windows

    @cached_property
    def moments(self) -> Moments:
        """Of the test windows."""
        return moments_from_features(self.test)

    def distance(self, made: ndarray) -> float | None:
        """The Frechet distance of made windows (windows, time, channels); None if they ran away."""
        if not np.isfinite(made).all():
            return None
        return distance_of_features(self.moments, self.network.features(made))

    def about(self) -> dict[str, Any]:
        """What is to be known about distances: by whom, and what real windows have."""
        halves: Spread = frechet_floor(self.test)
        training = frechet_distance(self.moments, moments_from_features(self.training))
        return {
            "network": self.network.fingerprint,
            "classifier": {
                "kind": self.network.settings.kind,
                "classes": len(self.network.settings.classes),
                "accuracy": self.network.accuracy,
            },
            "floor": {"real_halves": halves.mean, "spread": halves.deviation, "real_training": training},
            "windows": len(self.test),
        }


def judge_for(material: Material, request: Request, folder: Path) -> Judge:
    """By the network in the folder; if there is none yet, one is trained, on these data or on others."""
    network = _network(material, request, folder / "features")
    values = lambda items: np.stack([item.values for item in items])
    some = np.linspace(0, len(material.training) - 1, len(material.test)).round().astype(int)
    real = values(material.training[int(i)] for i in some)
    return Judge(network, network.features(values(material.test)), network.features(real))


def _network(material: Material, request: Request, place: Path) -> FeatureNetwork:
    if (place / CARD).exists():  # then nobody needs labels
        return load_features(place)
    labelled, kind = material.known, SMALL
    stride: int | None = material.label_stride
    if request.features_data is not None:
        labelled, stride = load(request.features_data), None  # all: no model is scored on them
        kind = LARGE if len(material.test) > LARGE_FEATURES else SMALL
    if any(item.labels is None for item in labelled):
        raise ValueError(
            f"{request.name} needs labels to train a feature network, and there are none: give "
            "--features-data"
        )
    return feature_network(
        place,
        labelled,
        kind,
        window=material.window,
        stride=stride,
        epochs=material.effort.epochs,
        options={"width": material.effort.width} if kind == SMALL else {},
        logarithm=material.task.original == "WSJ0",
        say=request.say,
    )
