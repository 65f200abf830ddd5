"""The alert leaves out exactly the violations whose class and time a fault's plan expects."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from faults import config as fault_config
from faults.errors import FaultConfigError
from faults.schedule import timeline
from validator.measure.expected import expected, expected_now
from validator.measure.recent import DAY_MINUTES
from validator.model.snapshot import FaultWindow
from validator.state.acknowledgements import Acknowledgement, acknowledge, read
from validator.state.tables import StateTables, Table, rows_of
from validator.stream.reporting import _unexpected
from validator.stream.run_record import RunRecord

MINUTE = 60_000_000
WITHIN = 5 * MINUTE
KILL = FaultWindow(
    "1", "kill", "process_kill", "engine-0", 10 * MINUTE, None, None, 12 * MINUTE, frozenset({"duplicate", "overdue"})
)


def record(*windows: FaultWindow) -> RunRecord:
    found = RunRecord(faults=windows, expects_within_us=WITHIN)
    found.add_confirmed("duplicate", "failure", 30, 0, 11 * MINUTE, fault="kill")
    found.add_confirmed("missing", "failure", 7, 0, 11 * MINUTE, fault="kill")
    found.add_confirmed("duplicate", "control", 4, 0, 11 * MINUTE, fault=None)
    return found


def test_a_fault_expects_only_its_own_classes() -> None:
    assert record(KILL).expected() == {("kill", "duplicate"): 30}


def test_a_fault_without_expects_expects_nothing() -> None:
    assert record(replace(KILL, expects=frozenset())).expected() == {}
    assert record().expected() == {}
    assert record(replace(KILL, name="other")).expected() == {}
    assert record(replace(KILL, injected_us=None)).expected() == {}


def test_faults_of_one_name_must_all_expect_it() -> None:
    again = replace(KILL, id="2", injected_us=30 * MINUTE, healed_us=31 * MINUTE)
    assert record(KILL, again).expected() == {("kill", "duplicate"): 30}
    assert record(KILL, replace(again, expects=frozenset({"missing"}))).expected() == {}


def test_a_violation_between_two_faults_of_one_name_belongs_to_neither() -> None:
    again = replace(KILL, id="2", injected_us=60 * MINUTE, healed_us=61 * MINUTE)
    found = record(KILL)
    found.add_confirmed("duplicate", "recovery", 100, 0, 30 * MINUTE, fault="kill")
    assert found.expected() == {("kill", "duplicate"): 30}
    found.faults = (KILL, replace(again, healed_us=None))
    assert found.expected() == {("kill", "duplicate"): 30}
    found.faults = (KILL, again)
    found.add_confirmed("duplicate", "failure", 7, 0, 60 * MINUTE, fault="kill")
    assert found.expected() == {("kill", "duplicate"): 37}


def test_a_retraction_during_another_fault_reduces_the_expected_count() -> None:
    found = record(KILL, replace(KILL, id="2", name="other", injected_us=20 * MINUTE, healed_us=21 * MINUTE))
    found.add_confirmed("duplicate", "failure", 0, 30, 20 * MINUTE, fault="other")
    assert found.expected() == {}


@pytest.mark.parametrize(("minute", "expects"), [(12, 35), (17, 35), (18, 30), (500, 30)])
def test_a_fault_that_never_recovers_expects_nothing_more_some_time_after_it(minute: int, expects: int) -> None:
    found = record(KILL)
    found.add_confirmed("duplicate", "recovery", 5, 0, minute * MINUTE, fault="kill")
    assert found.expected() == {("kill", "duplicate"): expects}


@pytest.mark.parametrize(("minute", "expects"), [(500, 35), (10 + 24 * 60, 35), (10 + 24 * 60 + 6, 30)])
def test_a_fault_that_is_not_healed_expects_violations_for_a_day(minute: int, expects: int) -> None:
    found = record(replace(KILL, healed_us=None))
    found.add_confirmed("duplicate", "failure", 5, 0, minute * MINUTE, fault="kill")
    assert found.expected() == {("kill", "duplicate"): expects}


def test_retracted_violations_are_no_longer_expected() -> None:
    found = record(KILL)
    found.add_confirmed("duplicate", "recovery", 0, 30, 40 * MINUTE, fault="kill")
    assert found.expected() == {}


def test_merging_old_minutes_changes_no_expectation() -> None:
    days = 3 * DAY_MINUTES
    windows = [
        replace(KILL, id=str(at), injected_us=at * MINUTE, healed_us=(at + 2) * MINUTE) for at in range(10, days, 30)
    ]
    found = record(*windows)
    for minute in range(10, days):
        found.add_confirmed("duplicate", "recovery", 1, 0, minute * MINUTE, fault="kill")
    before = found.expected()
    assert 0 < before["kill", "duplicate"] < days
    for _ in range(2):
        found._forget_old(days * MINUTE)
        assert found.expected() == before
        assert len(found.confirmed_by_fault["kill", "duplicate"]) <= DAY_MINUTES + 2
    assert sum(found.confirmed_by_fault["kill", "duplicate"].values()) == 30 + days - 10


@pytest.mark.parametrize("healed", [130, 3000])
def test_merging_old_minutes_keeps_those_that_a_late_report_of_a_healing_decides(healed: int) -> None:
    """An early healing shortens the time of the fault, and a late one extends it."""
    days = 3 * DAY_MINUTES
    other = replace(KILL, id="2", injected_us=100 * MINUTE, healed_us=None)
    found, unmerged = record(KILL, other), record(KILL, other)
    for minute in range(10, days):
        for each in (found, unmerged):
            each.add_confirmed("duplicate", "recovery", 1, 0, minute * MINUTE, fault="kill")
    found._forget_old(days * MINUTE)
    assert len(found.confirmed_by_fault["kill", "duplicate"]) < len(unmerged.confirmed_by_fault["kill", "duplicate"])
    for each in (found, unmerged):
        each.faults = (KILL, replace(other, healed_us=healed * MINUTE))
    assert found.expected() == unmerged.expected()


def test_expected_classes_are_those_of_the_present_instant() -> None:
    def at(minute: int, *windows: FaultWindow) -> frozenset[str]:
        return expected_now(windows, minute * MINUTE, WITHIN)

    assert at(9, KILL) == frozenset()
    assert at(10, KILL) == {"duplicate", "overdue"}
    assert at(17, KILL) == {"duplicate", "overdue"}
    assert at(18, KILL) == frozenset()
    assert at(18, replace(KILL, healed_us=None)) == {"duplicate", "overdue"}
    assert at(11, KILL, replace(KILL, id="2", name="b", expects=frozenset({"missing"}))) == {
        "duplicate",
        "overdue",
        "missing",
    }


def test_open_unexpected_violations_exclude_expected_and_acknowledged_ones() -> None:
    expects = record(KILL).expected()
    assert _unexpected({"duplicate": 34, "missing": 7}, expects, {}) == {"duplicate": 4, "missing": 7}
    # Everything that the plan expects is acknowledged, so it excuses none of the open ones.
    seen = {("kill", "duplicate"): 30}
    assert _unexpected({"duplicate": 4, "missing": 7}, expects, seen) == {"duplicate": 4, "missing": 7}
    others = {(None, "duplicate"): 3}
    assert _unexpected({"duplicate": 31, "missing": 7}, expects, others) == {"duplicate": 1, "missing": 7}


def test_a_retracted_acknowledged_violation_reduces_the_acknowledged_count(tmp_path: Path) -> None:
    found = record(KILL).acknowledged
    seen = Acknowledgement("v", "duplicate", 30, "seen", {"kill": 30}, batch=1)
    found.follow(StateTables(tmp_path), {"v": seen})
    assert found.left == {("kill", "duplicate"): 30}
    found.apply_changes({"v": 10})
    assert found.left == {("kill", "duplicate"): 10}


def test_one_acknowledgement_over_two_faults_excuses_nothing_else(tmp_path: Path) -> None:
    found = record(KILL)
    found.add_confirmed("duplicate", "failure", 2, 0, 11 * MINUTE, fault="unplanned")
    seen = Acknowledgement("v", "duplicate", 32, "seen", {"kill": 30, "unplanned": 2}, batch=1)
    found.acknowledged.follow(StateTables(tmp_path), {"v": seen})
    # One further duplicate, which is neither acknowledged nor expected.
    assert _unexpected({"duplicate": 1}, found.expected(), found.acknowledged.left) == {"duplicate": 1}


def test_an_acknowledgement_keeps_the_fault(tmp_path: Path) -> None:
    row = {"violation": "v", "class": "duplicate", "batch": 1, "state": "confirmed", "count": 3, "fault": "kill"}
    row |= {"confirmed": 3, "retracted": 0}
    StateTables(tmp_path).append(rows_of(Table.VIOLATIONS, [row]), Table.VIOLATIONS, writer="test", version=1)
    acknowledge(tmp_path, "v", "seen", by="ann")
    found = read(tmp_path)["v"]
    assert found.time_us > 0
    assert replace(found, time_us=0) == Acknowledgement("v", "duplicate", 3, "seen", {"kill": 3}, batch=1, by="ann")


def test_a_violation_of_an_unknown_minute_is_expected() -> None:
    assert expected([KILL], {("kill", "duplicate"): 3}, {}, WITHIN) == {("kill", "duplicate"): 3}


def plan(**fault: object) -> dict[str, object]:
    return {
        "targets": {"w": {"type": "process", "pid_file": "w.pid", "start": ["true"]}},
        "schedule": {"faults": [{"kind": "process_kill", "target": "w", **fault}]},
    }


def test_the_record_of_a_fault_has_the_expected_classes_of_its_plan() -> None:
    [step] = timeline(fault_config.parse(plan(expects=["duplicate", "overdue"]))).steps
    assert step.fault.expects == ("duplicate", "overdue")
    published = json.loads(step.fault.record("injected", datetime(2026, 1, 1, tzinfo=UTC)))
    assert published["expects"] == ["duplicate", "overdue"]
    [bare] = timeline(fault_config.parse(plan())).steps
    assert json.loads(bare.fault.record("injected", datetime(2026, 1, 1, tzinfo=UTC)))["expects"] == []


def test_a_named_plan_expects_for_all_its_faults() -> None:
    named = {"name": "vogel-kill-1", "target": {"name": "w"}, "expects": ["missing"]}
    config = fault_config.parse({"targets": plan()["targets"], "plan": named})
    assert {step.fault.expects for step in timeline(config).steps} == {("missing",)}


@pytest.mark.parametrize("word", ["duplicates", "undecodable", "late"])
def test_a_class_that_no_fault_can_cause_is_refused(word: str) -> None:
    with pytest.raises(FaultConfigError, match=f"{word} .* use missing"):
        fault_config.parse(plan(expects=[word]))
