"""What each window came to, by class: the newest verdicts of its cells, summed. Read from the table, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from validator.reconcile.judge import CONTRIBUTIONS
from validator.state.tables import StateTables, Table

CELL: Final = ("window_start_us", "key")

Windows = Mapping[int, Mapping[str, int]]
"""Start of a window (microseconds since the epoch) -> class of contribution -> count; in the order of time."""


def judged_windows(state: Path) -> Windows:
    """The windows with a judged cell of the state folder ``state``; none where no verdict was ever written.

    A cell that is open and was never judged is in none. The sidecar may run meanwhile. Raises OSError.
    """
    parts = list(StateTables(state).scan(Table.VERDICTS, ["batch", *CELL, *CONTRIBUTIONS]))
    if not parts:
        return {}
    # One thread: `last` follows the order of the rows then.
    rows = pa.concat_tables(parts).sort_by("batch")
    newest = rows.group_by(CELL, use_threads=False).aggregate([(name, "last") for name in CONTRIBUTIONS])
    summed = newest.group_by(CELL[0]).aggregate([(f"{name}_last", "sum") for name in CONTRIBUTIONS]).sort_by(CELL[0])
    return {
        row[CELL[0]]: {name: row[f"{name}_last_sum"] for name in CONTRIBUTIONS}
        for row in summed.to_pylist()
        if row[CELL[0]] is not None
    }
