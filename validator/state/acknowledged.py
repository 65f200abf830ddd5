"""What is left of the acknowledged violations: kept up row by row, never summed anew."""

from __future__ import annotations

from collections.abc import Mapping

from validator.state.acknowledgements import Acknowledgement
from validator.state.recorded_violations import least_since
from validator.state.tables import StateTables

Place = tuple[str | None, str]
"""(fault's name, class)."""


class Acknowledged:
    """The acknowledgements of a state, each with the least that was in its violation since.

    What was taken back of a violation must not excuse what comes later, neither in another violation nor in this one.
    """

    def __init__(self) -> None:
        self._entries: Mapping[str, Acknowledgement] = {}
        self._least: dict[str, int] = {}
        self._left: dict[Place, int] = {}

    @property
    def left(self) -> Mapping[Place, int]:
        """(fault's name, class) -> contributions that were acknowledged and never left their violation since."""
        return self._left

    def reason(self, violation: str) -> str | None:
        """Why a violation was acknowledged; None where it was not."""
        entry = self._entries.get(violation)
        return None if entry is None else entry.reason

    def follow(self, tables: StateTables, found: Mapping[str, Acknowledgement]) -> None:
        """Take up what is acknowledged by now, and ask the table what became of those that are new."""
        if found is self._entries:
            return
        before = self._entries
        for violation in before.keys() - found.keys():
            self._add(before[violation], -self._least.pop(violation))
        new = {name: entry for name, entry in found.items() if before.get(name) != entry}
        least = least_since(tables, {name: entry.batch for name, entry in new.items()})
        for violation, entry in new.items():
            if violation in before:
                self._add(before[violation], -self._least.pop(violation))
            # A line of before does not say when it was written: what the newest row has is left of it.
            unmoved = 0 if entry.batch is None else entry.count
            self._least[violation] = min(entry.count, least.get(violation, unmoved))
            self._add(entry, self._least[violation])
        self._entries = found

    def moved(self, counts: Mapping[str, int]) -> None:
        """Violation -> contributions in it now, of those that changed."""
        for violation in self._least.keys() & counts.keys():
            entry, before = self._entries[violation], self._least[violation]
            if counts[violation] < before:
                self._add(entry, -before)
                self._least[violation] = counts[violation]
                self._add(entry, counts[violation])

    def _add(self, entry: Acknowledgement, left: int) -> None:
        """Add what is left of an acknowledgement to the sums; a negative ``left`` takes it out of them again."""
        sign, left = (-1 if left < 0 else 1), abs(left)
        shares: dict[Place, int] = {}
        # What is left of a fault's share is taken from it before what is left of none: it may be expected, and must not
        # be counted as such and as acknowledged.
        for fault, count in sorted(entry.by_fault.items(), key=lambda told: told[0] is None):
            taken = max(0, min(count, left))
            shares[fault, entry.violation_class] = taken
            left -= taken
        none = (None, entry.violation_class)
        shares[none] = shares.get(none, 0) + left
        for place, count in shares.items():
            total = self._left.pop(place, 0) + sign * count
            if total:
                self._left[place] = total
