"""The violations table: a violation as a row and back, the newest row of each, and sums over all rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds

from validator.model.arrays import Ints, ints
from validator.model.violation import Violation
from validator.state.tables import VIOLATIONS_SCHEMA, StateTables, Table

SUMMED_BY: Final = ("lookup_us", "class", "phase", "fault", "state", "provable_us")
_COLUMNS: Final = ("violation", "batch", "class", "state", "count", "fault")
_MOVES: Final = ("batch", "violation", "lookup_us", "count")
_FIELDS: Final = {"violation": "id", "class": "violation_class", "lookup_us": "changed_us"}
"""Column -> the field of `Violation` that it holds, if it has another name."""


@dataclass(frozen=True)
class RecordedViolation:
    """A violation, from its newest row.

    ``count``: contributions in it now, 0 if it was retracted. ``by_fault``: fault's name (None: no fault) -> confirmed
    less retracted, over all rows.
    """

    violation: str
    batch: int
    violation_class: str
    state: str
    count: int
    fault: str | None
    by_fault: Mapping[str | None, int]


def rows_of_violations(violations: Sequence[Violation], batch: int) -> pa.Table:
    """The rows of violations that ``batch`` changed."""
    of_columns = [(name, _FIELDS.get(name, name)) for name in VIOLATIONS_SCHEMA.names if name != "batch"]
    columns = {name: [getattr(one, field) for one in violations] for name, field in of_columns}
    return pa.table({**columns, "batch": [batch] * len(violations)}, VIOLATIONS_SCHEMA)


def violation_of(row: Mapping[str, Any], first_us: int | None) -> Violation:
    """The violation of a row. ``first_us``: instant since which the violation is on record."""
    known = {_FIELDS.get(name, name): value for name, value in row.items() if name != "batch"}
    return Violation(**known | {"ids": tuple(row["ids"] or ()), "first_us": first_us})


def growth_of(rows: pa.Table) -> Ints:
    """Contributions that each row confirms, less those that it retracts."""
    return ints(rows["confirmed"], 0) - ints(rows["retracted"], 0)


def summed(rows: pa.Table) -> list[dict[str, Any]]:
    """Sums of ``confirmed`` and ``retracted`` and the number of rows (``rows``), grouped by `SUMMED_BY`."""
    sums = rows.group_by(list(SUMMED_BY)).aggregate(
        [("confirmed", "sum"), ("retracted", "sum"), ("violation", "count")]
    )
    found: list[dict[str, Any]] = sums.rename_columns([*SUMMED_BY, "confirmed", "retracted", "rows"]).to_pylist()
    return found


def confirmed_since(tables: StateTables, since_us: int) -> list[tuple[str, str, int, int, int]]:
    """The confirmations since an instant (microseconds), in time order: violation, class, instant, contributions that
    it confirmed, and those that are confirmed after the violation's last row."""
    rows: list[tuple[int, str, str, int]] = []
    columns = ("lookup_us", "violation", "class", "confirmed")
    for part in tables.scan(Table.VIOLATIONS, columns, ds.field("lookup_us") >= since_us):
        rows += [row for row in zip(*(part[name].to_pylist() for name in columns), strict=True) if row[3]]
    confirmed_now: dict[str, int] = {}
    which = named({violation for _, violation, _, _ in rows})
    for part in tables.scan(Table.VIOLATIONS, ("violation", "confirmed", "retracted"), which) if rows else ():
        grown = growth_of(part).tolist()
        for violation, growth in zip(part["violation"].to_pylist(), grown, strict=True):
            confirmed_now[violation] = confirmed_now.get(violation, 0) + growth
    return [(of, name, at_us, confirmed, confirmed_now[of]) for at_us, of, name, confirmed in sorted(rows)]


def newest_by_violation(tables: StateTables, where: ds.Expression | None = None) -> dict[str, RecordedViolation]:
    """Violation -> its newest row, for rows that match ``where``; empty if the table does not exist.

    ``where`` must match all rows of a violation or none.
    """
    found: dict[str, RecordedViolation] = {}
    sums: dict[str, dict[str | None, int]] = {}
    for part in tables.scan(Table.VIOLATIONS, [*_COLUMNS, "confirmed", "retracted"], where):
        grown = growth_of(part).tolist()
        rows = zip(*(part[name].to_pylist() for name in _COLUMNS), grown, strict=True)
        for violation, batch, of_class, state, count, fault, growth in rows:
            of_faults = sums.setdefault(violation, {})
            of_faults[fault] = of_faults.get(fault, 0) + growth
            known = found.get(violation)
            if known is None or known.batch < batch:
                found[violation] = RecordedViolation(violation, batch, of_class, state, count, fault, of_faults)
    return found


def least_since(tables: StateTables, since: Mapping[str, int]) -> dict[str, int]:
    """Violation -> its smallest number of contributions after a batch. ``since``: violation -> this batch.

    Violations without a later row are left out.
    """
    found: dict[str, int] = {}
    for part in tables.scan(Table.VIOLATIONS, _MOVES, named(since)) if since else ():
        for batch, violation, _, count in zip(*(part[name].to_pylist() for name in _MOVES), strict=True):
            if batch > since[violation]:
                found[violation] = min(count, found.get(violation, count))
    return found


def began_us(tables: StateTables, violations: Collection[str]) -> dict[str, int]:
    """Violation -> lookup instant (microseconds) of its first row, or of the first one after its last retraction."""
    rows: list[tuple[int, str, int, int]] = []
    for part in tables.scan(Table.VIOLATIONS, _MOVES, named(violations)) if violations else ():
        rows += zip(*(part[name].to_pylist() for name in _MOVES), strict=True)
    found: dict[str, int] = {}
    retracted: set[str] = set()
    for _, violation, lookup_us, count in sorted(rows):
        if count and (violation in retracted or violation not in found):
            found[violation] = lookup_us
        (retracted.discard if count else retracted.add)(violation)
    return found


def named(violations: Collection[str]) -> ds.Expression:
    """The condition that a row belongs to one of ``violations``."""
    chosen: ds.Expression = ds.field("violation").isin(pa.array(list(violations), pa.string()))
    return chosen
