"""What the faults topic ever told of this state, kept in the table `faults`: the topic forgets, by its retention or
because it is compacted or made anew, while the violations of a fault stay on record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from validator.model.cut import cut
from validator.model.snapshot import FaultWindow
from validator.state.tables import StateTables, Table, rows_of

FAULTS_MOST: Final = 1_000
"""Faults that are known at a time: those not healed, then the newest. Each is compared and shown with every batch."""

Row = Mapping[str, object]
"""A record as columns of the faults table."""
Place = tuple[object, ...]

_PLACE: Final = ("topic", "partition", "offset", "id", "state", "time_us")
"""What makes a record that one: in a topic made anew an offset holds another."""


class FaultRecords:
    """The records of faults by their place; what is taken twice is there once."""

    def __init__(self) -> None:
        self._rows: dict[Place, Row] = {}

    def take(self, rows: Iterable[Row]) -> None:
        """Add records, in any order; those of the oldest healed faults beyond `FAULTS_MOST` are let go."""
        for row in rows:
            self._rows[_place(row)] = row
        windows = self._windows()
        if len(windows) > FAULTS_MOST:
            by_age = enumerate(windows)
            kept = sorted(by_age, key=lambda placed: (placed[1].healed_us is None, placed[0]))[-FAULTS_MOST:]
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
    """The rows of the faults table; of one place the one that says what is expected is last."""
    # Whole rows: a table of before has no column `expects`.
    rows = [{"expects": None, **row} for part in tables.scan(Table.FAULTS) for row in part.to_pylist()]
    return sorted(rows, key=lambda row: row["expects"] is not None)


def record(tables: StateTables, rows: Iterable[Row], batch: int) -> None:
    """Append those of some records to the faults table that are not in it: every start reads the topic anew."""
    told = recorded(tables)
    whole = {_place(row) for row in told if row["expects"] is not None}
    new = [{**row, "batch": batch} for row in rows if _place(row) not in whole]
    if new:
        tables.append(rows_of(Table.FAULTS, new), Table.FAULTS, writer="topic", version=len(told) + len(new))


def _place(row: Row) -> Place:
    return tuple(row[name] for name in _PLACE)


def _order(row: Row) -> tuple[int, str, int, int]:
    """By time, and within one instant by place: a start orders them as the process before it did."""
    return _int(row["time_us"]), str(row["topic"]), _int(row["partition"]), _int(row["offset"])


def _int(value: object) -> int:
    return int(str(value))


def _window(rows: list[Row]) -> FaultWindow:
    """The window of one fault, from its records in order of time."""
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
    """What `faults run` puts among the parameters of a fault that did not last: others may have put anything there."""
    if row["state"] not in ("heal_started", "healed"):
        return None
    parameters = json.loads(str(row["parameters"] or "{}"))
    why = parameters.get("over_because") if isinstance(parameters, dict) else None
    return cut(why) if isinstance(why, str) and why else None
