"""Acknowledged violations leave the alert, and no others do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.judged_run import JudgedRun, lost
from tests.unit.reconcile_rows import fact
from validator.model.snapshot import FaultWindow
from validator.state.acknowledgements import (
    FILE,
    AcknowledgementJournal,
    UnknownViolation,
    acknowledge,
    acknowledge_all,
    read,
)
from validator.state.tables import Table, rows_of


@pytest.fixture
def run(tmp_path: Path) -> JudgedRun:
    return JudgedRun(tmp_path)


def found(run: JudgedRun, at_us: int, key: str, *ids: int) -> None:
    run.after(at_us, fact("output", ids, batch=at_us, lookup_us=at_us, key=key))
    run.after(at_us + 5)


def test_an_acknowledged_violation_is_not_open(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2, 3, 4, 5)
    assert run.open("missing") == 5
    acknowledge(run.state, run.violation("a"), "seen")
    run.published()
    assert run.open("missing") == 0


def test_a_retracted_acknowledged_violation_hides_no_other(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2, 3, 4, 5)
    acknowledge(run.state, run.violation("a"), "seen")
    run.published()
    found(run, 20, "a", 1, 2, 3, 4, 5)
    lost(run, 30, "b", 11, 12, 13, 14, 15)
    assert run.open("missing") == 5


def test_a_shrunk_acknowledged_violation_hides_only_its_remaining_count(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2, 3, 4, 5)
    acknowledge(run.state, run.violation("a"), "seen")
    found(run, 20, "a", 1, 2)
    lost(run, 30, "b", 11, 12)
    assert run.open("missing") == 2


def test_growth_of_an_acknowledged_violation_is_open(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2, 3)
    acknowledge(run.state, run.violation("a"), "seen")
    lost(run, 20, "a", 4, 5)
    assert run.open("missing") == 2
    acknowledge(run.state, run.violation("a"), "these too")
    run.published()
    assert run.open("missing") == 0


def test_a_restart_restores_the_remaining_count_of_an_acknowledgement(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2, 3, 4, 5)
    acknowledge(run.state, run.violation("a"), "seen")
    found(run, 20, "a", 1, 2, 3, 4)
    lost(run, 30, "b", 11, 12)
    run.restarted()
    assert run.open("missing") == 2


def test_a_violation_retracted_before_the_next_batch_hides_no_later_one(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2, 3)
    acknowledge(run.state, run.violation("a"), "seen")
    run.after(20, fact("output", [1, 2, 3], batch=20, lookup_us=20, key="a"))
    run.after(25, fact("input", [7, 8], batch=25, lookup_us=25, key="b"))
    run.after(30)
    assert run.open("missing") == 2


def test_a_retracted_violation_cannot_be_acknowledged(run: JudgedRun) -> None:
    lost(run, 10, "a", 1)
    violation = run.violation("a")
    found(run, 20, "a", 1)
    with pytest.raises(UnknownViolation, match="is retracted"):
        acknowledge(run.state, violation, "seen")
    assert read(run.state) == {}


def test_a_suspected_violation_can_be_acknowledged_once_confirmed(run: JudgedRun) -> None:
    run.after(10, fact("input", [1], batch=10, lookup_us=10, key="a"))
    run.after(20, suspected=frozenset({"missing"}))
    with pytest.raises(UnknownViolation, match="only suspected"):
        acknowledge(run.state, run.violation("a"), "seen")
    # The outputs are read further, and contain no explanation.
    run.after(30)
    acknowledge(run.state, run.violation("a"), "seen")
    run.published()
    assert run.open("missing") == 0


@pytest.mark.parametrize("restart", [False, True])
def test_a_violation_that_occurs_again_after_retraction_is_open(run: JudgedRun, restart: bool) -> None:
    lost(run, 10, "a", 1, 2, 3)
    acknowledge(run.state, run.violation("a"), "seen")
    found(run, 20, "a", 1, 2)
    assert run.open("missing") == 0
    lost(run, 30, "a", 4, 5, 6)
    if restart:
        run.restarted()
    # Event 3 was never retracted.
    assert run.open("missing") == 3
    assert [entry.count for entry in acknowledge_all(run.state, "these too", violation_class="missing")] == [4]
    run.published()
    assert run.open("missing") == 0
    run.restarted()
    assert run.open("missing") == 0


def test_a_removed_line_acknowledges_nothing(run: JudgedRun) -> None:
    lost(run, 10, "a", 1)
    lost(run, 20, "b", 2)
    first = run.violation("a")
    for violation in (first, run.violation("b")):
        acknowledge(run.state, violation, "seen")
    run.published()
    assert run.open("missing") == 0
    lines = (run.state / FILE).read_text().splitlines()
    (run.state / FILE).write_text("".join(f"{line}\n" for line in lines if first in line))
    run.published()
    assert run.open("missing") == 1


def test_an_unrecorded_violation_cannot_be_acknowledged(run: JudgedRun) -> None:
    with pytest.raises(UnknownViolation, match="has no violation 'x'"):
        acknowledge(run.state, "x", "seen")
    lost(run, 10, "a", 1)
    with pytest.raises(UnknownViolation, match="has no violation 'x'"):
        acknowledge(run.state, "x", "seen")


def test_any_violation_of_the_table_can_be_acknowledged(run: JudgedRun) -> None:
    """Not only the violations that the page lists."""
    lost(run, 10, "a", 1)
    old = run.violation("a")
    rows = [
        {"violation": f"v{i}", "class": "missing", "batch": 20, "lookup_us": 20, "state": "confirmed", "count": 1,
         "confirmed": 1, "retracted": 0}
        for i in range(500)
    ]  # fmt: skip
    run.tables.append(rows_of(Table.VIOLATIONS, rows), Table.VIOLATIONS, writer="test", version=20)
    acknowledge(run.state, old, "seen")
    assert read(run.state)[old].count == 1


def test_all_violations_of_a_class_are_acknowledged_with_one_reason(run: JudgedRun) -> None:
    for n in range(120):
        lost(run, 10 + 10 * n, f"a{n}", 2 * n, 2 * n + 1)
    run.after(2000, fact("output", [0, 1, 1], batch=2000, lookup_us=2000, key="a0"))
    run.after(2005)
    assert (run.open("missing"), run.open("duplicate")) == (238, 1)
    taken = acknowledge_all(run.state, "chaos day", violation_class="missing")
    run.published()
    assert (len(taken), run.open("missing"), run.open("duplicate")) == (119, 0, 1)
    assert {entry.reason for entry in read(run.state).values()} == {"chaos day"}
    lost(run, 3000, "a7", 900)
    lost(run, 3010, "later", 901)
    assert run.open("missing") == 2
    assert len(acknowledge_all(run.state, "again", violation_class="missing")) == 2
    with pytest.raises(UnknownViolation, match=r"every .* class missing"):
        acknowledge_all(run.state, "again", violation_class="missing")


def test_only_violations_of_the_given_fault_are_acknowledged(run: JudgedRun) -> None:
    run.record.faults = (FaultWindow("1", "kill", "process_kill", "engine-0", 25, 26, 27, 28),)
    lost(run, 10, "before", 1)
    lost(run, 30, "after", 2, 3)
    assert [entry.count for entry in acknowledge_all(run.state, "planned", fault="kill")] == [2]
    run.published()
    assert run.open("missing") == 1
    with pytest.raises(UnknownViolation, match=r"class duplicate .* fault kill"):
        acknowledge_all(run.state, "planned", violation_class="duplicate", fault="kill")
    with pytest.raises(UnknownViolation, match=r"no confirmed .* fault other"):
        acknowledge_all(run.state, "planned", fault="other")


def test_an_acknowledgement_of_many_leaves_out_suspected_ones(run: JudgedRun) -> None:
    suspected = frozenset({"missing"})
    run.after(10, fact("input", [1], batch=10, lookup_us=10, key="a"), suspected=suspected)
    run.after(15, suspected=suspected)
    run.after(20, fact("input", [2], batch=20, lookup_us=20, key="b"), suspected=suspected)
    run.after(25, suspected=suspected)
    # The answer to event 2 may not be read yet.
    run.after(30, outputs_us=21)
    assert [entry.violation for entry in acknowledge_all(run.state, "known", violation_class="missing")] == [
        run.violation("a")
    ]


def test_a_truncated_line_acknowledges_nothing_and_damages_no_other(run: JudgedRun) -> None:
    lost(run, 10, "a", 1, 2)
    file = run.state / FILE
    file.write_text('{"violation": "other", "class": "mis')
    assert read(run.state) == {}
    acknowledge(run.state, run.violation("a"), "seen")
    assert list(read(run.state)) == [run.violation("a")]


def test_a_line_that_is_being_written_is_read_once_it_is_complete(tmp_path: Path) -> None:
    file, journal = tmp_path / FILE, AcknowledgementJournal(tmp_path)
    assert journal.read() == {}
    line = json.dumps({"violation": "v", "class": "missing", "count": 2, "faults": {}, "batch": 1, "reason": "known"})
    file.write_text(f"{line}\n{line[:20]}".replace('"v"', '"w"'))
    assert list(journal.read()) == ["w"]
    file.write_text(f"{line}\n".replace('"v"', '"w"') + f"{line}\n")
    assert list(journal.read()) == ["w", "v"]
    file.write_text(f"{line}\n")
    assert list(journal.read()) == ["v"]
