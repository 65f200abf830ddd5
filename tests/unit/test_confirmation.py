"""A violation reported as suspected is reported again when it is confirmed: once, with the time of the confirmation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.judged_run import JudgedRun
from tests.unit.reconcile_rows import fact
from validator.model.snapshot import FaultWindow
from validator.state.acknowledgements import UnknownViolation, acknowledge
from validator.state.tables import Table

MINUTE = 60_000_000
MISSING = frozenset({"missing"})
CONTROL = ("missing", "control")


@pytest.fixture
def run(tmp_path: Path) -> JudgedRun:
    return JudgedRun(tmp_path)


@pytest.fixture(params=["running", "restarted"])
def go_on(request: pytest.FixtureRequest) -> Callable[[JudgedRun], None]:
    """The process's fate between suspicion and confirmation: it continues, or it is restarted."""
    return JudgedRun.restarted if request.param == "restarted" else JudgedRun.published


def suspect(run: JudgedRun, at_us: int, key: str, *ids: int) -> None:
    run.after(at_us, fact("input", ids, batch=at_us, lookup_us=at_us, key=key), suspected=MISSING)
    run.after(at_us + 5, suspected=MISSING)


def moves(run: JudgedRun) -> list[tuple[str, int, int, int]]:
    """State, count, confirmed and retracted of every row of the violations table, in order."""
    rows = [row for part in run.tables.scan(Table.VIOLATIONS) for row in part.to_pylist()]
    rows.sort(key=lambda row: (row["batch"], row["key"]))
    return [(row["state"], row["count"], row["confirmed"], row["retracted"]) for row in rows]


def totals(run: JudgedRun) -> tuple[dict[tuple[str, str], int], dict[str, int], dict[str, int]]:
    record = run.record
    return record.confirmed_total, record.retracted_total, record.confirmed_now


def test_a_suspected_violation_is_in_no_total(run: JudgedRun) -> None:
    suspect(run, 10, "a", 1, 2)
    assert moves(run) == [("suspected", 2, 0, 0)]
    assert totals(run) == ({}, {}, {})
    assert run.record.first_confirmed_us == {}


