"""Commands that measure."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from svae.bench.setting import DEFAULT, QUICK
from svae.cli.common import app

bench = typer.Typer(no_args_is_help=True, help="Measure how fast the library is on this machine.")
app.add_typer(bench, name="bench")


def _size(default: int, text: str, minimum: int = 1) -> Any:
    return typer.Option(min=minimum, show_default=str(default), help=text)


@bench.command()
def engine(
    batch: Annotated[int | None, _size(DEFAULT.batch, "Sequences in a batch.")] = None,
    num_steps: Annotated[int | None, _size(DEFAULT.num_steps, "Time steps of a sequence.", 2)] = None,
    num_states: Annotated[int | None, _size(DEFAULT.num_states, "Discrete states.")] = None,
    latent_dim: Annotated[int | None, _size(DEFAULT.latent_dim, "Size of the continuous state.")] = None,
    sweeps: Annotated[int | None, _size(DEFAULT.sweeps, "Sweeps of inference in a gradient step.")] = None,
    repeats: Annotated[int | None, _size(DEFAULT.repeats, "Times to run each program.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes instead of these defaults.")] = False,
    dynamax: Annotated[bool, typer.Option(help="Compare the chains with dynamax's, if installed.")] = True,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", dir_okay=False, help="Also write the numbers here."),
    ] = None,
) -> None:
    """Time sweeps and gradient steps: sequential or parallel in time, by each kind of gradient."""
    from svae.bench.engine import run, table

    sizes = {
        "batch": batch,
        "num_steps": num_steps,
        "num_states": num_states,
        "latent_dim": latent_dim,
        "sweeps": sweeps,
        "repeats": repeats,
    }
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    setting = (QUICK if quick else DEFAULT)._replace(**given)
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)

    report = run(setting, say=lambda line: typer.echo(line, err=True), compare=dynamax)
    typer.echo(table(report))
    if json_path is not None:
        flags = ["--quick"] * quick + ["--no-dynamax"] * (not dynamax)
        options = [f"--{name.replace('_', '-')} {value}" for name, value in given.items()]
        command = " ".join(["svae bench engine", *flags, *options, f"--json {json_path}"])
        json_path.write_text(json.dumps({"command": command, **report}, indent=2) + "\n")
