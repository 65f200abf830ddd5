"""The state of each judged cell between batches: its share of the totals, and what its verdict waits for.

A batch judges the cells that its facts touched, and those whose verdict the clock can change. The verdicts of all
others would stay the same: `Waits` gives the reason. If the clock changes an input of all verdicts, all cells are
judged (`changes_all_verdicts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from validator.core.totals import CellTotals
from validator.model.arrays import ABSENT, NEVER, Bools, Ints, present
from validator.model.configuration_doubt import InputCounts
from validator.model.frontier import Clock, RunEnd
from validator.reconcile.cells import Cells, Columns
from validator.reconcile.judge import (
    CONTRIBUTIONS,
    EXCESS,
    RESULTS,
    VIOLATIONS,
    Judged,
    Rules,
    due_base,
    is_read_through,
)

Name = tuple[str, ...]
"""A field of `CellTotals`, followed by the keys of the number in it."""

_ALL_VERDICTS_DEPEND_ON: Final = ("horizon_us", "unread_since_us", "unprovable_offsets", "retired", "settled")
"""Fields of a clock on which every verdict depends."""
_NEVER_FALLING: Final = ("watermark_us", "inputs_us", "outputs_us")
"""Fields of a clock that never fall, unless a new partition appears. What they proved is then no longer proven."""


class Waits(IntEnum):
    """The event that can change the verdict of a cell without new facts."""

    NOTHING = 0
    """Every batch: inputs may explain answers, or contributions are overdue."""
    END = 1
    """The watermark, once it passes the end. Whatever may explain the answers was read."""
    PROOF = 2
    """The instant through which answers were read, once outstanding contributions are overdue."""
    FACTS = 3
    """No clock: nothing is outstanding, or it is missing already."""


def changes_all_verdicts(before: Clock, now: Clock) -> bool:
    """Return whether verdicts may change even of cells that wait for something else."""
    if RunEnd.NONE not in (before.run_end, now.run_end) or before.run_end is not now.run_end:
        return True
    if any(getattr(before, name) != getattr(now, name) for name in _ALL_VERDICTS_DEPEND_ON):
        return True
    known = [(getattr(before, name), getattr(now, name)) for name in _NEVER_FALLING]
    return any(was is not None and (now_is is None or now_is < was) for was, now_is in known)


def waits_for(cells: Columns, judged: Judged, clock: Clock, rules: Rules) -> Ints:
    """Return what each of these cells waits for. ``judged``: their verdicts by this clock."""
    quiet = is_read_through(cells, clock) & ~(judged.wants_expansion | judged.wants_evidence | judged.sampled)
    due, closed = due_base(cells), judged.closed
    decided = (judged.agrees | judged.compared) & (judged.outstanding == 0)
    through_us = clock.due_through_us(clock.outputs_us, rules.missing_after_us)
    if through_us is not None:
        decided |= due <= through_us
    early = cells["rest_us"] == ABSENT
    proof_us = _proof_us(clock)
    if proof_us is not None:
        early &= _until_us(cells, Waits.PROOF, rules) > proof_us
    found = np.select([~quiet, ~closed, decided, early], [Waits.NOTHING, Waits.END, Waits.FACTS, Waits.PROOF], 0)
    return found.astype(np.int64)


def _proof_us(clock: Clock) -> int | None:
    """Return the latest instant through which answers were read that can make contributions overdue."""
    return max((at for at in (clock.outputs_us, clock.unheld_outputs_us) if at is not None), default=None)


def _until_us(cells: Columns, kind: Waits, rules: Rules) -> Ints:
    """Return the instant that each cell waits for."""
    return (
        cells["end_us"] if kind is Waits.END else due_base(cells) + min(rules.overdue_after_us, rules.missing_after_us)
    )


def shares(cells: Columns, judged: Judged, on_record: Mapping[str, Ints]) -> dict[Name, Ints]:
    """Return what each of these cells adds to the totals. ``on_record``: the counts of `VIOLATIONS` to add."""
    it = judged
    settled = it.settled & it.in_scope
    processed, late, duplicate = it.counts["processed"], it.counts["late"], it.counts["duplicate"]
    found: dict[Name, Any] = {
        **{("counts", name): it.counts[name] for name in CONTRIBUTIONS},
        **{("results", name): it.counts[name] for name in RESULTS},
        **{("on_record", name): on_record[name] for name in VIOLATIONS},
        **{("unproven", name): np.maximum(it.counts[name] - on_record[name], 0) for name in VIOLATIONS},
        ("matched",): it.matched,
        ("carried",): it.carried,
        ("cells_seen",): np.ones_like(settled),
        ("cells_closed",): it.closed,
        ("cells_verified",): settled & it.closed & ~it.violated,
        ("cells_violated",): it.violated,
        ("cells_in_excess",): np.logical_or.reduce([on_record[name] > 0 for name in EXCESS]),
        ("cells_missing",): on_record["missing"] > 0,
        ("cells_settled",): it.settled,
        ("cells_sampled",): it.refuted | (it.agrees & it.compared),
        ("cells_refuted",): it.refuted,
        ("cells_estimated",): it.estimated,
        ("doubtful",): it.doubtful,
        ("unconsumed_overdue",): it.unconsumed_overdue,
        ("blocked_overdue",): it.blocked_overdue,
        ("settled_expected",): np.where(settled, it.counts["expected"], 0),
        ("settled_handled",): np.where(settled, processed + late, 0),
        ("settled_exact",): np.where(settled, np.maximum(processed - duplicate, 0), 0),
        **{("inputs", topic, name): of for topic, each in it.by_input.items() for name, of in each.items()},
        **{("set_aside", side, name): of for side, each in it.by_set_aside.items() for name, of in each.items()},
    }
    parts = cells.parts
    if parts is not None:
        found = {name: np.where(parts, 0, values) for name, values in found.items()}
        found["keys_scattered",] = parts & judged.scattered
    return found


def summed(totals: Mapping[Name, int]) -> CellTotals:
    """Return named totals as `CellTotals`. Totals without a name are 0."""
    empty = CellTotals.empty()
    nested: dict[str, dict[str, Any]] = {"counts": dict(empty.counts), "results": dict(empty.results)}
    plain: dict[str, int] = {}
    for (field, *more), value in totals.items():
        if not more:
            plain[field] = value
        elif len(more) == 1:
            nested.setdefault(field, {})[more[0]] = value
        else:
            nested.setdefault(field, {}).setdefault(more[0], {})[more[1]] = value
    for field in ("inputs", "set_aside"):
        nested[field] = {part: InputCounts(**counts) for part, counts in nested.get(field, {}).items()}
    return CellTotals(**nested, **plain)  # type: ignore[arg-type]


def totals_of(cells: Columns, judged: Judged, on_record: Mapping[str, Ints]) -> CellTotals:
    """Return the totals over some judged cells. ``on_record``: as in `shares`."""
    totals = {name: int(values.sum()) for name, values in shares(cells, judged, on_record).items()}
    return with_earliest_due(summed(totals), cells, judged)


def with_earliest_due(sums: CellTotals, cells: Columns, judged: Judged) -> CellTotals:
    """Return ``sums`` with the earliest instants since which contributions of these cells are due that the engine has
    not consumed, or that an open transaction holds back."""
    due = due_base(cells)
    unconsumed, blocked = (due[many > 0] for many in (judged.unconsumed_overdue, judged.blocked_overdue))
    return sums.with_due_since(present(unconsumed.min(initial=NEVER)), present(blocked.min(initial=NEVER)))


def _longer(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Return the array, padded with zeros to ``size``. Memory for the zeros is used when they are overwritten."""
    longer = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def signed_for(most: int) -> np.dtype[Any]:
    """Return the smallest signed integer type that holds ``most`` (0 or more)."""
    return np.min_scalar_type(-most - 1)


