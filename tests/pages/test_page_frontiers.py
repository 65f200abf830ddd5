"""The partitions' frontiers on the status page: requested after each update while unfolded, and never while folded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.pages.chromium import Browser, needs_chromium
from tests.pages.served_page import PAINTED, Served, healthy
from tests.pages.story import SECONDS
from tests.unit.publish_snapshots import clean
from validator.model.snapshot import PartitionCoverage, Snapshot

pytestmark = needs_chromium

ONE = clean().coverage[0]
ROWS = "document.querySelectorAll('#partitions tr')"
SUMMARY = "document.querySelector('#frontier summary')"
OF = "document.querySelector('#partitions-of').textContent"
# Answers wait in `held` until the test releases them. If `spoil` is set, it makes the answers. `spoiled` counts them.
HOLD = """(() => {
  const ask = window.fetch;
  window.held = []; window.holding = false; window.spoil = null; window.spoiled = 0;
  window.fetch = async (...what) => {
    const answer = await ask(...what);
    if (window.holding) await new Promise((go) => window.held.push(go));
    if (!window.spoil) return answer;
    window.spoiled += 1;
    return window.spoil(...what); };
})()"""
FAILURES = {
    "no connection": "Promise.reject(new TypeError('Failed to fetch'))",
    "a proxy's page": "new Response('<h1>502 Bad Gateway</h1>', { status: 502 })",
    "an error of ours": 'new Response(\'{"error": "no"}\', { status: 503 })',
    "no batch yet": 'new Response(\'{"batches": null, "time": null, "rows": null}\')',
    "cut": 'new Response(\'{"batches": 7, "rows": [["many"\')',
}


def parts(count: int) -> list[PartitionCoverage]:
    return [replace(ONE, topic="many", partition=partition) for partition in range(count)]


def snapshot_of(coverage: Iterable[PartitionCoverage], batches: int) -> Snapshot:
    """Return a healthy run with this coverage after ``batches`` batches of two seconds each."""
    return replace(healthy(SECONDS + 2 * batches), coverage=tuple(coverage), batches=batches)


def open_unfolded(page: Browser, served: Served) -> None:
    page.open(served.url)
    page.wait_until("document.querySelector('#lamp').className === 'on'")
    page.value(f"{SUMMARY}.click()")


def asked(page: Browser, served: Served) -> int:
    """Return how often the page has requested rows."""
    return page.requests.count(served.url + "partitions.json")


def next_offset(place: int) -> str:
    return f"{ROWS}[{place}]?.cells[3].textContent"


def test_frontiers_are_requested_and_drawn_only_while_unfolded(page: Browser, served: Served) -> None:
    many = parts(2000)
    served.publisher.publish(snapshot_of(many, 1))
    page.open(served.url)
    page.wait_until("document.querySelector('#topics').textContent.includes('2,000')")
    served.publisher.publish(snapshot_of(many, 2))
    page.wait_until("document.querySelector('#when').innerText.includes('12:00:04')")
    assert page.value(f"{ROWS}.length") == 0
    assert set(page.requests) == {served.url, served.url + "events"}
    page.value(f"{SUMMARY}.click()")
    page.wait_until(f"{ROWS}.length === 2000")
    assert page.value(OF) == "As of batch 2, 12:00:04 UTC."
    assert page.text("#partitions tr:nth-child(8)").split("\t")[:4] == ["many", "7", "0", "1,005"]
    page.value(f"window.kept = {ROWS}[7]; window.other = {ROWS}[8].cells[3].firstChild; 1")
    many[7] = replace(many[7], next_offset=4711, expired=3)
    added = replace(ONE, topic="first", partition=0)
    served.publisher.publish(snapshot_of((added, *many), 3))
    page.wait_until(f"{ROWS}.length === 2001")
    assert page.text("#partitions tr:nth-child(1)").startswith("first\t0")
    assert page.text("#partitions tr:nth-child(9)").split("\t")[3] == "4,711"
    assert page.value(f"{ROWS}[8] === window.kept")
    assert page.value(f"{ROWS}[9].cells[3].firstChild === window.other")
    before = asked(page, served)
    page.value(f"{SUMMARY}.click()")
    page.wait_until(f"{ROWS}.length === 0")
    served.publisher.publish(snapshot_of(many, 4))
    page.wait_until("document.querySelector('#when').innerText.includes('12:00:08')")
    assert (asked(page, served), page.value(f"{ROWS}.length"), page.value(OF)) == (before, 0, "")
    assert page.complaints == []


@pytest.mark.full
def test_an_update_during_a_request_for_rows_is_not_lost(page: Browser, served: Served) -> None:
    served.publisher.publish(snapshot_of(parts(3), 1))
    open_unfolded(page, served)
    page.wait_until(f"{ROWS}.length === 3")
    page.value(HOLD)
    page.value("window.holding = true")
    served.publisher.publish(snapshot_of(parts(4), 2))
    page.wait_until("window.held.length === 1")
    for batches in (3, 4, 5):
        served.publisher.publish(snapshot_of(parts(10 + batches), batches))
        page.wait_until(f"document.querySelector('#when').innerText.includes('12:00:{2 * batches:02}')")
    before = asked(page, served)
    assert page.value("window.held.length") == 1, "one request at a time"
    assert page.value(f"{ROWS}.length") == 3
    page.value("window.holding = false; window.held.pop()()")
    page.wait_until(f"{ROWS}.length === 15")
    assert page.value(OF) == "As of batch 5, 12:00:10 UTC."
    assert asked(page, served) == before + 1, "all that came meanwhile is asked for once"


@pytest.mark.full
def test_rows_that_arrive_after_folding_are_not_drawn(page: Browser, served: Served) -> None:
    served.publisher.publish(snapshot_of(parts(3), 1))
    page.open(served.url)
    page.wait_until("document.querySelector('#lamp').className === 'on'")
    page.value(HOLD)
    page.value("window.holding = true")
    page.value(f"{SUMMARY}.click()")
    page.wait_until("window.held.length === 1")
    page.value(f"{SUMMARY}.click()")
    page.value(PAINTED)
    page.value("window.holding = false; window.held.pop()()")
    page.value(PAINTED)
    assert (page.value(f"{ROWS}.length"), page.value(OF)) == (0, "")
    page.value(f"{SUMMARY}.click()")
    page.wait_until(f"{ROWS}.length === 3")


@pytest.mark.full
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
def test_rows_stay_with_their_batch_after_a_failed_request(page: Browser, served: Served, failure: str) -> None:
    one = parts(1)[0]
    served.publisher.publish(snapshot_of([one], 1))
    open_unfolded(page, served)
    page.wait_until(f"{ROWS}.length === 1")
    page.value("window.kept = document.querySelector('#partitions tr'); 1")
    page.value(HOLD)
    page.value(f"window.spoil = () => {failure}; 1")
    served.publisher.publish(snapshot_of([replace(one, next_offset=1006)], 2))
    page.wait_until("window.spoiled === 1 && document.querySelector('#when').innerText.includes('12:00:04')")
    page.value(PAINTED)
    assert page.value("window.spoiled") == 1, "only an update asks again"
    assert page.value(next_offset(0)) == "1,005"
    assert page.value(OF) == "As of batch 1, 12:00:02 UTC.", "older than what is above it, and it says so"
    assert page.value("document.querySelector('#notice').hidden") is True
    page.value("window.spoil = null")
    served.publisher.publish(snapshot_of([replace(one, next_offset=1007)], 3))
    page.wait_until(f"{next_offset(0)} === '1,007'")
    assert page.value(OF) == "As of batch 3, 12:00:06 UTC."
    assert page.value("document.querySelector('#partitions tr') === window.kept")
    assert page.complaints == []


@pytest.mark.full
def test_a_request_without_an_answer_is_given_up(page: Browser, served: Served) -> None:
    served.publisher.publish(snapshot_of(parts(3), 1))
    open_unfolded(page, served)
    page.wait_until(f"{ROWS}.length === 3")
    page.value(HOLD)
    silent = "(_, { signal }) => new Promise((_, no) => signal.addEventListener('abort', () => no(signal.reason)))"
    # A time limit under the test's control replaces the page's.
    page.value(f"window.spoil = {silent}; window.ends = new AbortController(); 1")
    page.value("AbortSignal.timeout = (ms) => ms > 1000 ? window.ends.signal : null; 1")
    served.publisher.publish(snapshot_of(parts(4), 2))
    page.wait_until("window.spoiled === 1")
    served.publisher.publish(snapshot_of(parts(5), 3))
    page.wait_until("document.querySelector('#when').innerText.includes('12:00:06')")
    assert page.value(f"{ROWS}.length") == 3
    page.value(
        "window.spoil = null; window.over = window.ends; window.ends = new AbortController(); window.over.abort()"
    )
    page.wait_until(f"{ROWS}.length === 5")
    assert page.complaints == []


@pytest.mark.full
def test_rows_survive_a_restart_of_the_server(page: Browser, served: Served) -> None:
    served.publisher.publish(snapshot_of(parts(3), 1))
    open_unfolded(page, served)
    page.wait_until(f"{ROWS}.length === 3")
    served.publisher.stop()
    page.wait_until("document.querySelector('#notice').innerText.startsWith('The sidecar was stopped')")
    assert page.value(f"{ROWS}.length") == 3
    # Folded and unfolded while the server is down.
    for _ in range(2):
        page.value(f"{SUMMARY}.click()")
        page.value(PAINTED)
    page.wait_until(f"{OF} === 'The sidecar does not answer.'")
    served.start()
    page.wait_until(
        "document.querySelector('#notice').innerText.includes('This page shows the report from before')", 15
    )
    page.wait_until(f"{ROWS}.length === 3 && {OF} === 'As of batch 1, 12:00:02 UTC.'")
    served.publisher.publish(snapshot_of(parts(5), 2))
    page.wait_until(f"{ROWS}.length === 5")
    # The browser logs refused connections on the console. The page itself must log no error.
    assert [said for said in page.complaints if "ERR_" not in said] == []


@pytest.mark.full
def test_a_page_without_a_batch_gets_rows_with_the_first(page: Browser, served: Served) -> None:
    page.open(served.url)
    page.wait_until("document.querySelector('#when').innerText.includes('no batch yet')")
    page.value(f"{SUMMARY}.click()")
    page.value(PAINTED)
    served.publisher.publish(snapshot_of(parts(3), 1))
    page.wait_until(f"{ROWS}.length === 3")
    assert page.complaints == []


@pytest.mark.full
def test_an_update_keeps_focus_selection_and_scroll_position(page: Browser, served: Served) -> None:
    served.publisher.publish(snapshot_of(parts(30), 1))
    page.open(served.url)
    page.wait_until("document.querySelector('#lamp').className === 'on'")
    for _ in range(30):
        page.press("Tab")
        if page.value("document.activeElement.parentNode.id") == "frontier":
            break
    page.press(" ")
    page.wait_until(f"{ROWS}.length === 30")
    page.value(f"getSelection().selectAllChildren({ROWS}[20].cells[1])")
    page.value(f"{SUMMARY}.focus()")
    page.value("window.top0 = document.querySelector('#partitions').getBoundingClientRect().top; 1")
    # A flicker is a row that is removed and inserted again.
    count = "(seen) => { for (const one of seen) window.removed += one.removedNodes.length; }"
    watch = f"new MutationObserver({count}).observe(document.querySelector('#partitions'), {{ childList: true }})"
    page.value(f"window.removed = 0; {watch}; 1")
    moved = [replace(part, next_offset=2000) for part in parts(30)]
    served.publisher.publish(snapshot_of(moved, 2))
    page.wait_until(f"{next_offset(29)} === '2,000'")
    assert page.value(f"document.activeElement === {SUMMARY}")
    assert page.value("String(getSelection())") == "20"
    assert page.value("document.querySelector('#partitions').getBoundingClientRect().top === window.top0")
    assert page.value("window.removed") == 0
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    heard = [node for node in nodes if not node.get("ignored")]
    roles = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in heard]
    assert ("columnheader", "next offset") in roles
    assert ("cell", "2,000") in roles or ("gridcell", "2,000") in roles
    assert any("As of batch 2" in name for _, name in roles)
    # A screen reader must not read out thousands of cells at each batch.
    assert page.value(f"{SUMMARY}.parentNode.querySelector('[aria-live], [role=status], [role=alert]')") is None
