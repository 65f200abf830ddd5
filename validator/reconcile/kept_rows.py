"""The rows of tables whose records replace the row of their record key (SEMANTICS 2.35).

`validator.reconcile.upserts` makes the facts from which they come: of each record key that a task has read, its first
offset and its newest row (status `VERSION`). They show what the first record replaces: a row of an earlier batch, or of
another task. What it replaces and the new rows are one commit, so a restart finds them in the facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.batches import EVENTS
from validator.codecs.columns import REMOVED, VERSION
from validator.codecs.one_record import NO_ID
from validator.codecs.plain_fields import plain
from validator.codecs.plain_json import AMOUNT
from validator.model import arrays
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, interleaved, ints, listed, one_array, run_starts
from validator.oracles.seam import Oracle
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.facts import Kind, Side

KEPT_COLUMNS: Final = ("text_ids", "times", "aggregates")
"""The columns of a fact that only `KeptRows` needs."""

_WORDS: Final = 4
"""64-bit parts of a number (`AMOUNT`)."""


class _Entries(NamedTuple):
    """What facts have of record keys, an entry for each: the number of the key, that of its partition, its first and
    last offset, the time of the row at the last one (`ABSENT`: there is none), the number of the row's cell, its
    fields, and the broker's time."""

    number: Ints
    place: Ints
    first: Ints
    last: Ints
    time_us: Ints
    cell: Ints
    fields: list[pa.Array]
    stamp_us: Ints


