"""The lines that a live sidecar prints, and the summary at the end of `validate --once`."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.publish_snapshots import broken, clean, newest
from validator.model.classes import Guarantee, Verdict
from validator.publish import text
from validator.publish.notices import STATUS_EVERY_SECONDS, Notices
from validator.publish.progress import LINE_EVERY_SECONDS, Progress
from validator.publish.report import build

pytestmark = pytest.mark.unit

AT = "2026-01-31T12:00:00 "
LOST = (
    "3 events were lost: no result, late or rejected record carries them. "
    "1 after fault kill-one-worker on taskmanager-1 at 2026-01-31 11:59:30."
)


class Heard:
    """Notices on a clock that a test sets, with their lines."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.said: list[str] = []
        self.notices = Notices(self.said.append, lambda: self.seconds)

    def read(self, report: dict[str, Any]) -> list[str]:
        """The lines printed for this report."""
        self.said.clear()
        self.notices.update(report)
        return list(self.said)

    def look(self, seconds: float) -> list[str]:
        """The lines printed at this time without a report."""
        self.said.clear()
        self.seconds = seconds
        self.notices.write_status()
        return list(self.said)


def doubtful() -> dict[str, Any]:
    verdicts = dict.fromkeys(Guarantee, Verdict.UNKNOWN)
    return build(
        replace(clean(), verdicts=verdicts, reasons=("topic late does not exist yet", "nothing has settled yet"))
    )


def test_a_verdict_that_changes_and_a_new_class_have_one_line_each() -> None:
    heard = Heard()
    first = f"{AT}exactly_once: unknown: topic late does not exist yet (and 1 more: see the report)"
    assert heard.read(doubtful())[0] == first
    assert heard.read(doubtful()) == []
    [passes] = heard.read(build(clean()))
    assert passes.startswith(f"{AT}exactly_once: unknown -> pass: ")
    change, lost, repeated = heard.read(build(broken()))
    assert change == f"{AT}exactly_once: pass -> fail: {LOST} Of these, 2 are acknowledged (and 1 more: see the report)"
    assert lost == f"{AT}new class of violation, missing: {LOST} Of these, 2 are acknowledged."
    assert repeated.startswith(f"{AT}new class of violation, duplicate: 2 duplicates: ")
    assert heard.read(build(broken())) == []
    assert len(heard.read(build(clean()))) == 1, "all is retracted"
    assert len(heard.read(build(broken()))) == 3, "and a class that occurs again is new again"


def test_the_status_comes_first_and_every_minute_and_says_when_no_batch_came() -> None:
    heard = Heard()
    assert heard.look(1000) == [], "before the first batch there is none"
    status = heard.read(build(clean()))[-1]
    assert status.startswith(f"{AT}exactly_once=pass expected=1,000 processed=990 ")
    assert heard.look(1000 + STATUS_EVERY_SECONDS - 1) == []
    assert heard.look(1000 + STATUS_EVERY_SECONDS) == [f"{status}; no batch for 60 s"]
    heard.seconds += STATUS_EVERY_SECONDS
    assert heard.read(build(clean())) == [status]


def test_the_status_says_why_no_batch_came() -> None:
    heard = Heard()
    status = heard.read(build(clean()))[-1]
    heard.said.clear()
    heard.seconds = STATUS_EVERY_SECONDS
    heard.notices.write_status(because="the Kafka brokers at kafka:9092 do not answer")
    assert heard.said == [f"{status}; no batch for 60 s: the Kafka brokers at kafka:9092 do not answer"]


def test_notices_of_an_earlier_process_are_not_repeated() -> None:
    heard = Heard()
    heard.notices.resume(build(broken()))
    assert heard.said[0].startswith("the earlier run ended with fail: Pipeline clickstream breaks its exactly-once ")
    (status,) = heard.read(build(broken()))
    assert status.startswith(f"{AT}exactly_once=fail ")


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def half_read(read: int, left: int) -> dict[str, Any]:
    partition = {**build(clean())["coverage"]["partitions"][0], "first_offset": 0, "next_offset": read}
    whole = build(clean())
    return {**whole, "coverage": {**whole["coverage"], "partitions": [{**partition, "lag_events": left}]}}


def test_a_run_with_once_shows_how_far_it_has_read_with_lines_or_in_place() -> None:
    now = [0.0]
    for stream in (io.StringIO(), Terminal()):
        now[0] = 0.0
        said: list[str] = []
        shown = Progress(stream, said.append, lambda: now[0])
        shown.write_status()
        now[0] = LINE_EVERY_SECONDS
        shown.write_status(because="the brokers do not answer")
        now[0] *= 2
        shown.update(half_read(2_000_000, 500_000))
        now[0] += 1
        shown.say("another line")
        now[0] *= 2
        shown.update(half_read(2_500_000, 0))
        shown.close()
        lines = [
            "reading the first batch, 10 s: the brokers do not answer",
            "2,000,000 of 2,500,000 offsets read, 100,000/s, about 5 s left",
            "2,500,000 offsets read, judging, 42 s",
        ]
        if stream.isatty():
            assert said == ["another line"]
            first, second, gone, again, third, end = stream.getvalue().split("\r\x1b[K")[1:]
            assert ([first, second, third], gone, again, end) == (lines, "", lines[1], "")
        else:
            assert said == [*lines[:2], "another line", lines[2]]
            assert stream.getvalue() == ""


def test_the_summary_is_the_first_part_of_the_report_and_names_the_rest() -> None:
    report, violations = build(broken()), newest(broken())
    shown = text.summary(report, violations, state="/var/my state")
    whole = text.render(report, violations, state="/var/my state")
    head, _, tail = shown.partition("\nOutstanding\n")
    assert whole.startswith(head)
    for part in ("Pipeline clickstream breaks its exactly-once guarantee", "\nWhat broke\n", "\nWhere to look\n"):
        assert part in head
    assert tail.endswith("\n  streamproof report '/var/my state'\n")
    assert "\n  Nothing: " in text.summary(build(clean()), ())


def test_a_closed_stderr_changes_no_exit_status() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        command = [sys.executable, "-m", "validator.cli.main", "config", "check", "/nope"]
        assert subprocess.run(command, stderr=writer, check=False).returncode == 2
        lines = "from validator.publish.stderr import release_stderr, to_stderr as say; say('a'); say('b')"
        ended = subprocess.run([sys.executable, "-c", f"{lines}; release_stderr()"], stderr=writer, check=False)
        assert ended.returncode == 0
    finally:
        os.close(writer)
