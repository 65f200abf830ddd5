"""Comparing ids in parts has the same result as comparing all at once. Evidence is bounded: the smallest ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.reconcile_rows import MINUTE_US, clock, fact, facts
from validator.core import judging as judging_module
from validator.core.judging import Judging
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.evidence import ids
from validator.reconcile.evidence.seam import IDS_KEPT
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables

RULES = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)


def judged(folder: Path, *rows: dict[str, Any]) -> Judging:
    """The cells of one batch once they are closed and due."""
    found = Judging(KnownFacts(StateTables(folder), first_batch=0), RULES)
    found.absorb(facts(*rows), clock(10), {})
    found.absorb(None, clock(100), {})
    return found


def broken_cells(cells: int) -> list[dict[str, Any]]:
    """Cell n expects ids 10n to 10n + 9. Its result lacks the first, has the last twice, and has the first of the next
    cell."""
    rows = []
    for n in range(cells):
        own = list(range(10 * n, 10 * n + 10))
        where = {"batch": 0, "lookup_us": 1, "window_us": n * MINUTE_US, "key": f"k{n % 3}"}
        rows += [fact("input", own, **where), fact("output", [*own[1:], own[-1], 10 * n + 10], **where)]
    return rows


def test_each_class_is_counted_and_named(tmp_path: Path) -> None:
    found = judged(tmp_path, *broken_cells(4))
    counts = found.sums.counts
    # The unexpected id of the last cell belongs to no event.
    assert (counts["missing"], counts["duplicate"], counts["misplaced"], counts["unknown_id"]) == (4, 4, 3, 1)
    row = found.cells.keys().to_pylist().index("k1")
    assert [found.evidence[row, name] for name in ("missing", "duplicate", "misplaced")] == [("10",), ("19",), ("20",)]
    assert found.evidence[3, "unknown_id"] == ("40",)


def test_a_comparison_in_parts_equals_one_of_all_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = judged(tmp_path, *broken_cells(9))
    monkeypatch.setattr(judging_module, "COMPARED_AT_ONCE", 25)
    parts = judged(tmp_path, *broken_cells(9))
    assert parts.sums == whole.sums
    assert parts.evidence == whole.evidence


def test_evidence_is_the_smallest_ids_in_their_own_order_and_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = {"batch": 0, "lookup_us": 1}
    rows = [fact("input", range(5, 505), key=key, **where) for key in ("a", "b", "c")]
    found = judged(tmp_path, *rows)
    assert found.evidence[0, "missing"] == tuple(str(number) for number in range(5, 5 + IDS_KEPT))
    monkeypatch.setattr(ids, "VIOLATIONS_KEPT", 2)
    bounded = judged(tmp_path, *rows)
    assert bounded.sums == found.sums
    assert len(bounded.evidence) == 2
