"""Appends the changes of a batch to the derived tables. Each append is idempotent and omitted if nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from validator.core.judging import Effects
from validator.measure.phases import fault_at, injected
from validator.model.arrays import ABSENT
from validator.reconcile.violations import Violation
from validator.state.recorded_violations import ViolationChange, summed
from validator.state.tables import StateTables, Table, rows_of
from validator.stream.failpoints import reach
from validator.stream.run_record import Recorded, RunRecord, record_of

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
    unreadable: Sequence[Violation] = (),
) -> None:
    """Append the changed violations, then the changed verdicts, and add the violations to the totals of ``run``.

    ``unreadable``: violations of results that belong to no cell (`UnreadableResults.changed_violations`). ``now_us``:
    the clock, which is read after the violations are committed.
    """
    violations = [*effects.violations, *unreadable]
    if violations:
        run.violations_recorded(_record_violations(violations, context, run), now_us())
    reach("after_violations")
    if effects.verdicts is not None:
        changed = effects.verdicts
        for name in ("lookup_us", "batch"):
            column = pa.repeat(pa.scalar(getattr(context, name), pa.int64()), changed.num_rows)
            changed = changed.add_column(0, name, column)
        context.tables.append(changed, Table.VERDICTS, writer=context.writer, version=context.batch)
    reach("after_verdicts")


def _record_violations(violations: Sequence[Violation], context: CommitContext, run: RunRecord) -> Recorded:
    """Append violations, each with the phase and the fault of the instant at which it occurred."""
    faults = injected(run.faults)
    phases = run.phases_at(one.at_us for one in violations if one.at_us is not None)
    names = {at_us: fault.name for at_us in phases if (fault := fault_at(at_us, faults)) is not None}
    rows = []
    for one in violations:
        at_us = ABSENT if one.at_us is None else one.at_us
        rows.append(_row(one, context) | {"phase": phases.get(at_us, "control"), "fault": names.get(at_us)})
    table = rows_of(Table.VIOLATIONS, rows)
    context.tables.append(table, Table.VIOLATIONS, writer=context.writer, version=context.batch)
    by_size = sorted(zip(violations, rows, strict=True), key=lambda both: _by_size(both[0]))
    latest = (record_of(row, first_us=one.first_us) for one, row in by_size[:LATEST_KEPT])
    counts = {one.id: one.count for one in violations}
    changes = (
        ViolationChange(one.id, one.violation_class, context.lookup_us, one.confirmed, one.confirmed_now)
        for one in violations
    )
    return Recorded(tuple(summed(table)), tuple(latest), counts, tuple(changes))


def _by_size(one: Violation) -> tuple[int, str, int, str]:
    return -one.count, one.violation_class, one.window_start_us or 0, one.key or ""


def _row(one: Violation, context: CommitContext) -> dict[str, Any]:
    names = {"violation": one.id, "class": one.violation_class, "batch": context.batch, "lookup_us": context.lookup_us}
    return {**vars(one), **names, **{name: getattr(one, name) for name in ("state", "confirmed", "retracted")}}
