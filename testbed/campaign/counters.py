"""The counters that an engine has of itself, once a second: a Parquet file beside that of the samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from testbed.engines.base import EngineError
from testbed.periodic import PeriodicSampler

Row = tuple[int, str, str, float]
"""Time in microseconds, part of the engine, name, value."""
_EVERY_SECONDS: Final = 1.0
_SCHEMA: Final = pa.schema(
    [("time", pa.timestamp("us", tz="UTC")), ("part", pa.string()), ("name", pa.string()), ("value", pa.float64())]
)


class CounterSampler(PeriodicSampler):
    """A context manager that asks in a thread of its own: an engine that is hit may answer late, or not at all."""

    def __init__(
        self,
        counters: Callable[[], Mapping[str, Mapping[str, float]]],
        seen: Callable[[Sequence[Row]], None] | None = None,
        rows: list[Row] | None = None,
    ) -> None:
        """``counters``: part -> name -> value. May raise EngineError, OSError, ValueError or KeyError. ``seen`` gets
        the rows of each answer. ``rows``: the list to which they are added."""
        super().__init__("counters", _EVERY_SECONDS)
        self.rows: list[Row] = [] if rows is None else rows
        self._counters = counters
        self._seen = seen

    def _sample(self) -> None:
        try:
            found = self._counters()
        except (EngineError, OSError, HTTPException, ValueError, KeyError):
            return  # it does not run, or restarts
        now_us = time.time_ns() // 1000
        rows = [(now_us, part, name, value) for part, of in found.items() for name, value in of.items()]
        self.rows += rows
        if self._seen is not None:
            self._seen(rows)


def batch_seconds(rows: Sequence[Row], begin_us: int, end_us: int) -> list[float]:
    """How long each batch with input took that an engine of micro-batches (Spark) counted within a time."""
    seen: dict[tuple[int, str], dict[str, float]] = {}
    for at_us, part, name, value in rows:
        if begin_us <= at_us <= end_us:
            seen.setdefault((at_us, part), {})[name] = value
    # The newest batch is counted each second, until it is not the newest any more.
    batches = {(part, of["batch"]): of for (_, part), of in seen.items() if "batch" in of and "trigger-ms" in of}
    return [of["trigger-ms"] / 1000 for of in batches.values() if of.get("input-rows")]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as Parquet. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(_SCHEMA)]
    partial = path.with_suffix(".tmp")
    pq.write_table(pa.table(columns, schema=_SCHEMA), partial)
    partial.replace(path)
