"""Cells: the fold of facts that is kept in memory, one row per (window, key), column by column.

Folding is a pure sum: the rows do not depend on the order of facts, nor on their division into batches. Spark does the
work per event (`validator.reconcile.grouping`). The work per cell is arithmetic on arrays, which is cheaper than
planning a query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import CONTRIBUTING, REMOVED, UNOWED, WITH_A_CELL
from validator.codecs.plain_fields import bools
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints, is_one_of
from validator.oracles.seam import Oracle
from validator.reconcile import by_key, key_values, newest
from validator.reconcile.by_id import OF_KEY
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.facts import Kind, Side
from validator.reconcile.kept_rows import KEPT_COLUMNS, KeptRows
from validator.reconcile.lateness import Lateness
from validator.reconcile.quantities import (
    BEGIN_SEEN,
    NET,
    NO_WORD,
    OF_CELL,
    OF_INPUT,
    OF_OUTPUT,
    RETIRED_BEFORE,
    SLOT_SEEN,
    Fold,
    Quantity,
    compared,
    kept,
    of_results,
    of_violations,
)
from validator.reconcile.table_rows import ROW_COLUMNS, TableRows

KEYS: Final = ("window_start_us", "key")
"""The columns that identify a cell."""

STALE: Final = -1
"""``x_version`` of a comparison that is to be repeated. Its matches are still proven. ``x_wrong_value`` of a cell whose
value is judged once the engine has consumed its events."""

FACT_COLUMNS: Final = (
    *("kind", "batch", "lookup_us", "side", "topic", "partition", "status", "window_start_us", "key", "reach_us"),
    *("records", "contributions", "hash_a", "hash_b", "first_offset", "last_offset", "first_time_us", "last_time_us"),
    "epoch",
    *("newest_event_time_us", "earliest_us", "latest_us"),
)
"""The columns of a fact that `Cells.absorb` needs, unless results state values of keys."""


def contributing(facts: pa.Table) -> pa.Table:
    """Return the fact rows that contribute to a cell."""
    return _chosen(facts, _has(facts, CONTRIBUTING))


def of_cells(facts: pa.Table) -> pa.Table:
    """Return the fact rows with ids of a cell: those that contribute to it, and those of events that contribute to no
    cell (status `UNOWED`)."""
    return _chosen(facts, _has(facts, WITH_A_CELL))


def _has(facts: pa.Table, statuses: Collection[int]) -> Bools:
    """Return which fact rows have one of these statuses."""
    found = pc.is_in(facts["status"], pa.array(statuses, facts["status"].type))
    return np.asarray(is_one_of(facts["kind"], Kind.FACT.value) & found.to_numpy(), dtype=np.bool_)


def _chosen(facts: pa.Table, rows: Bools) -> pa.Table:
    """Return the selected rows. If they are neighbours, as all rows are, or those of a side in a batch, nothing is
    copied: the lists of ids may be long."""
    if not rows.any():
        return facts.slice(0, 0)
    first, end = int(rows.argmax()), len(rows) - int(rows[::-1].argmax())
    return facts.slice(first, end - first) if rows[first:end].all() else facts.filter(pa.array(rows))


def unowed(facts: pa.Table) -> pa.Table:
    """Return the fact rows of events that contribute to no cell (status `UNOWED`)."""
    found = pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], UNOWED))
    return facts.filter(found)


class Columns(ABC):
    """Cells as columns of numbers, one entry per cell: all cells (`Cells`), or some (`SomeCells`).

    A column that was read may be read-only; assigning to its name writes it.
    """

    def __init__(self, oracle: Oracle, inputs: list[str], outputs: list[str]) -> None:
        self.oracle, self.inputs, self.outputs = oracle, inputs, outputs

    @property
    @abstractmethod
    def newest(self) -> newest.Newest | None:
        """The newest results of the keys, if results replace earlier ones."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, name: str) -> Ints:
        """The column ``name``."""

    @abstractmethod
    def __setitem__(self, name: str, values: Ints) -> None: ...

    @property
    @abstractmethod
    def merged_and_own_rows(self) -> tuple[Ints, Ints]:
        """For each cell, the row of the cell that it is part of, and its own row."""

    @property
    def scattered(self) -> Bools:
        """The cells whose key has results on several partitions, if results replace earlier ones."""
        if not self.are_withdrawn:
            return np.zeros(len(self), dtype=np.bool_)
        if self.newest is not None:
            return self.newest.scattered
        found: Bools = self["first_place"] < self["last_place"]
        return found

    @property
    def merges(self) -> bool:
        """Whether cells can merge."""
        return self.oracle.merging_gap_us is not None

    @property
    def ends_move(self) -> bool:
        """Whether events put off the end of their cell."""
        return self.oracle.ends_after_us is not None

    @property
    def are_withdrawn(self) -> bool:
        """Whether a result can replace an earlier one of its key."""
        return self.oracle.reads.replaces

    @property
    def depends_on_others(self) -> bool:
        """Whether a result can change the counts of other cells."""
        return self.are_withdrawn and self.oracle.by_id

    @property
    def non_cells(self) -> Bools | None:
        """The rows that are not cells: those that have become part of another cell, and those of keys. None if all rows
        are cells."""
        if self.oracle.by_id:
            found: Bools = self["window_start_us"] == OF_KEY
        elif self.merges:
            wholes, own = self.merged_and_own_rows
            found = wholes != own
        else:
            return None
        return found

    @property
    def begins_us(self) -> Ints:
        """The first instant of each cell. For a cell of one id it is the time of the first event, or an instant before
        all others if no event is known. For a cell of one key it is that instant."""
        if self.oracle.by_key:
            return np.full(len(self), ABSENT + 1)
        if not self.oracle.by_id:
            return self["window_start_us"]
        first = self["first_event_us"]
        return np.where(first == NEVER, ABSENT + 1, first)

    @property
    def slot_seen_us(self) -> Ints:
        """The lookup instant of the first batch with a fact of the window or slot in which each cell begins. If an
        event moves the start of a session to an earlier slot, it is the instant of the earlier slot."""
        return self[SLOT_SEEN if self.merges else "first_seen_us"]

    @property
    def begin_seen_us(self) -> Ints:
        """The lookup instant of the first batch that read the earliest event of each cell. If events do not move the
        starts of cells, or no event is known, it is `slot_seen_us`."""
        if not self.merges:
            return self.slot_seen_us
        found = self[BEGIN_SEEN]
        return np.where(found == NEVER, self.slot_seen_us, found)

    @property
    def facts_version(self) -> Ints:
        """A number per cell that rises with each of its facts."""
        given = self["expected_count"] + self["late_count"] + self["rejected_count"]
        if self.are_withdrawn:
            return given + newest.version_of(self)
        return given + self["processed_count"] + self["results"]


