"""Argument checks whose messages name the parameter.

Shapes are checked always. Values are checked only where they are known: under `jit` they are not, and
there bad values show as NaN in the result (see `svae.linalg`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from svae import linalg


def known(value: Any) -> bool:
    """Whether the value is there to look at, not a tracer."""
    return not isinstance(value, jax.core.Tracer)


def require(condition: Any, message: str) -> None:
    """Raise `ValueError(message)` unless the condition holds or is not known yet."""
    if known(condition) and not np.all(condition):
        raise ValueError(message)


def require_shape(name: str, value: Any, trailing: tuple[int, ...]) -> None:
    """The last axes of `value` must be `trailing`."""
    shape = jnp.shape(value)
    if len(shape) < len(trailing) or shape[len(shape) - len(trailing) :] != trailing:
        wanted = ", ".join(map(str, trailing))
        raise ValueError(f"{name} must have shape (..., {wanted}), got {shape}")


def require_square(name: str, value: Any) -> int:
    """The last two axes of `value` must agree; returns their size."""
    shape = jnp.shape(value)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"{name} must be a square matrix or a stack of them, got shape {shape}")
    return shape[-1]


def require_finite(name: str, value: Any) -> None:
    """No NaN, no infinity."""
    require(jnp.all(jnp.isfinite(value)), f"{name} holds NaN or infinite values")


def require_above(name: str, value: Any, bound: float) -> None:
    """Every entry must be a number above `bound`."""
    if known(value):
        worst = float(np.min(value)) if np.size(value) else np.inf
        require(worst > bound, f"{name} must be greater than {bound:g}, got {worst:g}")


def require_positive_definite(name: str, value: Any) -> None:
    """Symmetric, finite, positive definite."""
    require_square(name, value)
    if not known(value):
        return
    require_finite(name, value)
    sound = np.atleast_1d(np.asarray(linalg.is_positive_definite(jnp.asarray(value))))
    if not sound.all():
        which = "" if sound.size == 1 else f" (matrix {tuple(int(i[0]) for i in np.nonzero(~sound))})"
        raise ValueError(f"{name} must be symmetric positive definite{which}")
