"""Where else the training log may go: each sink is a watcher of training, and needs a library of its own."""

import atexit
from pathlib import Path
from typing import Any

from svae.training.loop import Record, Watch

SINKS = "tensorboard", "wandb"


def scalars(record: Record) -> tuple[dict[str, float], int]:
    """The numbers of a record, under their stage, and the step that they belong to."""
    stage = record["stage"]
    at = record["step"] if "step" in record else record.get("lap", 0)
    aside = {"step", "steps", "lap", "seconds"}
    numbers = {
        f"{stage}/{name}": float(value)
        for name, value in record.items()
        if isinstance(value, int | float) and name not in aside
    }
    return numbers, at


def sink(name: str, folder: Path, settings: dict[str, Any]) -> Watch:
    """A watcher that sends records to TensorBoard files or to Weights & Biases."""
    if name not in SINKS:
        raise ValueError(f"there is no log named {name}; choose from {', '.join(SINKS)}")
    try:
        return (_tensorboard if name == "tensorboard" else _wandb)(folder, settings)
    except ModuleNotFoundError as error:
        raise ValueError(f"logging to {name} needs {error.name}: pip install 'svae[{name}]'") from None


def _tensorboard(folder: Path, settings: dict[str, Any]) -> Watch:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"), flush_secs=1)  # a killed run shows what it did
    atexit.register(writer.close)

    def watch(record: Record) -> None:
        numbers, at = scalars(record)
        for name, value in numbers.items():
            writer.add_scalar(name, value, at)

    return watch


def _wandb(folder: Path, settings: dict[str, Any]) -> Watch:
    import wandb

    run = wandb.init(project="svae", name=folder.name, dir=str(folder), config=settings)
    for stage in ("vae", "dynamics", "joint"):  # each counts its own steps
        run.define_metric(f"{stage}/*", step_metric=f"{stage}/at")

    def watch(record: Record) -> None:
        numbers, at = scalars(record)
        run.log(numbers | {f"{record['stage']}/at": at})

    return watch


def together(*watchers: Watch) -> Watch:
    """One watcher that tells them all."""

    def watch(record: Record) -> None:
        for each in watchers:
            each(record)

    return watch
