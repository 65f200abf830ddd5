"""The state keeps faults that the topic no longer holds: the violations that a plan expects stay out of the alert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.judged_run import JudgedRun, lost
from tests.unit.publish_snapshots import config
from validator.model.progress import IngestProgress, TimeRules
from validator.model.snapshot import FaultWindow
from validator.state.tables import StateTables
from validator.stream import fault_records
from validator.stream.fault_records import FaultRecords, record, recorded
from validator.stream.reporting import snapshot_of

WITHIN_US = 60_000_000


def fault_row(state: str, time_us: int, offset: int, fault: str = "1", **other: object) -> dict[str, Any]:
    """A record of the faults topic as a row of the faults table."""
    row = {"id": fault, "name": "kill", "kind": "process_kill", "target": "engine-0", "state": state}
    row |= {"plan": "", "seed": 0, "parameters": "{}", "expects": '["missing"]', "topic": "faults", "partition": 0}
    return {**row, "time_us": time_us, "offset": offset, **other}


KILL = (fault_row("injected", 25, 0), fault_row("healed", 28, 1))
WINDOW = FaultWindow("1", "kill", "process_kill", "engine-0", 25, None, None, 28, frozenset({"missing"}))


def keep(run: JudgedRun, *rows: dict[str, Any], batch: int = 1) -> None:
    """Handle records of the faults topic as a sidecar does."""
    run.record.faults_read(rows)
    record(run.tables, rows, batch)


def shown(run: JudgedRun) -> tuple[int | None, ...]:
    """The numbers of open, expected and unexpected missing contributions, and of known faults."""
    run.record.expects_within_us = WITHIN_US
    found = snapshot_of(config(run.state), IngestProgress(TimeRules(0, 0)), run.judging.sums, run.record)
    by_class = (found.violations_open, found.violations_expected, found.violations_unexpected)
    return (*(None if counts is None else counts["missing"] for counts in by_class), len(found.faults))


def test_a_restart_after_retention_of_the_topic_raises_no_alert(tmp_path: Path) -> None:
    run = JudgedRun(tmp_path)
    keep(run, *KILL)
    lost(run, 30, "planned", 2, 3)
    assert shown(run) == (2, 2, 0, 1)
    run.restarted()
    run.after(100)
    assert shown(run) == (2, 2, 0, 1)
    assert run.record.faults == (WINDOW,)
    # The fault does not excuse violations long after it.
    lost(run, WITHIN_US * 3, "unplanned", 7)
    assert shown(run) == (3, 2, 1, 1)


def test_a_complete_topic_adds_nothing_to_the_state(tmp_path: Path) -> None:
    run = JudgedRun(tmp_path)
    keep(run, *KILL)
    run.restarted()
    keep(run, *KILL, batch=2)
    assert run.record.faults == (WINDOW,)
    assert [row["batch"] for row in recorded(run.tables)] == [1, 1]


def test_a_healing_published_after_its_injection_expired_ends_the_fault(tmp_path: Path) -> None:
    run = JudgedRun(tmp_path)
    keep(run, KILL[0])
    run.restarted()
    keep(run, KILL[1], batch=2)
    assert run.record.faults == (WINDOW,)


def test_a_recreated_topic_hides_no_fault_of_the_previous_one(tmp_path: Path) -> None:
    run = JudgedRun(tmp_path)
    keep(run, *KILL)
    later = (fault_row("injected", 50, 0, fault="2"), fault_row("healed", 60, 1, fault="2"))
    keep(run, *later, batch=2)
    before = run.record.faults
    assert [(window.id, window.healed_us) for window in before] == [("1", 28), ("2", 60)]
    run.restarted()
    assert run.record.faults == before


def test_faults_of_one_instant_have_the_same_order_for_any_order_of_reading() -> None:
    rows = [fault_row("injected", 7, offset, fault=f"fault-{offset}") for offset in range(12)]
    straight, turned = FaultRecords(), FaultRecords()
    straight.add(rows)
    turned.add(reversed(rows))
    assert [window.id for window in straight.windows()] == [f"fault-{offset}" for offset in range(12)]
    assert turned.windows() == straight.windows()


def test_the_number_of_faults_is_bounded_and_unhealed_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_records, "FAULTS_MAX", 3)
    records = FaultRecords()
    records.add([fault_row("injected", 1, 0, fault="open")])
    for fault in range(2, 7):
        records.add([fault_row("injected", fault * 10, fault, fault=str(fault))])
        records.add([fault_row("healed", fault * 10 + 1, fault + 100, fault=str(fault))])
    assert [window.id for window in records.windows()] == ["open", "5", "6"]


def test_the_expected_classes_of_a_plan_are_in_the_table(tmp_path: Path) -> None:
    record(StateTables(tmp_path), KILL, 1)
    assert [json.loads(str(row["expects"])) for row in recorded(StateTables(tmp_path))] == [["missing"]] * 2


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ({"over_because": "no proxy answers any more."}, "no proxy answers any more."),
        ({"over_because": ""}, None),
        ({"over_because": 7}, None),
        (["over_because"], None),
        ({}, None),
    ],
)
def test_the_reason_of_an_early_end_is_in_the_window(parameters: object, why: str | None) -> None:
    records = FaultRecords()
    records.add([fault_row("injected", 25, 0), fault_row("heal_started", 27, 1, parameters=json.dumps(parameters))])
    assert [window.over_because for window in records.windows()] == [why]
    records.add([fault_row("injected", 25, 2, "2", parameters=json.dumps({"over_because": "of the injection"}))])
    assert records.windows()[1].over_because is None
