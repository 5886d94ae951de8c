"""A toy with four dynamics: a Laplacian bump on a line moves right, left, narrows or widens."""

import numpy as np

from svae.data.recordings import Recording, Recordings

LABEL_NAMES = ("right", "left", "narrower", "wider")
PARTNER = (1, 0, 3, 2)
OTHER_PAIR = ((2, 3), (2, 3), (0, 1), (0, 1))
SWITCH_PROBABILITY = 0.1
PARTNER_PROBABILITY = 0.9


def laplacian(num_sequences: int, length: int = 250, seed: int = 0, num_points: int = 100) -> Recordings:
    """Sequences of noisy Laplacian bumps; the label of a frame is the dynamics of the step to it.

    frame(x) = sqrt(s + 1) exp(-|x - m| / 2s) + N(0, 0.02²) for x on a grid from -2 to 2.
    """
    rng = np.random.default_rng(seed)
    grid = np.linspace(-2, 2, num_points)
    items = []
    for number in range(num_sequences):
        states = _states(rng, length)
        m, s = _position_and_width(rng, states)
        bump = np.sqrt(s + 1)[:, None] * np.exp(-np.abs(grid - m[:, None]) / (2 * s[:, None]))
        values = bump + rng.normal(0, 0.02, bump.shape)
        items.append(Recording(f"sequence_{number}", values, states))
    return Recordings(tuple(items), tuple(f"{x:.6g}" for x in grid), label_names=LABEL_NAMES)


def _states(rng: np.random.Generator, length: int) -> np.ndarray:
    """Segments of geometric length; right and left are partners, and narrower and wider."""
    states = np.zeros(length, np.int64)
    state, start = 0, 0
    while start < length:
        stop = start + rng.geometric(SWITCH_PROBABILITY)
        states[start:stop] = state
        to_partner = rng.random() < PARTNER_PROBABILITY
        state = PARTNER[state] if to_partner else int(rng.choice(OTHER_PAIR[state]))
        start = stop
    return states


def _position_and_width(rng: np.random.Generator, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    move = rng.normal(0.03, 0.004, states.shape) * np.array([1, -1, 0, 0])[states]
    growth = rng.normal(0.1, 0.01, states.shape) * np.array([0, 0, -1, 1])[states]
    return np.cumsum(move), np.logaddexp(0, np.cumsum(growth) - 1)
