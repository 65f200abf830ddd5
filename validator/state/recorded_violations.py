"""What the violations table says of violations now: the newest row of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

from validator.state.tables import StateTables, Table

_COLUMNS: Final = ("violation", "batch", "class", "state", "count", "fault", "confirmed", "retracted")
_MOVES: Final = ("batch", "violation", "lookup_us", "count")


@dataclass(frozen=True)
class Standing:
    """A violation as its newest row has it. ``count``: contributions in it now, 0 where it was retracted.
    ``by_fault``: fault's name (None: of no fault) -> confirmed less retracted under it, of all rows."""

    violation: str
    batch: int
    violation_class: str
    state: str
    count: int
    fault: str | None
    by_fault: Mapping[str | None, int]


def standings(tables: StateTables, where: ds.Expression | None = None) -> dict[str, Standing]:
    """By violation, of the rows for which ``where`` holds (of a violation all or none); empty for an absent table."""
    found: dict[str, Standing] = {}
    sums: dict[str, dict[str | None, int]] = {}
    for part in tables.scan(Table.VIOLATIONS, _COLUMNS, where):
        rows = zip(*(part[name].to_pylist() for name in _COLUMNS), strict=True)
        for violation, batch, of_class, state, count, fault, confirmed, retracted in rows:
            of_faults = sums.setdefault(violation, {})
            of_faults[fault] = of_faults.get(fault, 0) + confirmed - retracted
            known = found.get(violation)
            if known is None or known.batch < batch:
                found[violation] = Standing(violation, batch, of_class, state, count, fault, of_faults)
    return found


def began_us(tables: StateTables, violations: Collection[str]) -> dict[str, int]:
    """Violation -> the instant at which it was first recorded; where it was retracted and came again, anew."""
    rows: list[tuple[int, str, int, int]] = []
    for part in tables.scan(Table.VIOLATIONS, _MOVES, named(violations)) if violations else ():
        rows += zip(*(part[name].to_pylist() for name in _MOVES), strict=True)
    found: dict[str, int] = {}
    gone: set[str] = set()
    for _, violation, lookup_us, count in sorted(rows):
        if count and (violation in gone or violation not in found):
            found[violation] = lookup_us
        (gone.discard if count else gone.add)(violation)
    return found


def named(violations: Collection[str]) -> ds.Expression:
    """The condition that a row is of one of these."""
    chosen: ds.Expression = ds.field("violation").isin(pa.array(list(violations), pa.string()))
    return chosen
