"""A row of the second table: everything about one trained model."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from svae.bench.timing import machine
from svae.contest.scores import REGIMES, num_parameters
from svae.reproduce import drawing
from svae.reproduce.actions import agreement, usage
from svae.reproduce.material import Judge, Material
from svae.training.artifact import Fitted
from svae.training.checkpoint import read_metrics
from svae.training.pipeline import PRETRAIN


def row(place: Path, fitted: Fitted, material: Material, judge: Judge) -> dict[str, Any]:
    """Bound and distances of windows that the model was not trained on, and what it took."""
    test, together, seed = material.test, material.effort.together, fitted.config.seed
    found: dict[str, Any] = {
        "bound": float(np.mean(drawing.bounds(fitted, test, len(material.training), together, seed))),
        **distances(fitted, material, judge),
        "parameters": num_parameters(fitted),
        "states": None,
    }
    if fitted.model.num_states is not None:
        states = drawing.states(fitted, test, together)
        found |= usage(states) | agreement(fitted, material.training, test, states)
    facts = machine()
    return found | cost(fitted, material, place) | {"device": facts["device"], "jax": jax.__version__}


def distances(fitted: Fitted, material: Material, judge: Judge) -> dict[str, float | None]:
    """Frechet distances of new windows and of windows of which a share was hidden, as many as real ones.

    Each is a mean over independent sets, and `_spread` their standard deviation; None if draws ran away.
    """
    effort, test, seed = material.effort, material.test, fitted.config.seed
    make = lambda i: drawing.generated(fitted, material.window, len(test), effort.together, seed + i)
    found = _over_sets("fid_sample", [judge.distance(make(i)) for i in range(effort.sets)])
    for name, (first, last) in REGIMES.items():
        hidden = slice(round(first * material.window), round(last * material.window))
        drawn, _ = drawing.completed(fitted, test, hidden, effort.sets, effort.together, seed)
        found |= _over_sets(f"fid_{name.replace('-', '_')}", [judge.distance(values) for values in drawn])
    return found


def _over_sets(name: str, values: list[float | None]) -> dict[str, float | None]:
    known = [x for x in values if x is not None]
    if len(known) < len(values):
        return {name: None, f"{name}_spread": None}
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return {name: float(np.mean(known)), f"{name}_spread": spread}


def cost(fitted: Fitted, material: Material, place: Path) -> dict[str, Any]:
    """Steps, passes over all windows, and seconds of training, compilation included."""
    config, records = fitted.config, read_metrics(place / "metrics.ndjson")
    clock = [0.0, *(x["seconds"] for x in records if "seconds" in x)]
    # A resumed run has another clock, which begins at zero
    seconds = sum(after - before if after >= before else after for before, after in pairwise(clock))
    stages = {x["stage"] for x in records}
    steps = config.joint.steps + (config.pretrain.steps if PRETRAIN in stages else 0)
    passes = config.joint.steps * min(config.batch_size, len(material.training)) / len(material.training)
    return {"steps": steps, "epochs": round(passes, 2), "train_seconds": round(seconds, 1)}
