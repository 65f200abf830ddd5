"""The HTML report in a real browser: on a screen, on a phone and in print."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import chromium
from tests.pages.chromium import Browser, needs_chromium
from tests.pages.contrast import CONTRAST
from tests.pages.story import FAULT, LOST, REPEATED, latencies, story, windows
from tests.unit.publish_snapshots import clean, newest
from validator.publish import html
from validator.publish.history import History
from validator.publish.report import build

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    history, last = History(), clean()
    for last in story():
        history = history.add(last)
    file = tmp_path_factory.mktemp("report") / "report.html"
    page = html.render(build(last), newest(last), history=history, windows=windows(), latencies=latencies())
    file.write_text(page, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, file: Path) -> Iterator[Browser]:
    command = chromium.find()
    assert command is not None
    with chromium.browser(command, tmp_path_factory.mktemp("profile")) as browser:
        browser.open(file.as_uri())
        yield browser


@pytest.mark.full
@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
def test_the_report_is_readable_at_every_width_and_in_both_schemes(page: Browser, width: int, scheme: str) -> None:
    page.window(width, 900, scheme)
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.value(CONTRAST) == []


@pytest.mark.full
def test_the_plots_of_the_whole_run_are_drawn_with_their_names(page: Browser) -> None:
    page.window(1280, 900, "light")
    labels = page.value("[...document.querySelectorAll('.frame')].map((frame) => frame.getAttribute('aria-label'))")
    assert [label.split(",")[0] for label in labels] == ["Throughput", "Latency", "Outstanding", "Violations"]
    assert f"missing now {LOST}, highest {LOST}" in labels[3]
    assert page.value("document.querySelectorAll('.frame canvas').length") == 4
    assert page.value("document.querySelector('#spans [aria-pressed=true]').innerText") == "2 h"


@pytest.mark.full
def test_windows_with_violations_are_summed_and_listed(page: Browser) -> None:
    assert f"{LOST} missing, {REPEATED} duplicate in 3 of 20 windows" in page.value("document.body.innerText")
    rows = page.value("[...document.querySelectorAll('#windows tbody tr')].map((tr) => tr.innerText)")
    assert [row.split("\t")[0] for row in rows] == [f"2026-01-31 11:5{minute}:00" for minute in (3, 4, 5)]
    assert rows[1].endswith(FAULT)


def test_the_report_loads_nothing_and_logs_nothing(page: Browser, file: Path) -> None:
    assert set(page.requests) == {file.as_uri()}
    assert page.complaints == []


@pytest.mark.full
def test_the_report_prints_dark_on_white_in_the_dark_scheme(page: Browser) -> None:
    page.window(740, 1000, "dark")
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.call("Emulation.setEmulatedMedia", media="print", features=dark)
    try:
        assert page.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert page.value(CONTRAST) == []
    finally:
        page.call("Emulation.setEmulatedMedia", media="", features=[])
    paper = base64.b64decode(page.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
    assert paper.startswith(b"%PDF")
