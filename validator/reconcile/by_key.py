"""Cells of one key each: a running aggregate whose results state values (SEMANTICS 2.30).

Such a cell never ends. Each of its events is due by itself, and the newest result of the key states how many events it
used. So the core keeps, per key, how many events are *not* past an instant yet (`Waiting`). All else is the cell's
count of events and its newest result, whatever the number of batches that brought them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from validator.codecs.columns import DECODED, TOMBSTONE
from validator.codecs.plain_fields import bools, numbers, plain
from validator.model.arrays import ABSENT, Bools, Ints, ints, one_array
from validator.model.frontier import Clock

INSTANTS: Final = ("overdue", "missing", "held")
"""What an event may be past: `overdue_after`, `missing_after`, and `overdue_after` but for open transactions."""
COLUMNS: Final = (
    *(f"waiting_{name}" for name in INSTANTS),
    *("waiting_again", "unread_overdue", "unread_missing", "unread"),
)
"""Columns of cells. ``waiting_*``: events that are not past this. ``waiting_again``: those of ``waiting_missing`` that
were past it before. ``unread_*``: events that are, and that the engine has not consumed. ``unread``: all of these."""
RECORDED_DUE: Final = "recorded_due"
"""Column of cells: how many events were past `missing_after`, at least, by the verdicts that the derived tables had at
the start of the process."""

_ANY_PLACE: Final = -1
"""The partition of events of which only the number is known."""
_UNREAD: Final = -2
"""As `_ANY_PLACE`, of events that the engine is to consume again."""


class CellColumns(Protocol):
    """What `Waiting` reads and writes of `validator.reconcile.cells.Cells`."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Ints: ...
    def array(self, name: str) -> Ints:
        """Return a column as a view to be written to."""


class Due(Protocol):
    """The times after which events are overdue and missing, in microseconds."""

    @property
    def overdue_after_us(self) -> int:
        """After this, an event is overdue."""

    @property
    def missing_after_us(self) -> int:
        """After this, an event is missing."""


