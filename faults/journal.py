"""The journal of a fault run: a fault is on disk before it is injected.

JSON lines, append-only, each synced to disk before the next step:

- ``begun`` contains the fault and the facts that its healing needs.
- ``facts`` replaces the facts.
- ``over`` contains the reason why the fault ended early.
- ``state`` contains a state of the faults topic and its time.
- ``told`` means that the faults topic has all states.

A line that a crash cut off is ignored, since its step was not done yet. A line of another version may be unreadable:
its fault is not known to be healed (``UnreadableFault``), and the other faults are healed all the same.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import ValidationError

from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import STATES, Fault, State

JOURNAL_FILE: Final = "journal.jsonl"
_LOCK_FILE: Final = "lock"


@dataclass
class Entry:
    """One fault of the journal."""

    fault: Fault
    facts: Facts
    states: dict[State, datetime] = field(default_factory=dict)
    is_published: bool = False
    over_because: str | None = None
    """Why the fault ended early; None if it did not, or if that was not observed."""
    is_being_healed: bool = False
    """Whether its healing has begun in this process, also if the journal could not be written."""

    @property
    def was_injected(self) -> bool:
        """Whether the fault may have been injected: this state is written just before the injection."""
        return "injected" in self.states

    @property
    def is_healed(self) -> bool:
        """Whether a probe showed that the fault is healed."""
        return "healed" in self.states


@dataclass(frozen=True)
class UnreadableFault:
    """A fault with an unreadable line. It may be active, and the version that wrote the line can heal it."""

    line: int
    """Line number in the journal, from 1."""
    why: str

    def __str__(self) -> str:
        """One sentence for the operator, without the path of the journal."""
        return f"line {self.line} is of another version or damaged ({self.why})"


@dataclass
class _Contents:
    """The content of a journal."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """Fault id -> entry, in the order in which the faults were begun."""
    unread: dict[str, UnreadableFault] = field(default_factory=dict)
    """Fault id, or ``line N`` if the id is unreadable -> the unreadable line of a fault that is not healed."""


class Journal:
    """The journal of one state folder, held under its lock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / JOURNAL_FILE
        contents = _contents(folder)
        self.entries = contents.entries
        self._unread = contents.unread
        self._path.touch()
        _sync_folder(folder)

    @classmethod
    @contextmanager
    def locked(cls, folder: Path, wait: Literal["refuse", "wait"] = "refuse") -> Iterator[Self]:
        """The journal, locked. Raises FaultRefused if another process has the lock and ``wait`` is "refuse"."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / _LOCK_FILE).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | (fcntl.LOCK_NB if wait == "refuse" else 0))
            except BlockingIOError as error:
                raise FaultRefused(
                    f"{folder}: another fault run or its watchdog uses this folder; wait until it ends, or end it."
                ) from error
            yield cls(folder)

    def open_entries(self) -> list[Entry]:
        """The faults that are not known to be healed, newest first, which is the order of healing."""
        return [entry for entry in reversed(self.entries.values()) if not entry.is_healed]

    def unreadable_problem(self) -> str | None:
        """Which lines cannot be read and what to do about their faults; None if all faults can be read."""
        if not self._unread:
            return None
        lines = ", ".join(str(unread) for unread in self._unread.values())
        return (
            f"{self._path}: {lines}; every fault on such a line may still be active. Heal it with the version of "
            "streamproof that wrote the line, or restore its targets by hand and then move the journal away."
        )

    def begin(self, fault: Fault, facts: Facts) -> Entry:
        """Write the fault to the journal. It may be injected only after this."""
        entry = self.entries[fault.id] = Entry(fault, facts)
        self._append({"what": "begun", "fault": fault.model_dump_json(), "facts": facts.model_dump_json()})
        return entry

    def add_facts(self, entry: Entry, facts: Facts) -> None:
        """Replace the facts of a fault with those that the injection has completed."""
        entry.facts = facts
        self._append({"what": "facts", "id": entry.fault.id, "facts": facts.model_dump_json()})

    def record_state(self, entry: Entry, state: State) -> datetime:
        """Record that the fault has reached ``state``, and return the time. A state that is recorded keeps its time."""
        if state not in entry.states:
            now = datetime.now(UTC)
            time = now.isoformat(timespec="microseconds")
            self._append({"what": "state", "id": entry.fault.id, "state": state, "time": time})
            entry.states[state] = now
        return entry.states[state]

    def end_early(self, entry: Entry, why: str) -> None:
        """Record the reason for an early end, for the records of healing. Does nothing once the healing has started."""
        if "heal_started" in entry.states:
            return
        entry.over_because = why
        self._append({"what": "over", "id": entry.fault.id, "because": why})

    def mark_published(self, entry: Entry) -> None:
        """Record that the faults topic has all states of the fault."""
        entry.is_published = True
        self._append({"what": "told", "id": entry.fault.id})

    def _append(self, line: dict[str, str]) -> None:
        try:
            with self._path.open("ab+") as file:
                size = file.seek(0, os.SEEK_END)
                # If a crash or a full disk cut off the last line, this one starts on a new line.
                cut_off = size > 0 and (file.seek(size - 1), file.read(1))[1] != b"\n"
                file.write((b"\n" if cut_off else b"") + json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            # The error of a write lacks the path, which the operator needs.
            raise OSError(error.errno, error.strerror, str(self._path)) from error


def _sync_folder(folder: Path) -> None:
    """Sync the folder, so that the name of a new file survives a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def names_in(folder: Path) -> frozenset[str]:
    """Names of the faults in the journal of ``folder``."""
    return frozenset(entry.fault.name for entry in read(folder).values())


