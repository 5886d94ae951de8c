"""What was asked for."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svae.bench.timing import machine
from svae.presets import MODELS
from svae.training.loop import Watch

# Models of the paper's second table, in its order
PAPER = (
    *("svae-slds", "svae-slds-bias", "svae-lds", "sin-slds", "sin-lds", "transformer-dvae", "srnn"),
    *("dks", "dks-concrete", "dks-straight-through"),
)


@dataclass(frozen=True)
class Request:
    """The options of the command, and who is told about progress."""

    name: str
    out: Path  # without an ending
    budget: str = "small"
    data: str | None = None
    features_data: str | None = None
    models: tuple[str, ...] | None = None  # None: the usual ones
    seeds: tuple[int, ...] = (0,)
    command: str = ""
    say: Callable[[str], None] = lambda line: None
    watching: Callable[[], AbstractContextManager[Watch]] | None = None

    def need_data(self, what: str) -> str:
        """The path, or an error that says what should be there."""
        if self.data is None:
            raise ValueError(f"{self.name} needs --data: {what}")
        return self.data

    def chosen(self, usual: Sequence[str] = PAPER) -> list[str]:
        """The names of models."""
        names = list(usual if self.models is None else self.models)
        for name in names:
            if name not in MODELS:
                raise ValueError(f"there is no model '{name}'; there are {', '.join(MODELS)}")
        return names

    def beside(self, name: str) -> Path:
        """Where another reproduction has its runs."""
        return self.out.parent / name

    def about(self, **more: Any) -> dict[str, Any]:
        """What rows found now share."""
        return {"command": self.command, "budget": self.budget, "machine": machine(), **more}
