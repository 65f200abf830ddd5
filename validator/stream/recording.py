"""Appends the changes of a batch to the derived tables. Each append is idempotent and omitted if nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from validator.core.judging import Effects
from validator.measure.phases import fault_at, injected
from validator.state.recorded_violations import ViolationChange, summed
from validator.state.tables import StateTables, Table, rows_of
from validator.stream.failpoints import reach
from validator.stream.run_record import Recorded, RunRecord

LATEST_KEPT: Final = 50
"""Number of largest violations per batch that are kept for publication. The table has all of them."""


@dataclass(frozen=True)
class CommitContext:
    """The tables, writer, batch and lookup instant of a commit to the derived tables."""

    tables: StateTables
    writer: str
    batch: int
    lookup_us: int


def record(
    effects: Effects,
    context: CommitContext,
    run: RunRecord,
    now_us: Callable[[], int],
    *,
    unreadable: Sequence[dict[str, Any]] = (),
) -> None:
    """Append the changed violations, then the changed verdicts, and add the violations to the totals of ``run``.

    ``unreadable``: violations of results that belong to no cell (`UnreadableResults.changed_violations`). ``now_us``:
    the clock, which is read after the violations are committed.
    """
    rows = [*effects.violations, *unreadable]
    if rows:
        run.violations_recorded(_record_violations(rows, context, run), now_us())
    reach("after_violations")
    if effects.verdicts is not None:
        changed = effects.verdicts
        for name in ("lookup_us", "batch"):
            column = pa.repeat(pa.scalar(getattr(context, name), pa.int64()), changed.num_rows)
            changed = changed.add_column(0, name, column)
        context.tables.append(changed, Table.VERDICTS, writer=context.writer, version=context.batch)
    reach("after_verdicts")


def _record_violations(rows: Sequence[dict[str, Any]], context: CommitContext, run: RunRecord) -> Recorded:
    """Append violations, each with the phase and the fault of the instant at which it occurred."""
    faults = injected(run.faults)
    phases = run.phases_at(row["at_us"] for row in rows if row["at_us"] is not None)
    names = {at_us: fault.name for at_us in phases if (fault := fault_at(at_us, faults)) is not None}
    for row in rows:
        at_us = row.pop("at_us")
        row["phase"], row["fault"] = phases.get(at_us, "control"), names.get(at_us)
        row["batch"], row["lookup_us"] = context.batch, context.lookup_us
    table = rows_of(Table.VIOLATIONS, rows)
    context.tables.append(table, Table.VIOLATIONS, writer=context.writer, version=context.batch)
    by_size = sorted(rows, key=lambda row: (-row["count"], row["class"], row["window_start_us"] or 0, row["key"] or ""))
    counts = {row["violation"]: row["count"] for row in rows}
    changes = [
        ViolationChange(r["violation"], r["class"], r["lookup_us"], r["confirmed"], r["confirmed_now"]) for r in rows
    ]
    return Recorded(tuple(summed(table)), tuple(by_size[:LATEST_KEPT]), counts, tuple(changes))