class KeptRows:
    """The newest row of each record key of the tables of one oracle. ``width``: number of fields that results
    aggregate."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._rows, self._cells = CellIndex(), CellIndex()
        self._topics: list[str] = []
        self._places: dict[tuple[str, int], int] = {}
        self._begun: dict[int, int] = {}
        """By partition: the lookup of the first batch with a row of it."""
        self._columns = {name: np.empty(0, dtype=np.int64) for name in ("place", "offset", "time_us", "cell")}
        self._fields = np.empty((0, width, _WORDS + 1), dtype=np.int64)
        """The parts of each number, and whether there is one."""
        self.scattered = 0
        """The number of record keys on several partitions."""

    @classmethod
    def of(cls, oracle: Oracle) -> KeptRows | None:
        """Return an empty store of the rows of the oracle's inputs; None if no record replaces a row."""
        return cls(len(oracle.stated.paths)) if oracle.reads.upserts else None

    def begun_us(self, topic: str, partition: int) -> int | None:
        """Return the lookup of the first batch that read a row of a partition; None if none did."""
        return self._begun.get(self._places.get((topic, partition), -1))

    def absorb(self, facts: pa.Table) -> None:
        """Keep the newest rows of ``facts``, in any order of the batches."""
        facts = _of_rows(facts)
        it = self._entries(facts)
        if it is None:
            return
        parents, _ = listed(facts["text_ids"])
        lookups = ints(facts["lookup_us"])[parents]
        for one in np.unique(it.place).tolist():
            first_us = int(lookups[it.place == one].min())
            self._begun[one] = min(first_us, self._begun.get(one, first_us))
        place = self._columns["place"]
        number, at = np.unique(it.number, return_index=True)
        place[number] = np.where(place[number] == ABSENT, it.place[at], place[number])
        others = np.unique(it.number[(place[it.number] != it.place) & (place[it.number] != NEVER)])
        place[others] = NEVER
        self.scattered += len(others)
        order = np.lexsort((it.last, it.number))
        order = order[np.roll(run_starts(it.number[order]), -1)]
        order = order[it.last[order] > self._columns["offset"][it.number[order]]]
        at = it.number[order]
        for name, values in (("offset", it.last), ("time_us", it.time_us), ("cell", it.cell)):
            self._columns[name][at] = values[order]
        for i, column in enumerate(it.fields):
            self._fields[at, i] = _parts(column.take(pa.array(order)))

    def replaced(self, facts: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        """Yield, by topic, rows of `EVENTS`: what the first records of record keys in ``facts`` of one batch replace.
        Nothing is kept yet."""
        facts = _of_rows(facts)
        it = self._entries(facts)
        if it is None:
            return
        order = np.lexsort((it.first, it.number))
        number, place = it.number[order], it.place[order]
        is_first = run_starts(number)
        before = np.where(is_first, -1, np.roll(order, 1))
        kept = self._columns
        # SEMANTICS 2.35: the offsets of two partitions show no order.
        of_kept = np.flatnonzero(is_first & (kept["time_us"][number] != ABSENT) & (kept["place"][number] == place))
        of_entry = np.flatnonzero(~is_first)
        of_entry = of_entry[(it.time_us[before[of_entry]] != ABSENT) & (it.place[before[of_entry]] == place[of_entry])]
        number = number[of_kept]
        cells = np.concatenate([kept["cell"][number], it.cell[before[of_entry]]])
        times = np.concatenate([kept["time_us"][number], it.time_us[before[of_entry]]])
        fields = [
            pa.concat_arrays([_numbers(self._fields[number, i]), column.take(pa.array(before[of_entry]))])
            for i, column in enumerate(it.fields)
        ]
        by = order[np.concatenate([of_kept, of_entry])]
        # What is removed is not due before what replaces it.
        times = np.maximum(times, it.time_us[by])
        names = {number: name for name, number in self._places.items()}
        topics = np.array([names[one][0] for one in range(len(names))], dtype=object)[it.place[by]]
        partitions = np.array([names[one][1] for one in range(len(names))], dtype=np.int32)[it.place[by]]
        size = len(by)
        columns: dict[str, Any] = {
            "partition": pa.array(partitions),
            "offset": pa.array(it.first[by]),
            "time_us": pa.array(it.stamp_us[by], mask=it.stamp_us[by] == ABSENT),
            "id": pa.array(np.full(size, NO_ID, dtype=np.int64)),
            "text_id": pa.nulls(size, pa.string()),
            "key": self._cells.keys(cells).cast(pa.string()).dictionary_encode(),
            "event_time_us": pa.array(times),
            "status": pa.array(np.full(size, REMOVED, dtype=np.int32)),
            "values": interleaved(fields, size, AMOUNT),
        }
        whole = pa.table([columns[field.name].cast(field.type) for field in EVENTS], schema=EVENTS)
        whole = whole.take(pa.array(np.lexsort((it.first[by], partitions))))
        topics = topics[np.lexsort((it.first[by], partitions))]
        for topic in sorted(set(topics.tolist())):
            yield topic, whole.filter(pa.array(topics == topic))

    def needed(self, facts: pa.Table) -> Bools:
        """Return which of these fact rows, of status `VERSION`, have a newest row, or one of a key on several
        partitions."""
        it = self._entries(facts)
        found = np.zeros(facts.num_rows, dtype=np.bool_)
        if it is not None:
            parents, _ = listed(facts["text_ids"])
            is_newest = it.last == self._columns["offset"][it.number]
            found[parents[is_newest | (self._columns["place"][it.number] == NEVER)]] = True
        return found

    def _entries(self, facts: pa.Table) -> _Entries | None:
        """Return what fact rows of status `VERSION` have of record keys, which get numbers."""
        if not facts.num_rows:
            return None
        at, items = listed(facts["text_ids"])
        _, times = listed(facts["times"])
        topics, partitions = one_array(facts["topic"].combine_chunks().dictionary_encode()), ints(facts["partition"])
        codes = plain(topics.indices)
        place, topic = np.empty(len(codes), dtype=np.int64), np.empty(len(codes), dtype=np.int64)
        for code, name in enumerate(topics.dictionary.to_pylist()):
            if name not in self._topics:
                self._topics.append(name)
            topic[codes == code] = self._topics.index(name)
            for partition in np.unique(partitions[codes == code]).tolist():
                of_one = self._places.setdefault((name, partition), len(self._places))
                place[(codes == code) & (partitions == partition)] = of_one
        number = self._rows.add(topic[at], arrays.field(items, "id"))
        cell = self._cells.add(np.zeros(len(codes), dtype=np.int64), facts["key"])
        self._grow()
        fields = []
        if self._width:
            texts = arrays.field(pc.list_flatten(one_array(facts["aggregates"])), "sum").cast(AMOUNT)
            fields = [texts.take(pa.array(np.arange(len(at)) * self._width + i)) for i in range(self._width)]
        first, last, time_us = (
            ints(arrays.field(of, name)) for of, name in ((items, "offset"), (times, "offset"), (times, "time_us"))
        )
        return _Entries(number, place[at], first, last, time_us, cell[at], fields, ints(facts["last_time_us"])[at])

    def _grow(self) -> None:
        size, room = len(self._rows), len(self._fields)
        if size <= room:
            return
        more = max(size, 2 * room) - room
        for name, column in self._columns.items():
            self._columns[name] = np.concatenate([column, np.full(more, ABSENT)])
        self._fields = np.concatenate([self._fields, np.zeros((more, *self._fields.shape[1:]), dtype=np.int64)])


def _of_rows(facts: pa.Table) -> pa.Table:
    """Return the fact rows with rows of tables."""
    mine = pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], VERSION))
    mine = pc.and_kleene(mine, pc.equal(facts["side"], Side.INPUT.value))
    return facts.filter(pc.fill_null(mine, fill_value=False))


def _parts(column: pa.Array) -> Ints:
    """Return the parts of numbers (`AMOUNT`), and whether each is one."""
    raw = np.frombuffer(column.buffers()[1], np.int64)
    found = np.empty((len(column), _WORDS + 1), dtype=np.int64)
    found[:, :_WORDS] = raw[column.offset * _WORDS : (column.offset + len(column)) * _WORDS].reshape(-1, _WORDS)
    found[:, _WORDS] = ints(column.is_valid())
    return found


def _numbers(parts: Ints) -> pa.Array:
    """Return the numbers of `_parts`."""
    data = pa.py_buffer(np.ascontiguousarray(parts[:, :_WORDS]))
    whole = pa.Array.from_buffers(AMOUNT, len(parts), [None, data])
    return pc.if_else(pa.array(parts[:, _WORDS] == 1), whole, pa.scalar(None, AMOUNT))
