"""The windowed join: two inputs joined per key within tumbling windows; a result carries the ids of both, or of a semi
join those of the left one.

The module decides what a cell owes, which ids it allows and how its observations are allocated. The rule and
its names are in docs/oracles/windowed_join.md, "The rule".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

from pydantic import PrivateAttr

from validator.model.pair_rules import PairRule
from validator.oracles.two_sides import Join, TwoSides
from validator.oracles.windows import CLOSED_RIGHT_IN_ZONE, Windows
from validator.settings.built import Combination

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validator.model.arrays import Bools, Ints
    from validator.model.id_spaces import IdSpace
    from validator.model.stated_values import Values
    from validator.oracles.ids import Flags, IdCounts, IdVerdicts
    from validator.settings.topics import Input


class WindowedJoin(TwoSides, Windows):
    """Two inputs joined per key within adjacent windows of one size. A result has the ids of both, or of a semi join
    those of the left one."""

    kind: Literal["windowed_join"]
    """Two inputs in windows."""

    refuses: ClassVar[tuple[Combination, ...]] = (CLOSED_RIGHT_IN_ZONE, *TwoSides.refuses)
    asks_lateness: ClassVar[bool] = True
    judges_values: ClassVar[bool] = True
    accepts_cumulative: ClassVar[bool] = True
    _side: Literal["left", "right"] | None = PrivateAttr(default=None)

    @property
    def pair_rule(self) -> PairRule | None:
        """A result without ids states the number of its pairs."""
        rights = (topic for topic, owner in self.reads.owners if owner == self.right)
        return PairRule(self.join, frozenset({self.right, *rights})) if not self.reads.names_ids else None

    def seen_from(self, topic: str | None) -> Self:
        """The values of results depend on other fields of left events than of right ones."""
        return self.model_copy().on_side("right" if topic == self.right else "left")

    def on_side(self, side: Literal["left", "right"]) -> Self:
        """Set the side of the events, and return this oracle."""
        self._side = side
        return self

    @property
    def stated(self) -> Values:
        """Seen from one side: what depends on its fields."""
        return super().stated if self._side is None else super().stated.of_side(self._side)

    def spaces(self, inputs: Sequence[Input]) -> Mapping[str, IdSpace]:
        """Events without ids have no id space."""
        return super().spaces(inputs) if self.reads.names_ids else {}

    def classes(
        self, id_counts: IdCounts, flags: Flags, texts: Sequence[str], *, collapse: bool, drops_late: bool
    ) -> IdVerdicts:
        """Return the classes by the rule (see the module's docstring). An input's repeated ids count once per cell."""
        del collapse
        if (rule := self.pair_rule) is not None:
            from validator.oracles.counted_pairs import pair_verdicts

            return pair_verdicts(id_counts, flags, rule, drops_late=drops_late)
        return classes(id_counts, flags, self.are_right(id_counts, texts), self.join, drops_late=drops_late)


def classes(id_counts: IdCounts, flags: Flags, is_right: Bools, join: Join, *, drops_late: bool) -> IdVerdicts:
    """Return the classes per (cell, id), by the rule of `allocated`. ``is_right``: whether the id is of the right
    input."""
    import numpy as np

    from validator.model.arrays import counts
    from validator.oracles.ids import IdVerdicts

    group, size, given = id_counts.group, len(id_counts.cell), id_counts.from_input
    dropped, doubtful = flags.late & drops_late, flags.doubtful & drops_late
    elsewhere = flags.elsewhere & ~flags.doubtful & drops_late
    on_time = ~flags.late & ~flags.doubtful & ~flags.elsewhere

    def times(condition: Bools) -> Ints:
        return counts(group, given & condition, size)

    set_aside = id_counts.late + id_counts.rejected
    shares = allocated(
        join=join,
        cell=id_counts.cell,
        is_right=is_right,
        copies=id_counts.expected,
        sure=times(on_time & ~flags.unread & ~flags.unsure),
        waiting_on_time=times(on_time & (flags.unread | ~flags.unsure)),
        waiting=times(flags.unread | (on_time & ~flags.unsure)),
        results=id_counts.processed,
        set_aside=set_aside,
    )
    used, aside, surplus = shares.used, shares.aside, shares.surplus
    expected = np.maximum(shares.owed.astype(np.int64), used + aside)
    late = np.minimum(id_counts.late, aside)
    outstanding = expected - used - aside
    # An id counts once per cell, so a late copy excuses nothing if the engine has read one that was on time.
    excusable = times(on_time & ~flags.unread) == 0
    # If an id is owed, but not `owed_now`, the engine has not read its partner.
    waits = np.where(excusable, times(flags.unread), times(flags.unread & ~dropped))
    unconsumed = np.minimum(outstanding, np.maximum(waits, ~shares.owed_now))
    left = outstanding - unconsumed
    dropped_late = np.minimum(left * excusable, times(dropped & ~flags.unread))
    left = left - dropped_late
    read = ~dropped & ~flags.unread
    may_be_dropped = np.minimum(left * excusable, times(read & doubtful))
    left = left - may_be_dropped
    dropped_elsewhere = np.minimum(left * excusable, times(read & elsewhere))
    unprovable = times(read & ~doubtful & ~elsewhere & flags.unsure)
    return IdVerdicts(
        cell=id_counts.cell,
        is_text=id_counts.is_text,
        id=id_counts.id,
        expected=expected,
        processed=used,
        late=late,
        rejected=aside - late,
        duplicate=np.where(expected > 0, surplus, 0),
        foreign=np.where(expected == 0, surplus, 0),
        outstanding=outstanding,
        dropped_late=dropped_late,
        unconsumed=unconsumed,
        unconsumed_on_time=np.where(
            shares.owed_on_time & ((times(on_time) > 0) | (times(dropped) == 0)), unconsumed, 0
        ),
        doubtful=may_be_dropped,
        elsewhere=dropped_elsewhere,
        unprovable=np.minimum(left - dropped_elsewhere, unprovable),
    )


@dataclass(frozen=True)
class JoinAllocation:
    """How the observations of each (cell, id) are allocated.

    ``used``, ``aside``: observations in results, and late or rejected ones, that the rule accepts. ``surplus``: the
    other observations. ``owed_now``: the id is owed even if unconsumed copies of its partners are no reasons.
    ``owed_on_time``: it is owed even if those of them that may be late are no reasons.
    """

    used: Ints
    aside: Ints
    surplus: Ints
    owed: Bools
    owed_on_time: Bools
    owed_now: Bools


def allocated(
    *,
    join: Join,
    cell: Ints,
    is_right: Bools,
    copies: Ints,
    sure: Ints,
    waiting_on_time: Ints,
    waiting: Ints,
    results: Ints,
    set_aside: Ints,
) -> JoinAllocation:
    """Apply the rule of docs/oracles/windowed_join.md (SEMANTICS 2.12), with one entry per (cell, id).

    ``cell``: cell numbers, from 0. ``copies``: copies of the event that were read. ``sure``: those of them that the
    engine must have used. ``waiting``: these, and the copies that the engine may not have consumed yet.
    ``waiting_on_time``: ``waiting`` without copies that may be late. ``results``: results that carry the id.
    ``set_aside``: late and rejected records that carry it.
    """
    import numpy as np

    given = copies > 0
    partner = _holds_on_other_side(given, cell, is_right)
    alone = ~is_right if join == "left" else np.zeros_like(is_right)
    # Of a semi join no result names a right event, which owes nothing itself.
    given_named = given & ~is_right if join == "semi" else given

    def owed(reasons: Ints) -> Bools:
        # SEMANTICS 2.12: an engine may rightly drop or set aside an event, and then answers none of its partners. A
        # result that carries the event shows that the engine used it.
        is_reason = (results > 0) | (reasons > set_aside)
        return given_named & (alone | _holds_on_other_side(given & is_reason, cell, is_right))

    # An id counts once per cell, and each further copy may be set aside once.
    used = np.where(given_named & (alone | partner), np.minimum(results, 1), 0)
    aside = np.minimum(set_aside, copies - used)
    return JoinAllocation(
        used=used,
        aside=aside,
        surplus=results + set_aside - used - aside,
        owed=owed(waiting),
        owed_on_time=owed(waiting_on_time),
        owed_now=owed(sure),
    )


def _holds_on_other_side(fact: Bools, cell: Ints, is_right: Bools) -> Bools:
    """Return whether ``fact`` holds for some id of the other side in the same cell."""
    import numpy as np

    size = int(cell.max()) + 1 if len(cell) else 0
    left, right = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    left[cell[fact & ~is_right]] = True
    right[cell[fact & is_right]] = True
    return np.where(is_right, left[cell], right[cell])
