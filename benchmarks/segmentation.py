"""How well are the labelled exercises of mocap6 segmented, without labels?

In one run, seed by seed: the whole model as `svae fit mocap6` trains it, its second stage alone (the
variational AR-HMM on encoded paths), and dynamax's AR-HMM on the same 12 channels (EM from k-means, the
best of several restarts by likelihood, a sticky prior). Scores are those of all frames together.

`python benchmarks/segmentation.py` prints a table and writes all numbers.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from svae import application, arhmm
from svae.arhmm.local import pad
from svae.arhmm.model import paths
from svae.bench.rows import Row, command_line, line, table, write
from svae.config import Config, override
from svae.data import Recordings, load
from svae.durations import frames_from_duration
from svae.evaluation import score_segmentation
from svae.pgm import SLDS
from svae.presets import settings_for
from svae.training.build import graph_for
from svae.training.initialise import encoded_paths, fit_dynamics
from svae.training.pipeline import fit, standardizer_for, training_batch

SCORES = "ari", "nmi", "hamming"
STICKINESS = 1e6  # dynamax's best, with this many states
DYNAMAX_STATES = 12
ITERATIONS = 100  # of EM

States = list[np.ndarray]


def whole_model(recordings: Recordings, config: Config) -> States:
    """All three stages."""
    fitted = fit(recordings, config)
    return [found.states for found in application.segment(fitted, recordings)]


def second_stage(recordings: Recordings, config: Config) -> States:
    """The AR-HMM's own states, at the price that was found for the model."""
    fitted = fit(recordings, override(config, ["joint.steps=0"]))
    data = training_batch(recordings.map(standardizer_for(recordings, config).apply), config)
    series = encoded_paths(fitted.model, data)
    settings = config.dynamics
    duration, run = config.model.typical_duration, None
    if duration is not None:
        run = round(frames_from_duration(duration, recordings.rate, "model.typical_duration"))
    effort = arhmm.Effort(settings.laps, restarts=settings.restarts, run=run)
    # From all states that the model began with, not from those that it kept
    graph = graph_for(config, fitted.prior._replace(num_states=None))
    assert isinstance(graph, SLDS)
    found = fit_dynamics(graph, series, config.seed, effort)
    found_paths = paths(pad(series), found.posterior)
    return [np.concatenate([path[:1], path]) for path in found_paths]  # the first frame has no transition


def dynamax_arhmm(recordings: Recordings, seed: int, restarts: int) -> States:
    """EM from k-means, the best of several restarts."""
    import jax.numpy as jnp
    import jax.random as jr
    from dynamax.hidden_markov_model import LinearAutoregressiveHMM

    # Its EM takes sequences of one length, so the recordings are one after the other here: five of the two
    # thousand transitions are not real ones. Repeating last frames would give unbounded likelihoods.
    values = np.concatenate([item.values for item in recordings]).astype(np.float32)
    emissions = jnp.asarray((values - values.mean(axis=0)) / values.std(axis=0))
    model = LinearAutoregressiveHMM(
        DYNAMAX_STATES, emissions.shape[1], num_lags=1, transition_matrix_stickiness=STICKINESS
    )
    inputs = model.compute_inputs(emissions)
    best: tuple[float, Any] = (-np.inf, None)
    for key in jr.split(jr.key(seed), restarts):
        parameters, properties = model.initialize(key=key, method="kmeans", emissions=emissions)
        parameters, likelihoods = model.fit_em(
            parameters, properties, emissions, inputs=inputs, num_iters=ITERATIONS, verbose=False
        )
        if float(likelihoods[-1]) > best[0]:
            best = float(likelihoods[-1]), parameters
    if best[1] is None:
        raise FloatingPointError("no restart of dynamax's EM ended with a finite likelihood")
    states = np.asarray(model.most_likely_states(best[1], emissions, inputs))
    return np.split(states, np.cumsum([len(item.values) for item in recordings])[:-1])


def score(recordings: Recordings, states: States) -> dict[str, float]:
    """Agreement with the labels, and the number of segments."""
    labels = np.concatenate([item.labels for item in recordings])
    scores = score_segmentation(labels, np.concatenate(states))._asdict()
    segments = sum(1 + int(np.count_nonzero(np.diff(x))) for x in states)
    return {name: float(scores[name]) for name in SCORES} | {"segments": float(segments)}


def compare(seeds: int, changes: list[str], restarts: int, say: Callable[[str], None]) -> list[Row]:
    """One row for each method and seed."""
    recordings = load("mocap6")
    rows = []
    for seed in range(seeds):
        config = override(settings_for("mocap6"), [*changes, f"seed={seed}"])
        methods: dict[str, Callable[[], States]] = {
            "SVAE-SLDS": lambda: whole_model(recordings, config),
            "its AR-HMM stage": lambda: second_stage(recordings, config),
        }
        if restarts > 0:
            methods["dynamax AR-HMM"] = lambda: dynamax_arhmm(recordings, seed, restarts)
        for name, method in methods.items():
            began = time.perf_counter()
            found = score(recordings, method())
            rows.append({"method": name, "seed": seed, **found, "seconds": time.perf_counter() - began})
            say(line(rows[-1]))
    return rows


def main(arguments: list[str] | None = None) -> list[Row]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--restarts", type=int, default=10, help="of dynamax's EM; 0 leaves it out")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/segmentation.json"))
    given = parser.parse_args(arguments)
    rows = compare(given.seeds, given.set, given.restarts, lambda text: print(text, flush=True))
    print(table(rows, "method", (*SCORES, "segments", "seconds")))
    write(rows, given.out, command_line("segmentation", arguments))
    return rows


if __name__ == "__main__":
    main()
