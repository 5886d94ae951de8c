"""The page: sections put into a template."""

from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from svae import plots
from svae.report.data import RecordingView, ReportData
from svae.report.figures import durations_figure, picture, transition_figure, usage_figure
from svae.report.markup import chip, number, tag
from svae.report.panel import MAX_LATENTS, MAX_LINES, recording_panel
from svae.report.states import by_state, durations, label_overlap, match_labels, states_table
from svae.report.timeline import Timeline
from svae.report.training import training_curves


def write_report(data: ReportData, path: Path) -> Path:
    """Writes one HTML file that needs nothing beside it; returns its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report_page(data), encoding="utf-8")
    return path


def report_page(data: ReportData) -> str:
    """The page as text."""
    colors = plots.state_colors(data.num_states)
    overlap = label_overlap(data.recordings, data.num_states)
    matched = match_labels(overlap)
    used = np.flatnonzero(data.usage > 0).tolist()
    table = states_table(data, colors, overlap) if len(data.segments) else ""
    sections = [
        ("Recordings", "recordings", _recordings(data, colors, matched)),
        ("States", "states", _states(data, used) + table),
        ("Training", "training", training_curves(data.metrics)),
    ]
    sections = [section for section in sections if section[2]]
    return Template(_part("page.html")).substitute(
        title=escape(data.title),
        style=_part("style.css"),
        script=_part("script.js"),
        nav="".join(tag("a", name, href=f"#{anchor}") for name, anchor, _ in sections),
        chips="".join(chip(state, colors[state]) for state in used),
        warnings="".join(tag("p", escape(warning), class_="warning") for warning in data.warnings),
        cards="".join(_card(name, value) for name, value in data.summary.items()),
        sections="".join(
            tag("section", tag("h2", name), content, id=anchor) for name, anchor, content in sections
        ),
    )


def _part(name: str) -> str:
    return (resources.files("svae.report") / "template" / name).read_text(encoding="utf-8")


def _card(name: str, value: str | float | int) -> str:
    words = name.upper() if name in ("elbo", "ari", "nmi") else name.replace("_", " ")
    return tag("div", tag("dt", escape(words)), tag("dd", escape(number(value))))


def _recordings(data: ReportData, colors: list[str], matched: Mapping[str, int]) -> str:
    if not data.recordings:
        return ""
    notes = ["States are the more opaque the more probable they are; hover or tap one to follow it."]
    if any(view.labels is not None for view in data.recordings):
        notes.append("A label has the colour of the state that shares most of its frames; grey has none.")
    if any(len(view.channels) > MAX_LINES for view in data.recordings):
        notes.append("Images run from 2.5 standard deviations below a channel's mean, dark, to 2.5 above.")
    bands = "Latent paths have a band of two standard deviations"
    most = max(view.latent_mean.shape[1] for view in data.recordings)
    notes.append(
        f"{bands}; the {MAX_LATENTS} of {most} that move most." if most > MAX_LATENTS else f"{bands}."
    )
    panels = [_recording(i, view, colors, matched) for i, view in enumerate(data.recordings)]
    return tag("p", " ".join(notes), class_="note") + "".join(panels)


def _recording(index: int, view: RecordingView, colors: list[str], matched: Mapping[str, int]) -> str:
    frames = len(view.values)
    length = f"{frames:,} frames"
    if view.rate is not None:
        length += f", {number(frames / view.rate)} s at {view.rate:g} per second"
    step = Timeline(view).step
    length += f", drawn in steps of {step}" if step > 1 else ""
    caption = tag("figcaption", escape(view.name), " ", tag("span", length, class_="muted"))
    drawing = tag("div", recording_panel(view, colors, matched), class_="scroll")
    return tag("figure", caption, drawing, class_="recording", id=f"recording-{index}")


def _states(data: ReportData, used: list[int]) -> str:
    lengths, unit = durations(data.segments)
    groups = {state: lengths[data.segments["state"] == state] for state in by_state(data.segments)}
    figures = [
        ("How much each state is used", usage_figure(data.usage)),
        ("How long each state lasts", durations_figure(groups, data.num_states, unit)),
        ("Where each state goes when it ends", transition_figure(data.transition, data.usage)),
    ]
    idle = data.num_states - len(used)
    note = f"{len(used)} of {data.num_states} states are in use." if idle else "All states are in use."
    note += " Arrows join the most used ones and are probabilities given that a state ends, from 10% on."
    drawings = [tag("figure", tag("figcaption", name), picture(figure, name)) for name, figure in figures]
    return tag("p", note, class_="note") + tag("div", *drawings, class_="grid")
