"""The command line: thin commands over the library."""

from typing import Annotated

import typer

from svae import __version__
from svae.cli import answers, bench, comparing, features, looking, reproducing, training
from svae.cli.common import app as app

__all__ = ["answers", "app", "bench", "comparing", "features", "looking", "reproducing", "training"]


def _show_version(wanted: bool) -> bool:
    if wanted:
        typer.echo(f"svae {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Options that come before any command."""
