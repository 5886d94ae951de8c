"""A row of the second table: everything about one trained model."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from svae.bench.timing import machine
from svae.cards import read_card, write_card
from svae.comparison import NETWORK
from svae.contest.scores import REGIMES, num_parameters
from svae.models import SVAE
from svae.reproduce import drawing
from svae.reproduce.actions import agreement, usage
from svae.reproduce.material import Judge, Material
from svae.training.artifact import Fitted
from svae.training.checkpoint import read_metrics
from svae.training.pipeline import JOINT, PRETRAIN

PARTS = "parts.json"


def row(place: Path, fitted: Fitted, material: Material, judge: Judge) -> dict[str, Any]:
    """Bound and distances of windows that the model was not trained on, and what it took.

    Each part is stored as soon as it is found, so that a call which was interrupted is not in vain.
    """
    network, path = judge.network.fingerprint, place / PARTS
    stored = read_card(path) if path.exists() else {}
    found: dict[str, Any] = stored if stored.get(NETWORK) == network else {NETWORK: network}
    joined: dict[str, Any] = {}
    for name, part in _parts(fitted, material, judge, place).items():
        if name not in found:
            found[name] = part()
            write_card(path, found)
        joined |= found[name]
    return joined


def _parts(
    fitted: Fitted, material: Material, judge: Judge, place: Path
) -> dict[str, Callable[[], dict[str, Any]]]:
    """What there is to find: first what it took, where that is still known, and the longest last."""
    test, together, seed = material.test, material.effort.together, fitted.config.seed
    bound = lambda: drawing.bounds(fitted, test, len(material.training), together, seed)
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "cost": lambda: cost(fitted, material, place),
        "bound": lambda: {"bound": float(np.mean(bound())), "parameters": num_parameters(fitted)},
        "samples": lambda: samples(fitted, material, judge),
        **{name: partial(interpolations, fitted, material, judge, name) for name in REGIMES},
    }
    if isinstance(fitted.model, SVAE):
        parts["seen"] = lambda: replications(fitted, material, judge)
    if fitted.model.num_states is None:
        return parts | {"states": lambda: {"states": None}}

    def states() -> dict[str, Any]:
        known = drawing.states(fitted, test, together)
        return usage(known) | agreement(fitted, material.training, test, known)

    return parts | {"states": states}


def samples(fitted: Fitted, material: Material, judge: Judge) -> dict[str, float | None]:
    """Frechet distances of new windows, as many as real ones.

    A mean over independent sets, and `_spread` their standard deviation; None if draws ran away.
    """
    effort, count, seed = material.effort, len(material.test), fitted.config.seed
    make = lambda i: drawing.generated(fitted, material.window, count, effort.together, seed + i)
    return _over_sets("fid_sample", [judge.distance(make(i)) for i in range(effort.sets)])


def interpolations(fitted: Fitted, material: Material, judge: Judge, regime: str) -> dict[str, float | None]:
    """The same of windows of which a share was hidden."""
    effort, hidden = material.effort, material.hidden(regime)
    drawn, _ = drawing.completed(
        fitted, material.test, hidden, effort.sets, effort.together, fitted.config.seed
    )
    return _over_sets(_name(regime), [judge.distance(values) for values in drawn])


def replications(fitted: Fitted, material: Material, judge: Judge) -> dict[str, float | None]:
    """The same of windows of which that share was drawn anew, by a posterior that has seen it: a floor."""
    drawn = drawing.replicated(fitted, material.test, material.effort.together, fitted.config.seed)
    found = {}
    for regime in REGIMES:
        values, hidden = np.stack([item.values for item in material.test]), material.hidden(regime)
        values[:, hidden] = drawn[:, hidden]
        found[f"{_name(regime)}_seen"] = judge.distance(values)
    return found


def _name(regime: str) -> str:
    return f"fid_{regime.replace('-', '_')}"


def _over_sets(name: str, values: list[float | None]) -> dict[str, float | None]:
    known = [x for x in values if x is not None]
    if len(known) < len(values):
        return {name: None, f"{name}_spread": None}
    spread = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return {name: float(np.mean(known)), f"{name}_spread": spread}


def cost(fitted: Fitted, material: Material, place: Path) -> dict[str, Any]:
    """Steps, passes over all windows in the last stage, seconds of training with compilation, machine."""
    config, records = fitted.config, read_metrics(place / "metrics.ndjson")
    clock = [0.0, *(x["seconds"] for x in records if "seconds" in x)]
    # A resumed run has another clock, which begins at zero
    seconds = sum(after - before if after >= before else after for before, after in pairwise(clock))
    # As many as there were: held-out windows may end a stage
    done = {x["stage"]: x["step"] for x in records if x["stage"] in (PRETRAIN, JOINT) and "elbo" in x}
    windows = len(material.training) - round(len(material.training) * config.data.held_out)
    passes = done.get(JOINT, 0) * min(config.batch_size, windows) / windows
    facts = machine()
    return {
        **{"steps": sum(done.values()), "epochs": round(passes, 2), "train_seconds": round(seconds, 1)},
        **{"device": facts["device"], "jax": facts["jax"]},
    }
