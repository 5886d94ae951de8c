"""The report: everything is on one page, safely, in the same colours, whatever is missing."""

import subprocess
import sys
from dataclasses import replace

import matplotlib
import numpy as np
import pandas as pd
import pytest

from report_pages import NASTY, Page, make_data, make_metrics, make_view
from svae import plots
from svae.report import write_report
from svae.report.markup import number, tag
from svae.report.states import exemplars, label_overlap, match_labels
from svae.report.timeline import bin_means, envelope


@pytest.fixture
def page(tmp_path):
    return lambda data: Page(write_report(data, tmp_path / "new" / "report.html").read_text("utf-8"))


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    path = tmp_path_factory.mktemp("usual") / "report.html"
    return Page(write_report(make_data(metrics=make_metrics()), path).read_text("utf-8"))


def test_everything_is_on_the_page(usual):
    text = "".join(usual.words)
    for words in (
        "A run",
        "−1,234",
        "0.875",
        "SLDS",
        "states used",
        "Two states do the same.",
        "walk",
        "jump",
    ):
        assert words in text
    for words in ("Autoencoder", "Dynamics (AR-HMM)", "Everything together", "States in use", "typical"):
        assert words in text
    assert usual.count("svg", "panel") == 2
    assert usual.count("tr", "state") == 4


def test_the_page_needs_nothing_from_outside(page):
    result = page(make_data([make_view(channels=20)]))
    links = [a[key] for _, a in result.elements for key in ("src", "href", "xlink:href") if a.get(key)]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert result.count("link") == 0
    assert "@import" not in "".join(result.words)


def test_a_state_can_be_followed_everywhere(usual):
    used = {f"s{state}" for state in range(4)}
    for name, kind in (("button", "chip"), ("path", "wash"), ("g", "state"), ("tr", "state")):
        found = {c for n, a in usual.elements if n == name for c in (a.get("class") or "").split()}
        assert used <= found, kind
    # Figures of usage, durations and transitions.
    assert usual.count("g", "state s2") > 6
    # Ribbons of states, probabilities and labels.
    assert usual.count("path", "state s2") >= 6
    clicked = {a["data-state"] for n, a in usual.elements if n == "g" and "data-state" in a}
    assert clicked == {"0", "1", "2", "3"}


def test_ids_are_unique(usual):
    ids = [a["id"] for n, a in usual.elements if "id" in a and n in ("g", "section", "figure")]
    assert len(ids) == len(set(ids))


def test_names_are_text_not_markup(page):
    view = replace(make_view(NASTY), channels=[NASTY, "b", "c"], label_names=(NASTY, "stand", "run"))
    metrics = make_metrics().replace("vae", NASTY)
    data = make_data([view], title=NASTY, warnings=[NASTY], summary={NASTY: NASTY}, metrics=metrics)
    result = page(data)
    assert result.count("script") == 1
    assert "".join(result.words).count(NASTY) >= 6


@pytest.mark.parametrize("channels", [12, 13, 600])
def test_few_channels_are_lines_and_many_an_image(page, channels):
    result = page(make_data([make_view(channels=channels)]))
    readable = sum(n == "path" and "data-low" in a for n, a in result.elements)
    assert readable == (channels if channels == 12 else 0) + 1 + 6  # and a probability and six latents
    assert (result.count("image") > 0) == (channels > 12)


def test_time_is_in_frames_when_the_rate_is_unknown(page, usual):
    without = "".join(page(make_data([make_view(rate=None)])).words)
    assert "segment (seconds)" in "".join(usual.words)
    assert "segment (frames)" in without
    assert "seconds" not in without


def test_little_is_enough(page):
    nothing = make_data([], usage=np.zeros(5), metrics=pd.DataFrame(), summary={}, warnings=[])
    assert page(nothing).count("svg", "panel") == 0
    frame = make_view(frames=1, labels=False)
    assert page(make_data([replace(frame, values=np.full((1, 3), np.nan))])).count("svg", "panel") == 1


def test_pages_are_small_and_the_same_every_time(tmp_path):
    views = [make_view(str(i), frames=400, channels=12, seed=i) for i in range(3)]
    first, second = (write_report(make_data(views), tmp_path / name) for name in ("a.html", "b.html"))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_size < 1e6
    long = write_report(make_data([make_view(frames=200_000, channels=12)]), tmp_path / "long.html")
    assert long.stat().st_size < 1.5e6


def test_drawing_leaves_settings_alone(page):
    before = dict(matplotlib.rcParams)
    page(make_data())
    assert dict(matplotlib.rcParams) == before


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"'walk'.*states"):
        replace(make_view(), states=np.zeros(3, int))
    with pytest.raises(ValueError, match=r"'walk'.*channels"):
        replace(make_view(), channels=["one"])
    with pytest.raises(ValueError, match="transition"):
        make_data(transition=np.eye(3))
    with pytest.raises(ValueError, match=r"'walk'.*probability"):
        make_data([make_view(num_states=4)])


def test_labels_find_their_states():
    states, labels = np.array([0, 0, 0, 1, 1, 2, 3]), np.array([1, 1, 1, 1, 0, 0, -1])
    view = replace(make_view(frames=7), states=states, labels=labels, label_names=("a", "b", "c"))
    overlap = label_overlap([view, replace(view, labels=None), view], 5)
    assert {name: row.tolist() for name, row in overlap.items()} == {
        "a": [0, 2, 2, 0, 0],
        "b": [6, 2, 0, 0, 0],
    }
    assert match_labels(overlap) == {"b": 0, "a": 1}


def test_exemplars_are_long_probable_and_of_usual_length():
    lengths, probability = [1, 1, 1, 1, 20, 22, 21, 60], [1, 1, 1, 1, 0.9, 0.2, 0.8, 1]
    table = pd.DataFrame({"start": 0, "stop": lengths, "probability": probability})
    assert exemplars(table) == [7, 4, 6]
    assert exemplars(table[:1]) == [0]


def test_thinning_keeps_peaks_and_gaps():
    values = np.zeros((11, 1))
    values[4], values[6:9] = 5, np.nan
    frames, both = envelope(values, 3)
    np.testing.assert_array_equal(both[:, 0], [0, 0, 0, 5, np.nan, np.nan, 0, 0])
    assert np.all(np.diff(frames) > 0)
    np.testing.assert_array_equal(bin_means(values, 3)[:, 0], [0, 5 / 3, np.nan, 0])


def test_state_colors_can_be_told_apart():
    colors = plots.state_colors(50)
    rgb = np.array([[int(color[i : i + 2], 16) for i in (1, 3, 5)] for color in colors])
    distances = np.abs(rgb[:, None] - rgb[None]).sum(axis=-1) + 999 * np.eye(50)
    assert distances.min() > 30
    assert plots.state_colors(3) == colors[:3]


def test_runs():
    assert plots.runs([3, 3, 1, 3]) == [(0, 2), (2, 3), (3, 4)]
    assert plots.runs([7]) == [(0, 1)]
    assert plots.runs([]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1234.5, "−1,234"),
        (np.float32(0.5), "0.5"),
        (1234567, "1,234,567"),
        (np.nan, "–"),
        (True, "yes"),
        ("as is", "as is"),
    ],
)
def test_numbers_for_people(value, text):
    assert number(value) == text


def test_attributes_are_escaped():
    assert tag("a", "b", href='"&', class_="x") == '<a href="&quot;&amp;" class="x">b</a>'


def test_reports_do_not_load_jax():
    code = "import sys, svae.report, svae.segments; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
