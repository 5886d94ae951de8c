"""Structured variational autoencoders."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Named here, imported when asked for: `import svae` starts no device and costs next to nothing.
_LAZY = {
    "LinearSVAE": "svae.estimators",
    "MixtureSVAE": "svae.estimators",
    "SwitchingSVAE": "svae.estimators",
    "load": "svae.data",
}
__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'svae' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
