"""Appends the changes of a batch to the derived tables. Each append is idempotent and omitted if nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from validator.core.judging import Effects
from validator.measure.phases import fault_at, injected
from validator.model.violation import Violation
from validator.state.recorded_violations import rows_of_violations, summed
from validator.state.tables import StateTables, Table
from validator.stream.failpoints import reach
from validator.stream.run_record import RunRecord


@dataclass(frozen=True)
class CommitContext:
    """The tables, writer, batch and lookup instant of a commit to the derived tables."""

    tables: StateTables
    writer: str
    batch: int
    lookup_us: int


def record(effects: Effects, context: CommitContext, run: RunRecord, now_us: Callable[[], int]) -> None:
    """Append the changed violations, then the changed verdicts, and add the violations to the totals of ``run``.

    ``now_us``: the clock, which is read after the violations are committed.
    """
    run.unexamined = effects.unexamined
    violations = _placed(effects.violations, run)
    if violations:
        rows = rows_of_violations(violations, context.batch)
        context.tables.append(rows, Table.VIOLATIONS, writer=context.writer, version=context.batch)
        run.violations_recorded(summed(rows), violations, now_us())
    reach("after_violations")
    if effects.verdicts is not None:
        changed = effects.verdicts
        for name in ("lookup_us", "batch"):
            column = pa.repeat(pa.scalar(getattr(context, name), pa.int64()), changed.num_rows)
            changed = changed.add_column(0, name, column)
        context.tables.append(changed, Table.VERDICTS, writer=context.writer, version=context.batch)
    reach("after_verdicts")


def _placed(violations: Sequence[Violation], run: RunRecord) -> list[Violation]:
    """The violations with the phase and the fault of the instants at which they occurred."""
    faults, places = injected(run.faults), dict[int | None, dict[str, Any]]()
    for at_us, phase in run.phases_at(one.at_us for one in violations if one.at_us is not None).items():
        if (fault := fault_at(at_us, faults)) is not None or phase != Violation.phase:
            places[at_us] = {"phase": phase, "fault": fault and fault.name}
    return [replace(one, **places[one.at_us]) if one.at_us in places else one for one in violations]
