"""The contributions of each window by class, summed over the newest verdicts of its cells. Needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa

from validator.reconcile.judge import CONTRIBUTIONS
from validator.state.tables import StateTables, Table

CELL: Final = ("window_start_us", "key")

Windows = Mapping[int, Mapping[str, int]]
"""Start of a window (microseconds since the epoch) -> class of contribution -> count, in time order."""


def judged_windows(state: Path) -> Windows:
    """The windows with a judged cell of the state folder ``state``; empty if no verdict was recorded.

    Cells without a recorded verdict are not counted. A sidecar may run at the same time. Raises OSError.
    """
    parts = list(StateTables(state).scan(Table.VERDICTS, ["batch", *CELL, *CONTRIBUTIONS]))
    if not parts:
        return {}
    # A single thread, so that `last` follows the order of the rows.
    rows = pa.concat_tables(parts).sort_by("batch")
    newest = rows.group_by(CELL, use_threads=False).aggregate([(name, "last") for name in CONTRIBUTIONS])
    summed = newest.group_by(CELL[0]).aggregate([(f"{name}_last", "sum") for name in CONTRIBUTIONS]).sort_by(CELL[0])
    return {
        row[CELL[0]]: {name: row[f"{name}_last_sum"] for name in CONTRIBUTIONS}
        for row in summed.to_pylist()
        if row[CELL[0]] is not None
    }
