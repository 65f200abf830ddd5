"""All records of the faults topic that this state has read, kept in the table `faults`.

The topic may lose them by retention, by compaction or when it is recreated, while the violations of a fault stay on
record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from validator.model.cut import shorten
from validator.model.snapshot import FaultWindow
from validator.state.tables import StateTables, Table, rows_of

FAULTS_MAX: Final = 1_000
"""Limit of known faults: those not healed are kept first, then the newest. Every batch compares and publishes each."""

Row = Mapping[str, object]
"""A record as columns of the faults table."""
RecordKey = tuple[object, ...]

_RECORD_KEY: Final = ("topic", "partition", "offset", "id", "state", "time_us")
"""Columns that identify a record. After the topic is recreated an offset has another record."""


class FaultRecords:
    """The records of faults by `_RECORD_KEY`. A record that is taken twice is kept once."""

    def __init__(self) -> None:
        self._rows: dict[RecordKey, Row] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Add records, in any order. Beyond `FAULTS_MAX` faults, the oldest healed ones are dropped."""
        for row in rows:
            self._rows[_record_key(row)] = row
        windows = self._windows()
        if len(windows) > FAULTS_MAX:
            by_age = enumerate(windows)
            kept = sorted(by_age, key=lambda placed: (placed[1].healed_us is None, placed[0]))[-FAULTS_MAX:]
            ids = {window.id for _, window in kept}
            self._rows = {place: row for place, row in self._rows.items() if row["id"] in ids}

    def windows(self) -> tuple[FaultWindow, ...]:
        """One window per fault, oldest first."""
        return tuple(self._windows())

    def _windows(self) -> list[FaultWindow]:
        found: dict[str, list[Row]] = {}
        for row in sorted(self._rows.values(), key=_order):
            found.setdefault(str(row["id"]), []).append(row)
        return [_window(rows) for rows in found.values()]


def recorded(tables: StateTables) -> list[Row]:
    """The rows of the faults table."""
    return [row for part in tables.scan(Table.FAULTS) for row in part.to_pylist()]


def record(tables: StateTables, rows: Iterable[Row], batch: int) -> None:
    """Append the records that the faults table lacks: each start of the sidecar reads the topic from its beginning."""
    stored = recorded(tables)
    known = {_record_key(row) for row in stored}
    new = [{**row, "batch": batch} for row in rows if _record_key(row) not in known]
    if new:
        tables.append(rows_of(Table.FAULTS, new), Table.FAULTS, writer="topic", version=len(stored) + len(new))


def _record_key(row: Row) -> RecordKey:
    return tuple(row[name] for name in _RECORD_KEY)


def _order(row: Row) -> tuple[int, str, int, int]:
    """By time, then by place, so that every start orders them in the same way."""
    return _int(row["time_us"]), str(row["topic"]), _int(row["partition"]), _int(row["offset"])


def _int(value: object) -> int:
    return int(str(value))


def _window(rows: list[Row]) -> FaultWindow:
    """The window of one fault, from its records in time order."""
    first = rows[0]
    instants = {str(row["state"]): _int(row["time_us"]) for row in rows}
    return FaultWindow(
        id=str(first["id"]),
        name=str(first["name"]),
        kind=str(first["kind"]),
        target=str(first["target"]),
        injected_us=instants.get("injected"),
        verified_us=instants.get("verified"),
        heal_started_us=instants.get("heal_started"),
        healed_us=instants.get("healed"),
        expects=frozenset(json.loads(str(first["expects"] or "[]"))),
        over_because=next((why for row in rows if (why := _over_because(row)) is not None), None),
    )


def _over_because(row: Row) -> str | None:
    """Why a fault ended early, as `faults run` notes it in the parameters. Other tools may write any value there."""
    if row["state"] not in ("heal_started", "healed"):
        return None
    parameters = json.loads(str(row["parameters"] or "{}"))
    why = parameters.get("over_because") if isinstance(parameters, dict) else None
    return shorten(why) if isinstance(why, str) and why else None
