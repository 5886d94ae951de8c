"""Commands that train: demo, fit, resume."""

import shutil
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from svae.cli.common import Rate, Source, Split, app, note, plainly, require_folder

RUN_FILES = (
    *("config.toml", "metrics.ndjson", "segments.csv", "segments.parquet", "summary.json", "report.html"),
    "evaluation.json",
)
RUN_FOLDERS = "checkpoints", "model"

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
    with plainly():
        from svae.config import override
        from svae.presets import settings_for

        require_folder(out)
        settings = override(
            settings_for("synthetic"), ["data.path=synthetic", f"seed={seed}", *(changes or [])]
        )
        run(settings, out, anew=True)
    typer.echo(f"open {out / 'report.html'} in a browser")


@app.command()
def fit(
    data: Source,
    out: Annotated[
        Path | None, typer.Option(help="Run folder.", show_default="runs/<name of the data>")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Settings as TOML.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A model by name, such as svae-lds, sin-slds or dks.")
    ] = None,
    changes: Set = None,
    split: Split = None,
    rate: Rate = None,
    force: Annotated[bool, typer.Option("--force", help="Start anew in a folder that holds a run.")] = False,
    log: Log = None,
) -> None:
    """Train a model on recordings, and write segments, a report and the model to a run folder."""
    with plainly():
        from svae.config import load_config, override
        from svae.presets import settings_for, with_model

        settings = load_config(config) if config is not None else settings_for(data)
        settings = settings if model is None else with_model(settings, model)
        source = settings.data.model_copy(update={"path": data})  # as it is, also if it looks like a number
        given = [] if rate is None else [f"data.rate={rate}"]
        given += [] if split is None else [f"data.split={split}"]
        settings = override(settings.model_copy(update={"data": source}), [*given, *(changes or [])])
        folder = out if out is not None else Path("runs") / Path(data).stem
        require_folder(folder)
        if (folder / "config.toml").exists() and not force:
            raise ValueError(
                f"{folder} holds a run: go on with svae resume {folder}, or start anew with --force"
            )
        run(settings, folder, anew=True, logs=log)


@app.command()
def resume(
    folder: Annotated[Path, typer.Argument(help="Run folder.")],
    log: Log = None,
) -> None:
    """Go on with a run that was interrupted or killed."""
    with plainly():
        from svae.config import load_config

        if not (folder / "config.toml").exists():
            raise FileNotFoundError(f"there is no run in {folder}: config.toml is missing")
        run(load_config(folder / "config.toml"), folder, logs=log)


def _forget_run(folder: Path) -> None:
    """Remove what a run wrote, and nothing else that may be in its folder."""
    for name in RUN_FILES:
        (folder / name).unlink(missing_ok=True)
    for name in RUN_FOLDERS:
        if (folder / name).is_dir():
            shutil.rmtree(folder / name)


def run(settings: Any, folder: Path, anew: bool = False, logs: list[str] | None = None) -> None:
    """Train, write the results, say what came out."""
    from svae.data import load
    from svae.progress import TrainingProgress
    from svae.runs import write_results
    from svae.training.pipeline import fit as fit_model
    from svae.training.sinks import sink, together

    started = time.monotonic()
    if settings.data.path is None:
        raise ValueError(f"the settings of {folder} do not say where the data are: data.path is missing")
    recordings = load(settings.data.path, split=settings.data.split, rate=settings.data.rate)
    if anew and (folder / "config.toml").exists():  # not before the data are known to be good
        _forget_run(folder)
    others = [sink(name, folder, settings.model_dump(mode="json")) for name in logs or []]
    try:
        with TrainingProgress() as progress:
            fitted = fit_model(recordings, settings, folder, together(progress, *others))
        name = Path(settings.data.path).stem
        with progress.console.status("applying the model to all recordings, and drawing the report"):
            summary = write_results(fitted, recordings, folder, name, time.monotonic() - started)
    except KeyboardInterrupt:  # between the stages that end by themselves
        note(f"interrupted; stages that ended are kept in {folder}: go on with svae resume {folder}")
        raise typer.Exit(130) from None
    show(summary)
    typer.echo(f"\nwritten to {folder}: " + ", ".join(sorted(x.name for x in folder.iterdir())))
    if fitted.ending == "interrupted":
        raise typer.Exit(130)


def show(summary: dict[str, Any]) -> None:
    """What came out of a run, and what to know about it."""
    for name, value in summary.items():
        if name != "warnings":
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            typer.echo(f"{name.replace('_', ' '):<12} {text}")
    for warning in summary.get("warnings", []):
        typer.secho(f"warning: {warning}", fg="yellow", err=True)
