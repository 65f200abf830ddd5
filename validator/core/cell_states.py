"""The state of each judged cell between batches: its share of the totals, and what its verdict waits for.

A batch judges the cells that its facts touched, and those whose verdict the clock can change. The verdicts of all
others would stay the same: `Waits` gives the reason. If the clock changes an input of all verdicts, all cells are
judged (`changes_all_verdicts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from validator.core.totals import CellTotals, Name, shares, summed
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, present
from validator.model.frontier import Clock, RunEnd
from validator.reconcile.cells import Cells, Columns
from validator.reconcile.judge import Judged, Rules, due_base, is_read_through

_ALL_VERDICTS_DEPEND_ON: Final = ("horizon_us", "unread_since_us", "unprovable_offsets", "retired", "accepted_records")
"""Fields of a clock on which every verdict depends."""
_NEVER_FALLING: Final = ("watermark_us", "inputs_us", "outputs_us")
"""Fields of a clock that fall only if a new partition appears. A fall revokes the proofs of the earlier value."""


class Waits(IntEnum):
    """The event after which a cell without new facts is judged again."""

    NEXT_BATCH = 0
    """No event: every batch judges the cell. The reason is one of these: inputs that are not read yet may explain its
    answers, or its ids are to be compared, or its contributions are overdue."""
    END = 1
    """The watermark passes the end of the cell. All inputs that may explain its answers were read."""
    PROOF = 2
    """Answers are read through the instant at which the outstanding contributions become overdue."""
    FACTS = 3
    """Only new facts: nothing is outstanding, or all outstanding contributions are missing."""


def changes_all_verdicts(before: Clock, now: Clock) -> bool:
    """Return whether the change of the clock may change the verdict of any cell, whatever the cell waits for."""
    # SEMANTICS 7.2: which cells a batch judges must change no verdict (docs/decisions/0008).
    if RunEnd.NONE not in (before.run_end, now.run_end) or before.run_end is not now.run_end:
        return True
    if any(getattr(before, name) != getattr(now, name) for name in _ALL_VERDICTS_DEPEND_ON):
        return True
    return any(falls(before, now, name) for name in _NEVER_FALLING)


def falls(before: Clock, now: Clock, name: str) -> bool:
    """Return whether a field of a clock falls, which revokes the proofs of the earlier value."""
    was, now_is = getattr(before, name), getattr(now, name)
    return was is not None and (now_is is None or now_is < was)


def waits_for(cells: Columns, judged: Judged, clock: Clock, rules: Rules) -> Ints:
    """Return the `Waits` of each of these cells. ``judged``: their verdicts by this clock."""
    quiet = is_read_through(cells, clock) & ~(judged.wants_expansion | judged.wants_evidence | judged.sampled)
    due, closed = due_base(cells), judged.closed
    decided = (judged.agrees | judged.compared) & (judged.outstanding == 0) & ~judged.may_change & (judged.updates >= 0)
    through_us = clock.due_through_us(clock.outputs_us, rules.missing_after_us)
    if through_us is not None:
        # SEMANTICS 2.21: past `missing_after` time changes nothing any more.
        decided |= due <= through_us
    early = cells["rest_us"] == ABSENT
    proof_us = _proof_us(clock)
    if proof_us is not None:
        early &= _until_us(cells, Waits.PROOF, rules) > proof_us
    if rules.oracle.by_key:
        # SEMANTICS 2.30: its events are due one after the other.
        quiet &= decided | (judged.outstanding == 0)
    found = np.select([~quiet, ~closed, decided, early], [Waits.NEXT_BATCH, Waits.END, Waits.FACTS, Waits.PROOF], 0)
    return found.astype(np.int64)


def _proof_us(clock: Clock) -> int | None:
    """Return the later of the known ones of `Clock.outputs_us` and `Clock.unheld_outputs_us`: either can make
    contributions overdue or blocked."""
    return max((at for at in (clock.outputs_us, clock.unheld_outputs_us) if at is not None), default=None)


def _until_us(cells: Columns, kind: Waits, rules: Rules) -> Ints:
    """Return the instant from which each cell is to be judged: once the watermark reaches it (`Waits.END`), or
    `_proof_us` does (`Waits.PROOF`)."""
    return (
        cells["end_us"] if kind is Waits.END else due_base(cells) + min(rules.overdue_after_us, rules.missing_after_us)
    )


def totals_of(cells: Columns, judged: Judged, on_record: Mapping[str, Ints]) -> CellTotals:
    """Return the totals over some judged cells. ``on_record``: as in `shares`."""
    totals = {name: int(values.sum()) for name, values in shares(cells, judged, on_record).items()}
    return with_earliest_due(summed(totals), cells, judged)


def with_earliest_due(sums: CellTotals, cells: Columns, judged: Judged) -> CellTotals:
    """Return ``sums`` with the earliest due instants of contributions of these cells: of those that the engine has not
    consumed, and of those that an open transaction holds back."""
    due = due_base(cells)
    unconsumed, blocked = (due[many > 0] for many in (judged.unconsumed_overdue, judged.blocked_overdue))
    return sums.with_due_since(present(unconsumed.min(initial=NEVER)), present(blocked.min(initial=NEVER)))


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the array, padded with zeros to ``size`` along its last axis. The zeros use no memory until they are
    overwritten."""
    longer = np.zeros((*array.shape[:-1], size), dtype=array.dtype)
    longer[..., : array.shape[-1]] = array
    return longer


