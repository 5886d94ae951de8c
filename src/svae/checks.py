"""Argument checks whose messages name the parameter.

Shapes are checked always. Values are checked only where they are known: under `jit` they are not, and
there bad values show as NaN in the result (see `svae.linalg`).
"""

from typing import Any

import jax
import numpy as np


def known(value: Any) -> bool:
    """Whether the value is there to look at, not a tracer."""
    return not isinstance(value, jax.core.Tracer)


def require_shape(name: str, value: Any, trailing: tuple[int, ...]) -> None:
    """The last axes of `value` must be `trailing`."""
    shape = np.shape(value)
    if len(shape) < len(trailing) or shape[len(shape) - len(trailing) :] != trailing:
        wanted = ", ".join(map(str, trailing))
        raise ValueError(f"{name} must have shape (..., {wanted}), got {shape}")


def require_axes(name: str, value: Any, count: int) -> None:
    """`value` must have `count` axes, no batch."""
    if np.ndim(value) != count:
        raise ValueError(f"{name} must have {count} axes, got shape {np.shape(value)}")


def require_square(name: str, value: Any) -> int:
    """The last two axes of `value` must agree; returns their size."""
    shape = np.shape(value)
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"{name} must be a square matrix or a stack of them, got shape {shape}")
    return shape[-1]


def require_finite(name: str, value: Any) -> None:
    """No NaN, no infinity."""
    if known(value) and not np.all(np.isfinite(np.asarray(value))):
        raise ValueError(f"{name} holds NaN or infinite values")


def require_above(name: str, value: Any, bound: float) -> None:
    """Every entry must be a number above `bound`."""
    if known(value) and np.size(value):
        worst = np.min(np.asarray(value))
        if not worst > bound:
            raise ValueError(f"{name} must be greater than {bound:g}, got {worst:g}")


def require_not_negative(name: str, value: Any) -> None:
    """Every entry must be a number, zero or above."""
    if known(value) and np.size(value):
        worst = np.min(np.asarray(value))
        if not worst >= 0:
            raise ValueError(f"{name} must not be negative, got {worst:g}")


def require_sums_to_one(name: str, value: Any) -> None:
    """Probabilities over the last axis."""
    if known(value) and not np.allclose(np.sum(np.asarray(value), axis=-1), 1, atol=1e-4):
        raise ValueError(f"{name} must sum to one over the last axis")


def require_positive_definite(name: str, value: Any) -> None:
    """Symmetric, finite, positive definite."""
    require_square(name, value)
    require_finite(name, value)
    if not known(value):
        return
    matrices = np.asarray(value, np.float64)
    symmetric = np.isclose(matrices, np.swapaxes(matrices, -1, -2), rtol=1e-4, atol=1e-6).all(axis=(-2, -1))
    sound = symmetric & (np.linalg.eigvalsh(matrices)[..., 0] > 0)
    if not np.all(sound):
        where = "" if sound.ndim == 0 else f"; the one at {tuple(map(int, np.argwhere(~sound)[0]))} is not"
        raise ValueError(f"{name} must be symmetric positive definite{where}")
