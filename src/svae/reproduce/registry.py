"""What can be reproduced. Imports nothing heavy: the command line lists it."""

import difflib
from typing import NamedTuple


class Entry(NamedTuple):
    """One line about it, and the options of the command that mean something to it."""

    line: str
    takes: frozenset[str] = frozenset()


DATA, FEATURES_DATA, MODELS, SEEDS = "--data", "--features-data", "--models", "--seeds"
OF_MODELS = frozenset({DATA, MODELS, SEEDS})
OF_FIGURES = frozenset({DATA, MODELS})

# The module of an entry has its name, with underscores.
ENTRIES = {
    "table1": Entry("time and memory of a gradient step, by method and batch size"),
    "table2-mocap": Entry("bounds and Frechet distances of all models, motion capture", OF_MODELS),
    "table2-speech": Entry("bounds and Frechet distances of all models, speech", OF_MODELS | {FEATURES_DATA}),
    "fig-segmentations": Entry("states of held-out motions, beside the actions (Fig. 1)", OF_FIGURES),
    "fig-gradients": Entry("error of gradients against sweeps of inference (Fig. 3)", frozenset({DATA})),
    "fig-natural-gradients": Entry(
        "steps that natural and other gradients need (Fig. 3)", frozenset({DATA, SEEDS})
    ),
    "fig-speech-generation": Entry("ten times longer speech than any model was trained on", OF_FIGURES),
    "fig-interpolations": Entry("what each model puts into the gap of a motion", OF_FIGURES),
    "fig-toy": Entry("all models on the moving bump, and in a gap of it", frozenset({MODELS, SEEDS})),
    "table-architectures": Entry("numbers of parameters"),
}


def require_entry(name: str) -> Entry:
    """The entry, or an error that names the nearest."""
    if name not in ENTRIES:
        likeness = lambda known: -difflib.SequenceMatcher(None, name, known).ratio()
        nearest = ", ".join(sorted(ENTRIES, key=likeness))
        raise ValueError(f"there is nothing named '{name}' to reproduce; nearest first: {nearest}")
    return ENTRIES[name]


def listing() -> str:
    """All names, with their lines."""
    width = max(map(len, ENTRIES)) + 2
    return "\n".join(f"{name:<{width}}{entry.line}" for name, entry in ENTRIES.items())
