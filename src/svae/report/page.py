"""The page: sections put into a template."""

from collections.abc import Mapping
from html import escape
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from svae import plots
from svae.report.cards import state_cards
from svae.report.certificates import certificates_table, convergence_warning, settings
from svae.report.channels import Channels
from svae.report.data import RecordingView, ReportData
from svae.report.dynamics import dynamics_drawings, latent_plane
from svae.report.fans import fans_section
from svae.report.figures import durations_figure, picture, transition_figure, usage_figure
from svae.report.markup import chip, number, tag
from svae.report.panel import MAX_LATENTS, recording_panel
from svae.report.parts import Skeleton
from svae.report.samples import samples_section
from svae.report.skeleton import skeleton_player
from svae.report.states import by_state, durations, label_overlap, match_labels, states_table
from svae.report.timeline import Timeline
from svae.report.training import training_curves

SCRIPTS = "states.js", "time.js", "skeleton.js"


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
    # One scale for all small drawings, so that they can be compared.
    values = [view.values for view in data.recordings]
    channels = Channels(data.recordings[0].channels, values, robust=True) if values else None
    sections = [
        ("Recordings", "recordings", _recordings(data, colors, matched, channels)),
        ("States", "states", _states(data, used) + table if data.num_states else ""),
        ("Dynamics", "dynamics", _dynamics(data)),
        ("Gaps", "gaps", fans_section(data.fans, channels)),
        ("Samples", "samples", samples_section(data, colors, channels)),
        ("Inference", "inference", certificates_table(data.certificates)),
        ("Training", "training", training_curves(data.metrics) + settings(data.config)),
    ]
    sections = [section for section in sections if section[2]]
    warnings = [*data.warnings, *convergence_warning(data.certificates)]
    return Template(_part("page.html")).substitute(
        title=escape(data.title),
        style=_part("style.css"),
        script="\n".join(_part(name) for name in SCRIPTS),
        nav="".join(tag("a", name, href=f"#{anchor}") for name, anchor, _ in sections),
        chips="".join(chip(state, colors[state]) for state in used),
        warnings="".join(tag("p", escape(warning), class_="warning") for warning in warnings),
        cards="".join(_card(name, value) for name, value in data.summary.items()),
        sections="".join(
            tag("section", tag("h2", name), content, id=anchor) for name, anchor, content in sections
        ),
        cards_of_states=state_cards(data, colors, channels, overlap),
    )


def _part(name: str) -> str:
    return (resources.files("svae.report") / "template" / name).read_text(encoding="utf-8")


def _card(name: str, value: str | float | int) -> str:
    words = name.upper() if name in ("elbo", "ari", "nmi") else name.replace("_", " ")
    return tag("div", tag("dt", escape(words)), tag("dd", escape(number(value))))


def _recordings(
    data: ReportData, colors: list[str], matched: Mapping[str, int], channels: Channels | None
) -> str:
    if channels is None:
        return ""
    notes = ["Drag to zoom, or turn the wheel with Ctrl or Shift; double-click to see all."]
    if data.num_states:
        notes.insert(0, "Click a state to see what it is.")
        notes.append("States are the likeliest path, above the probabilities of all states.")
    if data.num_states and any(view.labels is not None for view in data.recordings):
        notes.append("A label has the colour of the state that shares most of its frames; grey has none.")
    notes.append(channels.legend)
    bands = "Latent paths have a band of two standard deviations"
    most = max(view.latent_mean.shape[1] for view in data.recordings)
    notes.append(
        f"{bands}; the {MAX_LATENTS} of {most} that move most." if most > MAX_LATENTS else f"{bands}."
    )
    panels = [_recording(i, view, colors, matched, data.skeleton) for i, view in enumerate(data.recordings)]
    return tag("p", " ".join(filter(None, notes)), class_="note") + "".join(panels)


def _recording(
    index: int,
    view: RecordingView,
    colors: list[str],
    matched: Mapping[str, int],
    skeleton: Skeleton | None,
) -> str:
    frames = len(view.values)
    length = f"{frames:,} frames"
    if view.rate is not None:
        length += f", {number(frames / view.rate)} s at {view.rate:g} per second"
    step = Timeline(frames, view.rate).step
    length += f", drawn in steps of {step}" if step > 1 else ""
    whole = tag("button", "show all", type="button", class_="whole", hidden="")
    caption = tag("figcaption", escape(view.name), " ", tag("span", length, class_="muted"), whole)
    drawing = tag("div", recording_panel(view, colors, matched), class_="scroll")
    player = skeleton_player(view, skeleton) if skeleton is not None else ""
    return tag("figure", caption, drawing, player, class_="recording", id=f"recording-{index}")


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


def _dynamics(data: ReportData) -> str:
    """Of a model without states; those of states are on their cards."""
    if data.linear is None:
        return ""
    paths = [view.latent_mean for view in data.recordings]
    rate = data.recordings[0].rate if data.recordings else None
    drawings = dynamics_drawings(
        data.linear, [], paths, latent_plane(data.recordings), rate, plots.PALETTE[0]
    )
    figures = [
        tag("figure", tag("figcaption", title), drawing, class_="part") for title, drawing in drawings.items()
    ]
    return tag("div", *figures, class_="grid")
