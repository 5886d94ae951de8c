"""Generated recordings beside real ones."""

from html import escape

from svae.report.channels import Channels
from svae.report.data import ReportData
from svae.report.markup import tag
from svae.report.strips import strip


def samples_section(data: ReportData, colors: list[str], channels: Channels | None) -> str:
    """As many real recordings as made-up ones, cut to their length, on the same scales."""
    if not data.samples or channels is None:
        return ""
    length = max(len(sample.values) for sample in data.samples)
    made = [
        _figure(strip(x.values, x.states, colors, channels, "A generated recording", window=(0, length)))
        for x in data.samples
    ]
    real = [
        _figure(
            strip(
                view.values[:length],
                view.states_in(slice(length)),
                colors,
                channels,
                f"Recording {view.name}",
                window=(0, length),
            ),
            view.name,
        )
        for view in data.recordings[: len(data.samples)]
    ]
    note = "Drawn from the model alone, and the beginnings of real recordings"
    note += "; colours below them are states." if data.num_states else "."
    parts = [tag("p", note, class_="note"), tag("h3", "Generated"), tag("div", *made, class_="grid four")]
    parts += [tag("h3", "Real"), tag("div", *real, class_="grid four")] if real else []
    return "".join(parts)


def _figure(drawing: str, name: str = "") -> str:
    caption = tag("p", escape(name), class_="small") if name else ""
    return tag("figure", drawing, caption, class_="sample")
