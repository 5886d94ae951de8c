"""A card for each state: typical segments, how long it lasts, and its dynamics."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from svae import plots
from svae.report.channels import Channels
from svae.report.data import ReportData
from svae.report.dynamics import LatentPlane, dynamics_drawings, latent_plane, state_paths
from svae.report.markup import chip, number, tag
from svae.report.plane import Plane
from svae.report.states import by_state, durations, mostly, place_link, typical_segments
from svae.report.strips import strip

EXEMPLARS = 6
BINS = 16


def state_cards(
    data: ReportData, colors: list[str], channels: Channels | None, overlap: Mapping[str, np.ndarray]
) -> str:
    """All cards; the page shows the one of the state that was clicked."""
    plane = latent_plane(data.recordings)
    cards = [
        _card(state, segments, data, colors, channels, plane, overlap)
        for state, segments in by_state(data.segments).items()
    ]
    return tag("aside", *cards, id="cards", hidden="", aria_label="State") if cards else ""


def _card(
    state: int,
    segments: pd.DataFrame,
    data: ReportData,
    colors: list[str],
    channels: Channels | None,
    plane: LatentPlane | None,
    overlap: Mapping[str, np.ndarray],
) -> str:
    lengths, unit = durations(segments)
    short = "s" if unit == "seconds" else unit
    facts = [f"{plots.percent(data.usage[state])} of the frames", f"{number(len(segments))} segments"]
    facts.append(f"median {number(float(lengths.median()))} {short}")
    if overlap:
        facts.append(f"mostly {mostly(overlap, state)}")
    close = tag("button", "×", type="button", class_="close", aria_label="Close")
    head = tag(
        "header", chip(state, colors[state]), tag("h3", f"State {state}"), tag("p", " · ".join(facts)), close
    )
    parts = [_exemplars(state, segments, data, colors, channels)] if channels else []
    parts.append(_part("How long it lasts", _durations(segments, colors[state])))
    if state in data.dynamics:
        parts += _dynamics(state, data, colors, plane)
    return tag("article", head, tag("div", *parts, class_="parts"), id=f"card-{state}", hidden="")


def _part(title: str, *content: str, kind: str = "part") -> str:
    return tag("section", tag("h4", title), *content, class_=kind)


def _exemplars(
    state: int, segments: pd.DataFrame, data: ReportData, colors: list[str], channels: Channels
) -> str:
    """Typical segments on one time scale, with what was before and after them, paler."""
    views = {view.name: view for view in data.recordings}
    anchors = {view.name: f"recording-{i}" for i, view in enumerate(data.recordings)}
    shown = segments[segments["recording"].isin(list(views))]
    if not len(shown):
        return _part("Typical segments", tag("p", "None in the recordings on this page.", class_="small"))
    chosen = typical_segments(shown, EXEMPLARS)
    longest = int((chosen["stop"] - chosen["start"]).max())
    beside = max(round(0.3 * longest), 3)
    whole = longest + 2 * beside
    pieces = []
    for _, segment in chosen.iterrows():
        view, start, stop = views[segment["recording"]], int(segment["start"]), int(segment["stop"])
        first = (start + stop - whole) // 2
        begin, end = max(first, 0), min(first + whole, len(view.values))
        place = tag("p", place_link(segment, anchors), class_="small")
        spans = (first - begin, first - begin + whole), (start - begin, stop - begin)
        pieces.append((view.values[begin:end], view.states_in(slice(begin, end)), *spans, place))
    # A state may move little; what is still on the page's scales is not blown up to noise.
    own = Channels(channels.names, [piece[0] for piece in pieces], robust=True, least=0.2 * channels.span)
    strips = []
    for values, states, window, marked, place in pieces:
        drawing = strip(values, states, colors, own, f"A segment of state {state}", window, marked)
        strips.append(tag("div", drawing, place, class_="exemplar"))
    return _part("Typical segments", tag("div", *strips, class_="exemplars"), kind="part wide")


def _durations(segments: pd.DataFrame, color: str) -> str:
    """A histogram; the longest hundredth is in the last bar."""
    lengths, unit = durations(segments)
    frames = (segments["stop"] - segments["start"]).to_numpy(float)
    period = float(lengths.iloc[0]) / frames[0]
    # All bars have the same number of whole frames, or they would rise and fall with it.
    width = max(-(-int(np.quantile(frames, 0.99)) // BINS), 1)
    edges = np.arange(0.5, np.quantile(frames, 0.99) + width + 0.5, width)
    counts, edges = np.histogram(np.minimum(frames, edges[-1]), bins=edges)
    edges = edges * period
    plane = Plane((0, float(edges[-1])), (0, 1.08 * counts.max()))
    base = float(plane.y(0))
    marks = []
    for count, left, right in zip(counts, plane.x(edges[:-1]), plane.x(edges[1:]), strict=True):
        top = float(plane.y(count))
        place = {"x": f"{left + 0.5:.1f}", "y": f"{top:.1f}", "width": f"{right - left - 1:.1f}"}
        marks.append(tag("rect", **place, height=f"{base - top:.1f}", fill=color))
    middle = float(lengths.median())
    marks.append(
        tag("path", tag("title", "median"), class_="median", d=plane.line((middle,) * 2, plane.ylim))
    )
    return plane.svg("Lengths of segments", f"length ({unit}); the line is the median", "segments", *marks)


def _dynamics(state: int, data: ReportData, colors: list[str], plane: LatentPlane | None) -> list[str]:
    used = np.flatnonzero(data.usage > 0).tolist()
    others = [x for s, x in data.dynamics.items() if s != state and s in used]
    rate = data.recordings[0].rate if data.recordings else None
    paths = state_paths(data.recordings, state)
    drawings = dynamics_drawings(data.dynamics[state], others, paths, plane, rate, colors[state])
    return [_part(title, drawing) for title, drawing in drawings.items()]
