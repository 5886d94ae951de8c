"""The command line: thin commands over the library.

What is heavy is imported inside the commands, so that `svae --help` answers at once.
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from svae import __version__
from svae.bench.setting import DEFAULT, QUICK

MOST_CHANNELS = 20  # that `inspect` lists
RUN_FILES = "config.toml", "metrics.ndjson", "segments.csv", "segments.parquet", "summary.json", "report.html"
RUN_FOLDERS = "checkpoints", "model"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Structured variational autoencoders: graphical models joined with neural networks.",
)
bench = typer.Typer(no_args_is_help=True, help="Measure how fast the library is on this machine.")
app.add_typer(bench, name="bench")


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


@contextmanager
def _plainly() -> Iterator[None]:
    """Errors that a user can mend are shown without a traceback."""
    from svae.training.loop import TrainingError

    try:
        yield
    except (ValueError, OSError, TrainingError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise typer.Exit(2) from None


Source = Annotated[
    str, typer.Argument(metavar="DATA", help="File, folder, or built-in set (mocap6, synthetic).")
]
Rate = Annotated[float | None, typer.Option(help="Frames per second, where the data do not say.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting; repeatable."),
]

Log = Annotated[
    list[str] | None,
    typer.Option("--log", metavar="NAME", help="Also log to tensorboard or wandb; repeatable."),
]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(min=0, help="Other networks, other noise.")] = 0,
    changes: Set = None,
) -> None:
    """Train on synthetic data: bumps on a line that move right or left, narrow or widen."""
    with _plainly():
        from svae.config import override
        from svae.presets import settings_for

        if out.exists() and not out.is_dir():
            raise ValueError(f"{out} is a file, not a folder")
        settings = override(
            settings_for("synthetic"), ["data.path=synthetic", f"seed={seed}", *(changes or [])]
        )
        _run(settings, out, anew=True)
    typer.echo(f"open {out / 'report.html'} in a browser")


@app.command()
def fit(
    data: Source,
    out: Annotated[Path | None, typer.Option(help="Run folder. [default: runs/<name of the data>]")] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Settings as TOML.")
    ] = None,
    changes: Set = None,
    rate: Rate = None,
    force: Annotated[bool, typer.Option("--force", help="Start anew in a folder that holds a run.")] = False,
    log: Log = None,
) -> None:
    """Train a model on recordings, and write segments, a report and the model to a run folder."""
    with _plainly():
        from svae.config import load_config, override
        from svae.presets import settings_for

        settings = load_config(config) if config is not None else settings_for(data)
        source = settings.data.model_copy(update={"path": data})  # as it is, also if it looks like a number
        given = [] if rate is None else [f"data.rate={rate}"]
        settings = override(settings.model_copy(update={"data": source}), [*given, *(changes or [])])
        folder = out if out is not None else Path("runs") / Path(data).stem
        if (folder / "config.toml").exists() and not force:
            raise ValueError(
                f"{folder} holds a run: go on with svae resume {folder}, or start anew with --force"
            )
        _run(settings, folder, anew=True, logs=log)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    log: Log = None,
) -> None:
    """Go on with a run that was interrupted or killed."""
    with _plainly():
        from svae.config import load_config

        if not (folder / "config.toml").exists():
            raise FileNotFoundError(f"there is no run in {folder}: config.toml is missing")
        _run(load_config(folder / "config.toml"), folder, logs=log)


def _forget_run(folder: Path) -> None:
    """Remove what a run wrote, and nothing else that may be in its folder."""
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)
    for name in RUN_FOLDERS:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)


def _run(settings: Any, folder: Path, anew: bool = False, logs: list[str] | None = None) -> None:
    """Train, write the results, say what came out."""
    from svae.data import load
    from svae.progress import TrainingProgress
    from svae.runs import write_results
    from svae.training.pipeline import fit as fit_model
    from svae.training.sinks import sink, together

    started = time.monotonic()
    if settings.data.path is None:
        raise ValueError(f"the settings of {folder} do not say where the data are: data.path is missing")
    recordings = load(settings.data.path, rate=settings.data.rate)
    if anew and (folder / "config.toml").exists():  # not before the data are known to be good
        _forget_run(folder)
    others = [sink(name, folder, settings.model_dump(mode="json")) for name in logs or []]
    with TrainingProgress() as progress:
        fitted = fit_model(recordings, settings, folder, together(progress, *others))
    name = Path(settings.data.path).stem
    summary = write_results(fitted, recordings, folder, name, time.monotonic() - started)
    _show(summary)
    typer.echo(f"\nwritten to {folder}: " + ", ".join(sorted(x.name for x in folder.iterdir())))
    if fitted.ending == "interrupted":
        raise typer.Exit(130)


def _show(summary: dict[str, Any]) -> None:
    for name, value in summary.items():
        if name != "warnings":
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            typer.echo(f"{name.replace('_', ' '):<12} {text}")
    for warning in summary.get("warnings", []):
        typer.secho(f"warning: {warning}", fg="yellow", err=True)


@app.command()
def segment(
    model: Annotated[Path, typer.Argument(help="Run folder, or a saved model.")],
    data: Source,
    out: Annotated[Path, typer.Option(help="Folder for segments.csv and segments.parquet.")] = Path(
        "segments"
    ),
    rate: Rate = None,
) -> None:
    """Segment recordings with a trained model."""
    with _plainly():
        from svae import application
        from svae.data import load
        from svae.segments import write_segments
        from svae.training.artifact import load_fitted

        place = model / "model" if (model / "model").is_dir() else model
        fitted = load_fitted(place)
        if fitted.config.model.graph == "lds":
            raise ValueError("this model has linear dynamics and no states: there is nothing to segment")
        recordings = load(data, rate=rate)
        found = application.segment(fitted, recordings)
        table = application.table(fitted, recordings, found)
        paths = write_segments(table, out)
        converged = sum(bool(x.converged) for x in found)
        typer.echo(
            f"{len(table)} segments in {len(recordings)} recordings; inference converged in {converged}"
        )
        typer.echo("written " + ", ".join(map(str, paths)))


@app.command()
def inspect(data: Source, rate: Rate = None) -> None:
    """Say what is in these data, and what looks odd about them."""
    with _plainly():
        from svae.data import describe, load

        found = describe(load(data, rate=rate))
        seconds = "" if found.rate is None else f", {found.frames / found.rate:,.1f} s at {found.rate:g} Hz"
        typer.echo(f"{len(found.names)} recordings, {found.frames:,} frames{seconds}")
        shortest, longest = min(found.lengths), max(found.lengths)
        typer.echo(f"{len(found.channels)} channels; {shortest} to {longest} frames a recording")
        typer.echo(f"{found.missing:.1%} missing")
        width = max(len(channel.name) for channel in found.channels)
        for channel in found.channels[:MOST_CHANNELS]:
            typer.echo(
                f"  {channel.name:<{width}}  {channel.minimum:>10.4g} to {channel.maximum:<10.4g} "
                f"mean {channel.mean:<10.4g} s.d. {channel.deviation:<10.4g}"
            )
        if len(found.channels) > MOST_CHANNELS:
            typer.echo(f"  and {len(found.channels) - MOST_CHANNELS} more")
        for warning in found.warnings:
            typer.secho(f"note: {warning}", fg="yellow")


@app.command()
def doctor() -> None:
    """Check this machine: versions, devices, known traps, and a tiny fit."""
    from svae.doctor import diagnose

    findings = diagnose()
    for finding in findings:
        advice = f" ({finding.advice})" if finding.advice else ""
        typer.secho(
            f"{'ok ' if finding.good else 'BAD'}  {finding.what}{advice}", fg=None if finding.good else "red"
        )
    if not all(finding.good for finding in findings):
        raise typer.Exit(1)


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
