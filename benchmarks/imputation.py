"""How good are completions, and are they honest?

The toy: 200 new sequences of 250 frames, of which frames 20 to 70 are hidden, completed 100 times each by a
trained model (`svae demo`). mocap6: each third of the six recordings is held out in turn; a model and its
baselines see the others, and complete stretches of two seconds that are hidden. Then generation: from the
states of a real sequence, or of another one, with its first and last frames given. Last, frames that are
seen in part: entries missing at random, and channels missing for a while.

`python benchmarks/imputation.py --run runs/demo` prints a table and writes all numbers; `--only` does some.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from svae import application
from svae.bench.rows import Row, command_line, line, write
from svae.completion import Completion
from svae.config import override
from svae.data import Recordings, interpolate, load, repeat_last
from svae.data.synthetic import laplacian
from svae.evaluation import DrawScores, average_draw_scores, joined, score_draws
from svae.presets import settings_for
from svae.states import runs
from svae.training.artifact import Fitted, load_fitted
from svae.training.pipeline import fit

GAP = slice(20, 70)  # of the toy
LIKELY = 0.05  # share of the draws that makes a path a plausible one
HELD_OUT, HIDDEN_SECONDS, EVERY_SECONDS = 2, 2.0, 8.0  # of mocap6
# Completions need more of a pose than segments do, and with more dimensions the states' dynamics are learned
# from too few frames each
COMPLETING = ["model.latent_dim=8", "dynamics.shared=30"]
BLOCK = slice(100, 130), slice(35, 65)  # frames and channels of the toy, where most bumps are
PARTS = "mocap6", "states", "toy", "holes"

Complete = Callable[[Recordings], list[Completion]]


def row(data: str, method: str, scores: DrawScores, more: dict) -> Row:
    """One line of the table."""
    return {
        "data": data,
        "method": method,
        "crps": scores.crps,
        "rmse": scores.rmse,
        **{f"coverage_{level:.0%}": share for level, share in scores.coverage.items()},
        "jump_left": scores.left.ratio,
        "jump_right": scores.right.ratio,
        **more,
    }


def scores_of(recordings: Recordings, hidden: Recordings, complete: Complete) -> list[DrawScores]:
    """Complete what is hidden, and compare each recording with what was there."""
    where = [np.isnan(x.values) & ~np.isnan(r.values) for x, r in zip(hidden, recordings, strict=True)]
    found = complete(hidden)
    return [score_draws(x.values, r.values, w) for x, r, w in zip(found, recordings, where, strict=True)]


def scored(data: str, method: str, recordings: Recordings, hidden: Recordings, complete: Complete) -> Row:
    """The average over recordings."""
    began = time.perf_counter()
    each = scores_of(recordings, hidden, complete)
    seconds = (time.perf_counter() - began) / len(hidden)
    return row(data, method, average_draw_scores(each), {"seconds": seconds})


def by(fitted: Fitted, count: int) -> Complete:
    """Completions by a model."""
    return lambda hidden: application.impute(fitted, hidden, count, seed=0)


def guess(function: Callable[[np.ndarray], np.ndarray]) -> Complete:
    """One completion without a model."""
    return lambda hidden: [Completion(function(x.values)[None], np.isnan(x.values), None) for x in hidden]


def toy(fitted: Fitted, count: int, num_sequences: int, say: Callable[[Row], None]) -> None:
    """The paper's toy, with its gap."""
    recordings = laplacian(num_sequences, seed=1)
    hidden = recordings.hide(lambda length: GAP)
    drawn: list[Completion] = []

    def complete(hidden: Recordings) -> list[Completion]:
        drawn.extend(application.impute(fitted, hidden, count, seed=0))
        return drawn

    found = scored("toy", "SVAE-SLDS", recordings, hidden, complete)
    names = dynamics_of_states(fitted)
    paths = [dynamics_paths(x, names) for x in drawn]
    say(
        found
        | {
            "joined": float(
                np.mean([joined(x.values, r.values, GAP) for x, r in zip(drawn, recordings, strict=True)])
            ),
            "several_paths": float(np.mean([sum(p >= LIKELY for p in x.values()) > 1 for x in paths])),
            "true_path_drawn": float(
                np.mean([path(r.labels[GAP]) in x for x, r in zip(paths, recordings, strict=True)])
            ),
        }
    )
    say(scored("toy", "straight line", recordings, hidden, guess(interpolate)))
    say(scored("toy", "last frame", recordings, hidden, guess(repeat_last)))


def dynamics_of_states(fitted: Fitted) -> np.ndarray:
    """The dynamics that each state stands for: those of most of its frames, in other sequences."""
    recordings = laplacian(64, seed=2)
    counts = np.zeros((application.num_states(fitted), len(recordings.label_names or ())))
    for item, found in zip(recordings, application.segment(fitted, recordings), strict=True):
        np.add.at(counts, (found.states, item.labels), 1)
    return counts.argmax(axis=1)


def path(labels: np.ndarray) -> tuple[int, ...]:
    """Labels in their order, whatever their durations."""
    return tuple(int(labels[start]) for start, _ in runs(labels))


def dynamics_paths(completion: Completion, names: np.ndarray) -> dict[tuple[int, ...], float]:
    """The paths of dynamics across the gap, with their shares of the draws."""
    assert completion.states is not None
    taken = [path(names[states]) for states in completion.states[:, GAP]]
    return {one: taken.count(one) / len(taken) for one in set(taken)}


def folds() -> list[tuple[Recordings, Recordings]]:
    """Recordings of mocap6 to train on, and those held out; all are held out once, the last ones first."""
    everything = load("mocap6")
    names = everything.names
    held_out = [names[i : i + HELD_OUT] for i in range(0, len(names), HELD_OUT)]
    return [
        (everything.select([name for name in names if name not in out]), everything.select(out))
        for out in reversed(held_out)
    ]


