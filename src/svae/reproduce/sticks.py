"""Stick figures."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy import ndarray

from svae.data import Skeleton

TURN = np.deg2rad(35)  # of the one who looks, about the vertical axis
REACH = -1.1, 0.9  # metres below and above the root that a body needs


def moving_parents(skeleton: Skeleton | None) -> list[int] | None:
    """The parent of each joint that has channels, by its place among these; -1 where that never moves.

    None of no skeleton.
    """
    if skeleton is None:
        return None
    moving = skeleton.moving
    parents = [skeleton.parents[joint] for joint in moving]
    return [moving.index(parent) if parent in moving else -1 for parent in parents]


def stick_figure(
    axes: Axes, frame: ndarray, parents: Sequence[int], shift: float, color: str, lw: float = 1.0
) -> None:
    """Joints (joints times 3 numbers; the second is height) as bones, so far to the right.

    A joint without a parent hangs on the origin: data with a fixed root leave out what never moves.
    """
    x, y, z = np.asarray(frame, float).reshape(-1, 3).T
    across = np.cos(TURN) * x + np.sin(TURN) * z + shift
    places = [*zip(across, y, strict=True), (shift, 0.0)]  # the last is where parent -1 is
    bones = [(places[parent], places[joint]) for joint, parent in enumerate(parents)]
    axes.add_collection(LineCollection(bones, colors=color, linewidths=lw, capstyle="round"))
