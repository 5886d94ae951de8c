"""The command that compares: runs that are there, or models that it trains first."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from svae.cli.common import Rate, app, note, plainly, require_folder


@app.command()
def compare(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="[RUN]...", help="Run folders.")] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Train models on these recordings instead, and score them on a quarter."),
    ] = None,
    models: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="Models to train, by name.", show_default="all")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="tiny|small|full",
            help="tiny: a few steps, to see that all is well. small: minutes a model. full: hours.",
            show_default="small",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="NUMBER|SEED,...",
            help="How often to train each model, or the seeds to train it with.",
            show_default="1",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="With --data, the folder for all runs, by default runs/compare-DATA-BUDGET. Otherwise also "
            "write the table here, as CSV.",
            show_default=False,
        ),
    ] = None,
    rate: Rate = None,
) -> None:
    """Put results of several runs side by side, or train several models on the same data and score them."""
    with plainly():
        if data is not None and folders:
            raise ValueError("give run folders to compare, or --data to train models on, not both")
        if data is not None:
            _train_and_compare(data, models or "all", budget or "small", seeds or "1", out, rate)
            return
        for name, value in ("--models", models), ("--budget", budget), ("--seeds", seeds), ("--rate", rate):
            if value is not None:
                raise ValueError(f"{name} is for models that are trained here: give --data as well")
        if not folders:
            raise ValueError(
                "give run folders to compare, as in svae compare runs/one runs/two, or --data to train "
                "models on, as in svae compare --data laplace --models svae-slds,dks"
            )
        _compare_runs(folders, out)


def _train_and_compare(
    data: str, models: str, budget: str, seeds: str, out: Path | None, rate: float | None
) -> None:
    from svae.cards import write_card
    from svae.contest import BUDGETS, as_json, as_markdown, hold
    from svae.presets import MODELS
    from svae.progress import TrainingProgress

    if budget not in BUDGETS:
        raise ValueError(f"there is no budget '{budget}': choose from {', '.join(BUDGETS)}")
    names = list(MODELS) if models == "all" else parts_of(models)
    folder = Path("runs") / f"compare-{Path(data).stem}-{budget}" if out is None else out
    require_folder(folder)
    say = lambda line: typer.secho(line, err=True)
    try:
        contest = hold(data, names, seeds_of(seeds), BUDGETS[budget], folder, rate, say, TrainingProgress)
    except KeyboardInterrupt:
        note(f"interrupted; what was trained is kept in {folder}, and the same command goes on with it")
        raise typer.Exit(130) from None
    table = as_markdown(contest)
    typer.echo(table)
    for text in contest.notes:
        note(text)
    (folder / "table.md").write_text(table + "\n", encoding="utf-8")
    command = shlex.join(["svae", *sys.argv[1:]])
    write_card(folder / "table.json", {"command": command, "budget": budget, **as_json(contest)})
    typer.echo(f"written to {folder}: table.md, table.json, imputations.png")


def parts_of(text: str) -> list[str]:
    """A list of names."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"'{text}' names nothing: give a list such as a,b")
    return list(dict.fromkeys(parts))


def seeds_of(text: str) -> list[int]:
    """One number is how many; several, or one and a comma, are the seeds themselves."""
    parts, named = parts_of(text), "," in text
    if not all(part.isdecimal() for part in parts) or (parts == ["0"] and not named):
        raise ValueError(f"--seeds is how many, such as 3, or a list such as 0,1,2 or '4,'; got '{text}'")
    return list(map(int, parts)) if named else list(range(int(text)))


def _compare_runs(folders: list[Path], out: Path | None) -> None:
    import pandas as pd

    from svae.comparison import compare_runs

    *parts, notes = compare_runs(folders)
    width = max(24, *(len(str(name)) + 1 for part in parts for name in part.index))
    typer.echo(" " * width + "".join(f"{folder.name[-18:]:>20}" for folder in folders))
    for part in parts:
        for name, values in part.iterrows():
            typer.echo(f"{name!s:<{width}}" + "".join(f"{_cell(value):>20}" for value in values))
        typer.echo("")
    for text in notes:
        note(text)
    if out is not None:
        pd.concat(parts).to_csv(out)
        typer.echo(f"written {out}")


def _cell(value: Any) -> str:
    if value is None or value != value:  # a run may lack what another has
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)[-18:]
