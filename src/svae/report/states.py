"""The states: which labels match them, and which segments show what each of them is."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd

from svae import plots
from svae.report.data import RecordingView, ReportData
from svae.report.markup import chip, number, tag


def label_overlap(views: Sequence[RecordingView], num_states: int) -> dict[str, np.ndarray]:
    """For each label, its frames in each state (num_states,), over the recordings that have labels."""
    overlap: dict[str, np.ndarray] = {}
    for view in views:
        if view.labels is None or view.states is None:
            continue
        for label in np.unique(view.labels[view.labels >= 0]).tolist():
            counts = np.bincount(view.states[view.labels == label], minlength=num_states)
            overlap[view.label_name(label)] = overlap.get(view.label_name(label), 0) + counts
    return overlap


def match_labels(overlap: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Pairs of label and state, one to one: those that share most frames first."""
    shared = [(-int(row[s]), label, int(s)) for label, row in overlap.items() for s in np.flatnonzero(row)]
    matched: dict[str, int] = {}
    for _, label, state in sorted(shared):
        if label not in matched and state not in matched.values():
            matched[label] = state
    return matched


def durations(segments: pd.DataFrame) -> tuple[pd.Series, str]:
    """Lengths of segments and their unit: seconds, or frames where the rate is unknown."""
    if segments["seconds"].isna().any():
        return segments["stop"] - segments["start"], "frames"
    return segments["seconds"], "seconds"


def by_state(segments: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """The segments of each state that has any."""
    return {s: segments[segments["state"] == s] for s in np.unique(segments["state"]).tolist()}


def unusual(segments: pd.DataFrame) -> np.ndarray:
    """How far each of one state's segments is from typical: improbable, or of unusual length.

    Half of the state's frames are in segments no longer than the usual one, so that brief flickers, however
    many, hardly count.
    """
    length = (segments["stop"] - segments["start"]).to_numpy(float)
    ordered = np.sort(length)
    usual = ordered[np.searchsorted(np.cumsum(ordered), length.sum() / 2)]
    return np.abs(np.log(length / usual)) + 1 - segments["probability"].to_numpy(float)


def exemplars(segments: pd.DataFrame) -> list[int]:
    """Places, in the table of one state's segments, of the longest and of up to two typical ones."""
    longest = int(np.argmax(segments["stop"] - segments["start"]))
    typical = [place for place in np.argsort(unusual(segments), kind="stable").tolist() if place != longest]
    return [longest, *typical[:2]]


def typical_segments(segments: pd.DataFrame, count: int) -> pd.DataFrame:
    """The most typical segments of one state, the best of each recording before the second best of any."""
    ordered = segments.assign(unusual=unusual(segments)).sort_values("unusual", kind="stable")
    turn = ordered.groupby("recording").cumcount()
    return ordered.assign(turn=turn).sort_values("turn", kind="stable").head(count)


def states_table(data: ReportData, colors: list[str], overlap: Mapping[str, np.ndarray]) -> str:
    """A row for each state that has segments, the most used first."""
    groups = by_state(data.segments)
    anchors = {view.name: f"recording-{i}" for i, view in enumerate(data.recordings)}
    rows = []
    for state in sorted(groups, key=lambda state: -data.usage[state]):
        lengths, unit = durations(groups[state])
        median = f"{number(float(lengths.median()))} {'s' if unit == 'seconds' else unit}"
        numbers = [plots.percent(data.usage[state]), number(len(lengths)), median]
        cells = [tag("td", chip(state, colors[state]))]
        cells += [tag("td", escape(text), class_="number") for text in numbers]
        cells += [tag("td", mostly(overlap, state))] if overlap else []
        found = [place_link(groups[state].iloc[place], anchors) for place in exemplars(groups[state])]
        cells += [tag("td", found[0]), tag("td", *found[1:])]
        rows.append(tag("tr", *cells, class_=f"state s{state}", data_state=state))
    heads = [
        tag("th", "state"),
        *[tag("th", name, class_="number") for name in ("share", "segments", "median length")],
    ]
    heads += [tag("th", name) for name in [*["mostly"] * bool(overlap), "longest", "typical"]]
    return tag(
        "div", tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows)), class_="table scroll"
    )


def mostly(overlap: Mapping[str, np.ndarray], state: int) -> str:
    """The label that most of a state's frames have."""
    frames = {label: counts[state] for label, counts in overlap.items()}
    total = sum(frames.values())
    if total == 0:
        return "–"
    label = max(frames, key=lambda label: frames[label])
    return f"{escape(label)} {tag('span', f'{frames[label] / total:.0%}', class_='muted')}"


def place_link(segment: pd.Series, anchors: Mapping[str, str]) -> str:
    """Where to find a segment; a link that zooms there if the recording is on the page."""
    start, stop, seconds = (float(segment[name]) for name in ("start", "stop", "seconds"))
    name = escape(str(segment["recording"]))
    if segment["recording"] in anchors:
        link = {"href": f"#{anchors[segment['recording']]}", "data_zoom": f"{start:g} {stop:g}"}
        name = tag("a", name, **link)
    period = seconds / (stop - start)
    span = (
        f"{start:,.0f}–{stop:,.0f}" if np.isnan(seconds) else f"{start * period:,.1f}–{stop * period:,.1f} s"
    )
    probability = f"probability {segment['probability']:.2f}"
    return tag("span", name, " ", tag("span", span, class_="muted"), class_="segment", title=probability)
