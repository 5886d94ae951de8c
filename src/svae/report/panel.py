"""One recording as one drawing: states, labels, data and latent path over a common time axis.

Marks of time are in a drawing within the drawing, which the page's script can zoom; names, scales and
ticks stand around it.
"""

from collections.abc import Mapping
from html import escape
from typing import NamedTuple

import numpy as np
from matplotlib.ticker import MaxNLocator

from svae import plots
from svae.report.channels import Channels
from svae.report.data import RecordingView
from svae.report.markup import number, tag
from svae.report.timeline import DEPTH, Timeline, band, bars, depth, line, row, staircase

WIDTH, LEFT, RIGHT = 1000, 130, 96
PLOT = WIDTH - LEFT - RIGHT
MAX_LATENTS = 6
STATE_ROW, CHANCE_ROW, LABEL_ROW, LINE_ROW, LATENT_ROW, GAP = 24.0, 26.0, 20.0, 24.0, 30.0, 10.0
LEVELS = 50  # steps of probability that one can see


class Row(NamedTuple):
    """A part of the drawing: what is drawn on it, what is written, and the ends of its scale."""

    name: str
    height: float
    marks: str
    ends: str = ""
    texts: str = ""
    gap: float = 0.0  # below it


def recording_panel(view: RecordingView, colors: list[str], matched: Mapping[str, int]) -> str:
    """The drawing, as SVG. A label has the colour of the state it is `matched` with."""
    time = Timeline(len(view.values), view.rate)
    ribbons = []
    if view.states is not None and view.probability is not None:
        ribbons += [_states(view.states, time, colors)]
        ribbons += [_chances(view.states, view.probability, time, colors)]
    if view.labels is not None:
        ribbons.append(_labels(view, time, colors, matched))
    rows = [*ribbons, *_data(view, time), *_latents(view, time)]
    heights = np.cumsum([0.0, *(row.height + row.gap for row in rows)])
    top, bottom = heights[len(ribbons)], heights[-1]
    # Tints over the data, unseen until a state is highlighted.
    washes = "".join(
        bars(spans, top, bottom - top, class_=f"wash s{state}", fill=colors[state])
        for state, spans in ({} if view.states is None else time.spans(view.states)).items()
    )
    marks, around = [washes], []
    for index, (place, part) in enumerate(zip(heights, rows, strict=False)):
        marks.append(tag("g", part.marks, transform=f"translate(0,{place:g})", data_row=index))
        middle = part.height / 2 + 4
        ends = tag("text", part.ends, class_="range", x=WIDTH - RIGHT + 10, y=middle, data_row=index)
        name = row_name(part.name, part.height) if part.name else ""
        inner = (name, part.texts, ends)
        around.append(tag("g", *inner, transform=f"translate(0,{place:g})", data_row=index))
    box: dict[str, object] = {"x": LEFT, "y": 0, "width": PLOT, "height": bottom}
    box |= {"viewBox": f"0 0 {time.frames} {bottom:g}", "preserveAspectRatio": "none"}
    axis = tag("g", _axis(time), class_="axis", transform=f"translate(0,{bottom:g})")
    cursor = tag("line", class_="cursor", y1=0, y2=bottom) + tag("text", class_="cursor", y=bottom + 22)
    # Catches the pointer between the marks, and shows what is about to be zoomed into.
    sheet = tag("rect", class_="sheet", x=LEFT, width=PLOT, height=bottom)
    choice = tag("rect", class_="choice", y=0, width=0, height=bottom)
    about = {"data_frames": time.frames, "data_rate": time.rate, "data_unit": time.unit}
    about |= {"data_left": LEFT, "data_plot": PLOT}
    return tag(
        "svg",
        sheet,
        tag("svg", *marks, class_="time", **box),
        *around,
        axis,
        choice,
        cursor,
        class_="panel",
        viewBox=f"0 0 {WIDTH} {bottom + 28:g}",
        role="img",
        aria_label=f"Recording {view.name}",
        **about,
    )


def row_name(name: str, height: float) -> str:
    """The name of a row, at its left, shortened where it must be."""
    short = name if len(name) <= 18 else name[:17] + "…"
    whole = "" if short == name else tag("title", escape(name))
    return tag("text", escape(short), whole, class_="row", x=LEFT - 10, y=height / 2 + 4)


def _states(states: np.ndarray, time: Timeline, colors: list[str]) -> Row:
    """A ribbon of the most likely path of states."""
    marks = [
        bars(spans, 0.0, STATE_ROW, fill=colors[state], class_=f"state s{state}", data_state=state)
        for state, spans in time.spans(states).items()
    ]
    texts = [
        _inside(time, start, stop, str(state), STATE_ROW, plots.text_color(colors[state]), state)
        for state, start, stop in time.segments(states)
    ]
    return Row("states", STATE_ROW, "".join(marks), texts="".join(texts), gap=2)


