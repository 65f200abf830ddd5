"""The course of a run over time: a bounded list of points, dense if recent and sparse if old.

A point has only values of a snapshot: totals, counts of outstanding contributions, lag and the latency histogram of
that instant. Rates and quantiles are computed from two points (`series`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from pathlib import Path
from typing import Any, Final, Self

from validator.model.snapshot import Snapshot
from validator.publish.published_files import DAMAGED, Say, text_of, unreadable

HISTORY_FILE: Final = "history.json"
SCHEMA: Final = 1
TIERS: Final = ((600.0, 2.0), (7_200.0, 30.0), (86_400.0, 300.0))
"""(age, step) in seconds: up to this age there is one point per step. Points older than the last age are dropped."""
LATENCIES: Final = ("last_input", "window_close", "first_input")
PEAKS: Final = ("pending", "overdue", "blocked", "unconsumed", "unresolved", "input_lag", "output_lag")
"""Counts that rise and fall. If points are merged, the largest count is kept, so that no peak is lost."""


@dataclass(frozen=True)
class Point:
    """One instant. ``time`` is in seconds since the epoch. ``read`` and ``processed`` are totals of the run.
    ``latency`` has the bucket counts so far (empty: no latency is known). The other fields are counts at that
    instant."""

    time: float
    read: int = 0
    processed: int = 0
    pending: int = 0
    overdue: int = 0
    blocked: int = 0
    unconsumed: int = 0
    unresolved: int = 0
    input_lag: int = 0
    output_lag: int = 0
    missing: int = 0
    duplicate: int = 0
    misplaced: int = 0
    unknown_id: int = 0
    undecodable: int = 0
    restarts: int = 0
    latency: tuple[int, ...] = ()


COLUMNS: Final = tuple(column.name for column in fields(Point))


@dataclass(frozen=True)
class History:
    """Points, oldest first. ``bounds`` are the upper bounds of their latency buckets in seconds, ``definition`` is the
    definition of latency. A new point has at least ``restarts_min`` restarts."""

    points: tuple[Point, ...] = ()
    bounds: tuple[float, ...] = ()
    definition: str | None = None
    restarts_min: int = field(default=0, compare=False)

    def add(self, snapshot: Snapshot) -> Self:
        """Return the history with ``snapshot``, thinned; unchanged if ``snapshot`` is not later than the last point."""
        point = point_of(snapshot)
        point = replace(point, restarts=max(point.restarts, self.restarts_min))
        if point.time <= 0 or (self.points and point.time <= self.points[-1].time):
            return self
        definition = next((name for name in LATENCIES if name in snapshot.latency), None)
        bounds = snapshot.latency[definition].bounds if definition is not None else self.bounds
        return replace(
            self,
            points=thinned([*self.points, point], point.time),
            bounds=bounds,
            definition=definition or self.definition,
        )

    def to_json(self) -> str:
        """Return the content of `history.json`: the names of the columns once, then one array per point."""
        rows = [[getattr(point, column) for column in COLUMNS] for point in self.points]
        plain = {"schema": SCHEMA, "definition": self.definition, "bounds": self.bounds, "columns": COLUMNS}
        return json.dumps({**plain, "points": rows}, separators=(",", ":")) + "\n"


def point_of(snapshot: Snapshot) -> Point:
    """Return the point of ``snapshot``. A class that the snapshot does not count is 0 here, as in the metrics."""
    counts = snapshot.contributions
    confirmed = snapshot.violations.get("confirmed", {})
    lags = {"input": 0, "output": 0}
    for partition in snapshot.coverage:
        side = "input" if partition.role in ("input", "table") else "output"
        lags[side] += partition.lag_events
    latency = next((snapshot.latency[name].counts for name in LATENCIES if name in snapshot.latency), ())
    return Point(
        time=round(snapshot.taken_us / 1e6, 3),
        read=snapshot.inputs.get("read", 0),
        processed=counts.get("processed", 0),
        pending=counts.get("pending", 0),
        overdue=counts.get("overdue", 0),
        blocked=counts.get("blocked", 0),
        unconsumed=counts.get("unconsumed", 0),
        unresolved=counts.get("unresolved", 0),
        input_lag=lags["input"],
        output_lag=lags["output"],
        missing=confirmed.get("missing", 0),
        duplicate=confirmed.get("duplicate", 0),
        misplaced=confirmed.get("misplaced", 0),
        unknown_id=confirmed.get("unknown_id", 0),
        undecodable=confirmed.get("undecodable", 0),
        restarts=snapshot.restarts,
        latency=tuple(latency),
    )


def thinned(points: Iterable[Point], now: float) -> tuple[Point, ...]:
    """Return ``points`` (oldest first) with at most one in each step of their tier at ``now`` (seconds)."""
    kept: list[Point] = []
    place: tuple[float, int, int] | None = None
    for point in points:
        step = next((step for age, step in TIERS if now - point.time <= age), None)
        if step is None:
            continue
        # If the sidecar restarted between two points, both are kept: the line must break there.
        own = (step, int(point.time // step), point.restarts)
        if kept and own == place:
            kept[-1] = _merged(kept[-1], point)
        else:
            kept.append(point)
        place = own
    return tuple(kept)


def _merged(older: Point, newer: Point) -> Point:
    return replace(newer, **{name: max(getattr(older, name), getattr(newer, name)) for name in PEAKS})


def parsed(text: str) -> History:
    """Return the history in ``text``. Raises one of `DAMAGED` if it is damaged or of another version."""
    plain = json.loads(text)
    if plain["schema"] != SCHEMA or tuple(plain["columns"]) != COLUMNS:
        raise ValueError("the history has the schema of another version")
    points = tuple(_point(row) for row in plain["points"])
    definition = plain["definition"]
    if definition is not None and definition not in LATENCIES:
        raise ValueError("the latency definition of the history is unknown")
    # A history is only read at a start. The previous process may have been killed before its start was recorded.
    least = points[-1].restarts + 1 if points else 0
    return History(points, _numbers(plain["bounds"]), definition, least)


def _point(row: Sequence[Any]) -> Point:
    *counts, latency = row
    return Point(**dict(zip(COLUMNS, (*_numbers(counts), _numbers(latency)), strict=True)))


def _numbers(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return ``values``. Raises ValueError unless all are finite numbers: later points are compared with them."""
    if not all(type(value) in (int, float) and isfinite(value) for value in values):
        raise ValueError("a point of the history holds a value that is not a number")
    return tuple(values)


def read(state: Path, say: Say = lambda _: None) -> History:
    """Return the history in the folder ``state``; empty if none was written or it is damaged. Raises OSError."""
    path = state / HISTORY_FILE
    text = text_of(path, say)
    try:
        return History() if text is None else parsed(text)
    except DAMAGED as error:
        # No decision depends on the history.
        say(f"{unreadable(path, error)}: the plots of the status page start empty")
        return History()


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Return the upper bound of the bucket that contains the quantile ``share`` (0 to 1); None if nothing was counted.
    Values above the last bound are shown as the last bound."""
    total = sum(counts)
    if total <= 0:
        return None
    seen = 0
    for i, count in enumerate(counts):
        seen += count
        if seen >= share * total:
            return bounds[min(i, len(bounds) - 1)]
    return bounds[-1]
