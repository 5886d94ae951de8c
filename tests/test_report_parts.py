"""What a report can show beyond the recordings: cards of states, gaps, samples, how inference ended."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from report_pages import Page, make_data, make_dynamics, make_fan, make_full, make_skeleton, make_view
from svae.report import SampleView, Skeleton, StateDynamics, write_report
from svae.report.certificates import certificates_table, convergence_warning
from svae.report.channels import Channels
from svae.report.dynamics import LatentPlane, modes, state_paths
from svae.report.fans import telling_channels
from svae.report.figures import durations_figure
from svae.report.parts import Certificate
from svae.report.skeleton import seen_from_root
from svae.report.states import typical_segments
from svae.report.timeline import line, staircase


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return Page(write_report(make_full(), tmp_path_factory.mktemp("full") / "report.html").read_text("utf-8"))


@pytest.fixture
def page(tmp_path):
    return lambda data: Page(write_report(data, tmp_path / "report.html").read_text("utf-8"))


def test_every_part_is_on_the_page(full):
    text = "".join(full.words)
    for words in ("Typical segments", "How long it lasts", "Eigenvalues", "Flow of the latent"):
        assert text.count(words) == 4  # states in use
    for words in (
        "Gaps",
        "29% 0 → 1",
        "14% in 2 other paths",
        "truth",
        "Generated",
        "Real",
        "num_states = 5",
    ):
        assert words in text
    assert full.count("svg", "strip") == 4 * 6 + 3 + 4  # exemplars, channels of the fan, samples


def test_an_unconverged_recording_is_a_warning(full, page):
    text = "".join(full.words)
    assert "did not converge for 1 of 2 recordings" in text
    assert text.index("jump", text.index("Recording by recording")) < text.index(
        "walk", text.index("Recording by recording")
    )
    assert "did not converge" not in "".join(page(make_data()).words)
    assert convergence_warning([Certificate("one", 3, 0.0, True)]) == []
    assert certificates_table([]) == ""
    many = [Certificate(f"r{i}", 3, 1.0 / (i + 1), True) for i in range(400)]
    assert "and 100 more" in certificates_table(many)


def test_images_take_the_place_of_many_lines(page):
    result = page(make_full(channels=20))
    assert result.count("path", "fan-mean") == 0
    assert result.count("image") == 2 + 4 * 6 + 6 + 4  # recordings, exemplars, truth to fourth path, samples


def test_modes_are_times_and_frequencies():
    turn = 2 * np.pi / 20  # twenty frames a turn
    found = modes(make_dynamics(3, turn).matrix, rate=None)
    assert found[0] == ("0.950", "19.5 frames", "20 frames")
    assert [row[2] for row in found[1:]] == ["–"]
    assert modes(make_dynamics(3, turn).matrix, rate=10.0)[0] == ("0.950", "1.95 s", "0.5 Hz")
    assert modes(np.diag([1.0, -0.5, 0.0]), None) == [
        ("1.000", "does not decay", "–"),
        ("0.500", "1.44 frames", "alternates"),
        ("0.000", "0 frames", "–"),
    ]


def test_the_latent_plane_is_where_paths_move_most():
    view = make_view()
    latents = np.zeros((400, 8))
    latents[:, 5] = 3 * np.sin(np.arange(400))
    latents[:, 2] = np.cos(np.arange(400)) + 1
    plane = LatentPlane([replace(view, latent_mean=latents)])
    np.testing.assert_allclose(np.abs(plane.basis[[5, 2], [0, 1]]), 1, atol=1e-3)
    places = np.array([[1.0, 2.0], [0.0, -1.0]])
    np.testing.assert_allclose(plane.flat(plane.lift(places, np.arange(8.0))), places, atol=1e-9)
    np.testing.assert_allclose(plane.shares.sum(), 1)


def test_a_path_starts_where_the_state_took_over():
    view = replace(make_view(frames=6), states=np.array([1, 1, 0, 0, 0, 1]))
    assert [len(path) for path in state_paths([view], 0)] == [4]
    assert [len(path) for path in state_paths([view], 1)] == [2, 2]


def test_exemplars_come_from_different_recordings():
    names, length = ["a", "a", "a", "b", "c"], [10, 10, 10, 9, 2]
    table = pd.DataFrame({"recording": names, "start": 0, "stop": length, "probability": 1.0})
    assert typical_segments(table, 4)["recording"].tolist() == ["a", "b", "c", "a"]


def test_telling_channels_are_those_in_which_paths_differ():
    view = make_view(channels=5)
    fan = make_fan(view)
    apart = np.array([0, 0.1, 5, 3, 1]) * np.ptp(np.nan_to_num(view.values), axis=0)
    paths = [path._replace(mean=0 * path.mean + i * apart) for i, path in enumerate(fan.paths)]
    assert telling_channels(replace(fan, paths=paths), Channels(view.channels, [view.values])) == [2, 3, 4]


def test_sound_is_in_decibels_with_low_frequencies_at_the_bottom():
    names = [f"{f} Hz" for f in range(0, 8000, 250)]
    sound = Channels(names, [np.full((50, 32), 0.01)])
    assert sound.is_sound
    np.testing.assert_allclose(sound.low, -20)
    marks = sound.marks(160.0)
    assert marks[0][1] == "0 Hz"
    assert marks[0][0] > marks[-1][0]
    assert "decibels" in sound.legend
    places = Channels([f"{x:g}" for x in np.linspace(-2, 2, 100)], [np.zeros((5, 100))])
    assert not places.is_sound
    assert [text for _, text in places.marks(200.0)][:2] == ["−2", "−1.5"]
    assert len(Channels([f"c{i}" for i in range(600)], [np.zeros((5, 600))]).marks(180.0)) <= 10


def test_parts_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="2 dimensions"):
        StateDynamics(np.eye(3), np.zeros(2), np.eye(2))
    with pytest.raises(ValueError, match="3 states"):
        SampleView(np.zeros((4, 2)), np.zeros(3, int))
    fan = make_fan(make_view())
    with pytest.raises(ValueError, match=r"'walk'.*within"):
        replace(fan, stop=500)
    with pytest.raises(ValueError, match=r"'walk'.*shape"):
        replace(fan, truth=np.zeros((3, 3)))
    with pytest.raises(ValueError, match="dynamics of states"):
        make_data(dynamics={7: make_dynamics()})


def test_lines_are_relative_and_steps_enclose_areas():
    assert line(np.arange(4) + 0.5, np.array([1.0, 3, np.nan, 7])) == "M0.5 1l1 2M3.5 7m-.4 0h.8"
    low, high = np.array([0, 0, 0, 5]), np.array([10, 10, 0, 10])
    assert staircase(np.arange(5), low, high) == "M0 10H2V0H0zM3 10H4V5H3z"


def test_one_latent_dimension_has_no_flow(page):
    view = make_view()
    view = replace(view, latent_mean=view.latent_mean[:, :1], latent_deviation=view.latent_deviation[:, :1])
    text = "".join(page(make_data([view], dynamics={0: make_dynamics(2), 1: make_dynamics(2)})).words)
    assert text.count("Eigenvalues") == 2
    assert "Flow" not in text


def test_skeletons_stand_up_and_stay_in_place(page):
    rng = np.random.default_rng(0)
    posture = np.array([[0.0, 0, 0.2], [0, 5, 0.1], [0, 10, 0], [0, 18, 0]])  # y is up
    walk = np.cumsum(rng.random((50, 1, 3)) * [1, 0, 1], axis=0)
    seen = seen_from_root(posture + walk, make_skeleton())
    np.testing.assert_allclose(seen[:, 2, :2], 0, atol=1e-12)
    np.testing.assert_allclose(seen[:, [0, 3], 2], [[-1, 1]] * 50)
    assert page(make_full(channels=12)).count("canvas") == 2
    with pytest.raises(ValueError, match="2 joints"):
        Skeleton(["a", "b"], [-1], np.zeros((2, 3), int))


def test_joints_that_have_no_channels_are_where_they_stay():
    skeleton = Skeleton(["hip", "knee"], [-1, 0], np.array([[0, 0, 0], [0, 1, 2]]), [(0, (7.0, 8.0, 9.0))])
    values = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(skeleton.places(values), [[[7, 8, 9], [0, 1, 2]], [[7, 8, 9], [3, 4, 5]]])


@pytest.mark.parametrize("lengths", [[1.4, 2.9], [3.0], [3.0, 20.0], [0.5, 300.0], [0.04, 5000.0]])
def test_lengths_have_a_few_plain_numbers_below_them(lengths):
    (ax,) = durations_figure({0: lengths}, 1, "seconds").axes
    ax.figure.draw_without_rendering()
    low, high = ax.get_xlim()
    labels = [x.get_text() for x in ax.get_xticklabels(which="both")]
    shown = [x for x, place in zip(labels, ax.get_xticks(), strict=True) if low <= place <= high]
    assert 2 <= len(shown) <= 6
    assert all(float(x) > 0 for x in shown)  # neither empty nor a power in mathematical type
