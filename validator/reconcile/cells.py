"""Cells: the fold of facts that is kept in memory, one row per (window, key), column by column.

Folding is a pure sum: batch after batch, all at once, or in another order gives the same rows. Per-event work is
Spark's (`validator.reconcile.facts`); what is left per cell is arithmetic on arrays, cheaper than planning a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import DECODED
from validator.reconcile.arrays import ABSENT, NEVER, Bools, Ints, ints, is_one_of
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.facts import Kind, Side
from validator.reconcile.lateness import Lateness

KEYS: Final = ("window_start_us", "key")
"""What identifies a cell."""

SIDES: Final = {Side.INPUT: "expected", Side.OUTPUT: "processed", Side.LATE: "late", Side.REJECTED: "rejected"}
"""Side of a fact -> how its contributions are called in a cell."""

SUMS: Final = (*(f"{name}_{part}" for name in SIDES.values() for part in ("count", "a", "b")), "results")
MINIMA: Final = ("first_batch", "first_seen_us", "first_input_time_us", "first_result_time_us")
MAXIMA: Final = (
    "expected_us",
    "observed_us",
    "last_input_time_us",
    "last_answer_time_us",
    "closed_us",
    "rest_us",
    "epoch",
)

EXPANSION_FIELDS: Final = (
    "version",
    "expected",
    "processed",
    "late",
    "rejected",
    "duplicate",
    "known",
    "unknown",
    "outstanding",
    "dropped_late",
    "unconsumed",
    "unprovable",
    "doubtful",
    "late_expected",
    "rejected_expected",
    "correct",
    "incomplete",
    "excess",
    "misplaced",
)
"""What comparing a cell's ids one by one gave, when `validator.reconcile.judge` counted ``version`` of it. ``known``
and ``unknown``: observed ids that the cell does not expect, by whether any cell does;
``late_expected``, ``rejected_expected``: late and rejected contributions of ids that it does. The last four count
its results."""

OF_INPUT: Final = ("given", "matched", "lacking")
"""What is known of each input topic in a cell: its events; how many of them are in results, and how many would be
missing once it is time, as the last comparison found. Where other inputs have its id too, an event is matched by the
results that are left after theirs; where repeats collapse it is in neither number."""

STALE: Final = -1
"""``x_version`` of a comparison that is to be made again, though what it found is still proven."""

FACT_COLUMNS: Final = (
    *("kind", "batch", "lookup_us", "side", "topic", "partition", "status", "window_start_us", "key", "reach_us"),
    *("records", "contributions", "hash_a", "hash_b", "first_offset", "first_time_us", "last_time_us", "epoch"),
    "newest_event_time_us",
)
"""The columns of a fact that `Cells.absorb` needs."""


def contributing(facts: pa.Table) -> pa.Table:
    """The fact rows that say something about a cell."""
    decoded = pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], DECODED))
    return facts.filter(decoded)


def oldest_end(starts: Ints, goes: Bools) -> int:
    """Up to which window end nobody asks what went past it, once the cells with these starts for which ``goes`` holds
    are dropped: what comes for older windows is out of scope."""
    return min(int(starts[goes].max()) + 1, int(starts[~goes].min(initial=NEVER)))


class Cells:
    """A table of cells that grows. Every array has one entry per cell; row numbers stay until `drop`.

    Per side: count of contributions and two additive hashes. ``first_batch``: oldest batch with a fact of the cell.
    ``expected_us``, ``observed_us``: lookup instant of the last batch that read an input, an observation of it.
    ``closed_us``: closing time. ``rest_us``: instant at which a run with `--once` assumed the pipeline at rest.
    Times ``*_time_us`` are broker times; an answer is a result, a late or a rejected record. ``x_*``:
    `EXPANSION_FIELDS`, absent before a comparison. Of each topic in ``inputs``, ``given/*``: events; ``matched/*``,
    ``lacking/*``: what a comparison found of them. ``epoch``: newest one with its facts. What the derived tables say of
    the cell: ``told_digest``, hash of its verdict; and of each class of violations ``told_*``, contributions in it,
    ``confirmed_*``, how many of them are confirmed, ``began_*``, since when it has any.
    """

    def __init__(self, told: Sequence[str]) -> None:
        """``told``: the classes of violations."""
        self._size = 0
        self._index = CellIndex()
        names = ("window_start_us", *SUMS, *MINIMA, *MAXIMA, *(f"x_{name}" for name in EXPANSION_FIELDS))
        of_told = (f"{part}_{name}" for name in told for part in ("told", "confirmed", "began"))
        self._columns: dict[str, Ints] = {
            name: np.empty(0, dtype=np.int64) for name in (*names, "told_digest", *of_told)
        }
        self.lateness = Lateness()
        self.inputs: list[str] = []

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Ints:
        """The column ``name``, as a view that may be written to."""
        return self._columns[name][: self._size]

    def rows_of(self, windows: Ints, keys: pa.Array | pa.ChunkedArray, *, adding: bool = False) -> Ints:
        """Row numbers of cells; -1 for one that is not there, unless ``adding`` makes it."""
        if not adding:
            return self._index.find(windows, keys)
        found = self._index.add(windows, keys)
        self._grow(len(self._index))
        self["window_start_us"][found] = windows
        return found

    def rows_of_facts(self, facts: pa.Table, *, adding: bool = False) -> Ints:
        """`rows_of` the columns ``window_start_us`` and ``key`` of a table."""
        return self.rows_of(ints(facts["window_start_us"]), facts["key"], adding=adding)

    def absorb(self, facts: pa.Table) -> None:
        """Fold fact rows in; of rows that are none, or did not decode, only what they say of lateness."""
        self.lateness.absorb(facts)
        facts = contributing(facts)
        if not facts.num_rows:
            return
        rows = self.rows_of_facts(facts, adding=True)
        batch, lookup_us = ints(facts["batch"]), ints(facts["lookup_us"])
        np.minimum.at(self["first_batch"], rows, batch)
        np.minimum.at(self["first_seen_us"], rows, lookup_us)
        np.maximum.at(self["epoch"], rows, ints(facts["epoch"]))
        sums = {part: ints(facts[name], 0) for part, name in _PARTS.items()}
        for side, name in SIDES.items():
            mine = is_one_of(facts["side"], side.value)
            if not mine.any():
                continue
            where = rows[mine]
            for part, values in sums.items():
                np.add.at(self[f"{name}_{part}"], where, values[mine])
            if side is Side.INPUT:
                self._add_given(facts["topic"].filter(pa.array(mine)), where, sums["count"][mine])
            np.maximum.at(self["expected_us" if side is Side.INPUT else "observed_us"], where, lookup_us[mine])
            if side is Side.OUTPUT:
                np.add.at(self["results"], where, ints(facts["records"], 0)[mine])
            last = "last_input_time_us" if side is Side.INPUT else "last_answer_time_us"
            np.maximum.at(self[last], where, ints(facts["last_time_us"])[mine])
            if side in _TIMED:
                np.minimum.at(self[f"first_{_TIMED[side]}_time_us"], where, ints(facts["first_time_us"], NEVER)[mine])

    def _add_given(self, topics: pa.ChunkedArray, rows: Ints, events: Ints) -> None:
        for topic in pc.unique(topics).to_pylist():
            if topic not in self.inputs:
                self.inputs.append(topic)
                for part in OF_INPUT:
                    self._columns[f"{part}/{topic}"] = np.zeros_like(self._columns["results"])
            mine = is_one_of(topics, topic)
            np.add.at(self[f"given/{topic}"], rows[mine], events[mine])

    def drop(self, goes: Bools) -> None:
        """Forget the cells for which ``goes`` holds; all row numbers change."""
        stay = np.flatnonzero(~goes)
        starts = self["window_start_us"]
        if goes.any():
            self.lateness.forget(oldest_end(starts, goes))
        self._columns = {name: self[name][stay] for name in self._columns}
        self._size = len(stay)
        self._index.keep(stay)

    def keys(self, rows: Ints | None = None) -> pa.Array:
        """Keys of some cells, of all by default: texts or null."""
        return self._index.keys(np.arange(self._size) if rows is None else rows)

    def _grow(self, size: int) -> None:
        room = len(self._columns["window_start_us"])
        if size > room:
            room = max(size, 2 * room, 1024)
            for name, column in self._columns.items():
                grown = np.full(room, _initial(name), dtype=np.int64)
                grown[: self._size] = column[: self._size]
                self._columns[name] = grown
        self._size = size


_PARTS: Final = {"count": "contributions", "a": "hash_a", "b": "hash_b"}
_TIMED: Final = {Side.INPUT: "input", Side.OUTPUT: "result"}


def _initial(name: str) -> int:
    if name in MINIMA:
        return NEVER
    counted = name in SUMS or "/" in name or (name.startswith(("told_", "confirmed_")) and name != "told_digest")
    return 0 if counted else ABSENT
