"""The shareable model: weights in safetensors, everything else in JSON. Nothing is ever unpickled."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from svae.cards import read_card, write_card
from svae.config import Config, make_config
from svae.data import Standardizer
from svae.models import Model
from svae.training.build import GraphPrior, blank
from svae.training.trees import arrays_from_tree, tree_from_arrays

FORMAT = 2


@dataclass(frozen=True)
class Fitted:
    """A trained model and all that is needed to use it on new recordings."""

    model: Model
    config: Config
    standardizer: Standardizer
    channels: tuple[str, ...]
    rate: float | None
    prior: GraphPrior
    ending: str = "done"  # or "plateau", or "interrupted"


def save_fitted(fitted: Fitted, folder: Path) -> Path:
    """Write `model.safetensors` and `model.json`."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: np.asarray(x) for name, x in arrays_from_tree(fitted.model).items()}
    save_file(arrays, folder / "model.safetensors")
    card: dict[str, Any] = {
        "format": FORMAT,
        "config": fitted.config.model_dump(mode="json"),
        "standardizer": fitted.standardizer.to_dict(),
        "channels": list(fitted.channels),
        "rate": fitted.rate,
        "prior": fitted.prior._asdict(),
        "ending": fitted.ending,
    }
    write_card(folder / "model.json", card)
    return folder


def load_fitted(folder: Path) -> Fitted:
    """The model in a folder that `save_fitted` or a run wrote."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    folder = Path(folder)
    folder = folder / "model" if (folder / "model" / "model.json").exists() else folder
    path = folder / "model.json"
    if not path.exists():
        raise FileNotFoundError(f"there is no model in {folder}: {path.name} is missing")
    card = read_card(path)
    if card.get("format") != FORMAT:
        raise ValueError(f"{path} has format {card.get('format')}; this version reads {FORMAT}")
    for name in ("config", "standardizer", "channels", "rate", "prior", "ending"):
        if name not in card:
            raise ValueError(f"{path} is not the card of a model: it has no {name}")
    config = make_config(card["config"])
    prior = GraphPrior(**card["prior"])
    weights = folder / "model.safetensors"
    try:
        arrays = load_file(weights)
    except SafetensorError as error:
        raise ValueError(f"{weights} cannot be read; is the file whole? ({error})") from None
    return Fitted(
        tree_from_arrays(blank(config, len(card["channels"]), prior), arrays),
        config,
        Standardizer.from_dict(card["standardizer"]),
        tuple(card["channels"]),
        card["rate"],
        prior,
        card["ending"],
    )
