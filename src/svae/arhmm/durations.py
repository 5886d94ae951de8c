"""What states must cost for segments to last as long as they should.

In many dimensions regressions tell states apart so sharply that a change pays within a frame or two, whatever
pseudo-counts the prior has for staying: those only count by their logarithm. A price on all that is told by
states has no such limit. Which price it takes depends on the data, so it is found by trying: segments last
the longer the higher it is.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from svae.arhmm.fit import Effort, begin, lap
from svae.arhmm.local import Sequences, one_thread, pad
from svae.arhmm.model import Fit, Prior, paths

HIGHEST = 1e3
TRIALS = 4  # after that without a price
LAPS = 5  # of a trial, which keeps all states


def mean_duration(sequences: Sequences, fit: Fit) -> float:
    """Frames for each change of state in the most likely paths. Where sequences end, segments need not."""
    found = paths(sequences, fit.posterior)
    changes = sum(np.count_nonzero(np.diff(path)) for path in found)
    return float(sum(map(len, found)) / max(changes, 0.5))


def price_for_duration(
    series: list[Float[ndarray, "_ n"]],
    prior_at: Callable[[float], Prior],
    num_states: int,
    frames: float,
    seed: int = 0,
    effort: Effort | None = None,
) -> tuple[float, float]:
    """The price with which segments last about `frames`, and how long they last then; one at least.

    `prior_at` is the prior with a price. Fits begin with short runs, whatever `effort` says: a
    price that joins those will keep longer ones whole.
    """
    effort = (Effort() if effort is None else effort)._replace(run=None)
    sequences = pad(series)

    def lasting(price: float) -> float:
        """For how long they do."""
        dear, rng = prior_at(price), np.random.default_rng(seed)
        with one_thread():
            fit = begin(dear, sequences, num_states, rng, effort)
            for _ in range(min(LAPS, effort.max_laps)):
                fit = lap(dear, sequences, fit, effort.batch_size)
        return mean_duration(sequences, fit)

    tried = [(1.0, lasting(1.0))]
    if tried[0][1] >= frames:
        return tried[0]
    low, high = 0.0, float(np.log10(HIGHEST))
    for _ in range(TRIALS):
        middle = (low + high) / 2
        tried.append((float(10**middle), lasting(float(10**middle))))
        low, high = (middle, high) if tried[-1][1] < frames else (low, middle)
    return min(tried, key=lambda trial: abs(np.log(trial[1] / frames)))