class CellStates:
    """For each row of the cells: its share of the totals, what it waits for, and whether it may leave memory."""

    def __init__(self) -> None:
        self._names: tuple[Name, ...] = ()
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
        found: Bools = waits == Waits.NOTHING
        for kind, until in ((Waits.END, clock.watermark_us), (Waits.PROOF, _proof_us(clock))):
            # Cells are only searched if one of them is due.
            if until is not None and until >= self._next[kind]:
                rows = np.flatnonzero(waits == kind)
                at = _until_us(cells.some(rows), kind, rules)
                found[rows[at <= until]] = True
                self._next[kind] = int(at[at > until].min(initial=NEVER))
        return found

    def put(self, cells: Columns, rows: Ints, judged: Judged, clock: Clock, rules: Rules, leaves: Bools) -> None:
        """Store the state of ``rows``, which rise, after judging by this clock."""
        found = shares(cells, judged, judged.on_record)
        names = tuple(found)
        if names != self._names:
            assert not self._totals.any(), "all cells are judged where there are more totals"
            self._names, self._totals = names, np.zeros(len(names), dtype=np.int64)
            self._shares = np.zeros((len(self.waits), len(names)), dtype=np.int8)
        new = np.stack([np.asarray(values, dtype=np.int64) for values in found.values()], axis=1)
        if len(new) and new.max() > np.iinfo(self._shares.dtype).max:
            self._shares = self._shares.astype(signed_for(int(new.max())))
        self._totals += new.sum(axis=0) - self._shares[rows].sum(axis=0, dtype=np.int64)
        self._shares[rows] = new
        waits = waits_for(cells, judged, clock, rules)
        self.waits[rows], self.may_leave[rows] = waits, leaves
        for kind in self._next:
            until = _until_us(cells, kind, rules)[waits == kind]
            self._next[kind] = min(self._next[kind], int(until.min(initial=NEVER)))

    def touch(self, rows: Ints) -> None:
        """Have the next batch judge ``rows``."""
        self.waits[rows] = Waits.NOTHING

    def drop(self, removed: Bools) -> None:
        """Remove the cells for which ``removed`` holds. All row numbers change."""
        stay = np.flatnonzero(~removed)
        self._totals -= self._shares[: self._size][removed].sum(axis=0, dtype=np.int64)
        self.waits, self.may_leave, self._shares = self.waits[stay], self.may_leave[stay], self._shares[stay]
        self._size = len(stay)

    def sums(self, chosen: Ints | None = None) -> CellTotals:
        """Return the totals over the chosen rows, by default over all."""
        found = self._totals if chosen is None else self._shares[chosen].sum(axis=0, dtype=np.int64)
        return summed(dict(zip(self._names, found.tolist(), strict=True)))
