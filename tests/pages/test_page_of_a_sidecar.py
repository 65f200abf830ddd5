"""The status page of a real sidecar over real Kafka in a real Chromium: a violation appears, the sidecar is killed
and restarted on its port, and the page continues by itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from testbed.ports import free_port
from testbed.processes import OwnedProcess
from tests.crash.sidecars import Sidecars, kill_group
from tests.integration.sidecar_fixtures import answer, click
from tests.pages import chromium
from tests.pages.chromium import Browser, needs_chromium
from tests.pages.prometheus_tools import until

if TYPE_CHECKING:
    from testbed.broker import EmbeddedBroker

pytestmark = needs_chromium

STATE = "watched"
START_SECONDS = 180.0
SHOWN_WITHIN_SECONDS = 3.0
WINDOWS, IDS = 4, 5
VERDICT = "document.querySelector('.verdict.declared b')?.textContent"
LAMP = "document.querySelector('#lamp').className"
NOTICE = "document.querySelector('#notice').innerText"
# The time at which the page first shows a duplicate of a key, by this machine's clock: milliseconds since the epoch.
WATCH = f"""(() => {{
  window.shownAt = {{}};
  const look = () => {{
    const listed = document.querySelector("#violations").textContent, verdict = {VERDICT} || "";
    for (const key of ["/first", "/second"])
      if (!(key in window.shownAt) && listed.includes(key) && verdict.includes("fail"))
        window.shownAt[key] = Date.now();
  }};
  new MutationObserver(look).observe(document.body, {{ childList: true, subtree: true, characterData: true }});
}})()"""


@pytest.fixture
def sidecars(broker: EmbeddedBroker, tmp_path: Path) -> Sidecars:
    name = f"page-{tmp_path.name}"
    topics = {f"{name}-{role}": 1 for role in ("in", "out", "late")}
    broker.create_topics(topics, {"message.timestamp.type": "LogAppendTime"})
    return Sidecars(name, broker.bootstrap_servers, tmp_path)


def put(sidecars: Sidecars, role: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": sidecars.servers})
    for value in values:
        producer.produce(f"{sidecars.name}-{role}", value)
    assert producer.flush(30) == 0


def ids(window: int) -> list[int]:
    return [window * IDS + n for n in range(IDS)]


def answered_right(sidecars: Sidecars, key: str, first: int) -> None:
    """Write clicks on ``key`` in windows from ``first`` on, and the engine's correct results."""
    windows = range(first, first + WINDOWS)
    put(sidecars, "in", *[click(one, window * 10 + n, key) for window in windows for n, one in enumerate(ids(window))])
    put(sidecars, "out", *[answer(ids(window), window, key) for window in windows])


def reported_at(sidecars: Sidecars, key: str, process: OwnedProcess) -> float:
    """Return when the sidecar first wrote a violation of ``key``: the file's modification time, in seconds since the
    epoch."""
    file = sidecars.state(STATE) / "violations.json"
    found: list[float] = []

    def is_reported() -> bool:
        # If the file is replaced between stat and read, read it again.
        before = file.stat().st_mtime
        listed: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["violations"]
        if any(one["key"] == key and one["state"] == "confirmed" for one in listed) and file.stat().st_mtime == before:
            found.append(before)
        return bool(found)

    until(is_reported, process, seconds=START_SECONDS, pause_seconds=0.02, what=f"the violation of {key}")
    return found[0]


def shown_after(page: Browser, sidecars: Sidecars, key: str, process: OwnedProcess) -> float:
    """Return the seconds from the sidecar's write of a violation of ``key`` until the page shows it with its
    verdict."""
    reported = reported_at(sidecars, key, process)
    page.wait_until(f"'{key}' in window.shownAt", SHOWN_WITHIN_SECONDS + 10)
    return float(page.value(f"window.shownAt['{key}']")) / 1000 - reported


def is_up(page: Browser, seconds: float) -> None:
    page.wait_until(f"document.querySelector('#notice').hidden && {LAMP} === 'on'", seconds)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_page_of_a_sidecar_shows_a_violation_at_once_and_outlives_a_kill(
    sidecars: Sidecars, tmp_path: Path
) -> None:
    command = chromium.find()
    assert command is not None
    port = free_port()
    url = f"http://127.0.0.1:{port}/"
    fixed = ("--set", f"metrics.port={port}")
    answered_right(sidecars, "/first", 0)
    with chromium.browser(command, tmp_path / "profile") as page:
        with sidecars.start(STATE, *fixed) as process:
            until((sidecars.state(STATE) / "endpoint.json").exists, process, seconds=START_SECONDS)
            page.open(url)
            page.value(WATCH)
            page.wait_until(f"({VERDICT} || '').includes('pass')", START_SECONDS)
            is_up(page, 10)
            assert page.value("document.querySelector('#broken').hidden") is True

            put(sidecars, "out", answer([0], 0, "/first"))  # a duplicate
            assert shown_after(page, sidecars, "/first", process) < SHOWN_WITHIN_SECONDS
            assert "1 duplicate: " in page.text("#findings")

            kill_group(process)
            page.wait_until(f"{LAMP} === 'off' && {NOTICE}.includes('This page shows the last report')", 15)
            assert "fail" in page.text(".verdict.declared"), "what was known stays on the page"
        answered_right(sidecars, "/second", WINDOWS)
        with sidecars.start(STATE, *fixed) as process:
            page.wait_until(f"{NOTICE}.includes('This page shows the report from before')", START_SECONDS)
            is_up(page, START_SECONDS)
            assert "fail" in page.text(".verdict.declared")
            assert "1 duplicate: " in page.text("#findings")

            put(sidecars, "out", answer(ids(WINDOWS)[:1], WINDOWS, "/second"))
            assert shown_after(page, sidecars, "/second", process) < SHOWN_WITHIN_SECONDS
            report = sidecars.report(STATE)
            assert report["violations"]["confirmed"]["duplicate"] == 2
            assert report["contributions"]["missing"] == 0
            assert report["validator"]["restarts"] == 1
            page.wait_until("document.querySelector('.finding strong').textContent === '2'", 5)
            counted = "[...document.querySelectorAll('#contributions tr')].map((tr) => [...tr.cells].map(textOf))"
            read = page.value(f"((textOf) => {counted})((cell) => cell.textContent)")
            assert ["processed", str(report["contributions"]["processed"])] in read
        # The browser logs refused connections on the console. The page itself must log nothing.
        assert [said for said in page.complaints if "ERR_" not in said] == []
        assert set(page.requests) == {url, url + "events"}
