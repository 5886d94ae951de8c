"""Commands that measure."""

from pathlib import Path
from typing import Annotated, Any

import typer

from svae.bench.setting import DEFAULT, QUICK
from svae.cli.common import app

bench = typer.Typer(no_args_is_help=True, help="Measure how fast the library is on this machine.")
app.add_typer(bench, name="bench")


def _size(default: int, text: str, minimum: int = 1) -> Any:
    return typer.Option(min=minimum, show_default=str(default), help=text)


def _write(path: Path, command: list[str], report: dict[str, Any]) -> None:
    from svae.cards import write_card

    write_card(path, {"command": " ".join([*command, f"--json {path.name}"]), **report})


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
        _write(json_path, ["svae bench engine", *flags, *options], report)


@bench.command()
def table1(
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Such as 'implicit, kernel'; may be given several times. Default: all for this machine."
        ),
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Sequences in a batch; may be given several times.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Times to run each program.")] = 10,
    quick: Annotated[bool, typer.Option("--quick", help="A small model, to see that all is well.")] = False,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", dir_okay=False, help="Also write the rows here."),
    ] = None,
) -> None:
    """Time a whole gradient step as in the paper's Table 1: by each method, for several batch sizes."""
    from svae.bench import table1 as bench_table

    unknown = [name for name in method or [] if name not in bench_table.METHODS]
    if unknown:
        raise typer.BadParameter(
            f"'{unknown[0]}' is none of {'; '.join(bench_table.METHODS)}", param_hint="--method"
        )
    sizes = bench_table.Sizes(repeats=repeats)
    if quick:
        sizes = sizes._replace(num_steps=10, num_states=3, latent_dim=2, num_features=4, sweeps=3)
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
    rows = bench_table.run(
        sizes,
        method or bench_table.default_methods(),
        batch or bench_table.default_batches(),
        say=lambda line: typer.echo(line, err=True),
        path=json_path,
    )
    typer.echo(bench_table.table(rows))


@bench.command()
def scaling(
    form: Annotated[
        list[str] | None,
        typer.Option(
            help="sequential, parallel or kernel; may be given several times. Default: the first two."
        ),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="In place of these, one sequence of 1,000 to 100,000 steps.")
    ] = False,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", dir_okay=False, help="Also write the rows here."),
    ] = None,
) -> None:
    """Time a sweep of inference as steps, states, dimensions and sequences grow, one at a time."""
    from svae.bench import scaling as bench_scaling
    from svae.chains import Form

    names = [x.value for x in Form]
    chosen = form or [Form.SEQUENTIAL.value, Form.PARALLEL.value]
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise typer.BadParameter(f"'{unknown[0]}' is none of {', '.join(names)}", param_hint="--form")
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
    report = bench_scaling.run([Form(name) for name in chosen], long, say=typer.echo)
    if json_path is not None:
        options = [*(f"--form {name}" for name in form or []), *["--long"] * long]
        _write(json_path, ["svae bench scaling", *options], report)


@bench.command()
def accuracy(
    form: Annotated[
        str | None, typer.Option(help="parallel or kernel. Default: kernel on GPUs, else parallel.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small model, to see that all is well.")] = False,
    json_path: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH", dir_okay=False, help="Also write the errors here."),
    ] = None,
) -> None:
    """Errors of the fast forms: chains against dense answers, training against the sequential form."""
    from svae.bench import accuracy as bench_accuracy
    from svae.bench import table1
    from svae.chains import Form
    from svae.chains.forms import best_form

    names = [Form.PARALLEL.value, Form.KERNEL.value]
    if form is not None and form not in names:
        raise typer.BadParameter(f"'{form}' is none of {', '.join(names)}", param_hint="--form")
    chosen = Form(form) if form else Form.KERNEL if best_form() == Form.KERNEL else Form.PARALLEL
    sizes, changes = table1.Sizes(), bench_accuracy.TRAINING
    if quick:
        sizes = sizes._replace(num_steps=6, num_states=3, latent_dim=2, num_features=4, sweeps=3)
        changes = (*changes, "joint.steps=100", "data.window=8")
    if json_path is not None:
        json_path.parent.mkdir(parents=True, exist_ok=True)
    report = bench_accuracy.run(chosen, sizes, changes, say=typer.echo)
    if json_path is not None:
        options = ([f"--form {form}"] if form else []) + ["--quick"] * quick
        _write(json_path, ["svae bench accuracy", *options], report)
