"""Commands that look at things: inspect, report, doctor."""

from pathlib import Path
from typing import Annotated

import typer

from svae.cli.common import Rate, Source, Split, app, load_model, plainly

MOST_CHANNELS = 20  # and labels, that `inspect` lists


@app.command()
def inspect(data: Source, split: Split = None, rate: Rate = None) -> None:
    """Say what is in these data, and what looks odd about them."""
    with plainly():
        from svae.data import describe, load, set_name
        from svae.words import counted

        found = describe(load(data, split=split, rate=rate))
        known = set_name(data)
        if known is not None:
            typer.echo(f"{known}, " + ("all splits" if split is None else f"split {split}"))
        seconds = "" if found.rate is None else f", {found.frames / found.rate:,.1f} s at {found.rate:g} Hz"
        recordings, frames = counted(len(found.names), "recording"), counted(found.frames, "frame")
        typer.echo(f"{recordings}, {frames}{seconds}")
        shortest, longest = min(found.lengths), max(found.lengths)
        channels = counted(len(found.channels), "channel")
        typer.echo(f"{channels}; {shortest} to {longest} frames a recording")
        typer.echo(f"{found.missing:.1%} missing")
        if found.labels:
            shares = [f"{name} {frames / found.frames:.0%}" for name, frames in found.labels.items()]
            more = ["..."] * (len(shares) > MOST_CHANNELS)
            typer.echo(f"{counted(len(shares), 'label')}: " + ", ".join(shares[:MOST_CHANNELS] + more))
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


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")],
    data: Annotated[
        str | None, typer.Option(help="Show these recordings instead of those that the run was trained on.")
    ] = None,
    split: Split = None,
    rate: Rate = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, help="Page to write.", show_default="RUN/report.html")
    ] = None,
) -> None:
    """Write the report page of a run again, or one of other recordings seen by its model."""
    with plainly():
        from svae.data import load
        from svae.report import write_report
        from svae.runs import report_for

        fitted = load_model(folder)
        source = data or fitted.config.data.path
        if source is None:
            raise ValueError(f"{folder} does not say where its data are: give --data")
        part = split or (fitted.config.data.split if data is None else None)
        recordings = load(source, split=part, rate=rate or fitted.config.data.rate)
        page = out or folder / "report.html"
        write_report(report_for(fitted, recordings, folder), page)
        typer.echo(f"written {page}")
