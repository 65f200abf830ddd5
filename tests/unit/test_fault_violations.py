"""A violation is attributed to the fault in whose failure or recovery phase it happened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from faults.config import parse
from faults.schedule import timeline
from validator.measure.phases import fault_at, injected
from validator.model.snapshot import FaultWindow
from validator.stream.run_record import RunRecord

KILL = FaultWindow("1", "kill", "process_kill", "engine-0", 10, 11, 12, 13)


def test_a_fault_has_its_confirmed_less_retracted_violations() -> None:
    record = RunRecord(faults=(KILL, replace(KILL, id="2", name="pause")))
    record.add_confirmed("duplicate", "recovery", 5, 0, 1, fault="kill")
    record.add_confirmed("missing", "failure", 7, 0, 1, fault="kill")
    record.add_confirmed("missing", "recovery", 0, 7, 2, fault="kill")
    record.add_confirmed("duplicate", "control", 1, 0, 1, fault=None)
    assert record.fault_violations() == {"1": {"duplicate": 5}, "2": {}}


def test_faults_of_one_name_share_their_violations() -> None:
    record = RunRecord(faults=(KILL, replace(KILL, id="2")))
    record.add_confirmed("duplicate", "recovery", 5, 0, 1, fault="kill")
    assert record.fault_violations() == {}


def test_a_suspected_violation_is_attributed_to_no_fault() -> None:
    record = RunRecord(faults=(KILL,))
    row = {"class": "missing", "phase": "failure", "fault": "kill", "state": "suspected", "provable_us": 1}
    record.add_recorded([{**row, "lookup_us": 1, "confirmed": 0, "retracted": 0, "rows": 1}])
    assert record.fault_violations() == {"1": {}}


def _published_of_each(plan: dict[str, Any], taken: set[str]) -> tuple[list[FaultWindow], dict[str, dict[str, int]]]:
    """The windows of a plan, ten instants apart, and the violations of each. Window n (from 0) has n + 1 violations."""
    process = {"type": "process", "start": ["sleep", "9"], "labels": {"role": "worker"}}
    targets = {f"w{n}": {**process, "pid_file": f"{n}.pid"} for n in range(4)}
    steps = timeline(parse({"targets": targets, **plan}), taken=taken).steps
    windows = [
        FaultWindow(s.fault.id, s.fault.name, s.fault.kind, s.fault.target_names, 10 * n, 10 * n, 10 * n, 10 * n + 5)
        for n, s in enumerate(steps)
    ]
    record = RunRecord(faults=tuple(windows))
    for number in range(len(windows)):
        for count, instant in ((1, 10 * number + 1), (number, 10 * number + 6)):
            fault = fault_at(instant, injected(windows))
            assert fault is not None
            record.add_confirmed("duplicate", "failure", count, 0, 1, fault=fault.name)
    return windows, record.fault_violations()


def test_each_of_the_ten_kills_of_a_plan_has_violations_of_its_own() -> None:
    windows, published = _published_of_each({"plan": {"name": "vogel-kill-2"}}, set())
    assert len(windows) == len({window.id for window in windows}) == 10
    assert published == {window.id: {"duplicate": number + 1} for number, window in enumerate(windows)}
    assert [window.name for window in windows[:3]] == ["vogel-kill-2", "vogel-kill-2-2", "vogel-kill-2-3"]


def test_repeated_faults_get_numbered_names_that_are_not_in_use() -> None:
    faults = [{"kind": "process_kill", "target": "w0", "name": name} for name in ("kill", "kill-2", None)]
    windows, published = _published_of_each({"schedule": {"repeat": 2, "faults": faults}}, {"process-kill"})
    assert [window.name for window in windows] == [
        "kill",
        "kill-2",
        "process-kill-2",
        "kill-3",
        "kill-2-2",
        "process-kill-3",
    ]
    assert len(published) == 6
