"""A state's dynamics as pictures: eigenvalues, how fast they act, and the flow of the latent variables."""

from collections.abc import Sequence

import numpy as np

from svae.report.data import RecordingView
from svae.report.markup import number, tag
from svae.report.parts import StateDynamics
from svae.report.plane import Plane
from svae.states import runs

GRID = 13, 10  # arrows across and down
MOST_PATHS = 40
MOST_MODES = 6


def eigenvalues_drawing(own: StateDynamics, others: Sequence[StateDynamics], color: str) -> str:
    """Eigenvalues of the matrix among those of other states; inside the circle, the state is stable."""
    values = np.linalg.eigvals(own.matrix)
    reach = max(1.08, 1.08 * float(np.abs(values).max()))
    plane = Plane((-reach, reach), (-reach, reach), equal=True)
    turn = np.linspace(0, 2 * np.pi, 73)
    marks = [
        tag("path", class_="grid-line", d=plane.line(plane.xlim, (0, 0)) + plane.line((0, 0), plane.ylim)),
        tag("path", class_="circle", d=plane.line(np.cos(turn), np.sin(turn))),
    ]
    marks += [
        _dot(plane, value, 2.5, class_="other") for x in others for value in np.linalg.eigvals(x.matrix)
    ]
    marks += [_dot(plane, value, 5, fill=color, class_="own") for value in values]
    return plane.svg("Eigenvalues in the complex plane", "real part", "imaginary part", *marks)


def _dot(plane: Plane, value: complex, radius: float, **about: object) -> str:
    x, y = plane.x(value.real), plane.y(value.imag)
    return tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, **about)


def modes(matrix: np.ndarray, rate: float | None) -> list[tuple[str, str, str]]:
    """For each eigenvalue, or pair of them: its size, how long it lasts, and how fast it turns.

    A size of r decays by e in -1 / log r frames; an angle of a is a / 2 pi turns a frame.
    """
    values = np.linalg.eigvals(matrix)
    values = values[values.imag >= 0]
    found = []
    for value in values[np.argsort(-np.abs(values), kind="stable")]:
        size, turns = abs(value), abs(np.angle(value)) / (2 * np.pi)
        with np.errstate(divide="ignore"):
            frames = -1 / np.log(size) if size > 0 else 0.0
        decay = "does not decay" if size > 1 - 1e-6 else _time(frames, rate)
        if value.imag == 0:
            swing = "–" if value.real >= 0 else "alternates"
        else:
            swing = f"{number(turns * rate)} Hz" if rate is not None else f"{number(1 / turns)} frames"
        found.append((f"{size:.3f}", decay, swing))
    return found


def _time(frames: float, rate: float | None) -> str:
    return f"{number(float(frames))} frames" if rate is None else f"{number(float(frames / rate))} s"


def modes_table(matrix: np.ndarray, rate: float | None) -> str:
    """The slowest modes, in words."""
    rows = modes(matrix, rate)
    heads = ["size", "decays in", "frequency" if rate is not None else "period"]
    body = [tag("tr", *[tag("td", text) for text in cells]) for cells in rows[:MOST_MODES]]
    more = len(rows) - MOST_MODES
    note = tag("p", f"and {more} faster ones", class_="small") if more > 0 else ""
    head = tag("thead", tag("tr", *[tag("th", text) for text in heads]))
    return tag("table", head, tag("tbody", *body), class_="modes") + note


class LatentPlane:
    """The two directions in which the latent paths of all recordings move most."""

    def __init__(self, views: Sequence[RecordingView]) -> None:
        every = np.concatenate([view.latent_mean for view in views])
        self.mean = every.mean(axis=0)
        centred = every - self.mean
        variance, directions = np.linalg.eigh(centred.T @ centred / len(every))
        self.basis = directions[:, ::-1][:, :2]
        # Signs are arbitrary; choose them so that the same data always give the same picture.
        largest = np.argmax(np.abs(self.basis), axis=0)
        self.basis = self.basis * np.where(self.basis[largest, [0, 1]] < 0, -1.0, 1.0)
        self.shares = variance[::-1][:2] / max(variance.sum(), 1e-12)

    def flat(self, latents: np.ndarray) -> np.ndarray:
        """Places in the plane."""
        return (latents - self.mean) @ self.basis

    def lift(self, places: np.ndarray, through: np.ndarray) -> np.ndarray:
        """Latent points at these places, otherwise like the point `through`."""
        return through + (places - self.flat(through)) @ self.basis.T


def state_paths(views: Sequence[RecordingView], state: int) -> list[np.ndarray]:
    """Latent paths of a state's segments, each with the frame before it, which the state moved on from."""
    paths = [
        view.latent_mean[max(start - 1, 0) : stop]
        for view in views
        if view.states is not None
        for start, stop in runs(view.states)
        if view.states[start] == state
    ]
    return [path for path in paths if len(path) > 1]


