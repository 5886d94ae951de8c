"""A small drawing with two axes, as SVG that takes its colours from the page."""

from html import escape

import numpy as np
from matplotlib.ticker import MaxNLocator

from svae.report.markup import tag

WIDTH, HEIGHT, LEFT, BOTTOM, EDGE = 270, 220, 44, 38, 8


class Plane:
    """From numbers to places. With `equal`, a unit is as long up as it is across."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], equal: bool = False) -> None:
        self.width, self.height = WIDTH - LEFT - EDGE, HEIGHT - BOTTOM - EDGE
        (x0, x1), (y0, y1) = (_open(*x), _open(*y))
        if equal:
            unit = max((x1 - x0) / self.width, (y1 - y0) / self.height)
            x0, x1 = _widen(x0, x1, unit * self.width)
            y0, y1 = _widen(y0, y1, unit * self.height)
        self.xlim, self.ylim = (x0, x1), (y0, y1)

    def x(self, values):
        """Places across."""
        return LEFT + self.width * (np.asarray(values, float) - self.xlim[0]) / (self.xlim[1] - self.xlim[0])

    def y(self, values):
        """Places down."""
        up = (np.asarray(values, float) - self.ylim[0]) / (self.ylim[1] - self.ylim[0])
        return EDGE + self.height * (1 - up)

    def line(self, x, y) -> str:
        """A line through points, for the `d` of a path."""
        points = zip(np.atleast_1d(self.x(x)), np.atleast_1d(self.y(y)), strict=True)
        return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)

    def svg(self, label: str, xlabel: str, ylabel: str, *marks: str, yticks: bool = True) -> str:
        """The drawing with its axes; marks do not leave the plane."""
        base, right = HEIGHT - BOTTOM, WIDTH - EDGE
        axes = [tag("path", class_="frame", d=f"M{LEFT} {EDGE}V{base}H{right}")]
        for tick in _ticks(*self.xlim, 5):
            axes.append(tag("text", _text(tick), class_="tick", x=f"{self.x(tick):.1f}", y=base + 14))
        for tick in _ticks(*self.ylim, 5) if yticks else []:
            place = {"x": LEFT - 5, "y": f"{self.y(tick) + 3.5:.1f}"}
            axes.append(tag("text", _text(tick), class_="tick end", **place))
        middle = LEFT + self.width / 2, EDGE + self.height / 2
        axes.append(tag("text", escape(xlabel), class_="name", x=middle[0], y=HEIGHT - 6))
        turned = f"translate(9,{middle[1]:g}) rotate(-90)"
        axes.append(tag("text", escape(ylabel), class_="name", transform=turned))
        box = {"x": LEFT, "y": EDGE, "width": self.width, "height": self.height}
        inner = tag("svg", *marks, viewBox=" ".join(str(x) for x in box.values()), **box)
        about = {"role": "img", "aria_label": label, "viewBox": f"0 0 {WIDTH} {HEIGHT}"}
        return tag("svg", inner, *axes, class_="plane", **about)


def _open(low: float, high: float) -> tuple[float, float]:
    """An interval that is one."""
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _widen(low: float, high: float, length: float) -> tuple[float, float]:
    middle = (low + high) / 2
    return middle - length / 2, middle + length / 2


def _ticks(low: float, high: float, most: int) -> list[float]:
    ticks = MaxNLocator(nbins=most, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(tick) for tick in ticks if low <= tick <= high]


def _text(value: float) -> str:
    return f"{value:.6g}".replace("-", "−") if abs(value) > 1e-12 else "0"
