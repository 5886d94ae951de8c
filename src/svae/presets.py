"""Settings that suit the built-in data sets, and models by name: each is a set of settings, no more."""

import difflib
from typing import Any

from svae.config import Config, ConfigError, make_config

TOY: dict[str, Any] = {
    # Two numbers, place and width, describe a frame, but on a surface that two latent dimensions must fold;
    # each of the four dynamics is linear on it only piece by piece.
    "model": {"num_states": 20, "latent_dim": 3},
    "pretrain": {"steps": 3000, "batch_size": 64},
    "dynamics": {"births": 10, "restarts": 2},
    "joint": {"steps": 300, "network_rate": 1e-3, "noise_rate": 1e-2, "graph_rate": 0.02},
    "batch_size": 16,
}
PRESETS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("synthetic", "laplace", "laplacian"), TOY),
    # Two thousand frames are too few for networks, which would bend the latent space to remember them.
    "mocap6": {
        "model": {"num_states": 20, "latent_dim": 4, "hidden": [], "typical_duration": "4s"},
        "pretrain": {"steps": 300, "network_rate": 1e-3},
        "dynamics": {"restarts": 5},
        "joint": {"steps": 200},
    },
}

# With one stage only, that begins from nothing: its networks need longer steps than those of a third stage.
ALONE: dict[str, Any] = {
    "pretrain": {"steps": 0},
    "dynamics": {"sequences": 0},
    "joint": {"network_rate": 1e-3, "noise_rate": 1e-2},
}


def _graph(name: str, own_recognition: bool = False, **more: Any) -> dict[str, Any]:
    return {"model": {"kind": "svae", "graph": name, "own_recognition": own_recognition, **more}}


def _networks(kind: str) -> dict[str, Any]:
    return {"model": {"kind": kind, "hidden": [256, 128]}, **ALONE}


MODELS: dict[str, dict[str, Any]] = {
    "svae-slds": _graph("slds"),
    # As SVAEs were trained before: inference unrolled, and a natural gradient that does not flow through it.
    "svae-slds-bias": {
        **_graph("slds", form="sequential"),
        **ALONE,
        "joint": {**ALONE["joint"], "gradient": "biased", "adjoint": "unrolled"},
    },
    "svae-jslds": _graph("jslds"),
    "svae-hsmm-slds": _graph("hsmm-slds"),
    "svae-lds": _graph("lds"),
    "svae-hmm": _graph("hmm"),
    "svae-gmm": _graph("mixture"),
    "vae": _graph("normal"),
    "sin-lds": {**_graph("lds", own_recognition=True), "dynamics": {"sequences": 0}},
    "sin-slds": {**_graph("slds", own_recognition=True), "dynamics": {"sequences": 0}},
    **{
        name: _networks(name)
        for name in ("srnn", "dks", "dks-concrete", "dks-straight-through", "transformer-dvae", "vq-vae")
    },
}


def settings_for(data: str) -> Config:
    """Those of a built-in data set, or the defaults."""
    return make_config(PRESETS.get(data, {}))


def with_model(config: Config, name: str) -> Config:
    """These settings with a model by name; steps of a stage that it leaves out go to the last one."""
    if name not in MODELS:
        likeness = lambda known: -difflib.SequenceMatcher(None, name, known).ratio()
        raise ConfigError(
            f"there is no model '{name}'; nearest first: {', '.join(sorted(MODELS, key=likeness))}"
        )
    values = _merged(config.model_dump(mode="json"), MODELS[name])
    values["joint"]["steps"] += config.pretrain.steps - values["pretrain"]["steps"]
    return make_config(values)


def _merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Sections within sections; what `more` says holds."""
    inside = lambda name, value: _merged(values[name], value) if isinstance(value, dict) else value
    return {**values, **{name: inside(name, value) for name, value in more.items()}}
