"""Only ids retract a violation on record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.read_through import Suspected, read_through
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.judging import Judging
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables

RULES = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)


class Cell:
    """One cell that receives batch after batch."""

    def __init__(self, folder: Path) -> None:
        self.judging = Judging(KnownFacts(StateTables(folder), first_batch=0), RULES)

    def absorb(
        self, at_us: int, *rows: dict[str, Any], inputs_us: int | None = None, outputs_us: int | None = None
    ) -> list[dict[str, Any]]:
        """The changes of violations in a batch at ``at_us``, dated by broker time. ``inputs_us``, ``outputs_us``: how
        far inputs and outputs are read through."""
        progress = read_through(at_us, inputs_us=inputs_us, outputs_us=outputs_us)
        batch_facts = facts(*rows) if rows else None
        return self.judging.step(batch_facts, progress, Suspected()).violations

    def after(
        self, at_us: int, *rows: dict[str, Any], inputs_us: int | None = None, outputs_us: int | None = None
    ) -> dict[str, tuple[int, int]]:
        """Class -> (confirmed, retracted) in such a batch."""
        moved = self.absorb(at_us, *rows, inputs_us=inputs_us, outputs_us=outputs_us)
        return {row["class"]: (row["confirmed"], row["retracted"]) for row in moved}


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
