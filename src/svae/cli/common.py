"""What commands share. What is heavy is imported inside functions, so that `svae --help` answers at once."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from svae.training.artifact import Fitted

ORDER = (
    *("demo", "fit", "resume", "inspect", "segment", "impute", "forecast", "sample", "evaluate"),
    *("compare", "reproduce", "report", "features", "bench", "doctor"),
)


class InOrder(TyperGroup):
    """Lists commands as a user needs them, not as files are imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in order."""
        return sorted(self.commands, key=ORDER.index)


app = typer.Typer(
    cls=InOrder,
    no_args_is_help=True,
    add_completion=False,
    help="Structured variational autoencoders: graphical models joined with neural networks.",
)


def note(text: str) -> None:
    """What a user should know, beside the answer."""
    typer.secho(f"note: {text}", fg="yellow", err=True)


@contextmanager
def plainly() -> Iterator[None]:
    """Errors that a user can mend are shown without a traceback, warnings as notes."""
    from svae.training.loop import TrainingError

    once = cache(note)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *place: once(str(message))
            yield
    except BrokenPipeError:  # `svae ... | head`: nobody listens any more, and typer ends quietly
        raise
    except (ValueError, OSError, TrainingError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise typer.Exit(2) from None


Source = Annotated[
    str, typer.Argument(metavar="DATA", help="File, folder, or built-in set (mocap6, synthetic).")
]
Split = Annotated[
    str | None,
    typer.Option(metavar="train|valid|test", help="Part of a data set that has splits.", show_default="all"),
]
Rate = Annotated[float | None, typer.Option(help="Frames per second, where the data do not say.")]
ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="Run folder, or a saved model.")]
Seed = Annotated[int, typer.Option(min=0, help="Other draws.")]
Method = Annotated[
    str,
    typer.Option(
        metavar="ancestral|expected",
        help="ancestral: dynamics are drawn, then many paths of states are weighed by how well they meet "
        "what is known. expected: mean field with the average of all dynamics, from one path of states for "
        "each draw, as in the paper: faster, and less exact across gaps.",
    ),
]
NumSamples = Annotated[int, typer.Option(min=1, help="Draws of each recording.")]


def require_folder(path: Path) -> None:
    """An error, before any work, if results cannot be put there."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"--out {path} is a file, not a folder: choose another name")


def load_model(path: Path) -> "Fitted":
    """The model of a run folder, or one that was saved by itself."""
    from svae.training.artifact import load_fitted

    return load_fitted(path)
