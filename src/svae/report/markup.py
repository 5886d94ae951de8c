"""Markup from Python: elements with escaped attributes, numbers for people."""

from html import escape

import numpy as np

from svae import plots


def tag(name: str, *children: str, **attributes: object) -> str:
    """An element around markup. `class_` and `stroke_width` stand for `class` and `stroke-width`."""
    pairs = (
        (key.rstrip("_").replace("_", "-"), f"{value:.10g}" if isinstance(value, float) else str(value))
        for key, value in attributes.items()
    )
    opening = "".join(f' {key}="{escape(value)}"' for key, value in pairs)
    if name == "input":  # which has no end
        return f"<{name}{opening}>"
    return f"<{name}{opening}>{''.join(children)}</{name}>"


def number(value: object) -> str:
    """A fact as people write it: thousands apart, three or four digits that matter."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, int | np.integer):
        return f"{int(value):,}".replace("-", "−")
    if isinstance(value, float | np.floating):
        value = float(value)
        if not np.isfinite(value):
            return "–"
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
        return text.replace("-", "−")
    return str(value)


def chip(state: int, color: str) -> str:
    """A state's number on its colour: a button that highlights the state wherever it appears."""
    style = f"background:{color};color:{plots.text_color(color)}"
    attributes = {"type": "button", "data_state": state, "style": style, "aria_pressed": "false"}
    return tag("button", str(state), class_=f"chip state s{state}", **attributes)