def _chances(states: np.ndarray, probability: np.ndarray, time: Timeline, colors: list[str]) -> Row:
    """The probability of every state, stacked."""
    chances = probability[time.shown]
    tops = np.round(LEVELS * np.cumsum(chances, axis=1) / chances.sum(axis=1, keepdims=True)).astype(int)
    tops = (DEPTH // LEVELS) * np.concatenate([np.zeros((len(tops), 1), int), tops], axis=1)
    edges = np.minimum(time.step * np.arange(len(tops) + 1), time.frames)
    marks = []
    for state, color in enumerate(colors):
        outline = staircase(edges, tops[:, state], tops[:, state + 1])
        if outline:
            about = {"class_": f"state s{state}", "data_state": state}
            marks.append(tag("path", tag("title", f"State {state}"), d=outline, fill=color, **about))
    # Not seen: the script reads values from lines.
    chosen = probability[time.shown, states[time.shown]]
    marks.append(
        tag(
            "path",
            class_="line unseen",
            d=line(time.shown + 0.5, depth(chosen, 0, 1)),
            data_low=0,
            data_high=1,
        )
    )
    ground = bars([(0, time.frames)], 0, DEPTH, class_="gap")
    return Row("probability", CHANCE_ROW, row(0.0, CHANCE_ROW, ground, *marks), "0 to 1", gap=GAP)


def _labels(view: RecordingView, time: Timeline, colors: list[str], matched: Mapping[str, int]) -> Row:
    """A ribbon of the labels that were given, grey where no state matches."""
    marks, texts = [], []
    for label, spans in time.spans(np.asarray(view.labels)).items():
        if label < 0:
            continue
        name = view.label_name(label)
        state = matched.get(name)
        color = "var(--gap)" if state is None else colors[state]
        ink = "var(--ink)" if state is None else plots.text_color(color)
        about = {} if state is None else {"class_": f"state s{state}", "data_state": state}
        marks.append(bars(spans, 0.0, LABEL_ROW, fill=color, **about))
        texts += [_inside(time, *span, name, LABEL_ROW, ink, state) for span in spans]
    return Row("labels", LABEL_ROW, "".join(marks), texts="".join(texts), gap=GAP)


def _inside(
    time: Timeline, start: int, stop: int, text: str, height: float, color: str, state: int | None
) -> str:
    """Text in the middle of a segment, not seen as long as there is no room."""
    about: dict[str, object] = {"data_start": start, "data_stop": stop, "style": f"fill:{color}"}
    if PLOT * (stop - start) / time.frames < 7 * len(text) + 6:
        about["visibility"] = "hidden"
    about |= {} if state is None else {"data_state": state}
    x = f"{LEFT + PLOT * (start + stop) / 2 / time.frames:.1f}"
    kind = "inside" if state is None else f"inside state s{state}"
    return tag("text", escape(text), class_=kind, x=x, y=height / 2 + 4, **about)


def _data(view: RecordingView, time: Timeline) -> list[Row]:
    channels = Channels(view.channels, [view.values])
    if channels.is_image:
        height = float(np.clip(4 * len(view.channels), 120, 260))
        marks = channels.draw_image(view.values, time.step, 0.0, height, **channels.key())
        names = [
            tag(
                "text",
                escape(text if len(text) <= 18 else text[:17] + "…"),
                class_="row tick-name",
                x=LEFT - 10,
                y=f"{y + 4:.1f}",
            )
            for y, text in channels.marks(height)
        ]
        return [Row("", height, marks, texts="".join(names), gap=GAP)]
    rows = []
    for column, name in enumerate(channels.names):
        seen = np.isfinite(view.values[:, column]).any()
        low, high = channels.low[column], channels.high[column]
        about = {"data_low": float(low), "data_high": float(high)}
        marks = channels.draw_line(view.values, column, time.step, 0.0, LINE_ROW, **about)
        rows.append(Row(name, LINE_ROW, marks, _ends(low, high) if seen else "no data"))
    rows[-1] = rows[-1]._replace(gap=GAP)
    return rows


def _latents(view: RecordingView, time: Timeline) -> list[Row]:
    """The latent path with two standard deviations around it, for the dimensions that move most."""
    order = np.argsort(-view.latent_mean.var(axis=0), kind="stable")
    rows = []
    for dimension in np.sort(order[:MAX_LATENTS]):
        mean = view.latent_mean[time.shown, dimension]
        spread = 2 * view.latent_deviation[time.shown, dimension]
        ends = float(np.min(mean - spread)), float(np.max(mean + spread))
        low, middle, high = (depth(mean + sign * spread, *ends) for sign in (-1, 0, 1))
        x = time.shown + 0.5
        marks = tag("path", class_="band", d=band(x, low, high))
        marks += tag("path", class_="mean", d=line(x, middle), data_low=ends[0], data_high=ends[1])
        rows.append(Row(f"latent {dimension}", LATENT_ROW, row(0.0, LATENT_ROW, marks), _ends(*ends)))
    return rows


def _ends(low: float, high: float) -> str:
    return f"{number(float(low))} to {number(float(high))}"


def _axis(time: Timeline) -> str:
    end = time.frames / time.rate
    marks = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=4, y2=4)]
    ticks = []
    for tick in MaxNLocator(nbins=10, steps=[1, 2, 5, 10]).tick_values(0, end):
        if 0 <= tick <= end:
            x = f"{LEFT + PLOT * tick * time.rate / time.frames:.1f}"
            ticks.append(tag("line", x1=x, x2=x, y1=4, y2=9))
            ticks.append(tag("text", f"{tick:,.10g}", class_="tick", x=x, y=22))
    marks.append(tag("g", *ticks, class_="ticks"))
    unit = "seconds" if time.unit == "s" else "frames"
    marks.append(tag("text", unit, class_="range", x=WIDTH - RIGHT + 24, y=22))
    return "".join(marks)
