"""The data themselves: a line for each of a few channels, an image of many, the same wherever they appear."""

import base64
import io
import re
from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator
from PIL import Image

from svae.report.markup import number, tag
from svae.report.timeline import bars, bin_means, depth, envelope, line, row
from svae.states import runs

MAX_LINES = 12  # more channels than this become an image
MAX_IMAGE_ROWS = 256
NUMBER = re.compile(r"\s*([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?)\s*(Hz|kHz)?\s*")


class Channels:
    """The scales of all channels, from everything that is to be compared.

    Lines run from the least to the greatest value. Images run from 2.5 standard deviations below a
    channel's mean to 2.5 above; those of sound, whose channels are named by frequency, over decibels, with
    low frequencies at the bottom. With `robust`, recordings of unlike size share a scale: it leaves out one
    value in 500 of a line, and one in 20 of an image, at either end. A scale is no shorter than `least`.
    """

    def __init__(
        self,
        names: Sequence[str],
        arrays: Sequence[np.ndarray],
        robust: bool = False,
        least: np.ndarray | None = None,
    ) -> None:
        self.names = list(names)
        found = [NUMBER.fullmatch(name) for name in names]
        parsed = [match for match in found if match is not None]
        #: What the channels measure along, where their names are numbers: frequencies, places.
        self.places = np.array([float(m[1]) for m in parsed]) if len(parsed) == len(self.names) else None
        self.is_image = len(self.names) > MAX_LINES
        self.is_sound = self.is_image and self.places is not None and all(m[2] for m in parsed)
        together = np.concatenate([self._levels(np.asarray(array, float)) for array in arrays])
        if self.is_sound:
            ends = np.tile(_quantiles(together.reshape(-1, 1), 0.05, 0.998), (1, len(self.names)))
        elif self.is_image:
            ends = _quantiles(together, 0.05, 0.95) if robust else _deviations(together)
        else:
            ends = _quantiles(together, *((0.002, 0.998) if robust else (0.0, 1.0)))
        self.low, self.high = ends
        if least is not None:
            self.high = np.maximum(self.high, self.low + least)

    @property
    def span(self) -> np.ndarray:
        """The length of each scale."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @property
    def legend(self) -> str:
        """What the colours of an image are."""
        if self.is_sound:
            low, high = (number(round(float(ends[0]))) for ends in (self.low, self.high))
            return f"Sound is drawn in decibels, from {low}, dark, to {high}."
        image = "Images run from 2.5 standard deviations below a channel's mean, dark, to 2.5 above."
        return image if self.is_image else ""

    def _levels(self, values: np.ndarray) -> np.ndarray:
        """Sound in decibels, anything else as it is."""
        return 10 * np.log10(np.maximum(values, 1e-10)) if self.is_sound else values

    def draw(self, values: np.ndarray, y: float, height: float, most: int) -> str:
        """All channels from `y` down, in at most so many columns."""
        step = -(-len(values) // most)
        if self.is_image:
            return self.draw_image(values, step, y, height)
        each = height / len(self.names)
        rows = [self.draw_line(values, c, step, y + c * each, each) for c in range(len(self.names))]
        return "".join(rows)

    def draw_line(
        self, values: np.ndarray, channel: int, step: int, y: float, height: float, **about: object
    ) -> str:
        """One channel; grey where nothing was observed."""
        low, high = self.low[channel], self.high[channel]
        frames, shown = envelope(values[:, [channel]], step)
        hidden = np.isnan(values[:, channel])
        spans = [(i, j) for i, j in runs(hidden) if hidden[i] and j - i >= step]
        gaps = bars(spans, y + 1, height - 2, class_="gap") if spans else ""
        kind = "line" if step == 1 else "line dense"
        return gaps + row(
            y, height, tag("path", class_=kind, d=line(frames, depth(shown[:, 0], low, high)), **about)
        )

    def draw_image(self, values: np.ndarray, step: int, y: float, height: float, **about: object) -> str:
        """All channels as rows of pixels; grey where nothing was observed."""
        channels = len(self.names)
        thick = -(-channels // MAX_IMAGE_ROWS)
        # What never changes is neither low nor high.
        still = np.where(self.high > self.low, 0, 0.5)
        levels = (self._levels(np.asarray(values, float)) - self.low) / self.span + still
        shown = bin_means(bin_means(levels, step).T, thick)
        shown = shown[::-1] if self.is_sound else shown
        source = "data:image/png;base64," + base64.b64encode(_png(shown, self._palette)).decode()
        width = shown.shape[1] * step
        box = {"y": y, "width": width, "height": height, "preserveAspectRatio": "none"}
        ground = bars([(0, width)], y, height, class_="gap") if np.isnan(shown).any() else ""
        return ground + tag("image", class_="heat", href=source, **box, **about)

    @property
    def _palette(self) -> np.ndarray:
        """The colours of an image from low to high, (255, 3)."""
        map = colormaps["magma" if self.is_sound else "viridis"]
        return np.round(255 * map(np.linspace(0, 1, 255))[:, :3]).astype(np.uint8)

    def key(self) -> dict[str, str]:
        """What the page's script needs to read values from the colours of an image."""
        order = slice(None, None, -1) if self.is_sound else slice(None)
        ends = zip(self.low[order], self.high[order], strict=True)
        return {
            "data_names": "\n".join(self.names[order]),
            "data_ends": " ".join(f"{low:.4g} {high:.4g}" for low, high in ends),
            "data_unit": " dB" if self.is_sound else "",
            "data_palette": self._palette.tobytes().hex(),
        }

    def marks(self, height: float) -> list[tuple[float, str]]:
        """Names beside an image of this height: where, and what. As many as fit."""
        count, places = len(self.names), self.places
        most = max(int(height / 18), 1)
        if places is None or not (np.all(np.diff(places) > 0) or np.all(np.diff(places) < 0)):
            each = height / count
            return [((c + 0.5) * each, self.names[c]) for c in range(0, count, -(-count // most))]
        ticks = MaxNLocator(nbins=min(most, 8), steps=[1, 2, 5, 10]).tick_values(places.min(), places.max())
        ticks = [tick for tick in ticks if places.min() <= tick <= places.max()]
        order = np.argsort(places)
        where = np.interp(ticks, places[order], (np.arange(count) + 0.5)[order] * height / count)
        unit = " Hz" if self.is_sound else ""
        flip = lambda y: height - y if self.is_sound else y
        return [
            (float(flip(y)), f"{tick:,.10g}{unit}".replace("-", "−"))
            for y, tick in zip(where, ticks, strict=True)
        ]


def _png(levels: np.ndarray, palette: np.ndarray) -> bytes:
    """Levels from 0 to 1 as an image with a palette, whose last colour is none; a byte a pixel at most."""
    hidden = np.isnan(levels)
    places = np.where(hidden, 255, np.round(254 * np.clip(np.where(hidden, 0, levels), 0, 1)))
    image = Image.fromarray(places.astype(np.uint8))
    image.putpalette([*palette.ravel().tolist(), 0, 0, 0])
    buffer = io.BytesIO()
    image.save(buffer, format="png", transparency=255, optimize=True)
    return buffer.getvalue()


def _quantiles(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Of each column, 0 where nothing was observed."""
    ends = np.zeros((2, values.shape[1]))
    for column in range(values.shape[1]):
        seen = values[np.isfinite(values[:, column]), column]
        if len(seen):
            ends[:, column] = np.quantile(seen, [low, high])
    return ends


def _deviations(values: np.ndarray) -> np.ndarray:
    seen = np.isfinite(values)
    count = np.maximum(seen.sum(axis=0), 1)
    mean = np.where(seen, values, 0).sum(axis=0) / count
    deviation = np.sqrt((np.where(seen, values - mean, 0) ** 2).sum(axis=0) / count)
    return np.stack([mean - 2.5 * deviation, mean + 2.5 * deviation])
