"""How sticky states must be for segments to last as long as they should.

The prior's pseudo-count for staying is not a duration: what it takes depends on how sharply the data tell
states apart. So it is found by trying: segments last the longer the larger it is.
"""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from svae.arhmm.fit import Effort, fit_arhmm
from svae.arhmm.local import Sequences, pad
from svae.arhmm.model import Fit, Prior, paths

SMALLEST, LARGEST = 1e1, 1e9  # pseudo-counts for staying
TRIALS = 4
LAPS = 8  # of a trial


def mean_duration(sequences: Sequences, fit: Fit) -> float:
    """Frames per segment of the most likely paths."""
    found = paths(sequences, fit.posterior)
    segments = sum(1 + np.count_nonzero(np.diff(path)) for path in found)
    return float(sum(map(len, found)) / segments)


def persistence_for_duration(
    series: list[Float[ndarray, "_ n"]],
    prior: Prior,
    num_states: int,
    frames: float,
    seed: int = 0,
    effort: Effort | None = None,
) -> tuple[float, float]:
    """The pseudo-count for staying with which segments last about `frames`, and how long they last then."""
    effort = Effort() if effort is None else effort
    short = effort._replace(max_laps=min(LAPS, effort.max_laps), restarts=1)
    sequences = pad(series)
    low, high = np.log10(SMALLEST), np.log10(LARGEST)
    tried: list[tuple[float, float]] = []
    for _ in range(TRIALS):
        middle = (low + high) / 2
        sticky = prior._replace(transition=prior.transition._replace(persistence=float(10**middle)))
        fit = fit_arhmm(series, sticky, num_states, seed=seed, effort=short)
        tried.append((float(10**middle), mean_duration(sequences, fit)))
        low, high = (middle, high) if tried[-1][1] < frames else (low, middle)
    return min(tried, key=lambda trial: abs(np.log(trial[1] / frames)))
