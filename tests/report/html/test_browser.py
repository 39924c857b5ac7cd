"""The page in a real browser, without a network: no message, no request, every chart drawn.

Skipped where playwright or a Chromium is not installed (`pip install playwright`; a Chromium of
the system is taken).
"""

from __future__ import annotations

import json
import math
import operator
import shutil

import pytest

from jitwarm.history.asv import read_asv
from jitwarm.history.cases import case_histories
from jitwarm.history.records import read_records
from jitwarm.record import encode
from jitwarm.report.html.page import Contents, html_of, page_of
from made_history import base, replace, write_asv, write_records

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("altair")
pytest.importorskip("vl_convert")

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
OPEN = "figure.chart:not(details:not([open]) *)"
DRAWN = (
    f"document.querySelectorAll('{OPEN} svg').length === document.querySelectorAll('{OPEN}').length"
)
COLUMN = """Array.from(
  document.querySelector('#changes table').tBodies[0].rows,
  (row) => Number(row.cells[2].dataset.s ?? row.cells[2].textContent))
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    write_records(folder / "records")
    write_asv(folder / "asv")
    cases, orphans = case_histories(read_records([folder / "records"]))
    page = page_of(Contents(cases, orphans, read_asv(folder / "asv")[0]))
    (folder / "report.html").write_bytes(html_of(page))
    return (folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium, address):
    """Open the page; at the end nothing may have been said or asked for."""
    said, asked, contexts = [], [], []

    def open_page(width=1440, scheme="light"):
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        page.wait_for_function(DRAWN)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert said == []
    assert set(asked) <= {address}


def open_everything(page):
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    page.wait_for_function(DRAWN)


@pytest.mark.parametrize(
    ("width", "scheme"), [(1440, "light"), (390, "light"), (360, "dark"), (1440, "dark")]
)
def test_it_draws_every_chart_and_fits(opened, width, scheme):
    page = opened(width, scheme)
    open_everything(page)
    figures = page.locator("figure.chart").count()
    assert figures == page.locator("figure.chart svg").count() > 20
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    widest = "Math.max(...Array.from(document.querySelectorAll('.plot svg'), (s) => s.clientWidth))"
    assert page.evaluate(widest) <= width


@pytest.mark.parametrize("width", [1440, 360])
def test_a_name_of_any_length_fits(chromium, tmp_path, width):
    """Also one without a place to break it: in the headings, the tables, and above the charts."""
    long = "W" * 3000
    made = base()
    kernels = (replace(made.kernels[0], kernel=long, no_keys_reason=long), *made.kernels[1:])
    arms = made.arms | {long: made.arms["cold"]}
    made = replace(made, scenario=long, kernels=kernels, arms=arms, checks=(long,))
    (tmp_path / "result.json").write_bytes(encode(made))
    write_asv(tmp_path / "asv")
    for path in (tmp_path / "asv").glob("*/*-*.json"):
        data = json.loads(path.read_text())
        row = [[1], [[long]], "1"]
        path.write_text(json.dumps(data | {"results": {f"suite.{long}.track_x": row}}))
    cases, _ = case_histories(read_records([tmp_path / "result.json"]))
    page = page_of(Contents(cases, trees=read_asv(tmp_path / "asv")[0]))
    (tmp_path / "page.html").write_bytes(html_of(page))
    opened = chromium.new_page(viewport={"width": width, "height": 900})
    opened.goto((tmp_path / "page.html").as_uri())
    open_everything(opened)
    assert opened.evaluate("document.documentElement.scrollWidth") <= width
    opened.close()


def test_colours_follow_the_scheme(opened):
    page = opened()
    colours = """['.plot text', '.plot .mark-rect path', '.plot .mark-symbol path'].map(
      (one) => getComputedStyle(document.querySelector(one)).fill)"""
    light = page.evaluate(colours)
    page.emulate_media(color_scheme="dark")
    assert all(map(operator.ne, page.evaluate(colours), light))


def test_counts_have_no_halves(opened):
    figure = opened().locator("figure.chart", has_text="missed keys of ComputePrefillMetadata")
    ticks = figure.locator(".role-axis-label text").all_text_contents()
    assert [one for one in ticks if len(one) < 8] == ["0", "1"]


def test_the_funnel_has_whole_numbers_below_its_lines(opened):
    figure = opened().locator("figure.chart", has_text="Dedup funnel")
    ticks = figure.locator(".role-axis-label text").all_text_contents()
    stages = ["registrations", "distinct", "points", "keys", "binaries"]
    assert [one for one in ticks if one not in stages] == ["0", "1", "10", "100"]


def test_keys_are_written_when_they_are_opened(opened):
    page = opened()
    assert page.locator("ol.keys li").count() == 0
    open_everything(page)
    first = page.locator("ol.keys li").first.text_content()
    assert first.startswith("jitwarm.zoo.kernels.") and first.endswith("}")


def test_a_header_sorts_and_sorts_the_other_way(opened):
    page = opened()
    header = page.locator("#changes th button").nth(2)
    header.press("Enter")  # by keyboard
    up = [one for one in page.evaluate(COLUMN) if not math.isnan(one)]
    header.press("Enter")
    down = [one for one in page.evaluate(COLUMN) if not math.isnan(one)]
    assert up == sorted(up) and len(set(up)) > 3
    assert down == up[::-1]
    assert page.locator("#changes th[aria-sort=descending]").count() == 1


def test_the_filter_hides_what_does_not_fit(opened):
    page = opened()
    page.fill("#words", "dcp=2 SM90")
    assert page.locator("details.case:visible").count() == 1
    assert page.text_content("#shown") == "1 of 3 shown"
    page.fill("#words", "nothing like it")
    assert page.locator("details.case:visible").count() == 0
    page.fill("#words", "")
    assert page.locator("details.case:visible").count() == 3


def test_a_link_opens_its_case(opened):
    page = opened()
    page.click("#close-all")
    page.click("#overview a")
    assert page.locator("#case-1[open]").count() == 1
