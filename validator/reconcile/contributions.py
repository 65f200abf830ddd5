"""The contributions of compared cells, one entry each: what `validator.reconcile.compare` counts by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from validator.codecs.columns import UNOWED
from validator.model.arrays import Bools, Ints, ints, is_one_of, run_starts
from validator.oracles.ids import IdCounts
from validator.reconcile.quantities import SIDES
from validator.reconcile.table_rows import CellsOfRows

INPUT, OUTPUT, LATE, REJECTED, OWES_NOTHING = range(5)
"""Numbers of sides; the last one is that of events that contribute to no cell."""
_SIDES: Final = tuple(SIDES)

TopicPartition = tuple[str, int]
"""Topic and partition."""
Gathered = Sequence[tuple[pa.Table, Ints]]
"""Facts of the compared cells, and the number of each fact's cell."""


@dataclass(frozen=True)
class Items:
    """Contributions, one entry each: cell and partition (by number), side, offset, whether the id is a text, and
    the id or the text's number. ``times``: the number of contributions of each entry; None: each is one. ``first``: the
    first of their offsets, if ``offset`` is the last one. ``source``: the index of each entry in the values."""

    cell: Ints
    side: Ints
    partition: Ints
    offset: Ints
    is_text: Ints
    id: Ints
    times: Ints | None = None
    first: Ints | None = None
    source: Ints | None = None

    @property
    def first_offset(self) -> Ints:
        """The first offset of each entry."""
        return self.offset if self.first is None else self.first

    def sorted(self) -> Items:
        """Return the contributions by cell and id, and within these in the order of (partition, offset)."""
        return self.of(np.lexsort((self.offset, self.partition, self.id, self.is_text, self.cell)))

    def of(self, chosen: Ints | Bools) -> Items:
        """Return the chosen contributions."""
        columns: dict[str, Any] = {column.name: getattr(self, column.name) for column in fields(self)}
        return replace(self, **{name: column[chosen] for name, column in columns.items() if column is not None})


@dataclass(frozen=True)
class Results:
    """The results with ids, numbered by cell and position.

    ``items``: the contributions in results. ``number``: the result of each of them. ``cell``: that of each result.
    """

    items: Ints
    number: Ints
    cell: Ints

    @classmethod
    def of(cls, items: Items, *, by_id: bool) -> Results:
        """Return the results among these contributions. ``by_id``: each mention of an id counts as a result."""
        carried = np.flatnonzero(items.side == OUTPUT)
        cell, partition, offset = items.cell[carried], items.partition[carried], items.offset[carried]
        order = np.lexsort((offset, partition, cell))
        new = run_starts(cell[order], partition[order], offset[order])
        if by_id:
            new[:] = True
        number = np.empty(len(carried), dtype=np.int64)
        number[order] = np.cumsum(new) - 1
        return cls(carried, number, cell[order][new])

    def of_items(self, many: int) -> Ints:
        """Return the result of each of all ``many`` contributions; -1: it is in none."""
        found = np.full(many, -1, dtype=np.int64)
        found[self.items] = self.number
        return found


@dataclass(frozen=True)
class Comparison:
    """The contributions of the cells ``rows``.

    ``items``: sorted. ``texts``, ``named``: texts and partitions by number. ``group``: the number of the (cell, id) of
    each item. ``of_rows``: the cells, if their results state rows of a table.
    """

    rows: Ints
    gathered: Gathered
    items: Items
    texts: Sequence[str]
    named: Sequence[TopicPartition]
    group: Ints
    id_counts: IdCounts
    results: Results
    of_rows: CellsOfRows | None = None


def sides_of(facts: pa.Table) -> Ints:
    """Return the number of each fact's side; `OWES_NOTHING` for events that contribute to no cell."""
    found = np.select([is_one_of(facts["side"], name.value) for name in _SIDES], range(4), -1)
    found[ints(facts["status"]) == UNOWED] = OWES_NOTHING
    return found


def partitions_of(gathered: Gathered) -> list[TopicPartition]:
    """Return the partitions of the facts, sorted."""
    return sorted({partition for facts, _ in gathered for partition in _topic_partitions(facts)})


def partition_numbers(facts: pa.Table, partitions: Sequence[TopicPartition]) -> Ints:
    """Return the place of each fact's partition in ``partitions``."""
    number = {partition: i for i, partition in enumerate(partitions)}
    return np.array([number[it] for it in _topic_partitions(facts)], dtype=np.int64)


def _topic_partitions(facts: pa.Table) -> list[TopicPartition]:
    return list(zip(facts["topic"].to_pylist(), facts["partition"].to_pylist(), strict=True))