def test_a_violation_that_becomes_confirmed_enters_every_total_once(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    suspect(run, 10, "a", 1, 2)
    go_on(run)
    run.after(2 * MINUTE)
    run.after(2 * MINUTE + 5)
    for _ in ("running", "restarted"):
        assert totals(run) == ({CONTROL: 2}, {}, {"missing": 2})
        assert run.record.first_confirmed_us == {"missing": 2 * MINUTE}
        assert run.record.recent.by_minute == {2: {"missing": 2}}
        assert run.record.recent.since(60, 3 * MINUTE) == {"missing": 2}
        [listed] = run.record.latest.values()
        assert (listed.state, listed.count, listed.first_us, listed.changed_us) == ("confirmed", 2, 15, 2 * MINUTE)
        run.restarted()
    assert moves(run) == [("suspected", 2, 0, 0), ("confirmed", 2, 2, 0)]


def test_the_detection_delay_begins_when_nothing_can_explain_the_violation(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    suspect(run, 10, "a", 1, 2)
    go_on(run)
    run.after(2 * MINUTE)
    assert (run.record.detection.sum_seconds, sum(run.record.detection.counts)) == (0.0, 1)


def test_a_violation_that_grows_as_it_becomes_confirmed_is_confirmed_as_a_whole(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    suspect(run, 10, "a", 1, 2)
    go_on(run)
    run.after(20, fact("output", [7], batch=20, lookup_us=20, key="a"))
    run.after(25)
    assert totals(run)[2] == {"missing": 2, "unknown_id": 1}
    suspect(run, 30, "b", 3)
    run.after(40, fact("input", [4], batch=40, lookup_us=40, key="b"), suspected=MISSING)
    run.after(45)
    assert run.record.confirmed_now == {"missing": 4, "unknown_id": 1}
    # The contributions of `a` are confirmed once, although `b` was suspected in between.
    assert (run.record.confirmed_total[CONTROL], run.record.retracted_total) == (4, {})


def test_a_violation_is_attributed_to_the_fault_of_its_own_instant(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    window = FaultWindow("1", "kill", "process_kill", "engine-0", 5, 6, 15, 16)
    run.record.faults = (window,)
    suspect(run, 10, "a", 1, 2)
    assert run.record.by_fault == {}
    go_on(run)
    run.record.faults = (window,)
    run.after(2 * MINUTE)
    assert run.record.by_fault == {("kill", "missing"): 2}
    assert run.record.confirmed_by_fault == {("kill", "missing"): {2: 2}}
    assert run.record.by_phase == {("failure", "kill", "missing"): 2}
    assert run.record.confirmed_total == {("missing", "failure"): 2}


def test_an_explained_suspected_violation_is_not_a_false_alarm(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    suspect(run, 10, "a", 1, 2)
    go_on(run)
    run.after(20, fact("output", [1, 2], batch=20, lookup_us=20, key="a"), suspected=MISSING)
    run.after(25, suspected=MISSING)
    assert moves(run)[-1] == ("retracted", 0, 0, 0)
    for _ in ("running", "restarted"):
        assert totals(run) == ({}, {}, {})
        assert run.record.recent.since(60, 30) == {}
        [listed] = run.record.latest.values()
        assert listed.state == "retracted"
        run.restarted()


def test_a_confirmed_violation_that_is_explained_is_retracted(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    suspect(run, 10, "a", 1, 2)
    run.after(20)
    go_on(run)
    run.after(30, fact("output", [1, 2], batch=30, lookup_us=30, key="a"))
    run.after(35)
    assert moves(run) == [("suspected", 2, 0, 0), ("confirmed", 2, 2, 0), ("retracted", 0, 0, 2)]
    for _ in ("running", "restarted"):
        assert totals(run) == ({CONTROL: 2}, {"missing": 2}, {"missing": 0})
        assert run.record.first_confirmed_us == {}
        run.restarted()


def test_a_confirmed_violation_stays_confirmed_when_new_ones_are_suspected(
    run: JudgedRun, go_on: Callable[[JudgedRun], None]
) -> None:
    """When it was confirmed, all records that could explain it had been read."""
    run.after(10, fact("input", [1, 2], batch=10, lookup_us=10))
    run.after(15)
    go_on(run)
    suspect(run, 20, "b", 3)
    go_on(run)
    run.after(30, suspected=MISSING)
    assert totals(run) == ({CONTROL: 2}, {}, {"missing": 2})
    assert run.record.first_confirmed_us == {"missing": 15}
    run.after(40, fact("output", [1], batch=40, lookup_us=40), suspected=MISSING)
    run.after(45, suspected=MISSING)
    assert totals(run) == ({CONTROL: 2}, {"missing": 1}, {"missing": 1}), (
        "and is retracted by the evidence that explains it"
    )
    assert moves(run) == [("confirmed", 2, 2, 0), ("suspected", 1, 0, 0), ("confirmed", 1, 0, 1)]


def test_a_retraction_hides_no_later_confirmation(run: JudgedRun, go_on: Callable[[JudgedRun], None]) -> None:
    run.after(10, fact("input", [1, 2], batch=10, lookup_us=10))
    run.after(15)
    run.after(90 * MINUTE, fact("output", [1, 2], batch=90 * MINUTE, lookup_us=90 * MINUTE))
    assert run.record.recent.since(60, 91 * MINUTE) == {}
    run.after(92 * MINUTE, fact("input", [3], batch=92 * MINUTE, lookup_us=92 * MINUTE, key="b"))
    run.after(92 * MINUTE + 5)
    go_on(run)
    assert run.record.recent.since(60, 93 * MINUTE) == {"missing": 1}


@pytest.mark.parametrize("taken_back", ["old", "new"])
def test_a_retraction_reduces_the_hour_of_the_confirmation(
    run: JudgedRun, go_on: Callable[[JudgedRun], None], taken_back: str
) -> None:
    for key, event, at_us in (("old", 1, 10 * MINUTE), ("new", 2, 80 * MINUTE)):
        run.after(at_us, fact("input", [event], batch=event, lookup_us=at_us, key=key))
        run.after(at_us + 5)
    answered, at_us = 1 if taken_back == "old" else 2, 85 * MINUTE
    run.after(at_us, fact("output", [answered], batch=3, lookup_us=at_us, key=taken_back))
    run.after(at_us + 5)
    go_on(run)
    assert run.record.recent.since(60, 86 * MINUTE) == ({"missing": 1} if taken_back == "old" else {})
    assert run.record.recent.since(24 * 60, 86 * MINUTE) == {"missing": 1}
    assert run.record.recent.since(24 * 60, 25 * 60 * MINUTE) == ({"missing": 1} if taken_back == "old" else {})


def test_only_missing_events_are_confirmed(run: JudgedRun, go_on: Callable[[JudgedRun], None]) -> None:
    """The topic whose absence caused the suspicion exists again, but is not read through: it may hold the answer."""
    suspect(run, 10, "a", 1, 2)
    go_on(run)
    run.after(20, outputs_us=5)
    assert totals(run) == ({}, {}, {})
    run.after(30, fact("late", [1], batch=30, lookup_us=30), outputs_us=5)
    run.after(35)
    assert totals(run)[2] == {"missing": 1}
    assert moves(run)[-1] == ("confirmed", 1, 1, 0)


def test_a_violation_can_be_acknowledged_once_confirmed(run: JudgedRun) -> None:
    suspect(run, 10, "a", 1, 2)
    with pytest.raises(UnknownViolation, match="only suspected"):
        acknowledge(run.state, run.violation("a"), "seen")
    run.after(20)
    assert run.open("missing") == 2
    acknowledge(run.state, run.violation("a"), "seen")
    run.published()
    assert run.open("missing") == 0
