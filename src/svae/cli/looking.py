"""Commands that look at things: inspect, doctor."""

import typer

from svae.cli.common import Rate, Source, app, plainly

MOST_CHANNELS = 20  # that `inspect` lists


@app.command()
def inspect(data: Source, rate: Rate = None) -> None:
    """Say what is in these data, and what looks odd about them."""
    with plainly():
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