class SomeCells(Columns):
    """Some rows of cells."""

    @property
    def newest(self) -> None:
        """None: no cell here depends on results of another one."""
        assert not self.depends_on_others, "the newest result of a key depends on all cells of the key"

    def __init__(self, cells: Cells, rows: Ints) -> None:
        self._cells, self._rows = cells, rows
        super().__init__(cells.oracle, cells.inputs, cells.outputs)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> Ints:
        return self._cells[name][self._rows]

    def __setitem__(self, name: str, values: Ints) -> None:
        self._cells.put(name, self._rows, values)

    @property
    def merged_and_own_rows(self) -> tuple[Ints, Ints]:
        """For each cell, the row of the cell that it is part of, and its own row."""
        return self._cells.merged_rows(self._rows), self._rows


class Cells(Columns):
    """A table of cells that grows. Every array has one entry per cell. Row numbers stay until `drop`.

    A column in which all cells have the initial value has no array. With most pipelines this is half of the columns:
    those of late records, of violations, and of other kinds of oracles.

    Columns: the quantities of `validator.reconcile.quantities`. Those of `OF_INPUT` and `OF_OUTPUT` have a column for
    each topic in ``inputs`` or ``outputs``, whose name ends with the topic; ``outputs`` is empty for a single output.
    """

    def __init__(
        self,
        recorded: Sequence[str],
        oracle: Oracle,
    ) -> None:
        """``recorded``: the violation classes that the derived tables record."""
        super().__init__(oracle, [], [])
        self._gap_us = oracle.merging_gap_us
        self._newest = newest.Newest(self, oracle) if oracle.reads.replaces else None
        self.waiting = by_key.Waiting() if oracle.by_key else None
        self._merged_into = np.empty(0, dtype=np.int64)
        self._size = 0
        self._index = CellIndex()
        self._quantities = {one.name: one for one in _quantities_of(oracle, recorded)}
        folded = [one for one in self._quantities.values() if one.fact is not None]
        self._folded: dict[Side | None, list[Quantity]] = {
            side: [one for one in folded if side in (one.sides or (None,))] for side in (None, *Side)
        }
        self._columns: dict[str, Ints] = {}
        self._room = 0
        self.lateness = Lateness()
        self.table_rows = TableRows.of(oracle)
        """What the oracle's tables had; None if it has none."""
        self.kept_rows = KeptRows.of(oracle)
        """The newest rows of inputs whose records replace rows; None if there is none."""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Ints:
        """The column ``name``; read-only if it has no array."""
        if name not in self._columns:
            # As `np.broadcast_to`, in a fifth of its time. An array over a bytes object is read-only.
            return np.ndarray((self._size,), np.int64, np.int64(self._quantities[name].initial).tobytes(), 0, (0,))
        return self._columns[name][: self._size]

    def __setitem__(self, name: str, values: Ints) -> None:
        self.put(name, slice(None), values)

    def put(self, name: str, rows: Ints | slice, values: Ints | int) -> None:
        """Write ``values`` to ``rows`` of the column ``name``."""
        if name in self._columns or not np.all(values == self._quantities[name].initial):
            self.array(name)[rows] = values

    def array(self, name: str) -> Ints:
        """Return the column ``name`` as a view to be written to."""
        if name not in self._columns:
            self._columns[name] = np.empty(self._room, dtype=np.int64)
            self._columns[name][: self._size] = self._quantities[name].initial
        return self._columns[name][: self._size]

    @property
    def merged_and_own_rows(self) -> tuple[Ints, Ints]:
        """For each cell, the row of the cell that it is part of, and its own row."""
        return self._merged_into, np.arange(self._size)

    @property
    def newest(self) -> newest.Newest | None:
        """The newest results of the keys, if results replace earlier ones."""
        return self._newest

    def some(self, rows: Ints) -> Columns:
        """Return the cells of these rows. ``rows``: in rising order."""
        return self if len(rows) == self._size else SomeCells(self, rows)

    def removable(self, removed: Bools) -> Bools:
        """Return the rows for which ``removed`` holds and which no other cell needs."""
        if self.newest is not None:
            removed = removed & ~self.newest.held(removed)
        return removed[self._merged_into] if self.merges else removed

    def merged_rows(self, rows: Ints) -> Ints:
        """Return the rows of the cells that these rows are now part of; -1 stays -1."""
        return rows if self._gap_us is None else np.where(rows < 0, rows, self._merged_into[rows])

    def rows_of(self, windows: Ints, keys: pa.Array | pa.ChunkedArray, *, adding: bool = False) -> Ints:
        """Return the row numbers of cells; -1 for a cell that does not exist, unless ``adding`` creates it. A cell that
        is part of another one has a row of its own (`merged_rows`)."""
        if not adding:
            return self._index.find(windows, keys)
        before, found = self._size, self._index.add(windows, keys)
        self._grow(len(self._index))
        new = found >= before
        self.put("window_start_us", found[new], windows[new])
        self.put("end_us", found[new], self.oracle.ends_us(windows[new]))
        return found

    def rows_of_facts(self, facts: pa.Table, *, adding: bool = False) -> Ints:
        """Return, for each row of a table, the row of the whole cell with its ``window_start_us`` and ``key``."""
        return self.merged_rows(self.own_rows_of(facts, adding=adding))

    def own_rows_of(self, facts: pa.Table, *, adding: bool = False) -> Ints:
        """As `rows_of_facts`, but if the cell is part of another one, its own row."""
        return self.rows_of(ints(facts["window_start_us"]), facts["key"], adding=adding)

    def absorb(self, facts: pa.Table) -> Ints:
        """Fold in rows of the facts table. Only facts of decoded records change cells. Others may change `lateness`.

        Returns the rows of the cells that changed. A row may occur more than once.
        """
        self.lateness.absorb(facts)
        changed = self.fold(contributing(facts.select(self.fact_columns)))
        if self.kept_rows is not None:
            self.kept_rows.absorb(facts)
        if self.table_rows is None:
            return changed
        keys, before_us = self.table_rows.absorb(facts)
        if not len(keys):
            return changed
        # SEMANTICS 2.37: the cells of such a key are compared again, unless the rows count for none of their results,
        # nor for what their events owe.
        are_read_before = (self["observed_us"] <= before_us) & (not self.oracle.owes_by_rows)
        concerned = np.flatnonzero(~are_read_before & (self["x_version"] != ABSENT))
        concerned = concerned[bools(pc.is_in(self.keys(concerned).cast(pa.string()), value_set=keys))]
        self.put("x_version", concerned, STALE)
        return np.concatenate([changed, concerned])

    @property
    def fact_columns(self) -> tuple[str, ...]:
        """The columns of a fact that `absorb` needs."""
        states_more = self.oracle.by_key and self.oracle.stated.stated
        if self.table_rows is not None:
            return (*FACT_COLUMNS, *ROW_COLUMNS)
        of_values = ("results", "aggregates") if states_more else ()
        of_rows = KEPT_COLUMNS if self.kept_rows is not None else ()
        return tuple(dict.fromkeys((*FACT_COLUMNS, *of_values, *of_rows)))

    def fold(self, facts: pa.Table) -> Ints:
        """Fold in fact rows that all contribute to a cell. Returns the rows of the cells that changed."""
        if not facts.num_rows:
            return np.empty(0, dtype=np.int64)
        rows = changed = self.own_rows_of(facts, adding=True)
        if self.ends_move:
            self._put_off(rows, facts)
        if self._gap_us is not None:
            np.minimum.at(self.array(SLOT_SEEN), rows, ints(facts["lookup_us"]))
            before = self._merged_into.copy()
            rows = self._merged(rows, facts, self._gap_us)
            joined = np.flatnonzero(before != self._merged_into)
            changed = np.concatenate([changed, rows, joined, before[joined], self._merged_into[joined]])
        if self.newest is not None:
            self.newest.adopt(rows)
        if self.oracle.reads.explodes:
            self.put(NO_WORD, rows, is_one_of(facts["key"], "").astype(np.int64))
        column = cache(lambda fact, initial: ints(facts[fact], initial))
        self._fold_columns(None, rows, slice(None), column)
        for side in Side:
            mine = is_one_of(facts["side"], side.value)
            if mine.any():
                self._fold_columns(side, rows[mine], mine, column)
                self._fold_side(side, rows[mine], _chosen(facts, mine))
        return changed

    def _fold_columns(
        self, side: Side | None, rows: Ints, mine: Bools | slice, column: Callable[[str | None, int], Ints]
    ) -> None:
        """Fold in the columns of the facts of one side (``mine``), or those that do not depend on the side (None)."""
        for one in self._folded[side]:
            values = column(one.fact, one.initial)[mine]
            if (values != one.initial).any():
                one.fold.of_two.at(self.array(one.name), rows, values)

    def _fold_side(self, side: Side, rows: Ints, facts: pa.Table) -> None:
        """Fold in what is more than a column of the facts of one side."""
        if side is Side.INPUT:
            if self.waiting is not None:
                self.waiting.fold(self, rows, facts)
                signs = np.where(ints(facts["status"]) == REMOVED, -1, 1)
                if self.oracle.reads.signed:
                    np.add.at(self.array(NET), rows, signs * ints(facts["contributions"], 0))
                if self.oracle.stated.stated:
                    key_values.fold_events(self, rows, facts, self.oracle.stated, signs)
            self._add_given(facts["topic"], rows, ints(facts["contributions"], 0))
        elif side is Side.OUTPUT:
            if self.newest is not None:
                self.newest.fold(rows, facts)
            if self.oracle.reads.several_outputs:
                self._add_carried(facts["topic"], rows, ints(facts["contributions"], 0))

    def _put_off(self, rows: Ints, facts: pa.Table) -> None:
        """Fold in the times of events, which put off the ends of their cells."""
        after_us = self.oracle.ends_after_us
        assert after_us is not None, "an oracle whose events postpone the ends of cells must define ends_after_us"
        of_input = is_one_of(facts["side"], Side.INPUT.value)
        mine, latest = rows[of_input], ints(facts["latest_us"])[of_input]
        earliest, before = ints(facts["earliest_us"], NEVER)[of_input], self["first_event_us"][mine]
        np.minimum.at(self.array("first_event_us"), mine, earliest)
        if self.merges:
            first = self["first_event_us"][mine]
            self.put(BEGIN_SEEN, mine[first < before], NEVER)
            begins = earliest == first
            np.minimum.at(self.array(BEGIN_SEEN), mine[begins], ints(facts["lookup_us"])[of_input][begins])
        np.maximum.at(self.array("last_event_us"), mine, latest)
        np.maximum.at(self.array("end_us"), self.merged_rows(mine), latest + after_us)

    def _merged(self, rows: Ints, facts: pa.Table, gap_us: int) -> Ints:
        """Merge the cells that events join. Returns the cells that ``rows`` are now part of."""
        mine = np.unique(rows[is_one_of(facts["side"], Side.INPUT.value)])
        first, last, grid_us = self["first_event_us"], self["last_event_us"], self.oracle.grid_us
        starts, keys = self["window_start_us"][mine], self.keys(mine)
        before = self._index.find(starts - grid_us, keys)
        after = self._index.find(starts + grid_us, keys)
        earlier = np.concatenate([before[before >= 0], mine[after >= 0]])
        later = np.concatenate([mine[before >= 0], after[after >= 0]])
        known = (last[earlier] != ABSENT) & (first[later] != NEVER)
        earlier, later = earlier[known], later[known]
        # SEMANTICS 2.13: two events at most a gap apart are in one session.
        near = first[later] - last[earlier] <= gap_us
        wholes, parts = self._merged_into[earlier[near]], self._merged_into[later[near]]
        self._join(wholes[wholes != parts], parts[wholes != parts])
        return self._merged_into[rows]

    def longest_pause_us(self, chosen: Bools) -> int:
        """Return the longest pause between adjacent slots of the ``chosen`` merged cells; `ABSENT` if there is none."""
        first, last = self["first_event_us"], self["last_event_us"]
        rows = np.flatnonzero(chosen[self._merged_into] & (last != ABSENT))
        after = self._index.find(self["window_start_us"][rows] + self.oracle.grid_us, self.keys(rows))
        rows, after = rows[after >= 0], after[after >= 0]
        both = (self._merged_into[rows] == self._merged_into[after]) & (first[after] != NEVER)
        return int((first[after[both]] - last[rows[both]]).max(initial=ABSENT))

    def _join(self, wholes: Ints, parts: Ints) -> None:
        """Merge each cell of ``parts`` into the cell of ``wholes`` at the same index, which begins earlier. A part
        joins one whole, which may join another."""
        if not len(parts):
            return
        above = np.arange(self._size)
        above[parts] = wholes
        while (higher := above[above]).tobytes() != above.tobytes():
            above = higher
        parts = np.unique(parts)
        wholes = above[parts]
        self._merged_into = above[self._merged_into]
        for name, column in list(self._columns.items()):
            fold = self._quantities[name].fold
            if fold is Fold.COMPARED:
                self.put(name, np.concatenate([wholes, parts]), ABSENT)
            elif fold is not Fold.OWN:
                fold.of_two.at(column, wholes, column[parts])
            if fold is Fold.SUM:
                column[parts] = 0
        # A part has no observations of its own any more.
        self.put("observed_us", parts, ABSENT)

    def _add_given(self, topics: pa.ChunkedArray, rows: Ints, events: Ints) -> None:
        for topic in pc.unique(topics).to_pylist():
            self._add_input(topic)
            mine = is_one_of(topics, topic)
            np.add.at(self.array(f"given/{topic}"), rows[mine], events[mine])

    def _add_input(self, topic: str) -> None:
        if topic not in self.inputs:
            self.inputs.append(topic)
            self._quantities |= {f"{one.name}/{topic}": one for one in OF_INPUT}

    def _add_carried(self, topics: pa.ChunkedArray, rows: Ints, ids: Ints) -> None:
        # A cumulative result repeats the ids of earlier ones.
        fold = np.add if self.newest is None else np.maximum
        for topic in pc.unique(topics).to_pylist():
            self._add_output(topic)
            mine = is_one_of(topics, topic)
            fold.at(self.array(f"carried/{topic}"), rows[mine], ids[mine])

    def _add_output(self, topic: str) -> None:
        if topic not in self.outputs:
            self.outputs.append(topic)
            self._quantities |= {f"{one.name}/{topic}": one for one in OF_OUTPUT}

    def drop(self, removed: Bools) -> None:
        """Remove the cells for which ``removed`` holds. All row numbers change."""
        stay = np.flatnonzero(~removed)
        self._columns = {name: self[name][stay] for name in self._columns}
        self._room = len(stay)
        number = np.cumsum(~removed) - 1
        if self.waiting is not None:
            self.waiting.renumber(removed, number)
        if self._gap_us is not None:
            self._merged_into = number[self._merged_into[stay]]
        self._size = len(stay)
        if self.newest is not None:
            self.newest.renumber(number)
        self._index.keep(stay)

    def adopt(self, other: Cells) -> None:
        """Add the cells of ``other``, none of which exists here."""
        rows = self.rows_of(other["window_start_us"], other.keys(), adding=True)
        for topic in other.inputs:
            self._add_input(topic)
        for topic in other.outputs:
            self._add_output(topic)
        for name in other._columns:
            self.put(name, rows, other[name])
        if self.newest is not None:
            self.newest.adopt(rows)

    @property
    def saved_names(self) -> list[str]:
        """The columns of `to_table` that do not depend on topics."""
        return sorted(name for name, one in self._quantities.items() if one.is_saved and name == one.name)

    def to_table(self) -> pa.Table:
        """Return the columns that come from facts and from the derived tables, without results of comparisons, and
        without columns in which all cells have the initial value. The arrays are not copied."""
        names = ("window_start_us", *(name for name in self._columns if self._quantities[name].is_saved))
        columns = {name: self[name] for name in names}
        return pa.table(columns | {"key": self.keys()} | ({_MERGED_INTO: self._merged_into} if self.merges else {}))

    def fill(self, saved: pa.Table) -> bool:
        """Add the cells of `to_table` to an empty table. Returns False, and changes nothing, if these cells do not have
        all of its columns."""
        assert not self._size, "no cells yet"
        names = {name for name in saved.column_names if name not in ("key", _MERGED_INTO)}
        inputs, outputs = (
            sorted(name.removeprefix(part) for name in names if name.startswith(part))
            for part in ("given/", "carried/")
        )
        of_topics = [*(f"given/{topic}" for topic in inputs), *(f"carried/{topic}" for topic in outputs)]
        if not names <= {*self.saved_names, *of_topics} or (_MERGED_INTO in saved.column_names) != self.merges:
            return False
        if self.waiting is not None:
            # The events that are not due yet are not saved: all facts are folded again.
            return False
        for topic in inputs:
            self._add_input(topic)
        for topic in outputs:
            self._add_output(topic)
        self.rows_of(ints(saved["window_start_us"]), saved["key"], adding=True)
        for name in names:
            self[name] = ints(saved[name])
        if self.merges:
            self._merged_into = ints(saved[_MERGED_INTO]).copy()
        return True

    def keys(self, rows: Ints | None = None) -> pa.Array:
        """Return the keys of ``rows``, by default of all cells: texts or null."""
        return self._index.keys(np.arange(self._size) if rows is None else rows)

    def _grow(self, size: int) -> None:
        if size > self._room:
            self._room = max(size, 2 * self._room, 1024)
            for name, column in self._columns.items():
                # The part without cells takes no memory until it is written.
                grown = np.empty(self._room, dtype=np.int64)
                grown[: self._size] = column[: self._size]
                self._columns[name] = grown
        for name, column in self._columns.items():
            column[self._size : size] = self._quantities[name].initial
        if self._gap_us is not None:
            self._merged_into = np.concatenate([self._merged_into, np.arange(len(self._merged_into), size)])
        self._size = size


_MERGED_INTO: Final = "whole"
"""Column of `Cells.to_table`: the row that each row is part of."""


def _quantities_of(oracle: Oracle, recorded: Sequence[str]) -> Iterator[Quantity]:
    """Yield the quantities of an oracle's cells that do not depend on topics. A later one replaces one of its name."""
    yield from OF_CELL
    # A key is compared whenever it is judged. Most of what this finds is 0.
    yield from compared(0 if oracle.by_key else ABSENT)
    yield from of_violations(recorded)
    # Each id that a result lists counts as a result.
    yield from of_results("contributions" if oracle.by_id else "records", "latest_us" if oracle.answers_once else None)
    if oracle.reads.replaces:
        yield from newest.QUANTITIES
    if oracle.merging_gap_us is not None:
        yield from kept(NEVER, SLOT_SEEN, BEGIN_SEEN)
    if not oracle.has_windows:
        yield from kept(ABSENT, RETIRED_BEFORE)
    if oracle.by_key:
        yield from kept(0, NET, *by_key.COLUMNS, by_key.RECORDED_DUE, *key_values.columns_of(oracle.stated))
    if oracle.reads.explodes:
        yield from kept(0, NO_WORD)
