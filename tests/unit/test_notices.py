"""The lines that a live sidecar prints, and the summary at the end of `validate --once`."""

from __future__ import annotations

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
    assert change == f"{AT}exactly_once: pass -> fail: {LOST.rstrip('.')} (and 1 more: see the report)"
    assert lost == f"{AT}new class of violation, missing: {LOST}"
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
    (status,) = heard.read(build(broken()))
    assert status.startswith(f"{AT}exactly_once=fail ")


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
