"""How much a comparison may cost."""

from dataclasses import dataclass, replace

from svae.config import Config, override
from svae.data import DataError, Recordings
from svae.presets import settings_for, with_model
from svae.scoring import FEWEST

HELD_OUT = 0.25  # share of the recordings that models are scored on


@dataclass(frozen=True)
class Budget:
    """Limits on data, training and scoring."""

    changes: tuple[str, ...] = ()  # of the settings that suit the data, before a model's own
    training: int | None = None  # recordings, at most
    scored: int | None = None  # recordings, at most
    draws: int = 20  # completions of each gap
    completed: int = 50  # recordings in which a gap is completed so many times
    epochs: int = 30  # of the feature network
    width: int = 128  # of its features


BUDGETS = {
    "tiny": Budget(
        changes=("pretrain.steps=2", "joint.steps=4", "dynamics.laps=2", "dynamics.births=0", "chunk=2"),
        training=6,
        scored=4,
        draws=2,
        completed=2,
        epochs=1,
        width=8,
    ),
    "small": Budget(
        changes=(
            *("pretrain.steps=600", "joint.steps=100"),
            *("dynamics.sequences=48", "dynamics.laps=20", "dynamics.births=3", "dynamics.restarts=1"),
        ),
        training=96,
        scored=16,
        draws=10,
        completed=8,
        epochs=10,
        width=32,
    ),
    "full": Budget(),
}


def settings(data: str, model: str, budget: Budget, seed: int, rate: float | None = None) -> Config:
    """Those that suit the data, as the budget allows, with a model by name."""
    given = [] if rate is None else [f"data.rate={rate}"]
    config = override(settings_for(data), [*budget.changes, f"seed={seed}", *given])
    config = config.model_copy(update={"data": config.data.model_copy(update={"path": data})})
    return with_model(config, model)


def split(recordings: Recordings, budget: Budget) -> tuple[Recordings, Recordings]:
    """Recordings to train on, and the last ones, to score."""
    if len(recordings) < 2:
        raise DataError("a comparison needs two recordings at least: one to train on and one to score")
    for item in recordings:
        if len(item) < FEWEST:
            raise DataError(f"a comparison needs {FEWEST} frames or more of each", recording=item.name)
    scored = max(1, round(HELD_OUT * len(recordings)))
    first, last = recordings.items[:-scored], recordings.items[-scored:]
    part = lambda items, most: replace(recordings, items=items[:most])
    return part(first, budget.training), part(last, budget.scored)
