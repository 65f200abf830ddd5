"""The rows that a table had, by key: what results of an enrichment may state (SEMANTICS 2.37).

A row is *possible* for a result if an engine may use it for an event of the result's cell, whether it replaces rows in
the order of their offsets or of their times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import VERSION
from validator.codecs.plain_json import AMOUNT
from validator.model import arrays
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints, listed, one_array, run_starts
from validator.oracles.seam import Oracle
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.facts import Kind

ROW_COLUMNS: Final = ("times", "aggregates")
"""The columns of a fact that only `TableRows.absorb` needs."""

NO_ROW: Final = -1
"""Stands for the absence of a row, before the first one of a key."""

_KEY, _PLACE, _OFFSET, _TIME, _REACHED, _BEFORE, _BATCH, _FIELDS = range(8)
"""Columns of a row: key and partition (by number), offset, the time from which it holds, the newest time in its
partition up to its offset, the instant through which its partition had been read before it, the batch that read it, and
its fields."""

_PAIRS_MOST: Final = 1 << 20
"""Number of pairs of a result and a row that are in memory at once."""


class Asked(NamedTuple):
    """Results, one entry each: their key, start and end of their cell, the lookup of their batch."""

    keys: pa.Array
    starts: Ints
    ends: Ints
    lookups: Ints

    def of(self, chosen: Ints) -> Asked:
        """Return the chosen results."""
        keys = self.keys.take(pa.array(chosen))
        return Asked(keys, self.starts[chosen], self.ends[chosen], self.lookups[chosen])


@dataclass(frozen=True)
class CellsOfRows:
    """The rows of a table, and the cells whose results state them: their keys, starts and ends."""

    rows: TableRows
    keys: pa.Array
    starts: Ints
    ends: Ints

    def asked(self, cell: Ints, lookups: Ints) -> Asked:
        """Return results of these cells."""
        return Asked(self.keys.take(pa.array(cell)), self.starts[cell], self.ends[cell], lookups)


class TableRows:
    """The rows of the tables of one oracle. ``width``: number of fields that results state. ``behind_us``,
    ``ahead_us``: how far the time of an event may be from a row that holds; None: any time. ``owes_by_rows``: as
    `Oracle.owes_by_rows`."""

    def __init__(self, width: int, behind_us: int | None, ahead_us: int | None, *, owes_by_rows: bool = False) -> None:
        self._width, self._owes_by_rows = width, owes_by_rows
        self._behind_us, self._ahead_us = behind_us, ahead_us
        self._keys = CellIndex()
        self._places: list[tuple[str, int]] = []
        self._newest: list[tuple[int, int]] = []
        """By partition: its last offset, and its newest time."""
        self._rows = np.empty((_FIELDS + width, 0), dtype=np.int64)
        self._size = 0
        self._is_sorted = True
        self._place_of_key = np.empty(0, dtype=np.int64)
        """The partition of each key's rows; `NEVER`: they are on several."""
        # The rows by key, as far as they were sorted last, and the first one of each key.
        self._order = self._begins = np.zeros(0, dtype=np.int64)

    @classmethod
    def of(cls, oracle: Oracle) -> Self | None:
        """Return an empty store of the rows of the oracle's tables; None if it has none."""
        if not oracle.tables:
            return None
        return cls(len(oracle.values), *oracle.table_reach_us, owes_by_rows=oracle.owes_by_rows)

    def __len__(self) -> int:
        return self._size

    @property
    def scattered(self) -> int:
        """The number of keys with rows on several partitions."""
        return int(np.count_nonzero(self._place_of_key == NEVER))

    def absorb(self, facts: pa.Table) -> tuple[pa.Array, int]:
        """Add the rows among ``facts``, in any order, each once. Returns their keys, and the instant up to which all
        results were read that none of them concerns."""
        mine = pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], VERSION))
        found = facts.filter(pc.fill_null(mine, fill_value=False))
        if not found.num_rows:
            return pa.array([], pa.string()), NEVER
        rows = self._read(found)
        for place in np.unique(rows[_PLACE]).tolist():
            mine = rows[_PLACE] == place
            offset, reached_us = self._newest[place]
            # A restart reads the batches in any order.
            self._is_sorted &= int(rows[_OFFSET][mine][0]) > offset
            rows[_REACHED, mine] = np.maximum.accumulate(np.maximum(rows[_TIME][mine], reached_us))
            self._newest[place] = max(offset, int(rows[_OFFSET][mine][-1])), int(rows[_REACHED][mine][-1])
        self._append(rows)
        return pc.unique(one_array(found["key"]).cast(pa.string())), int(rows[_BEFORE].min())

    def stated_wrongly(self, asked: Asked, stated: Ints) -> Bools:
        """Return which results state fields that no possible row has. ``stated``: a line per field; null: `ABSENT`."""
        right = np.zeros(len(asked.starts), dtype=np.bool_)
        fields = self._rows[_FIELDS:]
        for result, row in self._possible(asked):
            has = np.full((len(fields), len(row)), ABSENT)
            has[:, row != NO_ROW] = fields[:, row[row != NO_ROW]]
            # SEMANTICS 2.37: an inner join answers no event without a row.
            may_answer = (row != NO_ROW) | (not self._owes_by_rows)
            right[result[may_answer & (has == stated[:, result]).all(axis=0)]] = True
        return ~right & ~self._are_scattered(asked)

    def surely_exist(self, asked: Asked) -> Bools:
        """Return of which cells every possible row exists. ``asked``: cells, with the lookup of their first event."""
        found = ~self._are_scattered(asked)
        for cell, row in self._possible(asked):
            is_absent = row == NO_ROW
            is_absent[~is_absent] = self._are_null(row[~is_absent])
            found[cell[is_absent]] = False
        return found

    def may_be_removed(self, asked: Asked, due: Ints, rest: Ints, proven_us: Callable[[int], int]) -> Bools:
        """Return of which cells a row may have been removed after the lookup and before the answers were missing: since
        ``due``, by the time that ``proven_us`` leaves of an instant, or at the end of a run, ``rest``."""
        number = self._numbers(asked.keys)
        rows = self._of(np.unique(number[number >= 0]))
        rows = rows[self._are_null(rows)]
        key, time, before = (self._rows[at, rows] for at in (_KEY, _TIME, _BEFORE))
        cell, at = _ranges(np.searchsorted(key, number), np.searchsorted(key, number, "right"))
        proven = np.array([one if one == ABSENT else proven_us(one) for one in before.tolist()], dtype=np.int64)
        counts = (before[at] >= asked.lookups[cell]) & (proven[at] < due[cell]) & (before[at] < rest[cell])
        if self._ahead_us is not None:
            counts &= time[at] <= asked.ends[cell] + self._ahead_us
        found = np.zeros(len(number), dtype=np.bool_)
        found[cell[counts]] = True
        return found

    def _are_null(self, rows: Ints) -> Bools:
        """Whether all fields are null: a row that was removed, or one without any of them."""
        found: Bools = (self._rows[_FIELDS:, rows] == ABSENT).all(axis=0)
        return found

    def _are_scattered(self, asked: Asked) -> Bools:
        # The offsets of two partitions show no order.
        number = self._numbers(asked.keys)
        return (number >= 0) & (self._place_of_key[number] == NEVER) if len(self._keys) else number >= 0

    def forget(self, since_us: int, batch: int) -> None:
        """Remove the rows that are possible in no cell that starts at ``since_us`` or later and of which no record was
        read before ``batch``. The newest row of each key stays."""
        if self._behind_us is None or not self._size:
            return
        rows = self._of(np.arange(len(self._keys)))
        key, time, reached, batches = (self._rows[at, rows] for at in (_KEY, _TIME, _REACHED, _BATCH))
        # SEMANTICS 2.37: the next row of the key that is not earlier ends a row. It was read by then, so it counts.
        ends = _linked(time, np.append(np.flatnonzero(run_starts(key))[1:], len(rows)) - 1, step=1)
        is_over = ends >= 0
        is_over[is_over] &= ((reached[ends] < since_us - self._behind_us) & (batches[ends] <= batch))[is_over]
        stays = np.ones(self._size, dtype=np.bool_)
        stays[rows[is_over]] = False
        self._rows = self._rows[:, : self._size][:, stays]
        self._size = self._rows.shape[1]
        self._order = self._begins = np.zeros(0, dtype=np.int64)

    def possible(self, asked: Asked) -> Iterator[tuple[int, tuple[str, int, int] | None]]:
        """Yield the possible rows of each result: its number, and the position of the row (None: no row)."""
        for result, row in self._possible(asked):
            for one, at in sorted(zip(result.tolist(), row.tolist(), strict=True)):
                yield one, None if at == NO_ROW else self._position(at)

    def _position(self, row: int) -> tuple[str, int, int]:
        return (*self._places[int(self._rows[_PLACE, row])], int(self._rows[_OFFSET, row]))

    def _read(self, facts: pa.Table) -> Ints:
        """Return the rows of fact rows, by partition and offset."""
        at, dated = listed(facts["times"])
        number = self._keys.add(np.zeros(facts.num_rows, dtype=np.int64), facts["key"])
        places = list(zip(facts["topic"].to_pylist(), facts["partition"].to_pylist(), strict=True))
        for new in sorted(set(places) - set(self._places)):
            self._places.append(new)
            self._newest.append((ABSENT, ABSENT))
        place_of = {one: i for i, one in enumerate(self._places)}
        place = np.array([place_of[one] for one in places], dtype=np.int64)
        known = np.full(len(self._keys), ABSENT)
        known[: len(self._place_of_key)] = self._place_of_key
        first = known.copy()
        first[number[::-1]] = place[::-1]
        known = np.where(known == ABSENT, first, known)
        known[number[known[number] != place]] = NEVER
        self._place_of_key = known
        offsets, times, before = (ints(arrays.field(dated, name)) for name in ("offset", "time_us", "before_us"))
        texts = arrays.field(pc.list_flatten(one_array(facts["aggregates"])), "sum")
        fields = ints(texts.cast(AMOUNT).cast(pa.int64())).reshape(-1, self._width).T
        rows = np.stack([number[at], place[at], offsets, times, times, before, ints(facts["batch"])[at], *fields])
        return rows[:, np.lexsort((offsets, place[at]))]

    def _append(self, rows: Ints) -> None:
        size = self._size + rows.shape[1]
        if size > self._rows.shape[1]:
            # The part without rows takes no memory until it is written.
            grown = np.empty((len(rows), max(size, 2 * self._rows.shape[1])), dtype=np.int64)
            grown[:, : self._size] = self._rows[:, : self._size]
            self._rows = grown
        self._rows[:, self._size : size] = rows
        self._size = size

    def _sort(self) -> None:
        """Order all rows by offset, and compute again what each partition had reached."""
        if self._is_sorted:
            return
        rows = self._rows[:, : self._size]
        rows = rows[:, np.lexsort((rows[_OFFSET], rows[_PLACE]))]
        for place in range(len(self._places)):
            mine = rows[_PLACE] == place
            rows[_REACHED, mine] = np.maximum.accumulate(rows[_TIME, mine])
        self._rows, self._is_sorted = rows, True
        self._order = self._begins = np.zeros(0, dtype=np.int64)

    def _numbers(self, keys: pa.Array) -> Ints:
        return self._keys.find(np.zeros(len(keys), dtype=np.int64), keys)

    def _of(self, numbers: Ints) -> Ints:
        """Return the rows of these keys, by key and offset."""
        self._sort()
        if self._size - len(self._order) > len(self._order) // 4:
            key = self._rows[_KEY, : self._size]
            self._order = np.argsort(key, kind="stable")
            self._begins = np.concatenate([[0], np.cumsum(np.bincount(key, minlength=len(self._keys)))])
        known = numbers[numbers < len(self._begins) - 1]
        begins = self._begins[known]
        sorted_ = self._order[_ranges(begins, self._begins[known + 1])[1]] if len(known) else self._order[:0]
        later = np.arange(len(self._order), self._size)
        later = later[np.isin(self._rows[_KEY, later], numbers)]
        rows = np.concatenate([sorted_, later])
        return rows[np.lexsort((self._rows[_OFFSET, rows], self._rows[_KEY, rows]))]

    def _possible(self, asked: Asked) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs of a result and a possible row (`NO_ROW`: the absence of one), part by part."""
        number = self._numbers(asked.keys)
        rows = self._of(np.unique(number[number >= 0]))
        key, time, reached, before = (self._rows[at, rows] for at in (_KEY, _TIME, _REACHED, _BEFORE))
        first, end = np.searchsorted(key, number), np.searchsorted(key, number, "right")
        # SEMANTICS 2.37: a row counts unless its partition had been read through the result's T before. What is read
        # later was appended later: neither a restart nor a later row changes the class of a resolved result.
        last = _bisected(before, first, end, asked.lookups)
        since = np.full(len(number), ABSENT) if self._behind_us is None else asked.starts - self._behind_us
        until = np.full(len(number), NEVER - 1) if self._ahead_us is None else asked.ends + self._ahead_us
        # An engine that reads in the order of offsets passes the newest time of the partition before it has a later
        # row; one that orders by time ends a row only with one that is not earlier.
        passed = np.minimum(_bisected(reached, first, end, since), last)
        none = np.flatnonzero(passed == first)
        yield none, np.full(len(none), NO_ROW)
        segments = np.flatnonzero(run_starts(key)) if len(key) else np.zeros(0, dtype=np.int64)
        above = _linked(time, segments, step=-1) if (passed > first).any() else time
        result, at = np.flatnonzero(passed > first), passed[passed > first] - 1
        while len(result):
            # Of the rows before, those that only earlier times follow: each is later than the one after it.
            in_time = time[at] <= until[result]
            result, at = result[in_time], at[in_time]
            yield result, rows[at]
            goes_on = above[at] >= 0
            result, at = result[goes_on], above[at[goes_on]]
        # Of the rows after, those that are not too late; beyond ``stop`` all are.
        stop = _bisected(_least_from(time, segments), passed, last, until + 1)
        part = np.cumsum(stop - passed) // _PAIRS_MOST
        for some in np.split(np.arange(len(number)), np.flatnonzero(np.diff(part)) + 1):
            result, at = _ranges(passed[some], stop[some])
            result = some[result]
            in_time = time[at] <= until[result]
            yield result[in_time], rows[at[in_time]]


def _ranges(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Return, for each number of each range, the index of the range and the number."""
    sizes = np.maximum(ends - begins, 0)
    index = np.repeat(np.arange(len(sizes)), sizes)
    return index, np.arange(len(index)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + begins[index]


def _bisected(values: Ints, begins: Ints, ends: Ints, least: Ints) -> Ints:
    """Return, for each range of ``values``, which rise in it, the first index of a value that is at least ``least``."""
    low, high = begins.copy(), np.maximum(begins, ends)
    while (at := np.flatnonzero(low < high)).size:
        middle = (low[at] + high[at]) // 2
        is_less = values[middle] < least[at]
        low[at] = np.where(is_less, middle + 1, low[at])
        high[at] = np.where(is_less, high[at], middle)
    return low


def _linked(time: Ints, stops: Ints, *, step: int) -> Ints:
    """Return for each row the nearest one of its key in the direction of ``step`` that outlasts it; -1 without one:
    backwards one whose time is later, forwards one whose time is not earlier. ``stops``: the last row of each key in
    that direction."""
    found = np.arange(len(time)) + step
    found[stops] = -1

    def falls_short() -> Ints:
        is_short = time[found] < time if step > 0 else time[found] <= time
        return np.flatnonzero((found >= 0) & is_short)

    while len(at := falls_short()):
        # All rows between a row and its candidate fall short, and so do those that the candidate passes over.
        found[at] = found[found[at]]
    return found


def _least_from(time: Ints, segments: Ints) -> Ints:
    """Return for each row the earliest time from it to the end of its key. ``segments``: the first row of each key."""
    distinct, rank = np.unique(time, return_inverse=True)
    segment = np.zeros(len(time), dtype=np.int64)
    segment[segments[1:]] = 1
    above = np.cumsum(segment) * len(distinct)
    least = np.minimum.accumulate((rank + above)[::-1])[::-1] - above
    return distinct[least] if len(time) else time
