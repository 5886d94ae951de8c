"""One recording as one drawing: states, labels, data and latent path over a common time axis.

A block of the drawing is a pair: its markup, from zero downwards, and its height.
"""

import base64
import io
from collections.abc import Mapping
from html import escape

import numpy as np
from matplotlib.image import imsave
from matplotlib.ticker import MaxNLocator

from svae import plots
from svae.report.data import RecordingView
from svae.report.markup import number, tag
from svae.report.timeline import LEFT, RIGHT, WIDTH, Timeline, bin_means, envelope, path, row_name, scale
from svae.states import runs

MAX_LINES = 12  # more channels than this become an image
MAX_LATENTS = 6
STATE_ROW, LABEL_ROW, LINE_ROW, LATENT_ROW, GAP = 28.0, 20.0, 24.0, 30.0, 12.0

Block = tuple[str, float]


def recording_panel(view: RecordingView, colors: list[str], matched: Mapping[str, int]) -> str:
    """The drawing, as SVG. A label has the colour of the state it is `matched` with."""
    time = Timeline(view)
    ribbons = [_states(view, time, colors)]
    if view.labels is not None:
        ribbons.append(_labels(view, time, colors, matched))
    data = _lines(view, time) if len(view.channels) <= MAX_LINES else _image(view, time)
    top, marks = _stack(ribbons, 0.0)
    bottom, rows = _stack([data, _latents(view, time)], top)
    # Tints over the data, unseen until a state is highlighted.
    washes = "".join(
        time.rect(start, stop, top, bottom - top - GAP, class_=f"wash s{state}", fill=colors[state])
        for state, start, stop in time.segments(view.states)
    )
    axis = tag("g", _axis(time), transform=f"translate(0,{bottom - GAP:g})")
    cursor = tag("line", class_="cursor", y1=0, y2=bottom - GAP) + tag("text", class_="cursor", y=bottom + 10)
    about: dict[str, object] = {"role": "img", "aria_label": f"Recording {view.name}"}
    # What the cursor needs to know.
    about |= {"data_left": LEFT, "data_right": WIDTH - RIGHT}
    about |= {"data_end": time.frames / time.rate, "data_unit": time.unit}
    box = f"0 0 {WIDTH} {bottom + 16:g}"
    return tag("svg", washes, marks, rows, axis, cursor, class_="panel", viewBox=box, **about)


def _stack(blocks: list[Block], y: float) -> tuple[float, str]:
    """Blocks below one another; where the next one would start, and their markup."""
    parts = []
    for markup, height in blocks:
        parts.append(tag("g", markup, transform=f"translate(0,{y:g})"))
        y += height + GAP
    return y, "".join(parts)


def _states(view: RecordingView, time: Timeline, colors: list[str]) -> Block:
    """A ribbon of states, fainter where the state is less certain."""
    certainty = view.probability[np.arange(time.frames), view.states]
    # Eight levels of opacity are as many as one can see, and let neighbours share a rectangle.
    levels = np.round(8 * certainty).astype(int)
    parts = [row_name("states", STATE_ROW)]
    for state, start, stop in time.segments(view.states):
        shown = levels[np.arange(start, stop, time.step)]
        pieces = []
        for i, j in runs(shown):
            ends = start + i * time.step, min(start + j * time.step, stop)
            pieces.append(time.rect(*ends, 0.0, STATE_ROW, fill_opacity=f"{0.2 + 0.1 * shown[i]:.1f}"))
        probability = f"probability {certainty[start:stop].mean():.2f}"
        title = tag("title", f"State {state}, {time.span(start, stop)}, {probability}")
        name = time.inside(start, stop, str(state), STATE_ROW, plots.text_color(colors[state]))
        parts.append(_follows(state, title, *pieces, name, fill=colors[state]))
    return "".join(parts), STATE_ROW


def _labels(view: RecordingView, time: Timeline, colors: list[str], matched: Mapping[str, int]) -> Block:
    """A ribbon of the labels that were given, grey where no state matches."""
    parts = [row_name("labels", LABEL_ROW)]
    for label, start, stop in time.segments(np.asarray(view.labels)):
        if label < 0:
            continue
        name = view.label_name(label)
        state = matched.get(name)
        color = "var(--gap)" if state is None else colors[state]
        ink = "var(--ink)" if state is None else plots.text_color(color)
        title = tag("title", f"{escape(name)}, {time.span(start, stop)}")
        bar = time.rect(start, stop, 0.0, LABEL_ROW, fill=color)
        content = title + bar + time.inside(start, stop, name, LABEL_ROW, ink)
        parts.append(tag("g", content) if state is None else _follows(state, content))
    return "".join(parts), LABEL_ROW


