"""The command that does the paper's experiments again."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from svae.cli.common import app, note, plainly
from svae.cli.comparing import parts_of, seeds_of

FOLDER, PAGE = Path("results"), Path("docs/results.md")
BUDGETS = "tiny", "small", "full"


@app.command()
def reproduce(
    name: Annotated[str | None, typer.Argument(help="What to reproduce; without it, a list.")] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="tiny|small|full",
            help="tiny: to see that all is well. small: minutes a model. full: up to 15 on an H200.",
        ),
    ] = "small",
    data: Annotated[
        str | None, typer.Option(metavar="PATH", help="The paper's data, or others in their place.")
    ] = None,
    features_data: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="Labelled data for the feature network, where --data have no labels."
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(metavar="NAME,...", help="Only these models.", show_default="all of the paper"),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="NUMBER|SEED,...", help="How often to train each model.", show_default="1"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Where results go, without an ending.", show_default="results/NAME"
        ),
    ] = None,
    from_results: Annotated[
        bool,
        typer.Option("--from-results", help="Only make page and picture anew; without NAME, of all results."),
    ] = False,
) -> None:
    """Do a table or figure of the paper again: numbers, a page, a picture. What is done stays done."""
    from svae.reproduce.registry import DATA, FEATURES_DATA, MODELS, SEEDS, listing, require_entry

    with plainly():
        if name is None and not from_results:
            typer.echo(listing())
            return
        if name is None:
            _all_pages(out or PAGE)
            return
        entry = require_entry(name)
        given = {DATA: data, FEATURES_DATA: features_data, MODELS: models, SEEDS: seeds}
        for option, value in given.items():
            if value is not None and option not in entry.takes:
                raise ValueError(f"{option} means nothing to {name}")
        if budget not in BUDGETS:
            raise ValueError(f"there is no budget '{budget}': choose from {', '.join(BUDGETS)}")
        place = FOLDER / name if out is None else out
        if from_results:
            from svae.reproduce.run import from_results as show

            _tell(*show(name, place))
            return
        _run(name, budget, data, features_data, models, seeds, place)


def _run(
    name: str,
    budget: str,
    data: str | None,
    features_data: str | None,
    models: str | None,
    seeds: str | None,
    out: Path,
) -> None:
    from svae.progress import TrainingProgress
    from svae.reproduce.request import Request
    from svae.reproduce.run import reproduce as run

    request = Request(
        name,
        out,
        budget,
        data,
        features_data,
        None if models is None else tuple(parts_of(models)),
        tuple(seeds_of(seeds or "1")),
        command=shlex.join(["svae", *sys.argv[1:]]),
        say=lambda line: typer.secho(line, err=True),
        watching=TrainingProgress,
    )
    try:
        page, picture = run(request)
    except KeyboardInterrupt:
        note(f"interrupted; what was done is kept beside {out}, and the same command goes on with it")
        raise typer.Exit(130) from None
    typer.echo(page.read_text(encoding="utf-8"))
    _tell(page, picture)


def _tell(page: Path, picture: Path) -> None:
    typer.echo(f"written {page} and {picture}")


def _all_pages(page: Path) -> None:
    from svae.reproduce.page import write_page

    typer.echo(f"written {page}, of {', '.join(write_page(FOLDER, page))}")
