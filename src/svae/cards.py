"""Cards: the JSON files that say what is in a folder."""

import json
from pathlib import Path
from typing import Any

import numpy as np


def read_card(path: Path) -> dict[str, Any]:
    """A JSON object, or an error that names the file."""
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(card, dict):
        raise ValueError(f"{path} must hold names and values, and holds {type(card).__name__}")
    return card


def write_card(path: Path, value: Any) -> None:
    """Plain JSON, moved into place when whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    plain = lambda x: x.item() if isinstance(x, np.generic) else str(x)
    temporary.write_text(json.dumps(value, indent=2, default=plain) + "\n", encoding="utf-8")
    temporary.replace(path)
