"""The pictures of README and guide: `scripts/screenshots` runs the demo, and takes pictures of its pages.

The pictures show a real run of the demo, long enough for a timeline. Each is a PNG of the top of a page, or of
a part further down.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from testbed.demo.files import EVENTS_PER_SECOND
from testbed.demo.folder import DemoFolder
from testbed.demo.options import DemoPlan
from testbed.demo.pipeline import Demo
from testbed.demo.screen import Screen
from testbed.stop import stop_on_signals
from tests.pages import chromium, picture_sources
from tests.pages.chromium import Browser
from validator.publish import history, html
from validator.publish.report import REPORT_FILE, VIOLATIONS_FILE, records_of
from validator.state.judged_windows import judged_windows
from validator.stream.phase_latency import phase_latencies

PICTURES: Final = Path(__file__).parents[2] / "docs" / "pictures"
SECONDS: Final = 120
BYTES_MAX: Final = 300_000
SHOWS_ALL: Final = (
    "document.querySelectorAll('.finding').length > 0 && document.querySelectorAll('canvas').length === 4"
)
PAINTED: Final = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


class PictureTooLarge(Exception):
    """A picture is too large to be committed."""


def main(arguments: list[str]) -> int:
    """Run the demo and write the pictures; return the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/screenshots", description="Write the pictures of README and guide.")
    parser.add_argument("--out", type=Path, default=PICTURES, metavar="DIR", help="default: docs/pictures")
    given = parser.parse_args(arguments)
    command = chromium.find()
    if command is None:
        print("scripts/screenshots: there is no chromium on the PATH; install it.", file=sys.stderr)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    with (
        stop_on_signals() as stop,
        DemoFolder() as folder,
        tempfile.TemporaryDirectory() as profile,
        chromium.browser(command, Path(profile)) as browser,
        ThreadPoolExecutor(1) as pool,
    ):
        demo = Demo(DemoPlan(seconds=SECONDS), folder.path, Screen(sys.stdout), stop)
        running = pool.submit(demo.run)
        try:
            _live(browser, folder.path / "state", given.out, running)
            running.result()  # the stop ends the demo with KeyboardInterrupt
        finally:
            stop.event.set()
        _report(browser, folder.path / "state", given.out)
    if given.out == PICTURES:
        picture_sources.write()
    return 0


def _live(browser: Browser, state: Path, out: Path, running: Future[int]) -> None:
    """Take pictures of the status page when the guarantee is broken and most of the load has been read."""
    _until((state / "endpoint.json").exists, running)
    url = json.loads((state / "endpoint.json").read_text(encoding="utf-8"))["url"]
    _until(lambda: _is_worth_a_picture(_asked(url + "report.json")), running)
    for name, width, scheme, height in (
        ("status-light", 1280, "light", 1350),
        ("status-dark", 1280, "dark", 1350),
        ("status-phone", 390, "light", 1600),
        ("status-wall", 1920, "dark", 1080),
    ):
        browser.window(width, 1080 if name == "status-wall" else 900, scheme)
        browser.open(url)
        browser.wait_until(SHOWS_ALL)
        _picture(browser, out / f"{name}.png", height)
        if name == "status-light":
            _picture(browser, out / "status-details.png", 1500, "#violations-head")


def _report(browser: Browser, state: Path, out: Path) -> None:
    """Take pictures of the run's HTML report, as written by `streamproof report --format html`."""
    shown_report, violations = (
        json.loads((state / name).read_text(encoding="utf-8")) for name in (REPORT_FILE, VIOLATIONS_FILE)
    )
    file = state / "report.html"
    windows, latencies = judged_windows(state), phase_latencies(state, shown_report)
    page = html.render(shown_report, records_of(violations), str(state), history.read(state), windows, latencies)
    file.write_text(page, encoding="utf-8")
    browser.window(1000, 1000)
    browser.open(file.as_uri())
    _picture(browser, out / "report.png", 1290)


def _picture(browser: Browser, file: Path, height_max: int, beginning: str = "body") -> None:
    """Write a picture of the page from the element ``beginning`` on."""
    browser.value(PAINTED)
    top = browser.value(
        f"Math.max(0, document.querySelector('{beginning}').getBoundingClientRect().top + scrollY - 16)"
    )
    browser.picture(file, height_max, round(top))
    size = file.stat().st_size
    print(f"{file.name}: {size:,} bytes", flush=True)
    if size > BYTES_MAX:
        raise PictureTooLarge(f"{file}: {size:,} bytes are more than {BYTES_MAX:,}.")


def _until(holds: Callable[[], bool], running: Future[int]) -> None:
    while not holds():
        if running.done():
            running.result()  # raises the demo's own error, if any
            raise AssertionError("the demo ended before there was anything to photograph")
        wait([running], timeout=0.5)


def _asked(url: str) -> dict[str, Any] | None:
    with suppress(OSError, ValueError), urllib.request.urlopen(url, timeout=5) as answer:
        found = json.load(answer)
        return found if isinstance(found, dict) else None
    return None


def _is_worth_a_picture(report: dict[str, Any] | None) -> bool:
    enough = 0.85 * SECONDS * EVENTS_PER_SECOND
    return report is not None and report["outcome"] == "fail" and bool(report["inputs"]["read"] > enough)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
