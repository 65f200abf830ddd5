"""When a violation and a class were first confirmed: also after further violations, retractions and restarts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.judged_run import JudgedRun
from tests.unit.publish_snapshots import NOON_US, SECOND, broken, newest, violation
from tests.unit.reconcile_rows import fact
from validator.model.violation import Violation
from validator.publish.findings import findings
from validator.publish.report import build


@pytest.fixture
def run(tmp_path: Path) -> JudgedRun:
    return JudgedRun(tmp_path)


def lost(run: JudgedRun, at_us: int, key: str, *ids: int) -> None:
    """Append events without results. They are confirmed as missing at ``at_us + 5``."""
    run.after(at_us, fact("input", ids, batch=at_us, lookup_us=at_us, key=key))
    run.after(at_us + 5)


def record(run: JudgedRun, key: str) -> Violation:
    return run.record.latest[run.violation(key)]


def times(run: JudgedRun, key: str) -> tuple[int | None, int]:
    return record(run, key).first_us, record(run, key).changed_us


@pytest.mark.full
@pytest.mark.parametrize("restart", [False, True])
def test_a_class_has_the_instant_of_its_first_violation(run: JudgedRun, restart: bool) -> None:
    lost(run, 10, "a", 1, 2)
    for n in range(150):
        lost(run, 20 + 10 * n, f"b{n}", 100 + n)
    if restart:
        run.restarted()
    assert "a" not in {entry.key for entry in run.record.latest.values()}
    assert run.record.first_confirmed_us == {"missing": 15}


@pytest.mark.parametrize("restart", [False, True])
def test_a_retracted_class_gets_a_new_instant(run: JudgedRun, restart: bool) -> None:
    lost(run, 10, "a", 1, 2)
    run.after(20, fact("output", [1, 2], batch=20, lookup_us=20, key="a"))
    run.after(25)
    assert run.record.first_confirmed_us == {}
    lost(run, 30, "b", 3)
    if restart:
        run.restarted()
    assert run.record.first_confirmed_us == {"missing": 35}


@pytest.mark.parametrize("restart", [False, True])
def test_a_violation_that_grows_keeps_its_first_instant(run: JudgedRun, restart: bool) -> None:
    lost(run, 10, "a", 1, 2)
    lost(run, 20, "a", 3)
    if restart:
        run.restarted()
    assert times(run, "a") == (15, 25)


@pytest.mark.parametrize("restart", [False, True])
def test_a_violation_that_occurs_again_after_retraction_gets_a_new_instant(run: JudgedRun, restart: bool) -> None:
    lost(run, 10, "a", 1)
    run.after(20, fact("output", [1], batch=20, lookup_us=20, key="a"))
    run.after(25)
    assert times(run, "a")[0] == 15
    lost(run, 30, "a", 2)
    if restart:
        run.restarted()
    assert times(run, "a") == (35, 35)


@pytest.mark.full
@pytest.mark.parametrize("restart", [False, True])
def test_a_violation_older_than_the_kept_ones_keeps_its_instant(run: JudgedRun, restart: bool) -> None:
    lost(run, 10, "a", 1)
    for n in range(120):
        lost(run, 20 + 10 * n, f"b{n}", 100 + n)
    if restart:
        run.restarted()
    lost(run, 2000, "a", 2)
    assert times(run, "a") == (15, 2005)
    run.restarted()
    assert times(run, "a") == (15, 2005)


def test_the_page_shows_the_start_of_a_violation_older_than_its_history() -> None:
    old = replace(
        broken(),
        violations_latest=(violation("v-1", "missing", NOON_US - SECOND),),
        first_confirmed_us={"missing": NOON_US - 3 * 86_400 * SECOND, "duplicate": NOON_US},
    )
    [missing, _] = findings(build(old), newest(old))
    assert missing.since == "2026-01-28T12:00:00.000000Z"
