"""Cells that left memory because their verdict is settled: their totals, and an index to find them again.

Only new facts can change the verdict of such a cell (SEMANTICS 7.8). Its facts stay in the facts
table. If a batch has more facts of the cell, `validator.core.judging` folds the old ones again, subtracts the cell's
share from these totals, and continues as if the cell had never left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.cells import Cells
from validator.reconcile.judge import due_base

_STARTS: Final = pa.schema([(name, pa.int64()) for name in ("epoch", "start_us", "first_batch", "opened_us")])
_OLDER: Final = pa.schema([("epoch", pa.int64()), ("start_us", pa.int64()), ("key", pa.large_string())])
EVICTED_AT_ONCE: Final = 4_096
"""Least number of settled cells that leave memory together. The index of the remaining cells is rebuilt each time."""


@dataclass
class _Epoch:
    """The settled cells whose newest facts are of one epoch.

    ``newest_start_us``: the latest start. ``through_us``: the latest end. ``due_us``: the latest instant since which
    contributions of a cell are due. ``first_batch``: start -> oldest batch with facts of a cell that starts then.
    ``opened_us``: start -> earliest broker time of the first inputs of these cells, `NEVER` if there is none.
    ``older``: the cells that have facts of earlier epochs, too.
    """

    sums: CellTotals = field(default_factory=CellTotals.empty)
    newest_start_us: int = ABSENT
    through_us: int = ABSENT
    due_us: int = ABSENT
    first_batch: dict[int, int] = field(default_factory=dict)
    opened_us: dict[int, int] = field(default_factory=dict)
    older: CellIndex = field(default_factory=CellIndex)


class EvictedCells:
    """The settled cells without their facts."""

    def __init__(self) -> None:
        self._epochs: dict[int, _Epoch] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no cell has left memory."""
        return not self._epochs

    @property
    def sums(self) -> CellTotals:
        """Totals over all settled cells."""
        return self.through(NEVER)[0]

    def through(self, epoch: int) -> tuple[CellTotals, int]:
        """Return totals and latest start of the cells of the epochs up to ``epoch`` (`ABSENT` without any cell)."""
        sums, newest_start_us = CellTotals.empty(), ABSENT
        for number, found in self._epochs.items():
            if number <= epoch:
                sums, newest_start_us = sums.plus(found.sums), max(newest_start_us, found.newest_start_us)
        return sums, newest_start_us

    def to_tables(self) -> tuple[dict[str, object], pa.Table, pa.Table]:
        """Return the whole state: totals and times of each epoch as plain values, a row for each start of an epoch, and
        a row for each cell that has facts of earlier epochs, too."""
        plain: dict[str, object] = {}
        starts, older = [_STARTS.empty_table()], [_OLDER.empty_table()]
        for number, epoch in self._epochs.items():
            plain[str(number)] = [epoch.sums.to_json(), epoch.newest_start_us, epoch.through_us, epoch.due_us]
            at = {
                "epoch": np.full(len(epoch.first_batch), number),
                "start_us": list(epoch.first_batch),
                "first_batch": list(epoch.first_batch.values()),
                "opened_us": [epoch.opened_us[start] for start in epoch.first_batch],
            }
            starts.append(pa.table(at, schema=_STARTS))
            cells = {
                "epoch": np.full(len(epoch.older), number),
                "start_us": epoch.older.starts,
                "key": epoch.older.keys(np.arange(len(epoch.older))),
            }
            older.append(pa.table(cells, schema=_OLDER))
        return plain, pa.concat_tables(starts), pa.concat_tables(older)

    @classmethod
    def from_tables(cls, plain: Mapping[str, Any], starts: pa.Table, older: pa.Table) -> Self:
        """Return the value that `to_tables` saved."""
        found = cls()
        for number, (sums, newest_start_us, through_us, due_us) in plain.items():
            mine = starts.filter(pc.equal(starts["epoch"], int(number)))
            at = mine["start_us"].to_pylist()
            epoch = _Epoch(
                CellTotals.from_json(sums),
                newest_start_us,
                through_us,
                due_us,
                dict(zip(at, mine["first_batch"].to_pylist(), strict=True)),
                dict(zip(at, mine["opened_us"].to_pylist(), strict=True)),
            )
            cells = older.filter(pc.equal(older["epoch"], int(number)))
            epoch.older.add(ints(cells["start_us"]), cells["key"])
            found._epochs[int(number)] = epoch
        return found

    def due_us(self, through_epoch: int) -> dict[int, int]:
        """Return epoch, up to ``through_epoch`` -> latest instant since which contributions of its cells are due."""
        return {number: epoch.due_us for number, epoch in sorted(self._epochs.items()) if number <= through_epoch}

    def seen_in(self, epochs: Collection[int]) -> int:
        """Return the number of cells of ``epochs``."""
        return sum(epoch.sums.cells_seen for number, epoch in self._epochs.items() if number in epochs)

    def add(self, cells: Cells, rows: Ints, sums: CellTotals) -> None:
        """Add cells of one epoch, whose totals are ``sums``."""
        epoch = self._epochs.setdefault(int(cells["epoch"][rows[0]]), _Epoch())
        starts = cells["window_start_us"][rows]
        epoch.sums = epoch.sums.plus(sums)
        epoch.newest_start_us = max(epoch.newest_start_us, int(starts.max()))
        epoch.through_us = max(epoch.through_us, int(cells["end_us"][rows].max()))
        epoch.due_us = max(epoch.due_us, int(due_base(cells)[rows].max()))
        spans = rows[cells["first_epoch"][rows] < cells["epoch"][rows]]
        epoch.older.add(cells["window_start_us"][spans], cells.keys(spans))
        order = np.argsort(starts, kind="stable")
        at, firsts = np.unique(starts[order], return_index=True)
        batches = np.minimum.reduceat(cells["first_batch"][rows][order], firsts)
        opened = np.minimum.reduceat(cells["first_input_time_us"][rows][order], firsts)
        for start, batch, opened_us in zip(at.tolist(), batches.tolist(), opened.tolist(), strict=True):
            epoch.first_batch[start] = min(batch, epoch.first_batch.get(start, batch))
            epoch.opened_us[start] = min(opened_us, epoch.opened_us.get(start, opened_us))

    def subtract(self, epoch: int, sums: CellTotals) -> None:
        """Subtract the totals ``sums`` of cells of an epoch that return to memory."""
        self._epochs[epoch].sums = self._epochs[epoch].sums.minus(sums)

    def oldest_start_us(self, after_epoch: int) -> int:
        """Return the earliest start of a cell of a later epoch; `NEVER` without any."""
        later = (found.first_batch for number, found in self._epochs.items() if number > after_epoch)
        return min((min(starts) for starts in later if starts), default=NEVER)

    @property
    def oldest_batch(self) -> int:
        """The oldest batch with facts of any of the cells; `NEVER` without any."""
        of_epochs = (epoch.first_batch.values() for epoch in self._epochs.values())
        return min(chain.from_iterable(of_epochs), default=NEVER)

    def opened_us(self) -> tuple[Ints, Ints]:
        """Return the starts of the cells, possibly repeated, and for each the earliest broker time of the first inputs
        of the cells that start there; `NEVER` if there is none."""
        of_epochs = [epoch.opened_us for epoch in self._epochs.values()]
        size = sum(map(len, of_epochs))
        starts = np.fromiter(chain.from_iterable(of_epochs), dtype=np.int64, count=size)
        times = np.fromiter(chain.from_iterable(of.values() for of in of_epochs), dtype=np.int64, count=size)
        return starts, times

    def retire(self, through_epoch: int) -> None:
        """Remove the cells of the epochs up to ``through_epoch``."""
        self._epochs = {number: found for number, found in self._epochs.items() if number > through_epoch}

    def may_hold(self, starts: Ints, ends: Ints) -> Bools:
        """Return which cells, by start and end, may be among the settled ones."""
        held = np.zeros(len(starts), dtype=np.bool_)
        for epoch in self._epochs.values():
            if (ends <= epoch.through_us).any():
                # A start and an end are enough to ask the facts table. A false match costs a scan, and no verdict.
                held |= np.isin(starts, np.fromiter(epoch.first_batch, dtype=np.int64))
        return held

    def first_batch(self, starts: Ints) -> int:
        """Return the oldest batch with facts of settled cells with these starts."""
        distinct = np.unique(starts).tolist()
        return min(epoch.first_batch.get(start, NEVER) for epoch in self._epochs.values() for start in distinct)

    def epochs_at(self, starts: Ints, through_epoch: int) -> Ints:
        """Return, for each start, the newest epoch after ``through_epoch`` that has a settled cell with this start;
        `ABSENT` if there is none."""
        found = np.full(len(starts), ABSENT, dtype=np.int64)
        for number, epoch in sorted(self._epochs.items()):
            if number > through_epoch:
                found[np.isin(starts, np.fromiter(epoch.first_batch, dtype=np.int64))] = number
        return found

    def epochs_of(self, facts: pa.Table, through_epoch: int) -> Ints:
        """Return the newest epoch of the settled cell of each fact; the facts are of epochs up to ``through_epoch``.

        `ABSENT` means that the cell is retired (its epoch is not after ``through_epoch``), or that the cell was
        never settled.
        """
        found = np.full(facts.num_rows, ABSENT, dtype=np.int64)
        starts = ints(facts["window_start_us"])
        for number, epoch in self._epochs.items():
            if number > through_epoch and len(epoch.older):
                found[epoch.older.find(starts, facts["key"]) >= 0] = number
        return found
