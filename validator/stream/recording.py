"""Appends to the derived tables, each idempotent, and only when something changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.measure.attribution import phase_of
from validator.model.snapshot import FaultWindow
from validator.reconcile import violations
from validator.reconcile.arrays import nullable
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, STATES
from validator.state.tables import StateTables, Table, rows_of
from validator.stream.judging import Judging

LATEST_KEPT: Final = 50
"""Violations shown per batch; all of them are in the table."""


@dataclass(frozen=True)
class Recorded:
    """What an append to the violations table added: sums by (class, phase, fault, state, provable_us), the largest
    rows, and of every row how many contributions are in its violation now."""

    sums: tuple[Mapping[str, Any], ...]
    latest: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    lookup_us: int = 0


@dataclass(frozen=True)
class Moment:
    """Which commit a derived row belongs to."""

    tables: StateTables
    writer: str
    batch: int
    lookup_us: int


def record_verdicts(judging: Judging, moment: Moment) -> None:
    """Append the verdicts that changed."""
    judged, cells = judging.judged, judging.cells
    assert judged is not None, "cells were judged before they are recorded"
    rows = np.flatnonzero(judged.changed)
    size = len(rows)
    columns: dict[str, pa.Array] = {
        "batch": pa.array(np.full(size, moment.batch)),
        "lookup_us": pa.array(np.full(size, moment.lookup_us)),
        "window_start_us": pa.array(cells["window_start_us"][rows]),
        "key": pa.array(cells.names(rows.tolist()), pa.string()),
        "state": pa.DictionaryArray.from_arrays(pa.array(judged.state[rows]), pa.array(STATES)).cast(pa.string()),
        "closed_us": nullable(cells["closed_us"][rows]),
        **{name: pa.array(judged.counts[name][rows]) for name in (*CONTRIBUTIONS, *RESULTS)},
    }
    moment.tables.append(pa.table(columns), Table.VERDICTS, writer=moment.writer, version=moment.batch)


def record_violations(
    judging: Judging,
    faults: Sequence[FaultWindow],
    moment: Moment,
    *,
    suspected: frozenset[str],
    has_broker_time: bool,
    unreadable: Sequence[dict[str, Any]] = (),
) -> Recorded:
    """Append the violations that moved, each told by the phase and fault of the instant at which it happened.

    ``unreadable``: those of results in no cell (`UnreadableResults.moved`).
    """
    judged = judging.judged
    assert judged is not None, "cells were judged before they are recorded"
    rows = violations.moved(
        judging.cells, judged, judging.rules, judging.evidence, suspected=suspected, has_broker_time=has_broker_time
    )
    rows += unreadable
    phases: dict[int | None, tuple[str, str | None]] = {None: ("control", None)}
    for row in rows:
        at_us = row.pop("at_us")
        if at_us not in phases:
            phases[at_us] = phase_of(at_us, faults)
        row["phase"], row["fault"] = phases[at_us]
        row["batch"], row["lookup_us"] = moment.batch, moment.lookup_us
    moment.tables.append(rows_of(Table.VIOLATIONS, rows), Table.VIOLATIONS, writer=moment.writer, version=moment.batch)
    by_size = sorted(rows, key=lambda row: (-row["count"], row["class"], row["window_start_us"] or 0, row["key"] or ""))
    counts = {row["violation"]: row["count"] for row in rows}
    return Recorded(tuple(_summed(rows)), tuple(by_size[:LATEST_KEPT]), counts, moment.lookup_us)


_SUMMED: Final = ("class", "phase", "fault", "state", "provable_us")


def _summed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        place = tuple(row[name] for name in _SUMMED)
        total = found.setdefault(
            place, {**dict(zip(_SUMMED, place, strict=True)), "confirmed": 0, "retracted": 0, "rows": 0}
        )
        total["confirmed"] += row["confirmed"]
        total["retracted"] += row["retracted"]
        total["rows"] += 1
    return list(found.values())
