"""Which results count if the newest result of a key replaces the earlier ones (emission `cumulative`, SEMANTICS 2.16).

This is a fold of facts, like `validator.reconcile.cells`. The cell of an id holds the newest result that lists the
id. The row of its key holds the newest result of the key. The id counts while both are the same result. The cell of a
window holds its newest result itself: it is its own row of the key. The fold is a maximum over offsets, so it depends
neither on the order of facts nor on batch boundaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints, one_array
from validator.oracles.seam import Oracle
from validator.reconcile.by_id import OF_KEY, keys_of_cells
from validator.reconcile.key_values import note_stated
from validator.reconcile.quantities import kept

PARTS: Final = ("count", "a", "b")

QUANTITIES: Final = (
    *kept(ABSENT, "listed_batch", "listed_offset", "withdrawn_us", "of_key", "newest_batch", "newest_offset"),
    *kept(0, *(f"listed_{part}" for part in PARTS)),
    *kept(NEVER, "first_place"),
    *kept(ABSENT, "last_place"),
    # Only the newest results count (`Newest.settle`).
    *kept(0, "results", *(f"processed_{part}" for part in PARTS)),
)
"""Quantities of cells. ``listed_*``: the newest result that lists the id, and its contribution. ``withdrawn_us``:
lookup instant of the batch with the key's next result after the ``listed_*`` one; absent if none. ``of_key``: row of
the key. In the row of a key, ``newest_*`` are batch and offset of its newest result. ``first_place`` and
``last_place`` are the smallest and the largest number of a partition with results of the key."""

_PARTITIONS: Final = 2**20
"""More partitions than a topic has."""


class ReadColumns(Protocol):
    """Columns of cells that are only read."""

    def __getitem__(self, name: str) -> Ints: ...


class CellColumns(Protocol):
    """What this fold reads and writes of `validator.reconcile.cells.Cells`, with which it shares the columns."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> Ints: ...
    def __setitem__(self, name: str, values: Ints) -> None: ...
    def array(self, name: str) -> Ints:
        """Return a column as a view to be written to."""

    def put(self, name: str, rows: Ints | slice, values: Ints | int) -> None:
        """Write ``values`` to ``rows`` of a column."""

    def keys(self, rows: Ints | None = None) -> pa.Array:
        """Return the keys of ``rows``, by default of all cells."""

    def rows_of(self, windows: Ints, keys: pa.Array | pa.ChunkedArray, *, adding: bool = False) -> Ints:
        """Return the row numbers of cells; ``adding`` creates those that do not exist."""


