"""Cells that left memory because their verdict is settled: totals of them, and what it takes to find them again.

A cell is settled when only new facts can change its verdict. Its facts stay in the facts table. Where a batch brings
more of them, `validator.core.judging` folds the old ones again, takes the cell's share out of these totals, and goes on
as if the cell had never left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.core.totals import Sums
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, ints
from validator.reconcile.cell_index import CellIndex
from validator.reconcile.cells import Cells
from validator.reconcile.judge import due_base

_STARTS: Final = pa.schema([(name, pa.int64()) for name in ("epoch", "start_us", "first_batch", "opened_us")])
_OLDER: Final = pa.schema([("epoch", pa.int64()), ("start_us", pa.int64()), ("key", pa.large_string())])
SETTLED_AT_ONCE: Final = 4_096
"""So many settled cells leave memory together: each time the index of those that stay is made anew."""


@dataclass
class _Epoch:
    """The settled cells whose newest facts are of one epoch. ``newest_start_us``: the latest start of any.
    ``through_us``: the latest end. ``due_us``: since when what any of them owes was due, the latest.
    ``first_batch``: start -> the oldest batch with facts of any that starts then; ``opened_us``: start -> the earliest
    broker time of their first inputs, `NEVER` where none has one.
    ``older``: those that have facts of earlier epochs, too."""

    sums: Sums = field(default_factory=Sums.empty)
    newest_start_us: int = ABSENT
    through_us: int = ABSENT
    due_us: int = ABSENT
    first_batch: dict[int, int] = field(default_factory=dict)
    opened_us: dict[int, int] = field(default_factory=dict)
    older: CellIndex = field(default_factory=CellIndex)


class SettledCells:
    """What is known of settled cells without their facts."""

    def __init__(self) -> None:
        self._epochs: dict[int, _Epoch] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no cell has left memory."""
        return not self._epochs

    @property
    def sums(self) -> Sums:
        """Totals over all of them."""
        return self.through(NEVER)[0]

    def through(self, epoch: int) -> tuple[Sums, int]:
        """Totals over those of the epochs up to this one, and the latest of their starts (`ABSENT` without one)."""
        sums, newest_start_us = Sums.empty(), ABSENT
        for number, found in self._epochs.items():
            if number <= epoch:
                sums, newest_start_us = sums.plus(found.sums), max(newest_start_us, found.newest_start_us)
        return sums, newest_start_us

    def to_tables(self) -> tuple[dict[str, object], pa.Table, pa.Table]:
        """All of it: of each epoch its totals and times as plain values; a row for each of its starts; and one for each
        cell that has facts of earlier epochs, too."""
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
        """The value that `to_tables` gave."""
        found = cls()
        for number, (sums, newest_start_us, through_us, due_us) in plain.items():
            mine = starts.filter(pc.equal(starts["epoch"], int(number)))
            at = mine["start_us"].to_pylist()
            epoch = _Epoch(
                Sums.from_json(sums),
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
        """Epoch up to this one -> since when what any of its cells owes was due, the latest."""
        return {number: epoch.due_us for number, epoch in sorted(self._epochs.items()) if number <= through_epoch}

    def seen_in(self, epochs: Collection[int]) -> int:
        """How many cells some epochs have."""
        return sum(epoch.sums.cells_seen for number, epoch in self._epochs.items() if number in epochs)

    def add(self, cells: Cells, rows: Ints, sums: Sums) -> None:
        """Take up cells of one epoch, whose totals are ``sums``."""
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

    def subtract(self, epoch: int, sums: Sums) -> None:
        """Give back cells of an epoch, whose totals are ``sums``."""
        self._epochs[epoch].sums = self._epochs[epoch].sums.less(sums)

    def oldest_start_us(self, after_epoch: int) -> int:
        """The earliest start of those of later epochs; `NEVER` without one."""
        later = (found.first_batch for number, found in self._epochs.items() if number > after_epoch)
        return min((min(starts) for starts in later if starts), default=NEVER)

    def opened_us(self) -> tuple[Ints, Ints]:
        """Their starts, one may come again, and the earliest broker time of the first inputs of those that start there:
        `NEVER` where none has one."""
        of_epochs = [epoch.opened_us for epoch in self._epochs.values()]
        size = sum(map(len, of_epochs))
        starts = np.fromiter(chain.from_iterable(of_epochs), dtype=np.int64, count=size)
        times = np.fromiter(chain.from_iterable(of.values() for of in of_epochs), dtype=np.int64, count=size)
        return starts, times

    def retire(self, through_epoch: int) -> None:
        """Forget those of the epochs up to this one."""
        self._epochs = {number: found for number, found in self._epochs.items() if number > through_epoch}

    def may_hold(self, starts: Ints, ends: Ints) -> Bools:
        """Which cells may be among them."""
        held = np.zeros(len(starts), dtype=np.bool_)
        for epoch in self._epochs.values():
            if (ends <= epoch.through_us).any():
                held |= np.isin(starts, np.fromiter(epoch.first_batch, dtype=np.int64))
        return held

    def first_batch(self, starts: Ints) -> int:
        """The oldest batch with facts of settled cells with these starts."""
        asked = np.unique(starts).tolist()
        return min(epoch.first_batch.get(start, NEVER) for epoch in self._epochs.values() for start in asked)

    def epochs_at(self, starts: Ints, through_epoch: int) -> Ints:
        """The newest epoch after this one of which a settled cell starts there; `ABSENT` where none does."""
        found = np.full(len(starts), ABSENT, dtype=np.int64)
        for number, epoch in sorted(self._epochs.items()):
            if number > through_epoch:
                found[np.isin(starts, np.fromiter(epoch.first_batch, dtype=np.int64))] = number
        return found

    def epochs_of(self, facts: pa.Table, through_epoch: int) -> Ints:
        """The newest epoch of the settled cell of each fact of an epoch up to this one; `ABSENT` where that epoch is
        not after it, so that the cell leaves, and where it was never settled."""
        found = np.full(facts.num_rows, ABSENT, dtype=np.int64)
        starts = ints(facts["window_start_us"])
        for number, epoch in self._epochs.items():
            if number > through_epoch and len(epoch.older):
                found[epoch.older.find(starts, facts["key"]) >= 0] = number
        return found
