"""The phase of an instant (SEMANTICS 6.3) is the same for a result's latency, a violation and the report."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.measure_series import BEGIN, fault, us
from tests.unit.memory_tables import MemoryTables
from validator.core.judging import Effects
from validator.measure.cost import FaultCost
from validator.measure.ledger import Ledger
from validator.measure.phases import injected, phases
from validator.model.snapshot import FaultWindow
from validator.model.violation import Violation
from validator.state.tables import Table
from validator.stream.recording import CommitContext, record
from validator.stream.run_record import RunRecord

BACK = fault("back", 10, 20)
"""It has recovered at 30."""
LOST = fault("lost", 50, 60)
"""It never recovers."""
LONG, SHORT = fault("long", 80, 110), fault("short", 90, 100)
"""They overlap."""
EARLY = fault("early", 120, 119)
"""Its runner's clocks differ: it is healed before its injection."""
NEVER = fault("never", None, 130)
"""The record of its injection was never read."""
FAULTS = (SHORT, LONG, LOST, BACK, EARLY, NEVER)

# Instant in seconds -> phase, and the fault to which a violation at this instant is attributed.
TABLE: dict[int, tuple[str, str | None]] = {
    0: ("control", None),
    9: ("control", None),
    10: ("failure", "back"),
    19: ("failure", "back"),
    20: ("recovery", "back"),
    29: ("recovery", "back"),
    30: ("control", "back"),
    49: ("control", "back"),
    50: ("failure", "lost"),
    60: ("recovery", "lost"),
    79: ("recovery", "lost"),
    85: ("failure", "long"),
    95: ("failure", "short"),
    105: ("failure", "long"),
    115: ("recovery", "long"),
    121: ("recovery", "early"),
    140: ("recovery", "early"),
}


def run_with(*faults: FaultWindow) -> RunRecord:
    ledger = Ledger(final={"back": FaultCost(recovered=True, recovered_us=us(30), is_final=True)})
    return RunRecord(ledger=ledger, faults=faults)


def phase_of_latency(run: RunRecord, at: int) -> str:
    row = {"batch": at, "second": BEGIN + at, "first_us": us(at), "last_us": us(at), "definition": "window_close"}
    run.latency_measured([{**row, "bucket": 7, "results": 1, "contributions": 1, "sum_us": 1, "max_us": 1}])
    [(_, phase)] = run.latency_by_phase
    return phase


def recorded_violation(run: RunRecord, at: int) -> dict[str, Any]:
    tables = MemoryTables()
    violation = Violation("v", "duplicate", "confirmed", 0, "k", 1, ("1",), us(at), us(at), confirmed=1, at_us=us(at))
    context = CommitContext(tables, "writer", at, us(at))
    record(Effects(totals={}, violations=[violation], verdicts=None), context, run, lambda: us(at))
    [part] = tables.scan(Table.VIOLATIONS)
    [found] = part.to_pylist()
    return dict(found)


@pytest.mark.parametrize("at", TABLE)
def test_an_instant_has_the_same_phase_for_every_measure(at: int) -> None:
    phase, attributed = TABLE[at]
    assert phase_of_latency(run_with(*FAULTS), at) == phase
    violation = recorded_violation(run_with(*FAULTS), at)
    assert (violation["phase"], violation["fault"]) == (phase, attributed)
    spans = phases(injected(FAULTS), {"back": us(30)}, us(0))
    [span] = [s for s in spans if s.start_us <= us(at) and (s.end_us is None or us(at) < s.end_us)]
    assert (span.phase, span.fault and span.fault.name) == (phase, None if phase == "control" else attributed)


def test_without_faults_everything_is_control() -> None:
    assert phase_of_latency(run_with(), 5) == recorded_violation(run_with(), 5)["phase"] == "control"
