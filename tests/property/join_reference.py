"""The windowed join by brute force: what a cell owes and allows by "The rule" in docs/oracles/windowed_join.md.

The rules about time are the reference's; only `e`, and with it the surplus, differs. In a join's history the left input
is `clicks` and the right one `updates`. The text of an id names its input, as in reports (`7`, `updates/7`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from tests.property.history import Cell, InputEvent
from tests.property.reference import Reference

LEFT: Final = "clicks"
RIGHT: Final = "updates"
Join = Literal["inner", "left", "semi"]


@dataclass(frozen=True, slots=True)
class Share:
    """How the observations of one (cell, id) count, by "The rule" in docs/oracles/windowed_join.md."""

    used: int
    aside: int
    owed: int
    surplus: int

    @property
    def expected(self) -> int:
        """e(c, id)."""
        return max(self.owed, self.used + self.aside)


class JoinReference(Reference):
    """One prefix of a history of a join, judged."""

    join: ClassVar[Join] = "inner"

    # What is allowed and what is owed

    def share(self, cell: Cell, id_: str) -> Share:
        """Apply the rule to one id."""
        seen = self.observed.get((cell, id_), Counter())
        copies = len(self.copies.get((cell, id_), ()))
        if copies == 0:
            return Share(0, 0, 0, seen.total())
        used = min(seen["output"], 1) if self.is_joinable(cell, id_) else 0
        aside = min(seen["late"] + seen["rejected"], copies - used)
        owed = 1 if self.is_owed(cell, id_, waiting=True) else 0
        return Share(used, aside, owed, seen.total() - used - aside)

    def is_joinable(self, cell: Cell, id_: str) -> bool:
        """Whether a result may carry the id: the id needs no partner, or has one, even one that is late, set aside or
        unread."""
        return self.is_named(id_) and (not self.needs_partner(id_) or bool(self.partners(cell, id_)))

    def is_owed(self, cell: Cell, id_: str, *, waiting: bool) -> bool:
        """Whether the id needs no partner, or `is_reason` holds for one. ``waiting`` counts unconsumed partners too."""
        if not self.is_named(id_):
            return False
        if not self.needs_partner(id_):
            return True
        return any(self.is_reason(cell, partner, waiting=waiting) for partner in self.partners(cell, id_))

    def is_reason(self, cell: Cell, id_: str, *, waiting: bool) -> bool:
        """Whether an engine must have used an event, or has reported that it did."""
        seen = self.observed.get((cell, id_), Counter())
        sure = [copy for copy in self.copies[cell, id_] if self.is_sure(cell, copy, waiting=waiting)]
        return seen["output"] > 0 or len(sure) > seen["late"] + seen["rejected"]

    def is_sure(self, cell: Cell, copy: InputEvent, *, waiting: bool) -> bool:
        """Whether a copy was certainly on time, the engine has consumed it, and no gap can hide its answer.
        ``waiting``: the answer for a copy that the engine has not consumed."""
        if self.is_unconsumed(copy):
            return waiting
        if self.clock.is_late(copy, cell) or self.clock.may_be_late(copy, cell):
            return False
        return self.clock.is_provable(copy, None)

    def is_named(self, id_: str) -> bool:
        """Whether results name the events of this side."""
        return self.join != "semi" or self.side(id_) == LEFT

    def needs_partner(self, id_: str) -> bool:
        """Whether an id without a partner in its cell appears in no result."""
        return self.join != "left" or self.side(id_) == RIGHT

    def partners(self, cell: Cell, id_: str) -> list[str]:
        """The cell's ids from the other input that were read."""
        return [other for at, other in self.copies if at == cell and self.side(other) != self.side(id_)]

    def side(self, id_: str) -> str:
        """The input that an id belongs to."""
        return RIGHT if id_.startswith(RIGHT + "/") else LEFT

    # The reference's methods, overridden

    def expected(self, cell: Cell, id_: str) -> int:
        """e(c, id)."""
        return self.share(cell, id_).expected

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """The classes of one (cell, id). A cell out of scope counts every copy, since partners may be hidden."""
        if not self.clock.in_scope(cell):
            return +Counter({"out_of_scope": len(self.copies.get((cell, id_), ()))})
        share = self.share(cell, id_)
        seen = self.observed.get((cell, id_), Counter())
        late = min(seen["late"], share.aside)
        found = Counter({"processed": share.used, "late": late, "rejected": share.aside - late})
        found.update(self.outstanding(cell, id_, share.expected - share.used - share.aside))
        found[self.excess_class(cell, id_)] += share.surplus
        return +found

    def excuses(self, cell: Cell, id_: str) -> tuple[int, int, int]:
        """As in the reference; an id is also unconsumed while the engine has consumed none of its partners."""
        dropped, unconsumed, unprovable = super().excuses(cell, id_)
        waits = self.has_consumption() and not self.is_owed(cell, id_, waiting=False)
        return dropped, unconsumed or int(waits), unprovable

    def excusing(self, cell: Cell, id_: str) -> Sequence[InputEvent]:
        """An id counts once per cell. If the engine has read a copy that was certainly on time, a late one excuses
        nothing."""
        copies = super().excusing(cell, id_)
        on_time = [it for it in copies if not self.is_dropped(it, cell) and not self.may_be_dropped(it, cell)]
        if all(map(self.is_unconsumed, on_time)):
            return copies
        return [it for it in copies if it in on_time or (self.is_unconsumed(it) and not self.is_dropped(it, cell))]

    def has_consumption(self) -> bool:
        """Whether the engine's consumer group is known."""
        return self.clock.now.committed is not None

    def is_held(self, kind: str, found: Sequence[tuple[Cell, Counter[str]]]) -> bool:
        """An unreadable input record may be the partner of an id that appears to have none."""
        return super().is_held("unknown_id" if kind == "misplaced" else kind, found)

    def to_explain(self, found: Sequence[tuple[Cell, Counter[str]]], kinds: AbstractSet[str]) -> int:
        """The number of cells. One hidden partner explains every id of its cell. A partner that was set
        aside is no reason for the cell to owe results."""
        return len({cell for cell, classes in found if any(classes[kind] for kind in kinds)})


class InnerJoin(JoinReference):
    """A result needs an event of each side."""


class LeftJoin(JoinReference):
    """A left event without a partner is answered too."""

    join = "left"


class SemiJoin(JoinReference):
    """A result needs an event of each side, and names the left one."""

    join = "semi"


REFERENCES: Final[dict[Join, type[JoinReference]]] = {"inner": InnerJoin, "left": LeftJoin, "semi": SemiJoin}
