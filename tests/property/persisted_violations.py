"""Compares the violations table with what the reference confirms, cell by cell and step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.property.history import Cell
from tests.property.spark_agreement import Row, is_decided
from tests.property.spark_histories import Case, Opinion
from validator.reconcile.judge import VIOLATIONS
from validator.state.tables import StateTables, Table
from validator.stream.run_record import RunRecord

Persisted = Mapping[tuple[str, Cell], int]
"""(class, cell) -> confirmed less retracted."""


def persisted(tables: StateTables) -> Counter[tuple[str, Cell]]:
    """The sums over the rows of the violations table."""
    found: Counter[tuple[str, Cell]] = Counter()
    for part in tables.scan(Table.VIOLATIONS):
        for row in part.to_pylist():
            found[row["class"], (row["window_start_us"], row["key"])] += row["confirmed"] - row["retracted"]
    return found


def wrongly_persisted(
    case: Case, rows: list[Row], opinion: Opinion, held: frozenset[str], before: Persisted, now: Persisted
) -> list[str]:
    """The cells for which the table has more or fewer confirmed contributions than the reference. ``held``: suspected
    classes.

    The table may keep more from earlier steps, since only ids retract a violation. Neither the extra time from a late
    event nor records that become unreadable later retract one.
    """
    found = []
    for row in rows:
        cell = (row["window_start_us"], row["key"])
        counts, _ = opinion.cells.get(cell, (Counter[str](), Counter[str]()))
        decided = is_decided(case, row, opinion.copies.get(cell, 0), counts["expected"] + counts["out_of_scope"])
        for name in VIOLATIONS:
            persisted_before = before.get((name, cell), 0)
            # A cell with a confirmed violation of a class confirms further ones, even if the class is held.
            is_held = name in held and not persisted_before
            least = 0 if name in held or not decided else counts[name]
            most = 0 if is_held else max(counts[name], persisted_before)
            if not least <= now.get((name, cell), 0) <= most:
                found.append(f"seed {case.seed}: {name} of {cell}: {now.get((name, cell), 0)}, not {least} to {most}")
    return found


def totals(record: RunRecord) -> dict[str, Any]:
    """The totals that a restart must restore."""
    return {
        "confirmed": record.confirmed_total,
        "retracted": record.retracted_total,
        "now": record.confirmed_now,
        "first": record.first_confirmed_us,
        "minutes": record.recent.by_minute,
        "listed": {name: (entry.state, entry.count, entry.first_us) for name, entry in record.latest.items()},
    }
