"""Acknowledged violations. They stay on record, but no longer raise the alert (SEMANTICS section 4)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow.dataset as ds

from validator.state.recorded_violations import RecordedViolation, least_since, named, newest_by_violation
from validator.state.tables import StateTables, Table, has_rows

FILE: Final = "acknowledgements.jsonl"


class UnknownViolation(Exception):
    """The state has no such violation, or the violation cannot be acknowledged."""


@dataclass(frozen=True)
class Acknowledgement:
    """An acknowledged violation.

    ``count``: contributions in the violation when it was acknowledged; further ones are open. ``by_fault``: fault's
    name (None: no fault) -> how many of them are attributed to it. ``batch``: the batch of ``count``. ``by``: who
    acknowledged it, at ``time_us``; empty and 0 if that is not on record.
    """

    violation: str
    violation_class: str
    count: int
    reason: str
    by_fault: Mapping[str | None, int]
    batch: int
    by: str = ""
    time_us: int = 0


class AcknowledgementJournal:
    """Reads the acknowledgements of a state incrementally."""

    def __init__(self, state: Path) -> None:
        self._path = state / FILE
        self._read_bytes = 0
        self._found: dict[str, Acknowledgement] = {}

    def read(self) -> Mapping[str, Acknowledgement]:
        """The last acknowledgement of each violation, by violation.

        An incomplete last line is left for the next call. Lines that cannot be parsed are ignored.
        """
        try:
            size = self._path.stat().st_size
        except FileNotFoundError:
            return self._found
        if size < self._read_bytes:
            # Lines were removed from the file, so it is read from its start.
            self._read_bytes, self._found = 0, {}
        if size > self._read_bytes:
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, _, _ = file.read().rpartition(b"\n")
            self._read_bytes += len(whole) + 1 if whole else 0
            self._found = self._found | {entry.violation: entry for entry in _entries(whole.splitlines())}
        return self._found


def read(state: Path) -> dict[str, Acknowledgement]:
    """The acknowledgements of a state by violation; empty if there are none."""
    return dict(AcknowledgementJournal(state).read())


def _entries(lines: Iterable[bytes]) -> Iterable[Acknowledgement]:
    for line in lines:
        try:
            entry = json.loads(line)
            violation, of_class, reason = (str(entry[name]) for name in ("violation", "class", "reason"))
            faults = {fault or None: int(count) for fault, count in entry["faults"].items()}
            count, batch, by, time_us = entry["count"], entry["batch"], entry.get("by", ""), entry.get("time_us", 0)
            yield Acknowledgement(violation, of_class, int(count), reason, faults, int(batch), str(by), int(time_us))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def acknowledge(state: Path, violation: str, reason: str, *, by: str = "") -> Acknowledgement:
    """Acknowledge one violation. A running sidecar applies this with its next batch. ``by``: who does it.

    Raises `UnknownViolation` if the state has not recorded it, or if it is suspected or retracted.
    """
    found = _recorded(state, violation)
    if found is None:
        raise UnknownViolation(
            f"the state {state} has no violation {violation!r}: take an id from its file violations.json, or from the "
            "column `violation` of its table `violations`"
        )
    if not found.count:
        raise UnknownViolation(f"violation {violation} is retracted: nothing is left to acknowledge")
    if found.state == "suspected":
        raise UnknownViolation(
            f"violation {violation} is only suspected, so no alert concerns it: acknowledge it once it is confirmed"
        )
    entry = _entry(found, reason, by)
    _append(state, [entry])
    return entry


def acknowledge_all(
    state: Path, reason: str, *, violation_class: str | None = None, fault: str | None = None, by: str = ""
) -> list[Acknowledgement]:
    """Acknowledge all confirmed violations, restricted to a class, to the fault with this name, or to both. ``by``: who
    does it.

    Raises `UnknownViolation` if none is left to acknowledge.
    """
    where = None if violation_class is None else ds.field("class") == violation_class
    tables = StateTables(state)
    recorded = newest_by_violation(tables, where) if has_rows(state, Table.VIOLATIONS) else {}
    confirmed = [
        found for found in recorded.values() if found.state == "confirmed" and (fault is None or found.fault == fault)
    ]
    known = read(state)
    least = least_since(tables, {name: entry.batch for name, entry in known.items()})
    entries = [
        _entry(found, reason, by)
        for found in confirmed
        if found.violation not in known
        # Violations with further contributions, or with contributions that were retracted and confirmed again.
        or min(known[found.violation].count, least.get(found.violation, found.count)) < found.count
    ]
    if not entries:
        of_class = "" if violation_class is None else f" of class {violation_class}"
        of_fault = "" if fault is None else f" attributed to fault {fault}"
        what = f"confirmed violation{of_class}{of_fault}"
        raise UnknownViolation(
            f"the state {state} has no {what}: see its report"
            if not confirmed
            else f"every {what} of the state {state} is acknowledged already: there is nothing to do"
        )
    _append(state, entries)
    return entries


def _entry(found: RecordedViolation, reason: str, by: str) -> Acknowledgement:
    return Acknowledgement(
        found.violation,
        found.violation_class,
        found.count,
        reason,
        found.by_fault,
        found.batch,
        by,
        time.time_ns() // 1000,
    )


def _recorded(state: Path, violation: str) -> RecordedViolation | None:
    if not has_rows(state, Table.VIOLATIONS):
        return None
    return newest_by_violation(StateTables(state), named([violation])).get(violation)


def _append(state: Path, entries: Iterable[Acknowledgement]) -> None:
    lines = [
        json.dumps(
            {
                "violation": entry.violation,
                "class": entry.violation_class,
                "count": entry.count,
                "faults": {fault or "": count for fault, count in entry.by_fault.items()},
                "batch": entry.batch,
                "reason": entry.reason,
                "by": entry.by,
                "time_us": entry.time_us,
            }
        )
        for entry in entries
    ]
    append_lines(state / FILE, lines)


def append_lines(path: Path, lines: Sequence[str]) -> None:
    """Append lines to a journal. They are on the disk when this returns."""
    with os.fdopen(_opened(path), "ab+") as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            # A killed process may have left an incomplete line, which must not be joined with the new ones.
            file.seek(size - 1)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.write("".join(f"{line}\n" for line in lines).encode())
        file.flush()
        os.fsync(file.fileno())


def _opened(path: Path) -> int:
    """Open the file. Only the state's owner may read it, even if root created it. Links are not followed."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
    return descriptor
