"""The command that trains a feature network."""

from pathlib import Path
from typing import Annotated

import typer

from svae.cli.common import Rate, Seed, Source, Split, app, plainly, require_folder


@app.command()
def features(
    data: Source,
    out: Annotated[Path, typer.Option(help="Folder for the network.")] = Path("features"),
    kind: Annotated[
        str, typer.Option(help="residual (time series) or efficientnet (spectrograms).")
    ] = "residual",
    epochs: Annotated[int, typer.Option(min=1, help="Times to see all windows.")] = 50,
    window: Annotated[int | None, typer.Option(min=2, help="Frames of a window.")] = None,
    search: Annotated[int, typer.Option(min=0, help="Architectures to try (Optuna).")] = 0,
    seed: Seed = 0,
    split: Split = None,
    rate: Rate = None,
) -> None:
    """Train a classifier of labelled recordings whose features measure Frechet distances."""
    with plainly():
        from svae.data import load
        from svae.features import Recipe
        from svae.features.command import train_features

        require_folder(out)
        recipe = Recipe(epochs=epochs, seed=seed)
        recordings = load(data, split=split, rate=rate)
        network = train_features(
            recordings, out, kind, window=window, recipe=recipe, search=search, say=typer.echo
        )
        typer.echo(f"held-out accuracy {network.accuracy:.1%}, fingerprint {network.fingerprint[:12]}")
        typer.echo(f"written {out}")
