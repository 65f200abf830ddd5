"""Which pairs of events the results of a join use that state how many these are (SEMANTICS 2.12)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from validator.model.arrays import Ints

LEFT: Final = 0
RIGHT: Final = 1
NUMBERS: Final = {"left": LEFT, "right": RIGHT}


@dataclass(frozen=True)
class PairRule:
    """Which pairs of a cell's events are in results. ``join``: that of the oracle. ``rights``: the right input topic,
    and the topics on which its events are set aside."""

    join: str
    rights: frozenset[str]

    def number_of(self, topic: str) -> int:
        """Return the id of events of this topic, and of results."""
        return RIGHT if topic in self.rights else LEFT

    def pairs(self, lefts: Ints, rights: Ints) -> Ints:
        """Return how many pairs so many events make."""
        if self.join == "semi":
            return lefts * (rights > 0)
        return lefts * (rights + (rights == 0) if self.join == "left" else rights)

    def partners(self, least: int, most: int) -> tuple[int, int]:
        """Return bounds on how often a used event is in results, by bounds on the used events of the other side.
        Without any of them, there is no result, or one with the event alone."""
        return (1, 1) if self.join == "semi" else (max(least, 1), max(most, 1))

    def may_lack(self, side: str) -> bool:
        """Return whether the number of pairs may be right although the only event of this side is not used."""
        return self.join == "left" and side == "right"
