"""The event stream of the page, and its messages about violations."""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.pages.story import LOST, REPEATED, story
from tests.unit.event_stream import listening, next_event
from tests.unit.publish_snapshots import NOON_US, SEEN, broken, clean, config, newest, violation
from validator.model.classes import Guarantee, ViolationClass
from validator.model.snapshot import Snapshot
from validator.model.terminal import OBEYED
from validator.publish import feed
from validator.publish.feed import Feed, event
from validator.publish.findings import ADVICE, findings
from validator.publish.publisher import Publisher
from validator.publish.report import build
from validator.publish.times import rfc3339

pytestmark = pytest.mark.unit


def test_a_listener_gets_the_history_and_then_each_update(tmp_path: Path) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(clean())
    with listening(publisher) as response:
        name, sent = next_event(response)
        assert (name, len(sent["rows"])) == ("history", 1)
        name, sent = next_event(response)
        assert (name, sent["report"]["outcome"], sent["findings"]) == ("update", "pass", [])
        publisher.publish(replace(broken(), taken_us=NOON_US + 2_000_000))
        name, sent = next_event(response)
        assert (name, sent["report"]["outcome"]) == ("update", "fail")
        assert [f["violation"] for f in sent["findings"]] == ["missing", "duplicate"]
        assert [row[0] for row in sent["rows"]] == [NOON_US / 1e6, NOON_US / 1e6 + 2]
        assert sent["age_seconds"] is not None


def test_after_a_restart_a_listener_sees_that_the_report_is_old(tmp_path: Path) -> None:
    Publisher(config(tmp_path), tmp_path).publish(broken())
    with listening(Publisher(config(tmp_path), tmp_path)) as response:
        assert next_event(response)[0] == "history"
        name, sent = next_event(response)
        assert (name, sent["restoring"], sent["age_seconds"]) == ("update", True, None)
        assert sent["report"]["outcome"] == "fail"


def test_an_update_has_the_commands_that_accept_one_violation_and_all_of_its_class(tmp_path: Path) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(last())
    with listening(publisher) as response:
        assert next_event(response)[0] == "history"
        missing = next_event(response)[1]["findings"][0]
        begins = f"streamproof ack {tmp_path} "
        assert missing["acknowledge"].startswith(f"{begins}m0000000 ")
        assert missing["acknowledge_all"].startswith(f"{begins}--class missing --fault kill-one-worker ")


def test_a_name_with_direction_marks_is_escaped_and_its_command_correct(tmp_path: Path) -> None:
    turned = "click\u202estream"
    lost = replace(broken().violations_latest[0], fault=turned, key=turned, explanation=turned)
    assert (lost.violation_class, lost.state) == ("missing", "confirmed")
    listed = (lost, replace(lost, id="another"))
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(replace(broken(), pipeline=turned, reasons=(turned,), violations_latest=listed))
    with listening(publisher) as response:
        assert next_event(response)[0] == "history"
        _, sent = next_event(response)
    assert OBEYED.findall(json.dumps(sent, ensure_ascii=False)) == []
    assert r" click\u202estream " in sent["headline"]
    assert (sent["report"]["pipeline"], sent["report"]["reasons"]) == (r"click\u202estream", [r"click\u202estream"])
    [missing] = [found for found in sent["findings"] if found["violation"] == "missing"]
    # In a shell the text yields the bytes of the name.
    assert r" --fault $'click\342\200\256stream' " in missing["acknowledge_all"]
    # A script reads the unchanged name.
    assert json.loads((tmp_path / "report.json").read_text())["pipeline"] == turned


def test_an_update_has_the_state_of_the_canary(tmp_path: Path) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(clean())
    with listening(publisher) as response:
        assert next_event(response)[0] == "history"
        assert next_event(response)[1]["canary"] is None
        blind = replace(SEEN, recall_ratio=0.25)
        publisher.publish(replace(clean(), taken_us=NOON_US + 2_000_000, canary=blind))
        _, sent = next_event(response)
        assert (sent["report"]["outcome"], sent["canary"]["found"]) == ("pass", "0.25")
        assert "pass verdict is not reliable" in sent["canary"]["doubt"]
        assert sent["canary"]["runbook"] == "runbooks/StreamproofCanaryMissed"


def test_a_report_of_another_version_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text('{"schema": 99}')
    publisher = Publisher(config(tmp_path), tmp_path)
    with listening(publisher) as response:
        assert next_event(response)[0] == "history"
        publisher.publish(clean())
        assert next_event(response)[1]["report"]["outcome"] == "pass"


