"""Does training in stages help, and how far does it come on the Laplacian toy?

512 sequences of 250 frames and 100 features, 8 states, 2 latent dimensions, batches of 32. Both ways of
training take the same number of gradient steps: 20 + 100 epochs. One pre-trains networks, finds the
dynamics in their latent space and then trains everything; the other trains everything from the start.
Shown are the bound (nats per number, in the units of the data; the noise allows about 2.5), the states in
use, and how well they tell the four dynamics apart.

`python benchmarks/toy_training.py` prints a table and writes all numbers.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from svae import application
from svae.bench.rows import Row, command_line, line, table, write
from svae.config import Config, override
from svae.data import load
from svae.evaluation import score_segmentation
from svae.presets import settings_for
from svae.states import num_used
from svae.training.pipeline import fit

STEPS = 1920  # 120 epochs of 16 batches
PRETRAINING = 0.6  # share of them


def ways(steps: int) -> dict[str, list[str]]:
    """The settings in which the two ways differ."""
    first = round(PRETRAINING * steps)
    return {
        "three stages": [f"pretrain.steps={first}", f"joint.steps={steps - first}"],
        "joint only": ["pretrain.steps=0", "dynamics.sequences=0", f"joint.steps={steps}"],
    }


def train(config: Config, num_sequences: int) -> Row:
    """Fit, and look at the result."""
    recordings = load("synthetic", num_sequences=num_sequences)
    began = time.perf_counter()
    fitted = fit(recordings, config)
    seconds = time.perf_counter() - began
    states = np.concatenate([found.states for found in application.segment(fitted, recordings)])
    labels = np.concatenate([item.labels for item in recordings])
    return {
        "bound": application.score(fitted, recordings),
        "states": num_used(np.bincount(states)),
        "accuracy": float(score_segmentation(labels, states).accuracy),
        "seconds": seconds,
    }


def compare(
    seeds: int,
    num_sequences: int,
    steps: int,
    changes: list[str],
    only: str | None,
    say: Callable[[str], None],
) -> list[Row]:
    """One row for each way and seed."""
    rows = []
    for seed in range(seeds):
        for name, differences in ways(steps).items():
            if only not in (None, name):
                continue
            base = ["model.num_states=8", "model.latent_dim=2", "batch_size=32", f"seed={seed}"]
            config = override(settings_for("synthetic"), [*base, *differences, *changes])
            rows.append({"way": name, "seed": seed, **train(config, num_sequences)})
            say(line(rows[-1]))
    return rows


def main(arguments: list[str] | None = None) -> list[Row]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sequences", type=int, default=512)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--only", choices=list(ways(STEPS)), help="one of the two ways")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/toy-training.json"))
    given = parser.parse_args(arguments)
    say = lambda text: print(text, flush=True)
    rows = compare(given.seeds, given.sequences, given.steps, given.set, given.only, say)
    print(table(rows, "way", ("bound", "states", "accuracy", "seconds")))
    write(rows, given.out, command_line("toy_training", arguments))
    return rows


if __name__ == "__main__":
    main()
