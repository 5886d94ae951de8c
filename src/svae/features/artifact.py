"""A trained feature network as a record and as files: weights in safetensors, all else in JSON.

Distances by two networks have nothing to do with each other, however alike the networks' settings are.
Each network has a fingerprint, which goes with every distance.
"""

import hashlib
import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from svae.cards import read_card, write_card
from svae.features.classifier import Classifier
from svae.features.efficientnet import EfficientNet
from svae.features.inputs import Inputs, Lengths, Values
from svae.features.residual import ResidualClassifier
from svae.training.trees import arrays_from_tree, tree_from_arrays

FORMAT = 2
NETWORKS: dict[str, type[Classifier]] = {"residual": ResidualClassifier, "efficientnet": EfficientNet}
CARD, WEIGHTS_FILE = "features.json", "features.safetensors"


@dataclass(frozen=True)
class Settings:
    """What a network is for, and how it is built: `options` are all those of its class."""

    kind: str
    channels: tuple[str, ...]
    classes: tuple[str, ...]
    window: int  # frames of the windows that it was trained on
    options: dict[str, Any]


def make_settings(
    kind: str,
    channels: tuple[str, ...],
    classes: tuple[str, ...],
    window: int,
    options: dict[str, Any] | None = None,
) -> Settings:
    """Settings with the options that are not given at their defaults, so that files tell them all."""
    require_kind(kind)
    parameters = inspect.signature(NETWORKS[kind]).parameters.values()
    known = {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}
    for name in options or {}:
        if name not in known:
            raise ValueError(f"there is no option {name} of {kind}; there are {', '.join(known)}")
    resolved = json.loads(json.dumps(known | (options or {})))  # as files will have them
    return Settings(kind, channels, classes, window, resolved)


def require_kind(kind: str) -> None:
    """An error unless there are networks of this kind."""
    if kind not in NETWORKS:
        raise ValueError(f"there is no feature network named {kind}; choose from {', '.join(NETWORKS)}")


def untrained(settings: Settings, key: PRNGKeyArray) -> Classifier:
    """A network as settings describe it, with random weights."""
    if settings.kind == "efficientnet":  # any number of frequencies will do
        return EfficientNet(len(settings.classes), key, **settings.options)
    return ResidualClassifier(len(settings.channels), len(settings.classes), key, **settings.options)


@dataclass(frozen=True, eq=False)
class FeatureNetwork:
    """A classifier, trained and ready to use on windows as they are."""

    network: Classifier
    settings: Settings
    inputs: Inputs
    accuracy: float  # share of held-out windows whose class it finds

    def features(
        self, values: Values, lengths: Lengths | None = None, batch_size: int = 256
    ) -> Float[np.ndarray, "windows features"]:
        """What the last layer sees of each window; `lengths` where windows are padded."""
        return self._batches(_features, values, lengths, batch_size)

    def classify(
        self, values: Values, lengths: Lengths | None = None, batch_size: int = 256
    ) -> Int[np.ndarray, "windows"]:
        """The number of the most probable class of each window."""
        return np.argmax(self._batches(_scores, values, lengths, batch_size), axis=-1)

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any weight, setting or scale of the inputs."""
        card = {"format": FORMAT, "settings": asdict(self.settings), "inputs": self.inputs.to_dict()}
        digest = hashlib.sha256(json.dumps(card, sort_keys=True).encode())
        for name, array in sorted(_arrays(self.network).items()):
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()[:16]

    def _batches(
        self,
        function: Callable[..., Float[Array, "batch outputs"]],
        values: Values,
        lengths: Lengths | None,
        batch_size: int,
    ) -> Float[np.ndarray, "windows outputs"]:
        """Batches of one size, so that one program does for all: the last repeats its last window."""
        values = np.asarray(values)
        if values.ndim != 3 or values.shape[2] != len(self.settings.channels) or not len(values):
            wanted = f"(windows, time, {len(self.settings.channels)})"
            raise ValueError(f"this feature network is for values {wanted}, got {values.shape}")
        lengths = np.full(len(values), values.shape[1]) if lengths is None else np.asarray(lengths)
        size = min(batch_size, len(values))
        parts = []
        for start in range(0, len(values), size):
            which = np.minimum(np.arange(start, start + size), len(values) - 1)
            batch = jnp.asarray(self.inputs.apply(values[which]))
            parts.append(np.asarray(function(self.network, batch, jnp.asarray(lengths[which], jnp.int32))))
        return np.concatenate(parts)[: len(values)]


@eqx.filter_jit
def _features(network: Classifier, values: Array, lengths: Array) -> Array:
    return network.features(values, lengths)


@eqx.filter_jit
def _scores(network: Classifier, values: Array, lengths: Array) -> Array:
    return network(values, lengths)


def _arrays(network: Classifier) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array) for name, array in arrays_from_tree(network).items()}


def save_features(network: FeatureNetwork, folder: Path) -> Path:
    """Write `features.safetensors` and `features.json`."""
    from safetensors.numpy import save_file

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(_arrays(network.network), folder / WEIGHTS_FILE)
    card = {
        "format": FORMAT,
        "fingerprint": network.fingerprint,
        "accuracy": network.accuracy,
        "settings": asdict(network.settings),
        "inputs": network.inputs.to_dict(),
    }
    write_card(folder / CARD, card)
    return folder


def load_features(folder: Path) -> FeatureNetwork:
    """The network in a folder that `save_features` wrote."""
    from safetensors.numpy import load_file

    path = Path(folder) / CARD
    if not path.exists():
        raise FileNotFoundError(f"there is no feature network in {folder}: {CARD} is missing")
    card = read_card(path)
    if card.get("format") != FORMAT:
        raise ValueError(f"{path} has format {card.get('format')}; this version reads {FORMAT}")
    plain = card["settings"]
    names = {name: tuple(plain[name]) for name in ("channels", "classes")}
    settings = Settings(**{**plain, **names})
    shapes = jax.eval_shape(lambda key: untrained(settings, key), jax.random.key(0))
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    arrays = load_file(Path(folder) / WEIGHTS_FILE)
    network = FeatureNetwork(
        tree_from_arrays(blank, arrays), settings, Inputs.from_dict(card["inputs"]), card["accuracy"]
    )
    if network.fingerprint != card["fingerprint"]:
        raise ValueError(
            f"the files in {folder} do not belong together: {CARD} names the network "
            f"{card['fingerprint']}, and {WEIGHTS_FILE} holds {network.fingerprint}"
        )
    return network
