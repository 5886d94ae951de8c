"""Completions: what may have happened in a gap, one colour for each path through the states."""

from collections.abc import Sequence
from html import escape

import numpy as np

from svae import plots
from svae.completion import PathSummary
from svae.report.channels import Channels
from svae.report.markup import tag
from svae.report.parts import FanView
from svae.report.strips import COLUMNS, stretched
from svae.report.timeline import band, bars, depth, line, row, time_words

MOST_PATHS = 4
MOST_CHANNELS = 3
LINE, IMAGE = 84.0, 64.0


def fans_section(fans: Sequence[FanView], channels: Channels | None) -> str:
    """A figure for each gap."""
    if not fans or channels is None:
        return ""
    notes = ["A stretch of each recording was hidden and drawn anew."]
    if any(path.states for fan in fans for path in fan.paths):
        notes.append("Draws that went through the same states are one path, with its share of the draws.")
    if not channels.is_image:
        notes.append("A line is the mean of draws, a band holds nine tenths of them.")
    figures = [_fan(fan, channels) for fan in fans]
    return tag("p", " ".join(notes), class_="note") + tag("div", *figures, class_="grid")


def _fan(fan: FanView, channels: Channels) -> str:
    where = time_words(fan.start, fan.stop, fan.rate)
    caption = tag("figcaption", escape(fan.recording), " ", tag("span", f"{where} hidden", class_="muted"))
    content = _images(fan, channels) if channels.is_image else _legend(fan) + _lines(fan, channels)
    return tag("figure", caption, content, _rest(fan.paths), class_="fan")


def _rest(paths: Sequence[PathSummary]) -> str:
    others = paths[MOST_PATHS:]
    share = f"{sum(path.probability for path in others):.0%}"
    which = "another path" if len(others) == 1 else f"{len(others)} other paths"
    return tag("p", f"{share} in {which}", class_="small") if others else ""


def _legend(fan: FanView) -> str:
    keys = [
        tag("span", tag("i", style=f"background:{color}"), escape(str(path)), class_="key")
        for path, color in zip(fan.paths[:MOST_PATHS], plots.PALETTE, strict=False)
    ]
    if fan.truth is not None:
        keys.append(tag("span", tag("i", class_="true"), "truth", class_="key"))
    return tag("div", *keys, class_="legend")


def telling_channels(fan: FanView, channels: Channels) -> list[int]:
    """The channels in which the paths differ most, of all that happens in them; in their own order."""
    paths = fan.paths[:MOST_PATHS]
    means = np.stack([path.mean for path in paths])
    weights = np.array([path.probability for path in paths])[:, None, None]
    middle = (weights * means).sum(axis=0) / weights.sum()
    apart = (weights * (means - middle) ** 2).sum(axis=0).mean(axis=0)
    moved = np.var(middle, axis=0)
    return np.sort(
        np.argsort(-(apart + 0.1 * moved) / channels.span**2, kind="stable")[:MOST_CHANNELS]
    ).tolist()


def _lines(fan: FanView, channels: Channels) -> str:
    if not fan.paths:
        return ""
    drawings = [
        (fan.channels[channel], _channel(fan, channel)) for channel in telling_channels(fan, channels)
    ]
    return "".join(_labelled(escape(name), drawing) for name, drawing in drawings)


def _channel(fan: FanView, channel: int) -> str:
    """What was observed of one channel, and the fan across the gap."""
    start, stop = fan.start - fan.first, fan.stop - fan.first
    known, frames = fan.values[:, channel], np.arange(len(fan.values)) + 0.5
    shown = list(zip(fan.paths[:MOST_PATHS], plots.PALETTE, strict=False))
    truth = [] if fan.truth is None else [fan.truth[:, channel]]
    every = np.concatenate(
        [known, *truth, *(x[:, channel] for path, _ in shown for x in (path.low, path.high))]
    )
    ends = float(np.nanmin(every)), float(np.nanmax(every))
    # Lines reach the last frame before the gap and the first one after it, so that nothing hangs loose.
    before, after = slice(max(start - 1, 0), start), slice(stop, stop + 1)
    across = lambda x: line(
        frames[before.start : after.stop], depth(np.concatenate([known[before], x, known[after]]), *ends)
    )
    marks = []
    for path, color in reversed(shown):
        low, high = (depth(x[:, channel], *ends) for x in (path.low, path.high))
        marks.append(tag("path", class_="fan-band", fill=color, d=band(frames[start:stop], low, high)))
        marks.append(tag("path", class_="fan-mean", stroke=color, d=across(path.mean[:, channel])))
    marks += [tag("path", class_="truth", d=across(x)) for x in truth]
    marks.append(tag("path", class_="line", d=line(frames, depth(known, *ends))))
    gap = bars([(start, stop)], 0, LINE, class_="gap")
    label = f"{fan.channels[channel]} around the gap"
    return stretched(label, 0, len(frames), LINE, gap, row(0, LINE, *marks))


def _images(fan: FanView, channels: Channels) -> str:
    gap = slice(fan.start - fan.first, fan.stop - fan.first)
    filled = [("observed", fan.values)]
    whole = lambda inside: np.concatenate([fan.values[: gap.start], inside, fan.values[gap.stop :]])
    if fan.truth is not None:
        filled.insert(0, ("truth", whole(fan.truth)))
    filled += [(str(path), whole(path.mean)) for path in fan.paths[:MOST_PATHS]]
    # Little may happen around a gap, but channels that are still do not become all noise.
    own = Channels(fan.channels, [values for _, values in filled], robust=True, least=0.1 * channels.span)
    parts = []
    for name, values in filled:
        marks = own.draw(values, 0.0, IMAGE, COLUMNS)
        ends = bars([(gap.start, gap.stop)], 0.0, IMAGE, class_="edges")
        label = f"{name}, around the gap"
        parts.append(_labelled(escape(name), stretched(label, 0, len(values), IMAGE, marks, ends)))
    return "".join(parts)


def _labelled(name: str, drawing: str) -> str:
    return tag("div", tag("p", name, class_="small"), drawing, class_="labelled")
