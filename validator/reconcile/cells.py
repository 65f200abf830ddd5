"""Cells: the fold of facts that is kept in memory, one row per (window, key), column by column.

Folding is a pure sum: the rows do not depend on the order of facts, nor on their division into batches. Spark does the
work per event (`validator.reconcile.grouping`). The work per cell is arithmetic on arrays, which is cheaper than
planning a query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import DECODED, UNOWED
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints, is_one_of
from validator.oracles.seam import Oracle
from validator.reconcile import by_key, key_values, newest, splits
from validator.reconcile.by_id import OF_KEY
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.facts import Kind, Side
from validator.reconcile.lateness import Lateness

KEYS: Final = ("window_start_us", "key")
"""The columns that identify a cell."""

SIDES: Final = {Side.INPUT: "expected", Side.OUTPUT: "processed", Side.LATE: "late", Side.REJECTED: "rejected"}
"""Side of a fact -> name of its contributions in a cell."""

SUMS: Final = (*(f"{name}_{part}" for name in SIDES.values() for part in ("count", "a", "b", "records")), "results")
MINIMA: Final = ("first_batch", "first_epoch", "first_seen_us", "first_input_time_us", "first_result_time_us")
NAMED_END: Final = "named_end_us"
"""Column of cells that one result answers: the latest end that a result names."""
RETIRED_BEFORE: Final = "retired_before"
"""Column of cells of one id: 1 if facts of the cell were retired before those that it has now."""
NO_WORD: Final = "no_word"
"""Column of cells of words: 1 for the empty word."""
_SLOT_SEEN: Final = "slot_seen_us"
"""Column of cells that merge: ``first_seen_us`` of the cell's own slot, without the slots that joined it."""
_BEGIN_SEEN: Final = "begin_seen_us"
"""Column of cells that merge: lookup instant of the first batch that read the earliest event of the cell's own slot."""
MAXIMA: Final = (
    "expected_us",
    "observed_us",
    "last_input_time_us",
    "last_answer_time_us",
    "closed_us",
    "rest_us",
    "epoch",
    NAMED_END,
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
    "incorrect_ids",
    "outstanding",
    "dropped_late",
    "unconsumed",
    "unconsumed_on_time",
    "unprovable",
    "doubtful",
    "elsewhere",
    "late_expected",
    "rejected_expected",
    "correct",
    "incomplete",
    "excess",
    "misplaced",
    "wrong_value",
    *splits.FIELDS,
)
"""Result of the last comparison of a cell's ids. ``version``: that of the cell at the comparison (`Judged.version` in
`validator.reconcile.judge`). ``known``, ``unknown``: observations of ids that the cell does not expect; the known
ones are of some input, the others of none. ``incorrect_ids``: number of different ids among both. ``late_expected``,
``rejected_expected``: late and rejected contributions with the id of an event of the cell. ``correct`` to
``wrong_value`` count the cell's results."""

OF_INPUT: Final = ("given", "matched", "lacking")
"""Counts of each input topic in a cell. ``given``: its events. By the last comparison: ``matched``, those in results,
and ``lacking``, those that would be missing once due. If other inputs share an id, its results are first matched to the
events of those inputs. If repeats collapse, an event with such an id is in neither ``matched`` nor ``lacking``."""

OF_OUTPUT: Final = ("carried", "landed", "claimed")
"""Counts of each output topic in a cell, kept only if there are several. ``carried``: the contributions in its results;
with emission `cumulative`, the most that one of its results lists. By the last comparison: ``landed``, those of them
that match events after the results of the other outputs have been matched first, and ``claimed``, those that do not
match because other outputs carry their ids."""

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
    decoded = pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], DECODED))
    return _chosen(facts, decoded)


def of_cells(facts: pa.Table) -> pa.Table:
    """Return the fact rows with ids of a cell: those that contribute to it, and those of events that contribute to no
    cell (status `UNOWED`)."""
    decoded = pc.is_in(facts["status"], pa.array([DECODED, UNOWED], facts["status"].type))
    return _chosen(facts, pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), decoded))