def _follows(state: int, *content: str, **attributes: object) -> str:
    """A group that belongs to a state: highlighted with it, and highlighting it."""
    return tag("g", *content, class_=f"state s{state}", data_state=state, **attributes)


def _lines(view: RecordingView, time: Timeline) -> Block:
    """A line for each channel, each on its own scale; grey where nothing was observed."""
    frames, values = envelope(view.values, time.step)
    x, rows = time.x(frames + 0.5 * (time.step == 1)), []
    for column, channel in enumerate(view.channels):
        seen = values[:, column][np.isfinite(values[:, column])]
        low, high = (seen.min(), seen.max()) if len(seen) else (0.0, 0.0)
        hidden = np.isnan(view.values[:, column])
        gaps = [
            time.rect(start, stop, 1.0, LINE_ROW - 2, class_="gap")
            for start, stop in runs(hidden)
            if hidden[start] and stop - start >= time.step
        ]
        line = tag(
            "path",
            class_="line" if time.step == 1 else "line dense",
            d=path(x, scale(values[:, column], low, high, LINE_ROW)),
        )
        rows.append(_row(column, LINE_ROW, channel, (low, high) if len(seen) else None, *gaps, line))
    return "".join(rows), LINE_ROW * len(rows)


def _latents(view: RecordingView, time: Timeline) -> Block:
    """The latent path with two standard deviations around it, for the dimensions that move most."""
    order = np.argsort(-view.latent_mean.var(axis=0), kind="stable")
    x, rows = time.x(time.shown + 0.5), []
    for row, dimension in enumerate(np.sort(order[:MAX_LATENTS])):
        mean = view.latent_mean[time.shown, dimension]
        spread = 2 * view.latent_deviation[time.shown, dimension]
        ends = np.min(mean - spread), np.max(mean + spread)
        low, middle, high = (scale(mean + sign * spread, *ends, LATENT_ROW) for sign in (-1, 0, 1))
        around = path(np.append(x, x[::-1]), np.append(low, high[::-1])) + "Z"
        marks = tag("path", class_="band", d=around) + tag("path", class_="mean", d=path(x, middle))
        rows.append(_row(row, LATENT_ROW, f"latent {dimension}", ends, marks))
    return "".join(rows), LATENT_ROW * len(rows)


def _row(index: int, height: float, name: str, ends: tuple[float, float] | None, *marks: str) -> str:
    """A row with its name at the left and the ends of its scale at the right."""
    text = "no data" if ends is None else " to ".join(number(float(end)) for end in ends)
    scale_ends = tag("text", text, class_="range", x=WIDTH - RIGHT + 10, y=height / 2 + 4)
    return tag("g", *marks, row_name(name, height), scale_ends, transform=f"translate(0,{index * height:g})")


def _image(view: RecordingView, time: Timeline) -> Block:
    """All channels as an image, each from 2.5 standard deviations below its mean to 2.5 above."""
    channels = len(view.channels)
    values = bin_means(bin_means(view.values, time.step).T, -(-channels // 256))
    seen = ~np.isnan(values)
    count = np.maximum(seen.sum(axis=1, keepdims=True), 1)
    mean = np.where(seen, values, 0).sum(axis=1, keepdims=True) / count
    deviation = np.sqrt((np.where(seen, values - mean, 0) ** 2).sum(axis=1, keepdims=True) / count)
    levels = np.ma.masked_invalid((values - mean) / np.where(deviation > 0, deviation, 1))
    buffer = io.BytesIO()
    imsave(buffer, levels, format="png", cmap="viridis", vmin=-2.5, vmax=2.5)
    source = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    height = float(np.clip(4 * channels, 120, 300))
    box = {"x": LEFT, "width": WIDTH - LEFT - RIGHT, "height": height, "preserveAspectRatio": "none"}
    row = height / channels
    # As many names as fit.
    names = [
        tag("g", row_name(view.channels[c], row), transform=f"translate(0,{c * row:.1f})")
        for c in range(0, channels, -(-channels // int(height / 14)))
    ]
    return tag("image", class_="heat", href=source, **box) + "".join(names), height


def _axis(time: Timeline) -> str:
    end = time.frames / time.rate
    marks = [tag("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=4, y2=4)]
    for tick in MaxNLocator(nbins=10, steps=[1, 2, 5, 10]).tick_values(0, end):
        if 0 <= tick <= end:
            x = f"{time.x(tick * time.rate):.1f}"
            marks.append(tag("line", class_="axis", x1=x, x2=x, y1=4, y2=9))
            marks.append(tag("text", f"{tick:,.10g}", class_="tick", x=x, y=22))
    unit = "seconds" if time.unit == "s" else "frames"
    marks.append(tag("text", unit, class_="range", x=WIDTH - RIGHT + 24, y=22))
    return "".join(marks)
