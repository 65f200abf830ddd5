"""The classes of a join whose results state how many pairs of events they used (evidence `values`, SEMANTICS 2.12).

An entry of the left input has the id `LEFT`, one of the right input the id `RIGHT`, and a result the id `LEFT`. The
verdicts of a cell are in its first entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from validator.model.arrays import Bools, Ints, counts, run_starts
from validator.model.pair_rules import LEFT, RIGHT, PairRule
from validator.oracles.ids import Flags, IdCounts, IdVerdicts


@dataclass(frozen=True)
class _Sides:
    """The events of both sides by cell. ``number``: the cell of each (cell, id), from 0."""

    id_counts: IdCounts
    number: Ints
    rule: PairRule

    def pairs(self, used: Bools, aside: Ints) -> Ints:
        """Return how many pairs the ``used`` events of each cell make without so many of them per (cell, id)."""
        by_id = np.maximum(self.id_counts.events(used) - aside, 0)
        size = int(self.number.max(initial=-1)) + 1
        lefts, rights = (counts(self.number, self.id_counts.id == side, size, by_id) for side in (LEFT, RIGHT))
        return self.rule.pairs(lefts, rights)


def pair_verdicts(id_counts: IdCounts, flags: Flags, rule: PairRule, *, drops_late: bool) -> IdVerdicts:
    """Return the classes per (cell, id), all but those of the first id of a cell 0."""
    is_first = run_starts(id_counts.cell)
    sides = _Sides(id_counts, np.cumsum(is_first) - 1, rule)
    may_drop = flags.late & drops_late
    used = np.ones(len(flags.late), dtype=np.bool_)
    aside, nothing = id_counts.late + id_counts.rejected, np.zeros(len(is_first), dtype=np.int64)
    owed, on_time, kept = (sides.pairs(used, without) for without in (nothing, id_counts.late, aside))
    excused: list[Ints] = []
    # SEMANTICS 2.12: the number of pairs never rises if an engine uses fewer events, so what is left after each excuse
    # is a lower bound on what it has stated.
    left = kept
    for without in (
        flags.unread,
        may_drop,
        flags.doubtful & drops_late,
        flags.elsewhere & drops_late,
        flags.unsure,
    ):
        used = used & ~without
        before, left = left, sides.pairs(used, aside)
        excused.append(before - left)
    stated = np.zeros_like(owed)
    np.add.at(stated, sides.number, id_counts.processed)
    processed = np.minimum(kept, stated)
    outstanding = rest = kept - processed
    split: list[Ints] = []
    for most in excused:
        split.append(np.minimum(rest, most))
        rest = rest - split[-1]
    unconsumed, dropped_late, doubtful, elsewhere, unprovable = split
    waiting = sides.pairs(~may_drop, aside) - sides.pairs(~may_drop & ~flags.unread, aside)
    surplus = stated - processed
    np.add.at(surplus, sides.number, np.maximum(aside - id_counts.expected, 0))

    def of_first(numbers: Ints) -> Ints:
        return np.where(is_first, numbers[sides.number], 0)

    return IdVerdicts(
        cell=id_counts.cell,
        is_text=id_counts.is_text,
        id=id_counts.id,
        expected=of_first(owed),
        processed=of_first(processed),
        late=of_first(owed - on_time),
        rejected=of_first(on_time - kept),
        duplicate=of_first(np.where(owed > 0, surplus, 0)),
        foreign=of_first(np.where(owed == 0, surplus, 0)),
        outstanding=of_first(outstanding),
        dropped_late=of_first(dropped_late),
        unconsumed=of_first(unconsumed),
        unconsumed_on_time=of_first(np.clip(on_time - stated, 0, np.minimum(unconsumed, waiting))),
        doubtful=of_first(doubtful),
        elsewhere=of_first(elsewhere),
        unprovable=of_first(unprovable),
    )
