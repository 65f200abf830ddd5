"""The rows that a table had, by key: what results of an enrichment may state (SEMANTICS 2.37).

A row is *possible* in an interval of event time if an engine may use it for an event of the interval, whether it
replaces rows in the order of their offsets or of their times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import VERSION
from validator.model import arrays
from validator.model.arrays import ABSENT, NEVER, Ints, ints, listed, one_array
from validator.oracles.seam import Oracle
from validator.reconcile.facts import Kind

Fields = tuple[int | None, ...]
"""The fields of a row that results state: hashes of their texts, or None."""

ROW_COLUMNS: Final = ("times", "aggregates")
"""The columns of a fact that only `TableRows.absorb` needs."""


class Row(NamedTuple):
    """A row of a table. ``time_us``: it holds from then on. ``reached_us``: the newest time in its partition up to its
    offset. ``lookup_us``: that of the batch that read it."""

    place: tuple[str, int]
    offset: int
    time_us: int
    reached_us: int
    lookup_us: int
    fields: Fields


class TableRows:
    """The rows of the tables of one oracle. ``width``: number of fields that results state. ``behind_us``,
    ``ahead_us``: how far the time of an event may be from a row that holds; None: any time."""

    def __init__(self, width: int, behind_us: int | None, ahead_us: int | None) -> None:
        self._width = width
        self._behind_us, self._ahead_us = behind_us, ahead_us
        self._of_key: dict[str, list[Row]] = {}
        self._newest: dict[tuple[str, int], tuple[int, int]] = {}
        self._is_sorted = True

    @classmethod
    def of(cls, oracle: Oracle) -> Self | None:
        """Return an empty store of the rows of the oracle's tables; None if it has none."""
        return cls(len(oracle.values), *oracle.table_reach_us) if oracle.tables else None

    def absorb(self, facts: pa.Table) -> pa.Array:
        """Add the rows among ``facts``, in any order, each once. Returns their keys."""
        mine = pc.and_kleene(pc.equal(facts["kind"], Kind.FACT.value), pc.equal(facts["status"], VERSION))
        found = facts.filter(pc.fill_null(mine, fill_value=False))
        if not found.num_rows:
            return pa.array([], pa.string())
        for key, row in sorted(_rows(found, self._width), key=lambda one: (one[1].place, one[1].offset)):
            offset, reached_us = self._newest.get(row.place, (ABSENT, ABSENT))
            # A restart reads the batches in any order.
            self._is_sorted &= row.offset > offset
            reached_us = max(reached_us, row.time_us)
            self._newest[row.place] = max(offset, row.offset), reached_us
            self._of_key.setdefault(key, []).append(row._replace(reached_us=reached_us))
        return pc.unique(one_array(found["key"]).cast(pa.string()))

    def possible(
        self, keys: Sequence[str | None], starts: Ints, ends: Ints, closed: Ints
    ) -> list[frozenset[Fields] | None]:
        """Return, for each cell, the rows that its events may have used; None if they cannot be known. ``closed``: the
        closing times of the cells, or `ABSENT`."""
        self._sort()
        none: Fields = (None,) * self._width
        found: list[frozenset[Fields] | None] = []
        for key, start, end, closed_us in zip(keys, starts.tolist(), ends.tolist(), closed.tolist(), strict=True):
            rows = self._of_key.get(key or "", [])
            if len({row.place for row in rows}) > 1:
                # The offsets of two partitions show no order.
                found.append(None)
                continue
            since = ABSENT if self._behind_us is None else start - self._behind_us
            until = NEVER if self._ahead_us is None else end + self._ahead_us
            # SEMANTICS 2.37: a row that was read after the closing of the cell ends none.
            ending = [row for row in rows if closed_us == ABSENT or row.lookup_us <= closed_us]
            possible = {row.fields for row in rows if row.time_us <= until and _replaced_us(row, ending) >= since}
            if min((row.reached_us for row in ending), default=NEVER) >= since:
                possible.add(none)
            found.append(frozenset(possible))
        return found

    def _sort(self) -> None:
        """Order all rows by offset, and compute again what each partition had reached."""
        if self._is_sorted:
            return
        everything = sorted(
            ((key, row) for key, rows in self._of_key.items() for row in rows),
            key=lambda one: (one[1].place, one[1].offset),
        )
        reached: dict[tuple[str, int], int] = {}
        self._of_key = {}
        for key, row in everything:
            reached[row.place] = now_us = max(reached.get(row.place, ABSENT), row.time_us)
            self._of_key.setdefault(key, []).append(row._replace(reached_us=now_us))
        self._is_sorted = True


def _replaced_us(row: Row, ending: Sequence[Row]) -> int:
    """Return the event time from which ``row`` is surely replaced. ``ending``: rows of its key, by offset."""
    # An engine that reads in the order of offsets passes the newest time of the partition before it has the later row;
    # one that orders by time ends a row only with one that is not earlier.
    later = (it.reached_us for it in ending if it.offset > row.offset and it.time_us >= row.time_us)
    return next(later, NEVER)


def _rows(facts: pa.Table, width: int) -> Iterator[tuple[str, Row]]:
    """Yield the rows of fact rows, with their keys."""
    at, dated = listed(facts["times"])
    offsets, times = (ints(arrays.field(dated, name)).tolist() for name in ("offset", "time_us"))
    texts = arrays.field(pc.list_flatten(one_array(facts["aggregates"])), "sum").to_pylist()
    keys, topics, partitions = (facts[name].to_pylist() for name in ("key", "topic", "partition"))
    lookups = ints(facts["lookup_us"])
    for i, fact in enumerate(at.tolist()):
        stated = tuple(None if text is None else int(Decimal(text)) for text in texts[i * width : (i + 1) * width])
        place = topics[fact], partitions[fact]
        yield keys[fact], Row(place, offsets[i], times[i], times[i], int(lookups[fact]), stated)


def stated_wrongly(stated: Sequence[Fields], cell: Ints, possible: Sequence[frozenset[Fields] | None]) -> arrays.Bools:
    """Return which results state fields that no possible row of their cell has. ``cell``: that of each result."""
    rows = [possible[i] for i in cell.tolist()]
    found = [of_cell is not None and fields not in of_cell for fields, of_cell in zip(stated, rows, strict=True)]
    return np.array(found, dtype=np.bool_)