def flow_drawing(own: StateDynamics, paths: Sequence[np.ndarray], plane: LatentPlane, color: str) -> str:
    """Where the state moves each point of the plane, with real paths on top.

    Points off the plane are left out: arrows start where the other directions have their usual values.
    """
    together = np.concatenate(paths)
    through = together.mean(axis=0)
    flat = plane.flat(together)
    low, high = np.quantile(flat, [0.02, 0.98], axis=0)
    room = 0.15 * np.maximum(high - low, 0.05 * (high - low).max() + 1e-9)
    drawing = Plane((low[0] - room[0], high[0] + room[0]), (low[1] - room[1], high[1] + room[1]), equal=True)
    x, y = (
        np.linspace(*ends, count + 1)[:-1]
        for ends, count in zip((drawing.xlim, drawing.ylim), GRID, strict=True)
    )
    x, y = x + (x[1] - x[0]) / 2, y + (y[1] - y[0]) / 2
    places = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    move = lambda points: points @ own.matrix.T + own.offset
    starts = plane.lift(places, through)
    drift = plane.flat(move(starts)) - plane.flat(starts)
    longest = np.quantile(np.linalg.norm(drift, axis=1), 0.95)
    factor = 0.9 * (x[1] - x[0]) / longest if longest > 0 else 1.0
    marks = [tag("path", class_="arrows", d=_arrows(drawing, places, places + factor * drift))]
    # Evenly chosen from all, so that every recording has a chance.
    chosen = np.unique(np.linspace(0, len(paths) - 1, MOST_PATHS).round().astype(int))
    lines = [drawing.line(*plane.flat(paths[i]).T) for i in chosen]
    marks.append(tag("path", class_="paths", d="".join(lines), stroke=color))
    beginnings = np.array([plane.flat(paths[i][0]) for i in chosen])
    dots = zip(drawing.x(beginnings[:, 0]), drawing.y(beginnings[:, 1]), strict=True)
    marks.append(
        tag("path", class_="beginnings", d="".join(f"M{a:.1f} {b:.1f}h.01" for a, b in dots), stroke=color)
    )
    marks.append(
        tag(
            "path",
            tag("title", "Noise of one step, two standard deviations"),
            class_="noise",
            d=_noise(drawing, plane, own, move(through)),
        )
    )
    labels = [f"direction {i + 1}, {share:.0%} of variance" for i, share in enumerate(plane.shares)]
    return drawing.svg("Flow of the latent variables", *labels, *marks)


def dynamics_drawings(
    own: StateDynamics,
    others: Sequence[StateDynamics],
    paths: Sequence[np.ndarray],
    plane: LatentPlane | None,
    rate: float | None,
    color: str,
) -> dict[str, str]:
    """What there is to see of dynamics, by title: eigenvalues, and the flow with paths that they ruled."""
    drawings = {"Eigenvalues": eigenvalues_drawing(own, others, color) + modes_table(own.matrix, rate)}
    if plane is not None and paths and plane.basis.shape[0] == len(own.offset):
        say = "Arrows are the drift of a step, enlarged; lines are real paths, from their dots on; the "
        say += "ellipse is the noise of a step."
        flow = flow_drawing(own, paths, plane, color)
        drawings["Flow of the latent variables"] = flow + tag("p", say, class_="small")
    return drawings


def latent_plane(views: Sequence[RecordingView]) -> LatentPlane | None:
    """The plane of these recordings, if their latent paths have two dimensions at least."""
    return LatentPlane(views) if views and views[0].latent_mean.shape[1] > 1 else None


def _arrows(drawing: Plane, starts: np.ndarray, ends: np.ndarray) -> str:
    """Arrows in one path, each with two short strokes for a head."""
    tails = np.stack([drawing.x(starts[:, 0]), drawing.y(starts[:, 1])], axis=1)
    tips = np.stack([drawing.x(ends[:, 0]), drawing.y(ends[:, 1])], axis=1)
    along = tips - tails
    head = np.minimum(0.35 * np.linalg.norm(along, axis=1, keepdims=True), 4)
    unit = along / np.maximum(np.linalg.norm(along, axis=1, keepdims=True), 1e-9)
    across = unit[:, ::-1] * [-1, 1]
    left, right = tips + head * (-unit + 0.6 * across), tips + head * (-unit - 0.6 * across)
    pieces = zip(tails, tips, left, right, strict=True)
    return "".join("M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in (t, p, l_, p, r)) for t, p, l_, r in pieces)


def _noise(drawing: Plane, plane: LatentPlane, own: StateDynamics, middle: np.ndarray) -> str:
    """An ellipse of two standard deviations."""
    variance, axes = np.linalg.eigh(plane.basis.T @ own.covariance @ plane.basis)
    turn = np.linspace(0, 2 * np.pi, 49)
    circle = np.stack([np.cos(turn), np.sin(turn)], axis=1) * 2 * np.sqrt(np.maximum(variance, 0))
    return drawing.line(*(plane.flat(middle) + circle @ axes.T).T)
