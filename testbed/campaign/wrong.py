"""How long results stayed wrong: the time for which each violation was on record, from its first sight to its
retraction or to the end of the run (OSPBench: seconds that were based on an inconsistent state).

A violation that occurs again after its retraction adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from validator.config.load import load
from validator.state.tables import StateTables, Table

_COLUMNS: Final = ("violation", "lookup_us", "count")


def of_state(config: Path, end_us: int) -> list[float]:
    """The seconds of each violation. ``config``: that of the sidecar, which has ended with its batch at ``end_us``."""
    tables = StateTables(load(config).state.path)
    found = list(tables.scan(Table.VIOLATIONS, _COLUMNS))
    return durations(pa.concat_tables(found), end_us) if found else []


def durations(violations: pa.Table, end_us: int) -> list[float]:
    """The seconds of each violation of the table of violations, in the order of their first sight."""
    of: dict[str, list[tuple[int, int]]] = {}
    columns: Sequence[list[int]] = [violations[name].to_pylist() for name in _COLUMNS]
    for at_us, name, count in sorted(zip(columns[1], columns[0], columns[2], strict=True)):
        of.setdefault(str(name), []).append((at_us, count))
    return [_wrong_us(changes, end_us) / 1e6 for changes in of.values()]


def _wrong_us(changes: Sequence[tuple[int, int]], end_us: int) -> int:
    ends = [*(at_us for at_us, _ in changes[1:]), max(end_us, changes[-1][0])]
    return sum(end - at_us for (at_us, count), end in zip(changes, ends, strict=True) if count)
