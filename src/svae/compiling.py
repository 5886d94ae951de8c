"""How programs are compiled that run only once."""

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax

T = TypeVar("T")
# Without what takes most of a compiler's time, and pays off only in programs that run often
QUICKLY = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


def once(function: Callable[..., T], *args: Any) -> T:
    """`function(*args)` as one program. Operation by operation, dozens of programs would be compiled."""
    options: dict[str, Any] = {"compiler_options": QUICKLY} if jax.default_backend() == "cpu" else {}
    return eqx.filter_jit(function, **options)(*args)
