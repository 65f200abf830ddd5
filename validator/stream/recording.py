"""Appends to the derived tables, each idempotent, and only when something changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.measure.attribution import phase_of
from validator.model.snapshot import FaultWindow
from validator.reconcile import violations
from validator.reconcile.arrays import nullable
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, STATES
from validator.state.recorded_violations import Move, summed
from validator.state.tables import StateTables, Table, rows_of
from validator.stream.judging import Judging

LATEST_KEPT: Final = 50
"""Violations shown per batch; all of them are in the table."""


@dataclass(frozen=True)
class Recorded:
    """What an append to the violations table added: its rows as `summed` gives them, the largest of them with
    ``first_us``, since when they are on record, and of every row how many contributions are in its violation now, and
    what of it was confirmed or taken back."""

    sums: tuple[Mapping[str, Any], ...]
    latest: tuple[Mapping[str, Any], ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    moves: tuple[Move, ...] = ()


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
        "key": cells.keys(rows).cast(pa.string()),
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
    has_broker_time: bool,
    unreadable: Sequence[dict[str, Any]] = (),
) -> Recorded | None:
    """Append the violations that moved, each told by the phase and fault of the instant at which it happened.

    None where none did.
    ``unreadable``: those of results in no cell (`UnreadableResults.moved`).
    """
    judged = judging.judged
    assert judged is not None, "cells were judged before they are recorded"
    rows = violations.moved(
        judging.cells,
        judged,
        judging.rules,
        judging.evidence,
        suspected=judging.suspected,
        withdrawn=judging.withdrawn,
        lookup_us=moment.lookup_us,
        has_broker_time=has_broker_time,
    )
    rows += unreadable
    if not rows:
        return None
    phases: dict[int | None, tuple[str, str | None]] = {None: ("control", None)}
    for row in rows:
        at_us = row.pop("at_us")
        if at_us not in phases:
            phases[at_us] = phase_of(at_us, faults)
        row["phase"], row["fault"] = phases[at_us]
        row["batch"], row["lookup_us"] = moment.batch, moment.lookup_us
    table = rows_of(Table.VIOLATIONS, rows)
    moment.tables.append(table, Table.VIOLATIONS, writer=moment.writer, version=moment.batch)
    by_size = sorted(rows, key=lambda row: (-row["count"], row["class"], row["window_start_us"] or 0, row["key"] or ""))
    counts = {row["violation"]: row["count"] for row in rows}
    moves = [Move(r["violation"], r["class"], r["lookup_us"], r["confirmed"], r["stands"]) for r in rows]
    return Recorded(tuple(summed(table)), tuple(by_size[:LATEST_KEPT]), counts, tuple(moves))
