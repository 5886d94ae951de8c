"""A figure that moves: the joints of one recording, for the page's script to draw."""

import base64
from html import escape

import numpy as np

from svae.report.data import RecordingView
from svae.report.markup import tag
from svae.report.parts import Skeleton
from svae.report.timeline import Timeline

REACH = 32000  # whole numbers of two bytes hold more than the eye can see
HIDDEN = -32768


def skeleton_player(view: RecordingView, skeleton: Skeleton) -> str:
    """A canvas with a button and a slider. Joints are seen from the root, which stays over its place."""
    time = Timeline(len(view.values), view.rate)
    places = seen_from_root(skeleton.places(view.values[time.shown]), skeleton)
    whole = np.where(np.isnan(places), HIDDEN, np.round(REACH * places)).astype("<i2")
    about = {
        "data_joints": base64.b64encode(whole.tobytes()).decode(),
        "data_parents": " ".join(str(parent) for parent in skeleton.parents),
        "data_names": "\n".join(skeleton.names),
        "data_step": time.step,
    }
    canvas = tag("canvas", width=560, height=480, aria_label=f"Skeleton of {escape(view.name)}")
    play = tag("button", "▶", type="button", class_="play", aria_label="Play or pause")
    ends = {"min": 0, "max": time.frames - 1, "value": 0, "aria_label": "Frame"}
    controls = tag("div", play, tag("input", type="range", **ends), tag("output"), class_="controls")
    return tag("div", canvas, controls, class_="skeleton", **about)


def seen_from_root(places: np.ndarray, skeleton: Skeleton) -> np.ndarray:
    """(time, joints, 3): across, depth and up, from -1 to 1, with the root in the middle of the ground.

    Up is the axis along which the joints are spread most, as people mostly stand.
    """
    spread = np.nanmax(places, axis=(0, 1)) - np.nanmin(places, axis=(0, 1))
    posture = np.nanmean(places, axis=0)
    up = int(np.argmax(np.ptp(posture, axis=0))) if np.isfinite(posture).all() else int(np.argmax(spread))
    order = [(up + 1) % 3, (up + 2) % 3, up]
    turned = places[:, :, order].astype(float)
    root = int(np.argmin(skeleton.parents))
    turned[:, :, :2] -= turned[:, [root], :2]
    height = turned[:, :, 2]
    turned[:, :, 2] -= (np.nanmin(height) + np.nanmax(height)) / 2
    return turned / max(float(np.nanmax(np.abs(turned))), 1e-12)