def read(folder: Path) -> dict[str, Entry]:
    """Fault id -> entry, in the order of the journal in ``folder``; empty if there is no journal."""
    return _contents(folder).entries


def _contents(folder: Path) -> _Contents:
    contents = _Contents()
    try:
        # A power failure may leave arbitrary bytes at the end. The faults before them must still be healed.
        lines = (folder / JOURNAL_FILE).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return contents
    for number, text in enumerate(lines, start=1):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if isinstance(line, dict):
            _read_line(contents, number, line)
    return contents


def _read_line(contents: _Contents, number: int, line: dict[str, Any]) -> None:
    what = line.get("what")
    if what == "begun":
        _begin_entry(contents, number, line)
        return
    fault_id = str(line.get("id"))
    if fault_id in contents.unread:
        if what == "state" and line.get("state") == "healed":
            del contents.unread[fault_id]  # the version that wrote it has verified the healing
        return
    entry = contents.entries.get(fault_id)
    if entry is None and (what, line.get("state")) == ("state", "injected"):
        contents.unread[fault_id] = UnreadableFault(number, "the line that began this fault cannot be read")
        return
    if entry is None or what not in ("facts", "over", "state", "told"):
        # An unknown line is ignored, so that the faults that were begun can still be healed.
        return
    try:
        _add_to_entry(entry, what, line)
    except (ValueError, LookupError, TypeError) as error:
        # With incomplete facts, the fault could be healed wrongly and still count as healed.
        contents.unread[fault_id] = UnreadableFault(number, _first_problem_line(error))
        del contents.entries[fault_id]


def _begin_entry(contents: _Contents, number: int, line: dict[str, Any]) -> None:
    try:
        fault = Fault.from_json(line["fault"])
        facts = Facts.model_validate_json(line["facts"])
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        contents.unread[_id_of(line) or f"line {number}"] = UnreadableFault(number, _first_problem_line(error))
        return
    contents.entries[fault.id] = Entry(fault, facts)


def _add_to_entry(entry: Entry, what: str, line: dict[str, Any]) -> None:
    if what == "facts":
        entry.facts = Facts.model_validate_json(line["facts"])
    elif what == "over":
        entry.over_because = str(line["because"])
    elif what == "told":
        entry.is_published = True
    elif line["state"] in STATES:
        entry.states[line["state"]] = datetime.fromisoformat(line["time"])


def _id_of(line: dict[str, Any]) -> str | None:
    """The id of a fault that cannot be read as a whole; None if the id cannot be read either."""
    try:
        return str(json.loads(line["fault"])["id"])
    except (ValueError, LookupError, TypeError):
        return None


def _first_problem_line(error: Exception) -> str:
    """The first problem, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}".removeprefix(": ")
    return f"no {error}" if isinstance(error, KeyError) else str(error)
