"""From labelled recordings to a feature network in a folder: what the command `svae features` does."""

from pathlib import Path
from typing import Any

import numpy as np

from svae.data import Recordings
from svae.features.artifact import CARD, FeatureNetwork, require_kind, save_features
from svae.features.labelled import labelled_windows, typical_run
from svae.features.search import search_residual
from svae.features.training import RECIPE, Recipe, Say, train_classifier

LONGEST = {"residual": 250, "efficientnet": 50}  # windows of the paper, of motions and of speech


def train_features(
    recordings: Recordings,
    out: Path,
    kind: str = "residual",
    *,
    options: dict[str, Any] | None = None,
    window: int | None = None,
    stride: int | None = None,
    recipe: Recipe = RECIPE,
    search: int = 0,
    logarithm: bool | None = None,
    say: Say = lambda line: None,
) -> FeatureNetwork:
    """Train a network to tell the recordings' labels apart, and write it to the folder `out`.

    A window's class is the label of most of its frames; windows are as long as a label lasts, at most as
    long as the paper's, unless `window` says how many frames; they overlap if `stride` is less. `options`
    are those of the network's class; `search` finds them for residual networks, in as many trials.
    `logarithm` is for spectrograms, which is what efficientnet takes its inputs for by default.
    A network that is already in `out` stays: results may refer to it.
    """
    out = Path(out)
    require_kind(kind)
    if search and (kind != "residual" or options):
        raise ValueError("the search is over residual networks, and finds their options")
    if (out / CARD).exists():
        raise ValueError(f"{out} holds a feature network; choose another folder, or remove it first")
    size = min(LONGEST[kind], typical_run(recordings)) if window is None else window
    logarithm = kind == "efficientnet" if logarithm is None else logarithm
    windows = labelled_windows(recordings, size, stride)
    counts = np.bincount(windows.labels)
    largest = f"{windows.classes[np.argmax(counts)]} has {np.max(counts) / len(windows):.1%}"
    say(f"{len(windows)} windows of up to {size} frames, {len(windows.classes)} classes, of which {largest}")
    if search:
        network = search_residual(windows, search, recipe, logarithm, say=say).network
    else:
        network = train_classifier(windows, kind, options, recipe, logarithm, say)
    save_features(network, out)
    say(f"feature network {network.fingerprint}: held-out accuracy {network.accuracy:.1%}")
    return network
