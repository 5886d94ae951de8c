"""The page in a browser: it opens without errors, states open their cards, time zooms.

The browser is Chromium: that of SVAE_CHROMIUM, or one that is installed. Without one there is no test.
"""

import os
import shutil
from dataclasses import replace

import pytest

from report_pages import make_full
from svae.report import write_report

CHROMIUM = os.environ.get("SVAE_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium; install one, or name it in SVAE_CHROMIUM")
    with api.sync_playwright() as play:
        flags = ["--no-sandbox", "--disable-gpu"]
        running = play.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield running
        running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(make_full(channels=12), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def opened(browser, report):
    """The page, and what went wrong on it."""
    tab = browser.new_page(viewport={"width": 1200, "height": 900})
    wrong = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
    tab.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    tab.goto(report.as_uri())
    yield tab
    tab.close()
    assert wrong == []


def drag(tab, start, stop):
    """From one share of a panel's width to another."""
    box = tab.locator(".panel").first.bounding_box()
    y = box["y"] + 0.5 * box["height"]
    tab.mouse.move(box["x"] + start * box["width"], y)
    tab.mouse.down()
    tab.mouse.move(box["x"] + stop * box["width"], y, steps=4)
    tab.mouse.up()


def test_the_page_is_not_blank(opened):
    png = opened.screenshot()
    assert png.startswith(b"\x89PNG")
    assert len(png) > 30_000
    # Nothing is wider than the page, on a telephone either.
    opened.set_viewport_size({"width": 420, "height": 800})
    assert opened.evaluate("document.documentElement.scrollWidth") <= 420


def test_a_click_on_a_state_shows_its_card(opened):
    cards = opened.locator("#cards")
    assert not cards.is_visible()
    shown = []
    for state in (1, 2):
        opened.locator(f".chips .chip.s{state}").click()
        assert cards.is_visible()
        assert opened.locator("#cards article:visible").count() == 1
        shown.append(opened.locator("#cards article:visible .exemplars").inner_html())
    assert shown[0] != shown[1]
    opened.keyboard.press("Escape")
    assert not cards.is_visible()


def test_a_state_opens_from_wherever_it_is(opened):
    for where in ("#states g.state.s3 path", "tr.s3 td.number", "svg.time path.state.s3"):
        opened.locator(where).first.dispatch_event("click")
        assert opened.locator("#card-3").is_visible(), where
        opened.locator("#card-3 .close").click()
        assert not opened.locator("#card-3").is_visible()


def test_dragging_zooms_all_rows_and_a_double_click_shows_all(opened):
    panel = opened.locator(".panel").first
    panel.scroll_into_view_if_needed()
    ticks = panel.locator(".ticks").text_content()
    drag(opened, 0.4, 0.6)
    assert not opened.locator("#cards").is_visible()
    start, stop = (float(panel.get_attribute(f"data-{end}")) for end in ("from", "to"))
    assert 80 < start < stop < 300
    assert panel.locator("svg.time").get_attribute("viewBox").startswith(f"{start:g}"[:5])
    assert panel.locator(".ticks").text_content() != ticks
    opened.keyboard.down("Control")
    opened.mouse.wheel(0, 100)
    opened.keyboard.up("Control")
    opened.wait_for_function("document.querySelector('.panel').dataset.from < " + str(start))
    panel.dblclick(position={"x": 600, "y": 200})
    assert float(panel.get_attribute("data-to")) == 400
    # Both clicks may have met a state; what matters is the axis.
    assert panel.locator(".ticks").text_content() == ticks


def test_the_cursor_reads_time_and_values(opened):
    panel = opened.locator(".panel").first
    panel.scroll_into_view_if_needed()
    box = panel.bounding_box()
    opened.mouse.move(box["x"] + 0.517 * box["width"], box["y"] + 100)  # in the middle, between the margins
    assert panel.locator("text.cursor").text_content() == "20.00 s"
    view = make_full(channels=12).recordings[0]
    rows = panel.locator(".range[data-row]").all_text_contents()
    assert rows[0] == str(view.states[200])
    assert float(rows[1]) == pytest.approx(view.probability[200].max(), abs=0.01)
    spread = view.values[:, 4].max() - view.values[:, 4].min()
    found = float(rows[3 + 4].replace("−", "-"))  # below states, probability and labels
    assert min(abs(found - view.values[i, 4]) for i in (199, 200)) < 0.01 * spread
    opened.mouse.move(0, 0)
    assert " to " in panel.locator(".range[data-row]").nth(7).text_content()


def test_a_link_to_a_segment_zooms_there(opened):
    link = opened.locator("td a[data-zoom]").first
    start, stop = (float(x) for x in link.get_attribute("data-zoom").split())
    link.click()
    panel = opened.locator(link.get_attribute("href") + " .panel")
    first, last = (float(panel.get_attribute(f"data-{end}")) for end in ("from", "to"))
    assert first <= start < stop <= last
    assert last - first < 400


def test_images_and_dark_pages_open_too(browser, tmp_path):
    path = write_report(replace(make_full(channels=20), title="Many"), tmp_path / "many.html")
    tab = browser.new_page(color_scheme="dark")
    wrong = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto(path.as_uri())
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.locator("image.heat[data-palette]").first.hover(position={"x": 200, "y": 5})
    reads = "document.querySelector('.panel .range tspan')?.textContent"
    tab.wait_for_function(f"{reads} === 'channel 0' || {reads} === 'channel 1'")
    tab.close()
    assert wrong == []


def test_a_skeleton_moves_with_the_cursor_and_plays(opened):
    box = opened.locator(".skeleton").first
    picture = "document.querySelector('.skeleton canvas').toDataURL()"
    slider = box.locator("input")
    at_rest = opened.evaluate(picture)
    slider.fill("300")
    assert opened.evaluate(picture) != at_rest
    assert opened.locator(".panel.pointed").count() == 1
    panel = opened.locator(".panel").first
    panel.hover(position={"x": 300, "y": 100})
    assert slider.input_value() != "300"
    before = slider.input_value()
    box.locator(".play").click()
    opened.wait_for_function(f"document.querySelector('.skeleton input').value != {before}")
    box.locator(".play").click()
