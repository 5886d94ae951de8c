"""Made-up reports, and a reader that finds what is on their pages."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd

from svae.completion import PathSummary
from svae.report import Certificate, FanView, RecordingView, ReportData, SampleView, Skeleton, StateDynamics
from svae.segments import segments_table

NASTY = "<script>alert('&\"')</script> $x"
VOID = {"meta", "link", "img", "br", "hr", "input"}


def make_view(name="walk", frames=400, channels=3, num_states=5, rate=10.0, labels=True, seed=0):
    rng = np.random.default_rng(seed)
    values = np.cumsum(rng.normal(size=(frames, channels)), axis=0)
    values[frames // 3 : frames // 2, 0] = np.nan
    path = np.cumsum(rng.random(frames) < 0.05) % (num_states - 1)
    probability = 0.1 / num_states + 0.9 * np.eye(num_states)[path]
    return RecordingView(
        name=name,
        values=values,
        channels=[f"channel {i}" for i in range(channels)],
        rate=rate,
        states=path,
        probability=probability,
        latent_mean=rng.normal(size=(frames, 8)),
        latent_deviation=np.full((frames, 8), 0.1),
        labels=path % 3 - (path == 0) if labels else None,
        label_names=("sit", "stand", "run") if labels else None,
    )


def make_metrics():
    vae = {"stage": "vae", "step": range(60), "elbo": np.linspace(-9, -1, 60), "log_likelihood": -1.0}
    dynamics = {"stage": "dynamics", "lap": range(5), "elbo": np.arange(5.0), "states": [5, 5, 4, 4, 4]}
    joint = {"stage": "joint", "step": [0], "elbo": [-1.0], "kl_local": [1.0], "kl_parameters": [2.0]}
    return pd.concat([pd.DataFrame(part) for part in (vae, dynamics, joint)], ignore_index=True)


def make_data(views=None, num_states=5, **changes):
    views = [make_view("walk"), make_view("jump", frames=150, seed=1)] if views is None else views
    names, paths = [view.name for view in views], [view.states for view in views]
    rate = views[0].rate if views else None
    data = ReportData(
        title="A run",
        summary={"elbo": -1234.5, "states_used": 4, "model": "SLDS", "accuracy": 0.875},
        metrics=pd.DataFrame(),  # training takes longest to draw
        recordings=views,
        segments=segments_table(names, paths, [view.probability for view in views], rate),
        transition=np.full((num_states, num_states), 1 / num_states),
        usage=np.bincount(np.concatenate([[], *paths]).astype(int), minlength=num_states) / 550,
        warnings=["Two states do the same."],
    )
    return replace(data, **changes)


class Page(HTMLParser):
    """Checks that elements close in order; collects their attributes and the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, name, attributes):
        self.elements.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_startendtag(self, name, attributes):
        self.elements.append((name, dict(attributes)))

    def handle_data(self, text):
        self.words.append(text)

    def count(self, name, css_class=""):
        return sum(
            n == name and set(css_class.split()) <= set((a.get("class") or "").split())
            for n, a in self.elements
        )


def make_dynamics(size=8, turn=0.3, seed=0):
    """The first two dimensions turn, the others decay."""
    matrix = np.diag(np.linspace(0.9, 0.5, size))
    matrix[:2, :2] = 0.95 * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    return StateDynamics(matrix, np.linspace(0, 0.1, size), 0.01 * np.eye(size))


def make_fan(view, start=200, stop=220, paths=((0, 1), (0, 2, 1), (3,), (2,), (1, 0), (1,))):
    values = view.values[start - 40 : stop + 40].copy()
    truth = values[40:-40].copy()
    values[40:-40] = np.nan
    shares = np.arange(len(paths), 0, -1) / np.arange(len(paths) + 1).sum()
    summaries = [
        PathSummary(states, share, truth + i, truth + i - 1, truth + i + 1)
        for i, (states, share) in enumerate(zip(paths, shares, strict=True))
    ]
    return FanView(view.name, view.channels, view.rate, start - 40, start, stop, values, summaries, truth)


def make_skeleton():
    """A stick of four joints in twelve channels."""
    return Skeleton(["foot", "knee", "hip", "head"], [1, 2, -1, 2], np.arange(12).reshape(4, 3))


def make_full(channels=3):
    """A report with every part but training."""
    views = [make_view(name, channels=channels, seed=i) for i, name in enumerate(("walk", "jump"))]
    rng = np.random.default_rng(1)
    sample = SampleView(rng.normal(size=(120, channels)), np.arange(120) // 30)
    return make_data(
        views,
        dynamics={state: make_dynamics(turn=0.1 * state) for state in range(5)},
        certificates=[Certificate("walk", 12, 1e-4, True), Certificate("jump", 200, 0.5, False)],
        fans=[make_fan(views[0])],
        samples=[sample, sample],
        config="[model]\nnum_states = 5 # <five>\n",
        skeleton=make_skeleton() if channels == 12 else None,
    )
