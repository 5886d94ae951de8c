"""Cards: the JSON files that say what is in a folder."""

import json
import math
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
    temporary.write_text(as_json(value, indent=2) + "\n", encoding="utf-8")
    temporary.replace(path)


def as_json(value: Any, indent: int | None = None) -> str:
    """The text, which any reader of JSON takes."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """In what JSON knows; what is not finite, which it does not, is null."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, dict):
        return {name: plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [plain(x) for x in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
