"""Settings that suit the built-in data sets."""

from typing import Any

from svae.config import Config, make_config

PRESETS: dict[str, dict[str, Any]] = {
    # Two numbers, place and width, describe a frame, but on a surface that two latent dimensions must fold;
    # each of the four dynamics is linear on it only piece by piece.
    "synthetic": {
        "model": {"num_states": 20, "latent_dim": 3},
        "pretrain": {"steps": 3000, "batch_size": 64},
        "dynamics": {"births": 10, "restarts": 2},
        "joint": {"steps": 300, "network_rate": 1e-3, "noise_rate": 1e-2, "graph_rate": 0.02},
        "batch_size": 16,
    },
    # Two thousand frames are too few for networks, which would bend the latent space to remember them.
    "mocap6": {
        "model": {"num_states": 20, "latent_dim": 4, "hidden": [], "typical_duration": "4s"},
        "pretrain": {"steps": 300, "network_rate": 1e-3},
        "dynamics": {"restarts": 5},
        "joint": {"steps": 200},
    },
}


def settings_for(data: str) -> Config:
    """Those of a built-in data set, or the defaults."""
    return make_config(PRESETS.get(data, {}))