def signed_for(most: int) -> np.dtype[Any]:
    """Return the smallest signed integer type that holds ``most`` (0 or more)."""
    return np.min_scalar_type(-most - 1)


class CellStates:
    """For each row of the cells: its share of the totals, what it waits for, and whether it may leave memory.

    A share that is 0 for all cells has no array. With most pipelines, this holds for about two thirds of the shares.
    """

    def __init__(self) -> None:
        self._names: tuple[Name, ...] = ()
        self._held: tuple[Name, ...] = ()
        # One row for each name in ``_held``, one column per cell.
        self._shares = np.zeros((0, 0), dtype=np.int8)
        self._totals = np.zeros(0, dtype=np.int64)
        self._size = 0
        self.waits = np.zeros(0, dtype=np.int8)
        self.may_leave = np.zeros(0, dtype=np.bool_)
        self._next = {Waits.END: NEVER, Waits.PROOF: NEVER}

    def __len__(self) -> int:
        return self._size

    def forget(self) -> None:
        """Reset to the state without cells."""
        self.__init__()  # type: ignore[misc]

    def grow(self, size: int) -> None:
        """Make room for ``size`` cells. New cells add nothing yet, and are to be judged."""
        if size > len(self.waits):
            room = max(size, 2 * len(self.waits), 1024)
            self.waits, self.may_leave, self._shares = (
                _longer(array, room) for array in (self.waits, self.may_leave, self._shares)
            )
        self._size = size

    def due(self, cells: Cells, clock: Clock, rules: Rules) -> Bools:
        """Return which cells are to be judged because of this clock, even without new facts."""
        waits = self.waits[: self._size]
        found: Bools = waits == Waits.NEXT_BATCH
        for kind, until in ((Waits.END, clock.watermark_us), (Waits.PROOF, _proof_us(clock))):
            # Cells are only searched if one of them is due.
            if until is not None and until >= self._next[kind]:
                rows = np.flatnonzero(waits == kind)
                at = _until_us(cells.some(rows), kind, rules)
                found[rows[at <= until]] = True
                self._next[kind] = int(at[at > until].min(initial=NEVER))
        return found

    def put(self, cells: Columns, rows: Ints, judged: Judged, clock: Clock, rules: Rules, leaves: Bools) -> None:
        """Store the state of ``rows``, in rising order, after they were judged by ``clock``. ``leaves``: which of them
        may leave memory."""
        found = shares(cells, judged, judged.on_record)
        names = tuple(found)
        if names != self._names:
            assert not self._totals.any(), "the set of totals changes only while all of them are 0"
            self._names, self._held = names, ()
            self._shares, self._totals = np.zeros((0, len(self.waits)), dtype=np.int8), np.zeros(0, dtype=np.int64)
        self._hold([name for name, values in found.items() if name not in self._held and values.any()])
        if self._held:
            new = np.stack([found[name] for name in self._held], dtype=np.int64)
            if new.size and new.max() > np.iinfo(self._shares.dtype).max:
                self._shares = self._shares.astype(signed_for(int(new.max())))
            self._totals += new.sum(axis=1) - self._shares[:, rows].sum(axis=1, dtype=np.int64)
            self._shares[:, rows] = new
        waits = waits_for(cells, judged, clock, rules)
        self.waits[rows], self.may_leave[rows] = waits, leaves
        for kind in self._next:
            until = _until_us(cells, kind, rules)[waits == kind]
            self._next[kind] = min(self._next[kind], int(until.min(initial=NEVER)))

    def _hold(self, names: Sequence[Name]) -> None:
        """Give these names arrays of zeros."""
        if names:
            zeros = np.zeros((len(names), self._shares.shape[1]), dtype=self._shares.dtype)
            self._shares = np.concatenate([self._shares, zeros])
            self._totals = np.concatenate([self._totals, np.zeros(len(names), dtype=np.int64)])
            self._held = (*self._held, *names)

    def touch(self, rows: Ints) -> None:
        """Note that the next batch must judge ``rows``."""
        self.waits[rows] = Waits.NEXT_BATCH

    def drop(self, removed: Bools) -> None:
        """Remove the cells for which ``removed`` holds. All row numbers change."""
        stay = np.flatnonzero(~removed)
        self._totals -= self._shares[:, : self._size][:, removed].sum(axis=1, dtype=np.int64)
        self.waits, self.may_leave, self._shares = self.waits[stay], self.may_leave[stay], self._shares[:, stay]
        self._size = len(stay)

    def first(self, name: str) -> int | None:
        """Return the first row that adds to the total ``name``; None if none does."""
        if (name,) not in self._held:
            return None
        adds = self._shares[self._held.index((name,)), : self._size] != 0
        return int(adds.argmax()) if adds.any() else None

    def sums(self, chosen: Ints | None = None) -> CellTotals:
        """Return the totals over the chosen rows, by default over all."""
        found = self._totals if chosen is None else self._shares[:, chosen].sum(axis=1, dtype=np.int64)
        return summed(dict.fromkeys(self._names, 0) | dict(zip(self._held, found.tolist(), strict=True)))
