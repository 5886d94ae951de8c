"""Checkpoints that survive a kill at any moment, and the files of a run.

A run folder holds `config.toml`, `metrics.ndjson`, `checkpoints/<stage>/{last,best}`, and what the run
made of it all. Orbax writes each checkpoint beside its place and moves it there when it is whole.
"""

import json
from pathlib import Path
from typing import Any

import jax

from svae.cards import as_json
from svae.training.step import TrainState
from svae.training.trees import arrays_from_tree, tree_from_arrays


class Checkpoints:
    """The last and the best training states of one stage."""

    def __init__(self, folder: Path):
        import orbax.checkpoint as ocp

        self.folder = Path(folder).absolute()
        options = ocp.CheckpointManagerOptions(max_to_keep=1, create=True)
        self._managers = {
            name: ocp.CheckpointManager(self.folder / name, options=options) for name in ("last", "best")
        }
        self._save = ocp.args.StandardSave
        self._restore = ocp.args.StandardRestore

    def keep(self, state: TrainState) -> None:
        """Store a state, and once more if it is the best so far. Writing goes on in the background."""
        names = ["last", "best"] if int(state.waited) == 0 else ["last"]
        arrays = arrays_from_tree(state)
        for name in names:
            self._managers[name].save(int(state.step), args=self._save(arrays))

    def restore(self, like: TrainState, name: str = "last") -> TrainState | None:
        """The stored state, in the structure of `like`; None if there is none."""
        manager = self._managers[name]
        step = manager.latest_step()
        if step is None:
            return None
        here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])  # it may come from another device
        shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here)
        shapes = jax.tree.map(shape, arrays_from_tree(like))
        return tree_from_arrays(like, manager.restore(step, args=self._restore(shapes)))

    def close(self) -> None:
        """Wait until all is written."""
        for manager in self._managers.values():
            manager.wait_until_finished()
            manager.close()


class MetricsFile:
    """The training log: one JSON object a line, each written at once."""

    def __init__(self, path: Path):
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def __call__(self, record: dict[str, Any]) -> None:
        """Append one record."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(as_json(record) + "\n")

    def forget(self, stage: str, after: int) -> None:
        """Drop what a killed run wrote of `stage` after its last checkpoint, and broken lines."""
        records = [x for x in read_metrics(self.path) if x.get("stage") != stage or x.get("step", 0) <= after]
        text = "".join(as_json(record) + "\n" for record in records)
        temporary = self.path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(self.path)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The records of a training log; a line that a kill cut short is left out."""
    records = []
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                continue
    return records
