"""How much does a stream lose against full smoothing, and how fast is it?

`python benchmarks/streaming.py --run runs/demo` takes new sequences of the toy frame by frame, at several
lags, prints a table and writes all numbers.
"""

import argparse
import time
from pathlib import Path

import numpy as np

from svae.bench.rows import Row, command_line, line, write
from svae.data.synthetic import laplacian
from svae.streaming import Stream, agreement
from svae.training.artifact import Fitted, load_fitted

LAGS = 2, 5, 10, 30


def measure(fitted: Fitted, lag: int, num_sequences: int) -> Row:
    """Agreement of the likeliest states, and the time that a frame takes once all is compiled."""
    recordings = laplacian(num_sequences, seed=7)
    same = agreement(fitted, recordings, lag)
    stream, times = Stream(fitted, lag), []
    for frame in recordings[0].values:
        began = time.perf_counter()
        stream.update(frame)
        times.append(1e3 * (time.perf_counter() - began))
    answered = times[lag + 1 :]
    return {
        "lag": lag,
        "agreement": same,
        "median_ms": float(np.median(answered)),
        "slowest_ms": float(np.max(answered)),
    }


def main(arguments: list[str] | None = None) -> list[Row]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="of `svae demo`")
    parser.add_argument("--sequences", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/streaming.json"))
    given = parser.parse_args(arguments)
    fitted = load_fitted(given.run / "model")
    rows = []
    for lag in LAGS:
        rows.append(measure(fitted, lag, given.sequences))
        print(line(rows[-1]), flush=True)
    write(rows, given.out, command_line("streaming", arguments))
    return rows


if __name__ == "__main__":
    main()