def stretches(recordings: Recordings, length: int) -> list[range]:
    """Two seconds out of every eight."""
    rate = recordings.rate or 10.0
    gap, every = round(HIDDEN_SECONDS * rate), round(EVERY_SECONDS * rate)
    return [range(start, start + gap) for start in range(every, length - every, every)]


def without_stretches(recordings: Recordings) -> Recordings:
    """All of them hidden."""
    return recordings.hide(lambda length: [t for x in stretches(recordings, length) for t in x])


def mocap6(count: int, changes: list[str], say: Callable[[Row], None]) -> None:
    """Hidden stretches of recordings that the model has not seen."""

    def trained(graph: str) -> Callable[[Recordings], Complete]:
        wanted = override(settings_for("mocap6"), [*COMPLETING, f"model.graph={graph}", *changes])
        return lambda training: by(fit(training, wanted), count)

    methods: dict[str, Callable[[Recordings], Complete]] = {
        "SVAE-SLDS": trained("slds"),
        "SVAE-LDS": trained("lds"),
        "straight line": lambda training: guess(interpolate),
        "last frame": lambda training: guess(repeat_last),
    }
    for name, method in methods.items():
        each: list[DrawScores] = []
        for training, recordings in folds():
            each += scores_of(recordings, without_stretches(recordings), method(training))
        say(row("mocap6", name, average_draw_scores(each), {"crps_each": [x.crps for x in each]}))


def from_states(fitted: Fitted, num_sequences: int, say: Callable[[Row], None]) -> None:
    """Is a sequence generated from the states of a real one closer to it than from another one's?"""
    recordings = laplacian(num_sequences, seed=3)
    states = [x.states for x in application.segment(fitted, recordings)]
    errors = {"its own states": [], "another's states": []}
    for i, item in enumerate(recordings):
        anchors = np.full_like(item.values, np.nan)
        anchors[[0, -1]] = item.values[[0, -1]]
        for name, given in ("its own states", states[i]), ("another's states", states[i - 1]):
            drawn = application.generate(fitted, len(item), 10, i, states=given, anchors=anchors)
            errors[name].append(np.sqrt(np.mean((drawn.values - item.values) ** 2)))
    closer = np.mean(np.less(*errors.values()))
    for name, values in errors.items():
        say({"data": "toy", "method": name, "rmse": float(np.mean(values)), "closer": float(closer)})


def pierce(recordings: Recordings, share: float) -> Recordings:
    """Without a share of the entries, wherever they are."""
    rng = np.random.default_rng(0)
    return recordings.map(lambda values: np.where(rng.random(values.shape) < share, np.nan, values))


def without_block(values: np.ndarray) -> np.ndarray:
    """Of a toy sequence."""
    values = values.copy()
    values[BLOCK] = np.nan
    return values


def without_channels(recordings: Recordings) -> Recordings:
    """One channel less in each stretch, in turn."""

    def without(values: np.ndarray) -> np.ndarray:
        values = values.copy()
        for number, stretch in enumerate(stretches(recordings, len(values))):
            values[stretch.start : stretch.stop, number % values.shape[1]] = np.nan
        return values

    return recordings.map(without)


def holes(
    fitted: Fitted, count: int, num_sequences: int, changes: list[str], say: Callable[[Row], None]
) -> None:
    """Frames of which only some entries are seen."""
    training, exercises = folds()[0]
    exercising = fit(training, override(settings_for("mocap6"), [*COMPLETING, *changes]))
    toys = laplacian(num_sequences, seed=4)
    shares = {"a fifth of the entries": 0.2, "half of the entries": 0.5}
    at_random = lambda recordings: {name: pierce(recordings, share) for name, share in shares.items()}
    blocks = {"30 channels for 30 frames": toys.map(without_block)}
    channels = {"a channel for 2 s": without_channels(exercises)}
    patterns = [
        ("toy", fitted, toys, at_random(toys) | blocks),
        ("mocap6", exercising, exercises, at_random(exercises) | channels),
    ]
    for data, model, recordings, missing in patterns:
        whole = [x.states for x in application.segment(model, recordings)]
        for name, hidden in missing.items():
            states = [x.states for x in application.segment(model, hidden)]
            same = float(np.mean(np.concatenate(states) == np.concatenate(whole)))
            found = scored(data, "SVAE-SLDS", recordings, hidden, by(model, count))
            say(found | {"missing": name, "same_states": same})
            found = scored(data, "straight line", recordings, hidden, guess(interpolate))
            say(found | {"missing": name})


def main(arguments: list[str] | None = None) -> list[Row]:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"), help="of `svae demo`")
    parser.add_argument("--only", action="append", choices=PARTS, help="all, by default")
    parser.add_argument("--sequences", type=int, default=200)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE", help="for mocap6")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/imputation.json"))
    given = parser.parse_args(arguments)
    rows: list[Row] = []

    def say(found: Row) -> None:
        rows.append(found)
        print(line(found), flush=True)

    fitted, fewer = load_fitted(given.run / "model"), max(given.sequences // 10, 2)
    parts = {
        "mocap6": lambda: mocap6(given.draws, given.set, say),
        "states": lambda: from_states(fitted, fewer, say),
        "toy": lambda: toy(fitted, given.draws, given.sequences, say),
        "holes": lambda: holes(fitted, given.draws, fewer, given.set, say),
    }
    for name in given.only or PARTS:
        parts[name]()
    write(rows, given.out, command_line("imputation", arguments))
    return rows


if __name__ == "__main__":
    main()