class Newest:
    """The newest results of the keys of ``cells``.

    Of two results, the one of the later batch is newer; within a batch, the one with the higher offset. Offsets alone
    do not decide, since a recreated topic has the earlier offsets again.
    """

    def __init__(self, cells: CellColumns, oracle: Oracle) -> None:
        self._cells = cells
        self._by_id, self._by_key = oracle.by_id, oracle.by_key
        self._stated = oracle.stated
        # SEMANTICS 2.35: where changes also remove events, a correct result may state fewer than the one before it.
        self._shows_falls = oracle.stated.count_name is not None and not oracle.reads.signed
        self._topics: dict[str, int] = {}
        # Results since `settle`: row of the key, batch, offset, and lookup instant.
        self._read: list[tuple[Ints, ...]] = []

    @property
    def topics(self) -> list[str]:
        """The topics of the results, in the order in which they were first read."""
        return list(self._topics)

    @topics.setter
    def topics(self, names: Sequence[str]) -> None:
        self._topics = {name: number for number, name in enumerate(names)}

    def fold(self, rows: Ints, facts: pa.Table) -> None:
        """Fold in facts of outputs. ``rows``: their cells."""
        cells = self._cells
        of_keys = np.flatnonzero(cells["window_start_us"][rows] == OF_KEY) if self._by_id else np.arange(len(rows))
        listing = np.flatnonzero(cells["window_start_us"][rows] != OF_KEY) if self._by_id else of_keys
        batches, offsets = ints(facts["batch"]), ints(facts["last_offset"])
        at = of_keys
        places = self._places(facts)[at]
        np.minimum.at(cells.array("first_place"), rows[at], places)
        np.maximum.at(cells.array("last_place"), rows[at], places)
        counts = ints(facts["contributions"], 0)
        self._read.append((rows[at], batches[at], offsets[at], ints(facts["lookup_us"])[at], counts[at]))
        at = at[_last_of_each(rows[at], batches[at], offsets[at])]
        at = at[self._is_newer(rows[at], batches[at], offsets[at], "newest")]
        cells.put("newest_batch", rows[at], batches[at])
        cells.put("newest_offset", rows[at], offsets[at])
        at = listing[_last_of_each(rows[listing], batches[listing], offsets[listing], counts[listing])]
        at = at[self._is_newer(rows[at], batches[at], offsets[at], "listed", counts[at])]
        cells.put("listed_batch", rows[at], batches[at])
        cells.put("listed_offset", rows[at], offsets[at])
        for part, name in zip(PARTS, ("contributions", "hash_a", "hash_b"), strict=True):
            cells.put(f"listed_{part}", rows[at], ints(facts[name], 0)[at])
        if not self._by_id:
            # A null value is no result: another row counts its record.
            is_result = np.minimum(ints(facts["records"], 0)[at], 1) if self._by_key else 1
            cells.put("results", rows[at], is_result)
        if self._by_key and self._stated.stated:
            note_stated(cells, rows[at], facts.take(pa.array(at)), self._stated)
        if not self._by_key:
            # SEMANTICS 3.12: a result may lack what the replaced one had, so what its cell lacks is due from it on.
            cells.put("withdrawn_us", rows[at], ABSENT if self._by_id else ints(facts["lookup_us"])[at])

    def adopt(self, rows: Ints) -> None:
        """Set the row of the key of each new cell among ``rows``."""
        cells = self._cells
        if not self._by_id:
            cells.put("of_key", rows, rows)
            return
        rows = rows[(cells["window_start_us"][rows] != OF_KEY) & (cells["of_key"][rows] == ABSENT)]
        if len(rows):
            new = np.zeros(len(cells), dtype=np.bool_)
            new[rows] = True
            ids = np.flatnonzero(new)
            keys = keys_of_cells(cells.keys(ids)).dictionary_encode()
            starts = np.full(len(keys.dictionary), OF_KEY, dtype=np.int64)
            found = cells.rows_of(starts, keys.dictionary, adding=True)[ints(keys.indices)]
            cells.put("of_key", ids, found)

    def settle(self) -> None:
        """Count the contributions of the newest results, once all known facts are folded in."""
        if not self._by_id:
            self._settle_own()
            return
        cells = self._cells
        newest = self._are_newest()
        # SEMANTICS 2.16: the ids of a result count while it is the newest of its key.
        kept = newest & ~self.scattered
        for part in PARTS:
            cells[f"processed_{part}"] = np.where(kept, cells[f"listed_{part}"], 0)
        cells["results"] = cells["processed_count"]
        withdrawn = cells["withdrawn_us"]
        # SEMANTICS 3.12: a withdrawn id is due from the first result without it, so an engine that restores a
        # checkpoint has time to write its newer results again.
        fresh = np.flatnonzero((cells["listed_batch"] != ABSENT) & ~newest & (withdrawn == ABSENT))
        if len(fresh):
            instants = self._withdrawal(fresh)
            cells.put("withdrawn_us", fresh, instants)
            np.maximum.at(cells.array("observed_us"), fresh, instants)
        self._read.clear()

    def _settle_own(self) -> None:
        """As `settle`, for the cells that are their own row of the key and have new results."""
        if not self._read:
            return
        cells = self._cells
        rows = np.concatenate([part[0] for part in self._read])
        kept = cells["first_place"][rows] == cells["last_place"][rows]
        if self._by_key:
            self._note_falls()
            # Results on several partitions have no order, so which of them falls would depend on the batches.
            cells.put("withdrawn_us", rows[~kept], ABSENT)
        for part in PARTS:
            cells.put(f"processed_{part}", rows, np.where(kept, cells[f"listed_{part}"][rows], 0))
        cells.put("results", rows, np.where(kept, cells["results"][rows], 0))
        self._read.clear()

    def _note_falls(self) -> None:
        """Note when a key's result may state less than the one before it."""
        cells = self._cells
        rows, batches, offsets, instants, counts = (np.concatenate(part) for part in zip(*self._read, strict=True))
        order = np.lexsort((offsets, batches, rows))
        rows, instants, counts = rows[order], instants[order], counts[order]
        is_first = np.concatenate([[True], rows[1:] != rows[:-1]])
        # The result that counted before these results is still the processed one.
        before = np.where(is_first, cells["processed_count"][rows], np.concatenate([[0], counts[:-1]]))
        # SEMANTICS 3.12: an engine that restores a checkpoint writes its newer results again. If their number of events
        # does not only rise, no result shows whether it is an older one.
        falls = (counts < before) | (not self._shows_falls)
        np.maximum.at(cells.array("withdrawn_us"), rows[falls], instants[falls])

    def kept(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return batch and offset of the result that counts in each of ``rows``; absent if none counts."""
        cells, kept = self._cells, (self._are_newest() & ~self.scattered)[rows]
        batches, offsets = cells["listed_batch"][rows], cells["listed_offset"][rows]
        return np.where(kept, batches, ABSENT), np.where(kept, offsets, ABSENT)

    @property
    def scattered(self) -> Bools:
        """Which rows of keys, and which cells of their ids, have results on several partitions. The offsets of such
        results cannot be compared, so none of them counts."""
        cells = self._cells
        of_key = cells["of_key"]
        rows = np.where(of_key == ABSENT, np.arange(len(cells)), of_key)
        found: Bools = (cells["first_place"] < cells["last_place"])[rows]
        return found

    def held(self, removed: Bools) -> Bools:
        """Return the rows of keys that have an id for which ``removed`` does not hold: its cell needs the key's newest
        result."""
        of_key = self._cells["of_key"]
        found = np.zeros(len(removed), dtype=np.bool_)
        found[of_key[(of_key != ABSENT) & ~removed]] = True
        return found

    def renumber(self, number: Ints) -> None:
        """Apply the new numbers of rows. ``number``: old row number -> new row number."""
        of_key = self._cells["of_key"]
        known = np.flatnonzero(of_key != ABSENT)
        self._cells.put("of_key", known, number[of_key[known]])

    def _are_newest(self) -> Bools:
        """Return the cells whose id is in the newest result of its key."""
        cells = self._cells
        of_key, batches = cells["of_key"], cells["listed_batch"]
        found = np.zeros(len(cells), dtype=np.bool_)
        at = np.flatnonzero(batches != ABSENT)
        found[at] = (batches[at] == cells["newest_batch"][of_key[at]]) & (
            cells["listed_offset"][at] == cells["newest_offset"][of_key[at]]
        )
        return found

    def _is_newer(self, rows: Ints, batches: Ints, offsets: Ints, which: str, counts: Ints | None = None) -> Bools:
        cells = self._cells
        known, known_offsets = cells[f"{which}_batch"][rows], cells[f"{which}_offset"][rows]
        same = batches == known
        newer: Bools = (batches > known) | (same & (offsets > known_offsets))
        if counts is not None:
            newer |= same & (offsets == known_offsets) & (counts > cells[f"{which}_count"][rows])
        return newer

    def _withdrawal(self, fresh: Ints) -> Ints:
        """Return when the id of each cell of ``fresh`` was withdrawn: the lookup instant of the batch with the key's
        next result after the one that lists the id."""
        cells = self._cells
        keys, batches, offsets, instants, _ = (np.concatenate(part) for part in zip(*self._read, strict=True))
        row = np.concatenate([keys, cells["of_key"][fresh]])
        batch = np.concatenate([batches, cells["listed_batch"][fresh]])
        offset = np.concatenate([offsets, cells["listed_offset"][fresh]])
        # An id sorts after the result that lists it and before the next one.
        asks = np.concatenate([np.zeros(len(keys), np.int64), np.ones(len(fresh), np.int64)])
        order = np.lexsort((asks, offset, batch, row))
        is_asked = order >= len(keys)
        results = order[~is_asked]
        found = np.empty(len(fresh), dtype=np.int64)
        found[order[is_asked] - len(keys)] = instants[results[np.cumsum(~is_asked)[is_asked]]]
        return found

    def _places(self, facts: pa.Table) -> Ints:
        """Return a number for each row's partition."""
        topics = one_array(facts["topic"]).dictionary_encode()
        numbers = [self._topics.setdefault(topic, len(self._topics)) for topic in topics.dictionary.to_pylist()]
        return np.array(numbers, dtype=np.int64)[ints(topics.indices)] * _PARTITIONS + ints(facts["partition"])


def version_of(cells: ReadColumns) -> Ints:
    """Return a number per cell that rises whenever the counted results of the cell change."""
    batches = cells["listed_batch"]
    return np.where(batches == ABSENT, 0, 2 * batches + 2 + (cells["withdrawn_us"] != ABSENT))


def _last_of_each(rows: Ints, *columns: Ints) -> Ints:
    """Return, for each distinct row, the index of the entry with the greatest ``columns``, in lexical order."""
    order = np.lexsort((*columns[::-1], rows))
    return order[np.append(rows[order][1:] != rows[order][:-1], True)] if len(order) else order
