"""Only ids retract a violation on record."""

from __future__ import annotations

from pathlib import Path

from tests.unit.judged_run import Cell
from tests.unit.reconcile_rows import fact


def test_another_result_of_a_cell_retracts_no_duplicate_before_its_ids_are_known(tmp_path: Path) -> None:
    cell = Cell(tmp_path)
    cell.after(10, fact("input", [1, 2, 3], batch=0, lookup_us=10))
    assert cell.after(20, fact("output", [1, 2, 3, 3], batch=1, lookup_us=20)) == {"duplicate": (1, 0)}
    assert cell.after(30) == {}
    assert cell.after(100, fact("output", [1], batch=2, lookup_us=100), inputs_us=90) == {}
    assert cell.after(110) == {"duplicate": (1, 0)}


def test_a_result_retracts_only_the_violations_of_its_ids(tmp_path: Path) -> None:
    cell = Cell(tmp_path)
    cell.after(10, fact("input", [1, 2, 3, 4, 5], batch=0, lookup_us=10))
    assert cell.after(20) == {"missing": (5, 0)}
    assert cell.after(30, fact("output", [1, 1], batch=1, lookup_us=30), inputs_us=25) == {}
    assert cell.after(40) == {"missing": (0, 1), "duplicate": (1, 0)}
    assert cell.after(50, fact("output", [2, 3, 4, 5], batch=2, lookup_us=50)) == {"missing": (0, 4)}


def test_a_violation_is_retracted_once(tmp_path: Path) -> None:
    """The retraction does not repeat although the verdict stays the same: the missing ids are pending again after a
    later event."""
    cell = Cell(tmp_path)
    cell.after(10, fact("input", [1, 2, 3, 4, 5], batch=0, lookup_us=10))
    assert cell.after(20) == {"missing": (5, 0)}
    late = fact("input", [6], batch=1, lookup_us=30)
    assert cell.after(30, late, fact("late", [1, 2], batch=1, lookup_us=30), inputs_us=25) == {}
    assert cell.after(31, outputs_us=30) == {"missing": (0, 1)}
    assert cell.after(32, outputs_us=30) == {}
    assert cell.after(40) == {}
