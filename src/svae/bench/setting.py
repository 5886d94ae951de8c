"""Sizes of the engine's benchmark. Imports nothing heavy: the command line shows these as its defaults."""

from typing import NamedTuple


class Setting(NamedTuple):
    """Sizes, and how long to measure."""

    batch: int = 8
    num_steps: int = 250
    num_states: int = 50
    latent_dim: int = 16
    sweeps: int = 10
    repeats: int = 5
    budget: float = 60.0  # seconds after which a program is not repeated again
    timeout: float = 900.0  # seconds for the comparison with dynamax
    every_pair: bool = True  # the parallel algorithm with each adjoint, too, which compiles for long


DEFAULT = Setting()
QUICK = Setting(
    batch=2, num_steps=8, num_states=3, latent_dim=2, sweeps=5, repeats=3, timeout=60.0, every_pair=False
)
