"""Commands that ask a trained model: segment, impute, forecast, sample, evaluate."""

from pathlib import Path
from typing import Annotated, Any

import typer

from svae.cli.common import (
    Method,
    ModelPath,
    NumSamples,
    Rate,
    Seed,
    Source,
    Split,
    app,
    load_model,
    note,
    plainly,
    require_folder,
)
from svae.words import counted


@app.command()
def segment(
    model: ModelPath,
    data: Source,
    out: Annotated[Path, typer.Option(help="Folder for segments.csv and segments.parquet.")] = Path(
        "segments"
    ),
    split: Split = None,
    rate: Rate = None,
    without: Annotated[
        list[int] | None, typer.Option("--without", help="Forbid a state; repeatable.")
    ] = None,
) -> None:
    """Segment recordings with a trained model."""
    with plainly():
        import numpy as np

        from svae import application
        from svae.data import load
        from svae.segments import write_segments

        require_folder(out)
        fitted = load_model(model)
        recordings = load(data, split=split, rate=rate)
        allowed = None
        if without:
            unknown = [np.full(len(item), -1) for item in recordings]
            allowed = [application.only(fitted, states, without) for states in unknown]
        found = application.segment(fitted, recordings, allowed)
        table = application.table(fitted, recordings, found)
        paths = write_segments(table, out)
        converged = sum(bool(x.converged) for x in found)
        where = counted(len(recordings), "recording")
        typer.echo(f"{counted(len(table), 'segment')} in {where}; inference converged in {converged}")
        typer.echo("written " + ", ".join(map(str, paths)))


@app.command()
def impute(
    model: ModelPath,
    data: Source,
    out: Annotated[Path, typer.Option(help="Folder for the completed recordings.")] = Path("imputed"),
    num_samples: NumSamples = 100,
    method: Method = "ancestral",
    seed: Seed = 0,
    split: Split = None,
    rate: Rate = None,
) -> None:
    """Fill what is missing with several plausible values, and say by which states they differ."""
    with plainly():
        from svae import application
        from svae.data import load

        require_folder(out)
        fitted = load_model(model)
        recordings = load(data, split=split, rate=rate)
        found = application.impute(fitted, recordings, num_samples, seed, method=method)
        gaps = sum(len(completion.gaps()) for completion in found)
        if gaps == 0:
            note("nothing is missing in these recordings")
        where = counted(len(recordings), "recording")
        typer.echo(f"{counted(gaps, 'gap')} in {where}, {counted(num_samples, 'draw')} of each")
        _tell_paths(recordings.names, found)
        _write(recordings.names, found, fitted, out)


@app.command()
def forecast(
    model: ModelPath,
    data: Source,
    horizon: Annotated[str, typer.Option(help="How far ahead: frames, or 2s, 500ms.")] = "50",
    out: Annotated[Path, typer.Option(help="Folder for the forecasts.")] = Path("forecast"),
    num_samples: NumSamples = 100,
    method: Method = "ancestral",
    seed: Seed = 0,
    split: Split = None,
    rate: Rate = None,
) -> None:
    """Continue recordings beyond their ends, several times each."""
    with plainly():
        from svae import application
        from svae.data import load

        require_folder(out)
        fitted = load_model(model)
        recordings = load(data, split=split, rate=rate)
        found = application.forecast(fitted, recordings, horizon, num_samples, seed, method)
        frames, where = found[0].values.shape[1], counted(len(recordings), "recording")
        typer.echo(
            f"{counted(frames, 'frame')} after each of {where}, {counted(num_samples, 'draw')} of each"
        )
        _tell_paths(recordings.names, found)
        _write(recordings.names, found, fitted, out)


def _write(names: tuple[str, ...], found: list, fitted: Any, out: Path) -> None:
    """All draws, their mean and their paths, as files."""
    from svae.answers import write_completions

    paths = write_completions(names, found, fitted.channels, out)
    typer.echo("written " + ", ".join(map(str, paths)))


def _tell_paths(names: tuple[str, ...], found: list) -> None:
    """The likeliest paths of the first gaps."""
    shown = 0
    for name, completion in zip(names, found, strict=True):
        for start, stop in completion.gaps() if completion.states is not None else []:
            if shown == 5:
                typer.echo("  ...")
                return
            shown += 1
            likeliest = ", ".join(map(str, completion.paths(start, stop)[:3]))
            typer.echo(f"  {name}, frames {start} to {stop}: {likeliest}")


@app.command()
def sample(
    model: ModelPath,
    length: Annotated[str, typer.Option(help="Of each recording: frames, or 2s, 500ms.")] = "250",
    out: Annotated[Path, typer.Option(help="Folder for the new recordings.")] = Path("samples"),
    num_samples: NumSamples = 4,
    seed: Seed = 0,
    states: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="CSV with a column `state`, a row for each frame; -1: any."
        ),
    ] = None,
) -> None:
    """Generate new recordings, freely or through given states."""
    with plainly():
        from svae import application
        from svae.answers import read_states

        require_folder(out)
        fitted = load_model(model)
        given = None if states is None else read_states(states)
        wanted = length if given is None else len(given)
        found = application.generate(fitted, wanted, num_samples, seed, given)
        made, frames = found.values.shape[:2]
        typer.echo(f"{counted(made, 'new recording')} of {counted(frames, 'frame')}")
        _write(("sample",), [found], fitted, out)


@app.command()
def evaluate(
    model: ModelPath,
    data: Source,
    num_samples: NumSamples = 20,
    seed: Seed = 0,
    split: Split = None,
    rate: Rate = None,
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Feature network of `svae features`: also the Frechet distance of generated windows to real "
            "ones, and what real ones have among themselves.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            metavar="PATH",
            help="Write the scores here, as JSON.",
            show_default="evaluation.json in a run folder",
        ),
    ] = None,
) -> None:
    """Score a model on recordings: bounds, imputation and forecast of hidden stretches, segmentation."""
    with plainly():
        from svae.cards import write_card
        from svae.comparison import EVALUATION
        from svae.data import load
        from svae.features import load_features
        from svae.scoring import evaluate as scores_of

        fitted = load_model(model)
        network = None if features is None else load_features(features)
        recordings = load(data, split=split, rate=rate)
        about = {"data": data} | ({} if split is None else {"split": split})
        scores = about | scores_of(fitted, recordings, num_samples, seed, network)
        if out is None and (model / "config.toml").exists():
            out = model / EVALUATION
        width = max(map(len, scores))
        for name, value in scores.items():
            text = f"{value:.4g}" if isinstance(value, float) else str(value)
            typer.echo(f"{name:<{width}}  {text}")
        if out is not None:
            write_card(out, scores)
            typer.echo(f"written {out}")
