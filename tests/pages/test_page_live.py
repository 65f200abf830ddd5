"""The status page's content and its updates, in a real browser with a publisher that serves it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pages.chromium import Browser, needs_chromium
from tests.pages.contrast import CONTRAST
from tests.pages.served_page import PAINTED, SHOWN_WITHIN_SECONDS, Served, healthy
from tests.pages.story import FAULT, LOST, REPEATED, SECONDS, at
from tests.unit.publish_snapshots import SEEN, clean, config, violation
from validator.model.classes import Guarantee, Verdict
from validator.model.snapshot import Snapshot
from validator.publish import feed
from validator.publish.publisher import Publisher

pytestmark = needs_chromium


def test_the_page_shows_the_violation_its_start_and_the_next_step(
    page: Browser, served: Served, snapshots: list[Snapshot]
) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    declared = page.text(".verdict.declared")
    assert "exactly once (declared)" in declared
    assert "FAIL" in declared
    assert "first confirmed 11:55:00 UTC, 5 min ago" in declared
    said = page.text("#findings")
    assert f"{LOST} events were lost" in said
    assert f"{REPEATED} duplicates: " in said
    assert f"All after fault {FAULT} on taskmanager-1" in said
    assert "Compare the engine's restarts" in said
    assert f"streamproof explain {served.state} --id" in said
    assert f"streamproof ack {served.state} " in said
    assert f"streamproof ack {served.state} --class missing --fault {FAULT} " in said
    assert "StreamproofGuaranteeViolated" in said
    assert page.value("document.querySelector('#findings a').pathname") == "/runbooks/StreamproofGuaranteeViolated"
    assert page.value("document.title") == "✖ fail – clickstream"
    topics = page.text("#topics")
    assert "clickstream.events.v3\tinput\t3" in topics
    assert "37 missing, 112 duplicate" in page.text("#faults")


@pytest.mark.full
def test_the_resolution_is_beside_each_time_of_a_fault(
    page: Browser, served: Served, snapshots: list[Snapshot]
) -> None:
    measured = {**snapshots[-1].fault_measures["f-1"], "resolution_seconds": 1.5}
    served.publisher.publish(replace(snapshots[-1], fault_measures={"f-1": measured}))
    page.open(served.url)
    page.wait_until("document.querySelector('#faults').textContent.includes('58.4 ± 1.5')")
    assert "38 ± 1.5\t71.5 ± 1.5" in page.text("#faults")


@pytest.mark.full
def test_the_page_loads_nothing_external_and_logs_nothing(
    page: Browser, served: Served, snapshots: list[Snapshot]
) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    for button in range(3):
        page.value(f"document.querySelectorAll('#spans button')[{button}].click()")
        page.value(PAINTED)
    page.value("document.querySelector('#more').click()")
    assert page.value("document.querySelectorAll('#violations tr').length") == 28
    assert set(page.requests) == {served.url, served.url + "events"}
    assert page.complaints == []


@pytest.mark.full
def test_a_violation_is_shown_within_three_seconds(page: Browser, served: Served) -> None:
    served.publisher.publish(healthy())
    page.open(served.url)
    page.wait_until("document.querySelector('.verdict.declared b')?.textContent.includes('pass')")
    assert page.value("document.querySelector('#broken').hidden") is True
    broken = replace(
        healthy(SECONDS + 2),
        verdicts={**clean().verdicts, Guarantee.EXACTLY_ONCE: Verdict.FAIL},
        violations={"confirmed": {"missing": 1}, "retracted": {}, "suspected": {}},
        violations_latest=(violation("v-new", "missing", at(SECONDS + 2), key="/only-this"),),
    )
    served.publisher.publish(broken)
    page.wait_until(
        "document.querySelector('#violations').innerText.includes('/only-this')"
        " && document.querySelector('.verdict.declared b').textContent.includes('fail')",
        SHOWN_WITHIN_SECONDS,
    )
    assert page.text("#said") == "The verdict is now: exactly once: fail."


def test_the_page_survives_a_restart_of_the_server(page: Browser, served: Served) -> None:
    served.publisher.publish(healthy())
    page.open(served.url)
    page.wait_until("document.querySelector('#lamp').className === 'on'")
    served.publisher.stop()
    page.wait_until("document.querySelector('#notice').innerText.startsWith('The sidecar was stopped')")
    assert page.value("document.querySelector('#lamp').className") == "off"
    served.start()
    page.wait_until(
        "document.querySelector('#notice').innerText.includes('This page shows the report from before')", 15
    )
    served.publisher.publish(healthy(SECONDS + 20))
    page.wait_until("document.querySelector('#notice').hidden && document.querySelector('#lamp').className === 'on'")
    page.wait_until("document.querySelector('#when').innerText.includes('12:00:20')")
    # The browser logs refused connections on the console. The page itself must log no error.
    assert [said for said in page.complaints if "ERR_" not in said] == []


def test_names_of_the_pipeline_are_text_and_never_markup(page: Browser, served: Served) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    record = replace(violation(evil, "missing", at(SECONDS), key=evil), explanation=evil, ids=(evil,), fault=evil)
    nasty: dict[str, Any] = {"pipeline": evil, "reasons": (evil,), "violations_latest": (record,)}
    confirmed = {"confirmed": {"missing": 1}, "retracted": {}, "suspected": {}}
    served.publisher.publish(replace(healthy(), violations=confirmed, **nasty))
    page.open(served.url)
    page.wait_until(f"document.querySelector('#violations').textContent.includes({json.dumps(evil)})")
    page.value(PAINTED)
    assert page.value("document.querySelectorAll('main img, header img').length") == 0
    assert page.value("document.title") != "owned"
    assert set(page.requests) == {served.url, served.url + "events"}


def test_the_page_says_what_the_evidence_cannot_show(page: Browser, served: Served) -> None:
    why = "Results say how many events they used, not which."
    served.publisher.publish(replace(healthy(), cannot_see=(why,)))
    page.open(served.url)
    page.wait_until(f"document.querySelector('#cannot-see').innerText.includes({json.dumps(why)})")
    assert page.value("document.querySelector('#limits').hidden") is False
    served.publisher.publish(healthy())
    page.wait_until("document.querySelector('#limits').hidden")


def test_an_unknown_verdict_gives_its_reason(page: Browser, served: Served) -> None:
    unsure = dict.fromkeys(Guarantee, Verdict.UNKNOWN)
    why = "topic page-views does not exist yet"
    served.publisher.publish(replace(healthy(), verdicts=unsure, reasons=(why,), waiting_for=("page-views",)))
    page.open(served.url)
    page.wait_until("document.querySelector('.verdict.declared b')?.textContent.includes('unknown')")
    assert why in page.text("#reasons")
    assert page.value("document.querySelector('#topics tr:last-child td:nth-child(2)').textContent") == "does not exist"


@pytest.mark.full
def test_a_stalled_sidecar_is_shown(page: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.2)
    now = [100.0]
    still = Publisher(config(tmp_path), tmp_path, lambda: now[0])
    try:
        page.open(f"http://127.0.0.1:{still.start().port}/")
        still.publish(healthy())
        page.wait_until("document.querySelector('#lamp').className === 'on'")
        now[0] += 45
        page.wait_until("document.querySelector('#notice').innerText.startsWith('No batch was committed for 45 s')")
        assert page.value("document.querySelector('#lamp').className") == ""
        # A screen reader reads it once, not every second.
        alarm = page.value("document.querySelector('#alarm').textContent")
        assert alarm == "No batch was committed: verdicts stand still. Read the sidecar's log."
    finally:
        still.stop()


@pytest.mark.full
def test_a_selection_survives_an_update(page: Browser, served: Served, snapshots: list[Snapshot]) -> None:
    last = snapshots[-1]
    served.publisher.publish(last)
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    command = page.value("document.querySelector('.finding code').textContent")
    page.value("getSelection().selectAllChildren(document.querySelector('.finding code'))")
    page.value("window.oldest = document.querySelector('#violations tr'); 1")
    page.value("window.key = window.oldest.cells[3].textContent")
    new = violation("v-new", "duplicate", at(SECONDS + 60), key="/only-this")
    counts = {**last.contributions, "processed": last.contributions["processed"] + 5}
    listed = (new, *last.violations_latest)
    served.publisher.publish(replace(last, taken_us=at(SECONDS + 60), violations_latest=listed, contributions=counts))
    page.wait_until("document.querySelector('#findings').innerText.includes('11:55:00 UTC, 6 min ago')")
    assert "6 min ago" in page.text(".verdict.declared")
    assert page.text("#violations tr").count("/only-this") == 1
    assert page.value("String(getSelection())") == command
    assert page.value("window.oldest === document.querySelectorAll('#violations tr')[1]")
    assert page.value("window.oldest.cells[3].textContent === window.key")


@pytest.mark.full
def test_a_button_beside_a_command_copies_it(page: Browser, served: Served, snapshots: list[Snapshot]) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    commands = page.value("[...document.querySelectorAll('.finding code')].map((code) => code.textContent)")
    buttons = page.value("[...document.querySelectorAll('button.copy')].map((b) => b.getAttribute('aria-label'))")
    assert buttons == [f"copy {command}" for command in commands]
    copied = """(() => {
      let text = null;
      document.addEventListener("copy", () => { text = String(getSelection()); }, { once: true });
      document.querySelector("button.copy").click();
      return text; })()"""
    assert page.call("Runtime.evaluate", expression=copied, userGesture=True)["result"]["value"] == commands[0]
    assert page.text("button.copy") == "copied"
    assert page.value("document.querySelector('#copied').textContent") == "Copied."


@pytest.mark.full
def test_the_confirmation_of_a_copy_survives_an_update(
    page: Browser, served: Served, snapshots: list[Snapshot]
) -> None:
    served.publisher.publish(snapshots[-1])
    page.open(served.url)
    page.wait_until("document.querySelectorAll('.finding').length === 2")
    # The test decides when the page's timers run.
    press = """(() => {
      const before = window.setTimeout;
      window.setTimeout = (later, ms, ...given) => { window.timeIsOver = () => later(...given); };
      for (const n of [1, 0]) document.querySelectorAll("button.copy")[n].click();
      window.setTimeout = before; })()"""
    page.call("Runtime.evaluate", expression=press, userGesture=True)
    labels = "[...document.querySelectorAll('button.copy')].map((button) => button.textContent)"
    before = page.value(labels)
    assert before == ["copied", *["copy"] * (len(before) - 1)]
    served.publisher.publish(replace(snapshots[-1], taken_us=at(SECONDS + 60)))
    page.wait_until("document.querySelector('#findings').innerText.includes('11:55:00 UTC, 6 min ago')")
    assert page.value(labels) == before
    page.value("window.timeIsOver()")
    assert set(page.value(labels)) == {"copy"}


@pytest.mark.full
def test_a_canary_that_is_not_found_is_shown(page: Browser, served: Served) -> None:
    served.publisher.publish(replace(healthy(), canary=SEEN))
    page.open(served.url)
    page.wait_until("document.querySelector('#lamp').className === 'on'")
    assert page.value("document.querySelector('#notice').hidden") is True
    tile = "[...document.querySelectorAll('.tile')].find((t) => t.textContent.includes('canary'))"
    assert page.value(f"{tile}.querySelector('dd').textContent") == "1"
    assert page.value(f"{tile}.className") == "tile"
    blind = replace(SEEN, recall_ratio=0.25, class_recall_ratio={"missing": 0.0})
    served.publisher.publish(replace(healthy(SECONDS + 2), canary=blind))
    page.wait_until("document.querySelector('#notice').innerText.startsWith('The sidecar found only a share of 0.25')")
    assert page.value("document.querySelector('#alarm').textContent").startswith("The sidecar found only")
    assert page.value("document.querySelector('#lamp').className") == ""
    assert page.value(f"{tile}.className") == "tile bad"
    assert "pass" in page.value("document.querySelector('.verdict.declared b').textContent")
    assert page.value(CONTRAST) == []
    book = "document.querySelector('#notice a')"
    assert page.value(f"{book}.pathname") == "/runbooks/StreamproofCanaryMissed"
    assert page.value(f"fetch({book}.href).then((answer) => answer.status)") == 200
    # Keyboard focus stays on the link during an update.
    page.value(f"{book}.focus()")
    served.publisher.publish(replace(healthy(SECONDS + 3), canary=replace(blind, recall_ratio=0.5)))
    page.wait_until("document.querySelector('#notice').innerText.startsWith('The sidecar found only a share of 0.5')")
    assert page.value(f"document.activeElement === {book}") is True
    assert page.value(f"{book}.closest('[aria-hidden]')") is None
    served.publisher.publish(replace(healthy(SECONDS + 4), canary=SEEN))
    page.wait_until("document.querySelector('#notice').hidden && document.querySelector('#lamp').className === 'on'")


@pytest.mark.full
def test_a_new_state_is_shown_as_waiting(page: Browser, tmp_path: Path) -> None:
    fresh = Publisher(config(tmp_path), tmp_path)
    try:
        page.open(f"http://127.0.0.1:{fresh.start().port}/")
        page.wait_until("document.querySelector('#when').innerText.includes('no batch yet')")
        assert "Waiting for the first batch." in page.text("#headline")
        fresh.publish(healthy())
        page.wait_until("document.querySelector('#pipeline').innerText === 'clickstream'", SHOWN_WITHIN_SECONDS)
        assert page.complaints == []
    finally:
        fresh.stop()


@pytest.mark.full
def test_an_engine_weaker_than_declared_is_shown_as_text(page: Browser, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)>"
    (tmp_path / "engine.json").write_text(json.dumps({"engine": evil, "guarantee": "at_least_once"}))
    settings = config(tmp_path)
    engine = settings.engine.model_copy(update={"effective": tmp_path / "engine.json"})
    publisher = Publisher(settings.model_copy(update={"engine": engine}), tmp_path)
    port = publisher.start().port
    try:
        publisher.publish(clean())
        page.open(f"http://127.0.0.1:{port}/")
        page.wait_until("document.getElementById('engine').hidden === false", SHOWN_WITHIN_SECONDS)
        shown = page.value("document.getElementById('effective').textContent")
        assert shown.startswith(f"FINDING: {evil} ")
    finally:
        publisher.stop()