def _chosen(facts: pa.Table, rows: pa.ChunkedArray) -> pa.Table:
    """Return the selected rows. If all are selected, as is usual, nothing is copied: the lists of ids may be long."""
    return facts if pc.all(rows, skip_nulls=False).as_py() else facts.filter(rows)


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
        return self[_SLOT_SEEN if self.merges else "first_seen_us"]

    @property
    def begin_seen_us(self) -> Ints:
        """The lookup instant of the first batch that read the earliest event of each cell. If events do not move the
        starts of cells, or no event is known, it is `slot_seen_us`."""
        if not self.merges:
            return self.slot_seen_us
        found = self[_BEGIN_SEEN]
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

    An *answer* is a result, a late or a rejected record. Columns:

    - ``end_us``: the first instant that is not in the cell.
    - per side: number of contributions, two additive hashes, and number of the records that the cell counts (`SUMS`).
    - ``first_batch``: oldest batch with a fact of the cell. ``epoch``: newest epoch with its facts.
    - ``expected_us``, ``observed_us``: lookup instant of the last batch that read an input or an answer of the cell.
    - ``closed_us``: closing time. ``rest_us``: instant at which a run with `--once` assumed the pipeline at rest.
    - ``*_time_us``: broker times.
    - ``x_*``: `EXPANSION_FIELDS`, absent before a comparison.
    - ``given/*``, ``matched/*``, ``lacking/*``: `OF_INPUT` of each topic in ``inputs``.
    - ``carried/*``, ``landed/*``, ``claimed/*``: `OF_OUTPUT` of each topic in ``outputs``, which is empty for a single
      output.
    - ``recorded_digest``: hash of the verdict in the derived tables.
    - ``recorded_*``: contributions in the derived tables' violation of each class. ``confirmed_*``: how many of them
      are confirmed. ``began_*``: since when there are any.
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
        self._of_keys = (*by_key.COLUMNS, *key_values.columns_of(oracle.stated)) if oracle.by_key else ()
        self._of_keys += (NO_WORD,) if oracle.reads.explodes else ()
        names = (
            "window_start_us",
            "end_us",
            "first_event_us",
            "last_event_us",
            *SUMS,
            *MINIMA,
            *MAXIMA,
            *(f"x_{name}" for name in EXPANSION_FIELDS),
            *(newest.COLUMNS if self.newest is not None else ()),
            *((_SLOT_SEEN, _BEGIN_SEEN) if self.merges else ()),
            *((RETIRED_BEFORE,) if not oracle.has_windows else ()),
            *self._of_keys,
        )
        of_recorded = (f"{part}_{name}" for name in recorded for part in ("recorded", "confirmed", "began"))
        self._initials = {name: np.int64(_initial(name)) for name in (*names, "recorded_digest", *of_recorded)}
        self._initials |= dict.fromkeys(self._of_keys, np.int64(0))
        if oracle.by_key:
            # A key is compared whenever it is judged. Most of what this finds is 0.
            self._initials |= {f"x_{name}": np.int64(0) for name in EXPANSION_FIELDS}
        self._columns: dict[str, Ints] = {}
        self._room = 0
        self.lateness = Lateness()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, name: str) -> Ints:
        """The column ``name``; read-only if it has no array."""
        if name not in self._columns:
            # As `np.broadcast_to`, in a fifth of its time. An array over a bytes object is read-only.
            return np.ndarray((self._size,), np.int64, self._initials[name].tobytes(), 0, (0,))
        return self._columns[name][: self._size]

    def __setitem__(self, name: str, values: Ints) -> None:
        self.put(name, slice(None), values)

    def put(self, name: str, rows: Ints | slice, values: Ints | int) -> None:
        """Write ``values`` to ``rows`` of the column ``name``."""
        if name in self._columns or not np.all(values == self._initials[name]):
            self.array(name)[rows] = values

    def array(self, name: str) -> Ints:
        """Return the column ``name`` as a view to be written to."""
        if name not in self._columns:
            self._columns[name] = np.empty(self._room, dtype=np.int64)
            self._columns[name][: self._size] = self._initials[name]
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
        return self.fold(contributing(facts.select(self.fact_columns)))

    @property
    def fact_columns(self) -> tuple[str, ...]:
        """The columns of a fact that `absorb` needs."""
        states_more = self.oracle.by_key and self.oracle.stated.stated
        return (*FACT_COLUMNS, "results", "aggregates") if states_more else FACT_COLUMNS

    def fold(self, facts: pa.Table) -> Ints:
        """Fold in fact rows that all contribute to a cell. Returns the rows of the cells that changed."""
        if not facts.num_rows:
            return np.empty(0, dtype=np.int64)
        rows = changed = self.own_rows_of(facts, adding=True)
        if self.ends_move:
            self._put_off(rows, facts)
        batch, lookup_us = ints(facts["batch"]), ints(facts["lookup_us"])
        if self._gap_us is not None:
            np.minimum.at(self.array(_SLOT_SEEN), rows, lookup_us)
            before = self._merged_into.copy()
            rows = self._merged(rows, facts, self._gap_us)
            joined = np.flatnonzero(before != self._merged_into)
            changed = np.concatenate([changed, rows, joined, before[joined], self._merged_into[joined]])
        if self.newest is not None:
            self.newest.adopt(rows)
        if self.oracle.reads.explodes:
            self.put(NO_WORD, rows, is_one_of(facts["key"], "").astype(np.int64))
        np.minimum.at(self.array("first_batch"), rows, batch)
        np.minimum.at(self.array("first_seen_us"), rows, lookup_us)
        np.maximum.at(self.array("epoch"), rows, ints(facts["epoch"]))
        np.minimum.at(self.array("first_epoch"), rows, ints(facts["epoch"]))
        sums, records = {part: ints(facts[name], 0) for part, name in _PARTS.items()}, ints(facts["records"], 0)
        for side, name in SIDES.items():
            mine = is_one_of(facts["side"], side.value)
            if not mine.any():
                continue
            where = rows[mine]
            np.add.at(self.array(f"{name}_records"), where, records[mine])
            if self.newest is not None and side is Side.OUTPUT:
                self.newest.fold(where, facts.filter(pa.array(mine)))
            else:
                for part, values in sums.items():
                    np.add.at(self.array(f"{name}_{part}"), where, values[mine])
            if side is Side.INPUT and self.waiting is not None:
                of_events = facts.filter(pa.array(mine))
                self.waiting.fold(self, where, of_events)
                if self.oracle.stated.stated:
                    key_values.fold_events(self, where, of_events, self.oracle.stated)
            if side is Side.INPUT:
                self._add_given(facts["topic"].filter(pa.array(mine)), where, sums["count"][mine])
            if side is Side.OUTPUT and self.oracle.reads.several_outputs:
                self._add_carried(facts["topic"].filter(pa.array(mine)), where, sums["count"][mine])
            # SEMANTICS 3.12, 3.17: the last reading of an event (due base) and of an answer (excess is decided after
            # it).
            np.maximum.at(self.array("expected_us" if side is Side.INPUT else "observed_us"), where, lookup_us[mine])
            if side is Side.OUTPUT and self.newest is None:
                # Each id that a result lists counts as a result.
                said = sums["count"] if self.oracle.by_id else records
                np.add.at(self.array("results"), where, said[mine])
                if self.oracle.answers_once and (named := ints(facts["latest_us"])[mine] != ABSENT).any():
                    np.maximum.at(self.array(NAMED_END), where[named], ints(facts["latest_us"])[mine][named])
            last = "last_input_time_us" if side is Side.INPUT else "last_answer_time_us"
            np.maximum.at(self.array(last), where, ints(facts["last_time_us"])[mine])
            if side in _TIMED:
                first = f"first_{_TIMED[side]}_time_us"
                np.minimum.at(self.array(first), where, ints(facts["first_time_us"], NEVER)[mine])
        return changed

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
            self.put(_BEGIN_SEEN, mine[first < before], NEVER)
            begins = earliest == first
            np.minimum.at(self.array(_BEGIN_SEEN), mine[begins], ints(facts["lookup_us"])[of_input][begins])
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
        for name in self._columns:
            if name in SUMS or "/" in name:
                column = self.array(name)
                np.add.at(column, wholes, column[parts])
                column[parts] = 0
            elif name in MINIMA:
                np.minimum.at(self.array(name), wholes, self[name][parts])
            elif name == "end_us" or name in MAXIMA:
                np.maximum.at(self.array(name), wholes, self[name][parts])
        # A part has no observations of its own any more, and both cells are to be compared again.
        self.put("observed_us", parts, ABSENT)
        for name in EXPANSION_FIELDS:
            self.put(f"x_{name}", np.concatenate([wholes, parts]), ABSENT)

    def _add_given(self, topics: pa.ChunkedArray, rows: Ints, events: Ints) -> None:
        for topic in pc.unique(topics).to_pylist():
            self._add_input(topic)
            mine = is_one_of(topics, topic)
            np.add.at(self.array(f"given/{topic}"), rows[mine], events[mine])

    def _add_input(self, topic: str) -> None:
        if topic not in self.inputs:
            self.inputs.append(topic)
            self._initials |= {f"{part}/{topic}": np.int64(0) for part in OF_INPUT}

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
            self._initials |= {f"{part}/{topic}": np.int64(0) for part in OF_OUTPUT}

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
        return sorted(name for name in self._initials if not name.startswith(_COMPARED) and "/" not in name)

    def to_table(self) -> pa.Table:
        """Return the columns that come from facts and from the derived tables, without results of comparisons, and
        without columns in which all cells have the initial value. The arrays are not copied."""
        names = ("window_start_us", *(name for name in self._columns if not name.startswith(_COMPARED)))
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
            column[self._size : size] = self._initials[name]
        if self._gap_us is not None:
            self._merged_into = np.concatenate([self._merged_into, np.arange(len(self._merged_into), size)])
        self._size = size


_COMPARED: Final = ("x_", *(f"{part}/" for part in (*OF_INPUT[1:], *OF_OUTPUT[1:])))
"""Prefixes of the columns that a comparison of ids fills."""
_MERGED_INTO: Final = "whole"
"""Column of `Cells.to_table`: the row that each row is part of."""
_PARTS: Final = {"count": "contributions", "a": "hash_a", "b": "hash_b"}
_TIMED: Final = {Side.INPUT: "input", Side.OUTPUT: "result"}


def _initial(name: str) -> int:
    if name in MINIMA or name in newest.MINIMA or name in ("first_event_us", _SLOT_SEEN, _BEGIN_SEEN):
        return NEVER
    counted = (
        name in SUMS
        or name in newest.COUNTS
        or "/" in name
        or (name.startswith(("recorded_", "confirmed_")) and name != "recorded_digest")
    )
    return 0 if counted else ABSENT
