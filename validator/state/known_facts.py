"""Facts for the comparison of ids: recent ones from memory, older ones from the facts table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.model.arrays import ABSENT, Bools, Ints, field, ints, listed
from validator.reconcile.cells import FACT_COLUMNS, of_cells
from validator.reconcile.compare import COMPARED_COLUMNS, RequestedIds
from validator.reconcile.facts import Kind, Side
from validator.state.tables import StateTables, Table

BYTES_KEPT: Final = 256 * 1024 * 1024
"""Limit of the facts held in memory. Comparisons in a live run mostly need facts of its newest batches."""
JOINED_BYTES: Final = 4 * 1024 * 1024
"""Arrow tables of facts up to this size are joined in memory."""


class KnownFacts:
    """The facts of a state, up to those that were added last."""

    def __init__(self, tables: StateTables | None, *, first_batch: int, room_bytes: int = BYTES_KEPT) -> None:
        """``first_batch``: the first batch that is passed to `add`. ``tables`` None: facts are only in memory."""
        self._tables = tables
        self._room = room_bytes
        self._held: deque[pa.Table] = deque()
        self._bytes = 0
        self._from_batch = first_batch

    @property
    def in_memory_from(self) -> int:
        """The first batch from which on all facts are in memory."""
        return self._from_batch

    @property
    def all_in_memory(self) -> Sequence[pa.Table]:
        """All facts of the state, as tables of `COMPARED_COLUMNS`; empty if some are not in memory."""
        return tuple(self._held) if self._from_batch <= 0 else ()

    def add(self, facts: pa.Table) -> None:
        """Add the facts of a batch, whose append has begun. If there is no room, the oldest facts leave memory."""
        held = of_cells(facts).select(COMPARED_COLUMNS)
        self._bytes += held.nbytes
        # Small batches are joined: a table needs more memory and more time than its rows.
        while self._held and self._held[-1].nbytes <= held.nbytes <= JOINED_BYTES:
            before = self._held.pop()
            self._bytes -= before.nbytes + held.nbytes
            held = pa.concat_tables([before, held]).combine_chunks()
            self._bytes += held.nbytes
        self._held.append(held)
        while self._bytes > self._room and self._held:
            dropped = self._held.popleft()
            self._bytes -= dropped.nbytes
            if dropped.num_rows:
                self._from_batch = max(self._from_batch, int(ints(dropped["batch"]).max()) + 1)

    def forget(self, before_batch: int) -> None:
        """Drop the facts of batches before ``before_batch`` from memory. They are then read from the table, if any."""
        kept = (table.filter(pc.greater_equal(table["batch"], before_batch)) for table in self._held)
        self._held = deque(table for table in kept if table.num_rows)
        self._bytes = sum(table.nbytes for table in self._held)
        self._from_batch = max(self._from_batch, before_batch)

    def facts_of_windows(self, oldest_batch: int, first_us: int, last_us: int) -> Iterator[pa.Table]:
        """All facts since ``oldest_batch`` of windows that start from ``first_us`` to ``last_us``, both inclusive.

        The tables (`COMPARED_COLUMNS`) may contain other facts. If cells have no windows, both bounds are `ABSENT`.
        """
        if self._tables is None or oldest_batch >= self._from_batch:
            yield from self._held
            return
        yield from self._tables.scan(Table.FACTS, COMPARED_COLUMNS, _within_windows(oldest_batch, first_us, last_us))

    def facts_to_fold(self, oldest_batch: int, first_us: int, last_us: int) -> Iterator[pa.Table]:
        """As `facts_of_windows`, with `FACT_COLUMNS`, and from the table only."""
        if self._tables is not None:
            yield from self._tables.scan(Table.FACTS, FACT_COLUMNS, _within_windows(oldest_batch, first_us, last_us))

    def inputs_with(self, requested: RequestedIds) -> RequestedIds:
        """The ids among ``requested`` that an input event has."""
        numbers, texts = requested
        found = np.zeros(len(numbers), dtype=np.bool_)
        named: set[str] = set()
        wanted = pa.array(texts, pa.string())
        for table in self._inputs(requested):
            _, events = listed(table["ids"])
            found |= np.isin(numbers, ints(field(events, "id")))
            if texts:
                _, events = listed(table["text_ids"])
                ids = field(events, "id")
                named.update(ids.filter(pc.is_in(ids, value_set=wanted)).to_pylist())
            if found.all() and len(named) == len(texts):
                break
        return numbers[found], sorted(named)

    def judged_before(self, keys: pa.Array, instants_us: Ints) -> Bools:
        """Which cells of one id, by key, have a verdict of a batch before the instant of the cell."""
        found = np.zeros(len(keys), dtype=np.bool_)
        where = ds.field("key").isin(keys) & (ds.field("lookup_us") < int(instants_us.max()))
        for part in () if self._tables is None else self._tables.scan(Table.VERDICTS, ("key", "lookup_us"), where):
            rows = ints(pc.index_in(part["key"], value_set=keys.cast(part["key"].type)))
            found[rows[ints(part["lookup_us"]) < instants_us[rows]]] = True
        return found

    def _inputs(self, requested: RequestedIds) -> Iterator[pa.Table]:
        """Input facts that may contain some of the ids, those in memory first, from the newest."""
        for table in reversed(self._held):
            yield table.filter(pc.equal(table["side"], Side.INPUT.value))
        numbers, texts = requested
        where = (ds.field("kind") == Kind.FACT.value) & (ds.field("side") == Side.INPUT.value)
        where = where & (ds.field("batch") < self._from_batch)
        if len(numbers) and not texts:
            where = where & (ds.field("max_id") >= int(numbers.min())) & (ds.field("min_id") <= int(numbers.max()))
        if self._tables is not None and self._from_batch > 0:
            yield from self._tables.scan(Table.FACTS, COMPARED_COLUMNS, where)


def _within_windows(oldest_batch: int, first_us: int, last_us: int) -> ds.Expression:
    since = (ds.field("kind") == Kind.FACT.value) & (ds.field("batch") >= oldest_batch)
    if first_us == ABSENT:
        return since
    return since & (ds.field("window_start_us") >= first_us) & (ds.field("window_start_us") <= last_us)