def test_stopping_ends_the_streams(tmp_path: Path) -> None:
    publisher = Publisher(config(tmp_path), tmp_path)
    publisher.publish(clean())
    with listening(publisher) as response:
        next_event(response)
        next_event(response)
        publisher.stop()
        assert next_event(response) == ("end", {})
        assert response.read().strip() == b""


def heard(feeding: Feed, count: int) -> list[bytes]:
    """The first ``count`` events that a listener receives."""

    async def listened() -> list[bytes]:
        events = feeding.listen()
        assert events is not None
        async with contextlib.aclosing(events):
            return [await anext(events) for _ in range(count)]

    return asyncio.run(listened())


def test_an_idle_stream_sends_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 0.01)
    said = heard(Feed(lambda: {"rows": []}, lambda: {"age_seconds": 3}), 4)
    assert said[0].startswith(b"retry: ")
    assert said[2:] == [event("beat", {"age_seconds": 3})] * 2


def test_too_many_listeners_are_refused_and_one_that_leaves_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "LISTENERS_MAX", 1)
    feeding = Feed(dict, dict)

    async def listened() -> None:
        first = feeding.listen()
        assert first is not None
        await anext(first)
        assert feeding.listen() is None
        await first.aclose()
        assert feeding.listen() is not None

    asyncio.run(listened())


def test_an_update_is_rendered_once_and_only_for_listeners() -> None:
    made = []

    def update() -> dict[str, Any]:
        made.append(1)
        return {}

    feeding = Feed(dict, dict)
    feeding.publish(update)
    assert made == []
    for _ in range(2):
        assert heard(feeding, 3)[2] == event("update", {})
    assert made == [1]


def test_an_event_is_one_line_of_data() -> None:
    assert event("x", {"key": "a\nb\r"}).count(b"\n") == 3


def last() -> Snapshot:
    return story()[-1]


def test_a_finding_says_how_much_since_when_after_which_fault_and_what_to_do() -> None:
    missing, duplicate = findings(build(last()), newest(last()))
    assert (missing.count, duplicate.count) == (LOST, REPEATED)
    assert missing.since == rfc3339(newest(last())[0].first_us)
    assert "All after fault kill-one-worker on taskmanager-1" in duplicate.attributed
    assert missing.advice == ADVICE[ViolationClass.MISSING]
    assert missing.command == "streamproof explain STATE --id 400000"
    assert not missing.tolerated


def test_a_finding_without_a_listed_violation_has_no_command() -> None:
    (missing, _) = findings(build(last()))
    assert missing.since == rfc3339(last().first_confirmed_us["missing"])
    assert missing.command is None


def test_tolerated_findings_are_last() -> None:
    tolerant = replace(last(), guarantee=Guarantee.AT_MOST_ONCE)
    assert [(f.violation, f.tolerated) for f in findings(build(tolerant))] == [
        ("duplicate", False),
        ("missing", True),
    ]


@pytest.mark.parametrize(
    ("counts", "misplaced", "first"),
    [
        ((2, 2), ("17", "18"), True),
        ((2, 2), ("17", "19"), False),
        ((3, 2), ("17", "18"), False),
    ],
    ids=["all", "some", "some are not listed"],
)
def test_losses_of_ids_that_are_all_misplaced_have_the_advice_of_misplaced_first(
    counts: tuple[int, int], misplaced: tuple[str, ...], first: bool
) -> None:
    """For example if `oracle.size` is twice the window size of the engine."""
    records = (violation("m", "missing", NOON_US), replace(violation("p", "misplaced", NOON_US), ids=misplaced))
    confirmed = dict.fromkeys(last().violations["confirmed"], 0) | dict(
        zip(("missing", "misplaced"), counts, strict=True)
    )
    since = {"misplaced": NOON_US, **last().first_confirmed_us}
    shown = replace(last(), violations={**last().violations, "confirmed": confirmed}, first_confirmed_us=since)
    found = {one.violation: one.advice for one in findings(build(shown), records)}
    of_missing, of_misplaced = ADVICE[ViolationClass.MISSING], ADVICE[ViolationClass.MISPLACED]
    assert found["misplaced"] == of_misplaced
    assert found["missing"].startswith(of_misplaced) is first
    assert found["missing"].endswith(of_missing)


@pytest.mark.parametrize(
    ("name", "word"), [("17", " 17"), ("a b", " 'a b'"), ("x'; rm", """ 'x'"'"'; rm'"""), ("-9", "=-9")]
)
def test_an_id_in_a_command_is_one_word(name: str, word: str) -> None:
    evil = replace(broken(), violations_latest=(replace(violation("v", "missing", NOON_US), ids=(name,)),))
    found = findings(build(evil), newest(evil))
    assert found[0].command == f"streamproof explain STATE --id{word}"


def test_every_class_has_advice() -> None:
    assert set(ADVICE) == set(ViolationClass)
