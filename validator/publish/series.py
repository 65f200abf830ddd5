"""A history as rows for plots: rates and latency between neighbouring points, and counts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from validator.publish.history import History, Point, quantile

COUNTS: Final = (
    "pending",
    "overdue",
    "blocked",
    "unconsumed",
    "unresolved",
    "input_lag",
    "output_lag",
    "missing",
    "duplicate",
    "misplaced",
    "unknown_id",
    "undecodable",
)
COLUMNS: Final = (
    "time",
    "read_per_second",
    "processed_per_second",
    "latency_p50_seconds",
    "latency_p99_seconds",
    *COUNTS,
)
"""Columns of a row: time in seconds since the epoch, rates in events per second, latency in seconds, then counts."""

Row = list[float | None]


def rows(history: History, after: int = 0) -> list[Row]:
    """Return one row for each point from the index ``after`` on. Between two starts of the sidecar there is an empty
    row: the time between is not known, and no line may cross it."""
    made: list[Row] = []
    for i in range(max(0, after), len(history.points)):
        point, before = history.points[i], history.points[i - 1] if i else None
        if before is not None and before.restarts != point.restarts:
            made.append([(before.time + point.time) / 2, *[None] * (len(COLUMNS) - 1)])
            before = None
        made.append(_row(history, before, point))
    return made


def restarts(history: History) -> list[float]:
    """Return the time (seconds since the epoch) of the first point after each restart of the sidecar."""
    return [after.time for before, after in pairwise(history.points) if before.restarts != after.restarts]


def plain(history: History) -> dict[str, Any]:
    """Return all rows, with the names of their columns."""
    return {
        "columns": COLUMNS,
        "rows": rows(history),
        "restarts": restarts(history),
        "definition": history.definition,
    }


def _row(history: History, before: Point | None, point: Point) -> Row:
    counts: Row = [getattr(point, name) for name in COUNTS]
    if before is None:
        return [point.time, None, None, None, None, *counts]
    seconds = point.time - before.time
    made = latency_between(before, point)
    return [
        point.time,
        round(max(0, point.read - before.read) / seconds, 3),
        # A contribution can be judged again, so the total may fall: a negative rate has no meaning.
        round(max(0, point.processed - before.processed) / seconds, 3),
        quantile(history.bounds, made, 0.5),
        quantile(history.bounds, made, 0.99),
        *counts,
    ]


def latency_between(before: Point, after: Point) -> tuple[int, ...]:
    """Return the count of each bucket between two points; empty if one has no latency or a count fell."""
    if not before.latency or len(before.latency) != len(after.latency):
        return ()
    counts = tuple(new - old for old, new in zip(before.latency, after.latency, strict=True))
    return counts if min(counts) >= 0 else ()
