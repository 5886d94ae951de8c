"""What a user sees while a model trains: one line that moves, and one for each stage that ended."""

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from svae.words import counted

STAGES = {"vae": "networks", "dynamics": "dynamics", "joint": "together"}


WIDE = 160  # columns of a line in a file


def _console() -> Console:
    """As wide as the terminal; in a file or a pipe, where nobody sees an edge, wide enough for all facts."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=WIDE)


class TrainingProgress:
    """A watcher of training, to be used as a context."""

    def __init__(self, console: Console | None = None):
        self.console = _console() if console is None else console
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<9}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total}"),
            TextColumn("{task.fields[facts]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "TrainingProgress":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, record: dict[str, Any]) -> None:
        """Show one record of the training log."""
        stage = record["stage"]
        if record.get("event") == "not finite":
            self.console.print(
                f"step {record['step']}: {record['quantity']} is not finite; "
                f"going back and on with smaller steps ({record['failures']})",
                markup=False,  # names of arrays have brackets
            )
            return
        if record.get("event") == "price":
            self.console.print(
                f"states last {record['frames']:.1f} frames at a price of {record['price']:.3g}"
            )
            return
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(STAGES[stage], total=record["steps"], facts="")
        done = record.get("step", record.get("lap", 0) + 1)
        self._bar.update(self._tasks[stage], completed=done, facts=_facts(record))


def _facts(record: dict[str, Any]) -> str:
    facts = [f"ELBO {record['elbo']:,.0f}"]
    if "log_likelihood" in record:
        facts.append(f"(fit {record['log_likelihood']:,.0f}, KL {record['kl_local']:,.0f})")
    if "states" in record:
        facts.append(counted(record["states"], "state"))
    if record.get("sweeps", 1.0) > 1:
        facts.append(f"{record['sweeps']:.1f} sweeps, {record['converged']:.0%} converged")
    return "  ".join(facts)