class Waiting:
    """The fact rows of events that are not past all `INSTANTS` yet, or that the engine has not consumed."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int], int] = {}
        # What the engine had consumed before it went back.
        self._consumed: dict[tuple[str, int], int] = {}
        names = ("row", "count", "latest_us", "lookup_us", "place", "last", "due_us", *INSTANTS, "is_unread")
        self._columns = {name: np.empty(0, dtype=np.int64) for name in names}
        self._added: list[dict[str, Ints]] = []

    def __len__(self) -> int:
        """Return the number of these rows."""
        return len(self._joined()["row"])

    def fold(self, cells: CellColumns, rows: Ints, facts: pa.Table) -> None:
        """Add fact rows of events. ``rows``: their cells."""
        counts = ints(facts["contributions"], 0)
        places = self._numbers_of(facts)
        latest, lookups, last = (ints(facts[name]) for name in ("latest_us", "lookup_us", "last_offset"))
        self._add(cells, row=rows, count=counts, latest_us=latest, lookup_us=lookups, place=places, last=last)

    def _numbers_of(self, facts: pa.Table) -> Ints:
        """Return a number for each row's partition."""
        topics, partitions = one_array(facts["topic"]).dictionary_encode(), ints(facts["partition"])
        codes = ints(topics.indices)
        found = np.empty(len(codes), dtype=np.int64)
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            for partition in np.flatnonzero(np.bincount(partitions[codes == code])).tolist():
                number = self._places.setdefault((topic, partition), len(self._places))
                found[(codes == code) & (partitions == partition)] = number
        return found

    def _add(self, cells: CellColumns, **columns: Ints) -> None:
        nothing = np.zeros_like(columns["row"])
        absent = np.full_like(nothing, ABSENT)
        self._added.append({**dict.fromkeys((*INSTANTS, "is_unread"), nothing), "due_us": absent, **columns})
        for name in INSTANTS:
            np.add.at(cells.array(f"waiting_{name}"), columns["row"], columns["count"])

    def advance(
        self,
        cells: CellColumns,
        clock: Clock,
        due: Due,
        steps: Sequence[tuple[int, int]],
        committed: Mapping[tuple[str, int], int],
    ) -> Ints:
        """Note what the clock proves, and return the cells of which an event is past another instant, some repeatedly.

        ``steps``: (watermark, instant at which it was reached), rising. ``committed``: the engine's offsets.
        """
        held = self._joined()
        if not len(held["row"]):
            return held["row"]
        self._close(clock, steps)
        before = {name: held[name].copy() for name in (*INSTANTS, "is_unread")}
        delays = {"overdue": due.overdue_after_us, "missing": due.missing_after_us, "held": due.overdue_after_us}
        for name in INSTANTS:
            through_us = clock.due_through_us(
                clock.unheld_outputs_us if name == "held" else clock.outputs_us, delays[name]
            )
            is_past = held["due_us"] <= (ABSENT if through_us is None else through_us)
            held[name] = ((held["due_us"] != ABSENT) & is_past & (name != "held" or clock.outputs_held)).astype(
                np.int64
            )
        held["is_unread"] = self._are_unread(committed).astype(np.int64)
        changed = self._count(cells, before)
        self._leave(cells)
        return changed

    def _joined(self) -> dict[str, Ints]:
        if self._added:
            parts = [self._columns, *self._added]
            self._columns = {name: np.concatenate([part[name] for part in parts]) for name in self._columns}
            self._added.clear()
        return self._columns

    def _close(self, clock: Clock, steps: Sequence[tuple[int, int]]) -> None:
        """Give the events that the watermark has passed the instant since which they are due."""
        held = self._columns
        if clock.watermark_us is None:
            return
        # SEMANTICS 2.14: an event is due by itself, since the watermark has passed its time.
        at = np.flatnonzero((held["due_us"] == ABSENT) & (held["latest_us"] < clock.watermark_us))
        if not len(at):
            return
        ends, of_end = np.unique(held["latest_us"][at] + 1, return_inverse=True)
        marks = [mark_us for mark_us, _ in steps]
        instants = [instant_us for _, instant_us in steps]
        reached = [bisect_left(marks, end) for end in ends.tolist()]
        known = np.array([instants[i] if i < len(steps) else clock.lookup_us for i in reached], dtype=np.int64)
        held["due_us"][at] = np.maximum(known[of_end], held["lookup_us"][at])

    def _are_unread(self, committed: Mapping[tuple[str, int], int]) -> Bools:
        held = self._columns
        if all(committed.get(name, 0) >= offset for name, offset in self._consumed.items()):
            self._consumed.clear()
            held["place"][held["place"] == _UNREAD] = _ANY_PLACE
        found: Bools = held["place"] == _UNREAD
        for name, place in self._places.items():
            if name in committed:
                found |= (held["place"] == place) & (held["last"] >= committed[name])
        return found

    def _count(self, cells: CellColumns, before: Mapping[str, Ints]) -> Ints:
        """Write `COLUMNS`, and return the cells in which they changed, some repeatedly."""
        held = self._columns
        now_unread, was_unread = held["is_unread"], before["is_unread"]
        differ = np.zeros(len(now_unread), dtype=np.bool_)
        pairs = {f"waiting_{name}": (1 - before[name], 1 - held[name]) for name in INSTANTS}
        for name in ("overdue", "missing"):
            pairs[f"unread_{name}"] = (before[name] * was_unread, held[name] * now_unread)
        pairs["unread"] = (was_unread, now_unread)
        again = (held["place"] < 0).astype(np.int64)
        pairs["waiting_again"] = (again * (1 - before["missing"]), again * (1 - held["missing"]))
        for name, (was, now) in pairs.items():
            at = np.flatnonzero(was != now)
            if len(at):
                np.add.at(cells.array(name), held["row"][at], (now - was)[at] * held["count"][at])
                differ[at] = True
        return held["row"][differ]

    def _leave(self, cells: CellColumns) -> None:
        """Drop what no instant can change any more."""
        held = self._columns
        leaves = (held["overdue"] & held["missing"] & (1 - held["is_unread"])).astype(np.bool_)
        if not leaves.any():
            return
        at = np.flatnonzero(leaves & (held["held"] == 0))
        if len(at):
            np.subtract.at(cells.array("waiting_held"), held["row"][at], held["count"][at])
        self._columns = {name: column[~leaves] for name, column in held.items()}

    def begin_again(
        self, cells: CellColumns, lookup_us: int, *, consumed: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Let all events that have left be due from this instant on.

        ``consumed``: what the engine had consumed before it went back; until it is there again, they count as not
        consumed. Only their number is known.
        """
        held, place = self._joined(), _ANY_PLACE
        if consumed is not None:
            for name, offset in consumed.items():
                self._consumed[name] = max(offset, self._consumed.get(name, 0))
            place = _UNREAD
            held["place"][held["place"] == _ANY_PLACE] = _UNREAD
        here = np.bincount(held["row"], held["count"], len(cells)).astype(np.int64)
        left = cells["expected_count"] - here
        rows = np.flatnonzero(left > 0)
        same = np.full_like(rows, lookup_us)
        places = np.full_like(rows, place)
        self._add(
            cells, row=rows, count=left[rows], latest_us=same, lookup_us=same, due_us=same, place=places, last=same
        )
        np.add.at(cells.array("waiting_again"), rows, left[rows])

    def renumber(self, removed: Bools, number: Ints) -> None:
        """Forget the removed cells. ``number``: old row number -> new row number."""
        held = self._joined()
        stay = ~removed[held["row"]]
        self._columns = {name: column[stay] for name, column in held.items()}
        self._columns["row"] = number[self._columns["row"]]


def with_withdrawals(results: pa.Table) -> tuple[pa.Table, Bools, Ints]:
    """Return the rows of `RESULTS` with a result without events for each null value that names a key; which rows count
    a record; and the number of each row's stretch.

    In one stretch of a partition and key, no result states fewer events than the one before it: after a restored
    checkpoint, an engine writes its results again (SEMANTICS 3.12).
    """
    status, keys = plain(one_array(results["status"])), one_array(results["key"].unify_dictionaries())
    at = np.flatnonzero((status == TOMBSTONE) & bools(keys.is_valid()))
    counted = np.ones(results.num_rows + len(at), dtype=np.bool_)
    if len(at):
        counted[results.num_rows :] = False
        own = pa.array(np.where(status == TOMBSTONE, -1, np.arange(len(status))), mask=status == TOMBSTONE)
        rows = pa.array(np.concatenate([np.arange(results.num_rows), at]))
        columns = {"key": pa.concat_arrays([keys.take(own), keys.take(pa.array(at))])}
        columns["status"] = pa.array(np.concatenate([status, np.full(len(at), DECODED)]))
        none = np.concatenate([np.zeros(results.num_rows, dtype=np.bool_), np.ones(len(at), dtype=np.bool_)])
        given, is_given = numbers(one_array(results["count"]).take(rows))
        columns["count"] = pa.array(np.where(none, 0, given), mask=~(is_given | none))
        taken = results.take(rows)
        results = pa.table(
            [columns.get(field.name, taken[field.name]) for field in results.schema], names=results.schema.names
        ).cast(results.schema)
    return results, counted, _stretches(results, counted)


def _stretches(results: pa.Table, counted: Bools) -> Ints:
    partition, offset = (plain(one_array(results[name])) for name in ("partition", "offset"))
    keys = one_array(results["key"].unify_dictionaries())
    key = np.where(bools(keys.is_valid()), plain(keys.indices.fill_null(0)), -1)
    stated, is_stated = numbers(one_array(results["count"]))
    # A null value ends a stretch, even after a result without events: it is no result.
    stated = np.where(counted, np.where(is_stated, stated, 1), -1)
    order = np.lexsort((offset, key, partition))
    same = (np.diff(partition[order]) == 0) & (np.diff(key[order]) == 0)
    falls = np.concatenate([[False], same & (np.diff(stated[order]) < 0)]) if len(order) else np.zeros(0, np.bool_)
    found = np.empty(len(order), dtype=np.int64)
    found[order] = np.cumsum(falls)
    return found
