"""Violations are tied to the fault in whose failure or recovery phase they were seen."""

from __future__ import annotations

from dataclasses import replace

from validator.model.snapshot import FaultWindow
from validator.stream.run_record import RunRecord

KILL = FaultWindow("1", "kill", "process_kill", "engine-0", 10, 11, 12, 13)


def test_confirmed_less_retracted_by_fault() -> None:
    record = RunRecord(faults=(KILL, replace(KILL, id="2", name="pause")))
    record.add_confirmed("duplicate", "recovery", "confirmed", 5, 0, 1, fault="kill")
    record.add_confirmed("missing", "failure", "confirmed", 7, 0, 1, fault="kill")
    record.add_confirmed("missing", "recovery", "retracted", 0, 7, 2, fault="kill")
    record.add_confirmed("duplicate", "control", "confirmed", 1, 0, 1, fault=None)
    assert record.fault_violations() == {"1": {"duplicate": 5}, "2": {}}


def test_faults_of_one_name_are_not_told_apart() -> None:
    record = RunRecord(faults=(KILL, replace(KILL, id="2")))
    record.add_confirmed("duplicate", "recovery", "confirmed", 5, 0, 1, fault="kill")
    assert record.fault_violations() == {}


def test_a_suspected_violation_is_no_faults() -> None:
    record = RunRecord(faults=(KILL,))
    record.add_confirmed("missing", "failure", "suspected", 5, 0, 1, fault="kill")
    assert record.fault_violations() == {"1": {}}
