"""What is compared: cases, sizes, and methods."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax

from svae.expfam import BIASED, PLAIN, UNBIASED, GradientRule, natural_descent

RATES = (0.01, 0.03, 0.1, 0.3, 1.0)


class Method(NamedTuple):
    """A gradient, and who follows it, made from a family, a step size and the number of sequences."""

    rule: GradientRule
    optimiser: Callable[..., optax.GradientTransformation]


BIASED_NATURAL = "Biased natural gradient (SVI)"
METHODS = {
    "Adam": Method(PLAIN, lambda family, rate, count: optax.adam(rate)),
    BIASED_NATURAL: Method(BIASED, natural_descent),
    "Unbiased natural gradient": Method(UNBIASED, natural_descent),
}


class Case(NamedTuple):
    """Data, and networks for them."""

    data: str
    latent_dim: int
    pretraining: int  # steps
    options: tuple[tuple[str, Any], ...] = ()  # of the data set


class Setting(NamedTuple):
    """Sizes of the experiment."""

    cases: dict[str, Case]
    seeds: int = 3
    steps: int = 500
    checks: int = 32  # evaluations on the way
    batch: int = 8
    window: int = 50
    hidden: tuple[int, ...] = (64,)


TOY = (("num_sequences", 12),)
CASES = {
    "Motion capture, trained networks": Case("mocap6", 3, 1000),
    "Motion capture, hardly trained networks": Case("mocap6", 3, 100),
    "Laplacian toy, trained networks": Case("synthetic", 2, 500, TOY),
}


def checkpoints(setting: Setting) -> np.ndarray:
    """The numbers of steps after which the bound is evaluated, evenly spaced in their logarithm."""
    return np.unique(np.round(np.geomspace(1, setting.steps + 1, setting.checks)).astype(int)) - 1
