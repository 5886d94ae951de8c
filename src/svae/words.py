"""Numbers in sentences and in tables of Markdown."""

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """As 1 recording, or 1,000 recordings."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def table(lines: Sequence[Sequence[str]]) -> str:
    """The first line is the head; the first column stands left, all others right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    sides = [str.ljust, *[str.rjust] * (len(widths) - 1)]
    pad = lambda cells: (side(x, width) for side, x, width in zip(sides, cells, widths, strict=True))
    return "\n".join("| " + " | ".join(pad(x)) + " |" for x in [lines[0], rule, *lines[1:]])


def number(value: float | None, spread: float | None = None) -> str:
    """Three digits, with the spread if there is one; a dash for nothing."""
    if value is None:
        return "-"
    text = lambda x: f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3g}"
    return text(value) if spread is None else f"{text(value)} ± {text(spread)}"
