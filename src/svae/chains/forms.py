"""The forms that every algorithm for chains comes in."""

from enum import StrEnum

import jax
from jax import lax

from svae.kernels.tiles import has_matrix_units

# `jax.vmap(..., axis_name=BATCH)` over sequences tells algorithms how many of them run side by side
BATCH = "sequences"


class Form(StrEnum):
    """Which algorithm infers a chain; the answers are the same."""

    SEQUENTIAL = "sequential"  # one node after the other: the least work
    PARALLEL = "parallel"  # rounds of many nodes at once: the fewest steps
    KERNEL = "kernel"  # the fewest steps, fused for GPUs; on other machines interpreted, which is slow


def batch_size() -> int:
    """The number of sequences that are inferred at once, as far as it is known here."""
    try:
        return lax.axis_size(BATCH)
    except NameError:
        return 1


def best_form() -> Form:
    """The fastest form on this machine."""
    if jax.default_backend() == "cpu":
        return Form.SEQUENTIAL
    return Form.KERNEL if jax.default_backend() == "gpu" and has_matrix_units() else Form.PARALLEL
