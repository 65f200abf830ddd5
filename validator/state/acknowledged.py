"""The contributions that are still acknowledged, updated row by row instead of summed again."""

from __future__ import annotations

from collections.abc import Mapping

from validator.state.acknowledgements import Acknowledgement
from validator.state.recorded_violations import least_since
from validator.state.tables import StateTables

FaultAndClass = tuple[str | None, str]
"""(fault's name, class)."""


class Acknowledged:
    """The acknowledgements of a state, each with its violation's smallest count since it was made.

    Contributions that are retracted and then confirmed again, in the same or another violation, are no longer
    acknowledged.
    """

    def __init__(self) -> None:
        self._entries: Mapping[str, Acknowledgement] = {}
        self._least: dict[str, int] = {}
        self._left: dict[FaultAndClass, int] = {}

    @property
    def left(self) -> Mapping[FaultAndClass, int]:
        """(fault's name, class) -> contributions that were acknowledged and have stayed in their violation since."""
        return self._left

    def entry(self, violation: str) -> Acknowledgement | None:
        """The acknowledgement of a violation; None if it is not acknowledged."""
        return self._entries.get(violation)

    def follow(self, tables: StateTables, found: Mapping[str, Acknowledgement]) -> None:
        """Apply the current acknowledgements. For new ones, read their violations' later counts from ``tables``."""
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
            self._least[violation] = min(entry.count, least.get(violation, entry.count))
            self._add(entry, self._least[violation])
        self._entries = found

    def apply_changes(self, counts: Mapping[str, int]) -> None:
        """Apply changed violations. ``counts``: violation -> contributions in it now."""
        for violation in self._least.keys() & counts.keys():
            entry, before = self._entries[violation], self._least[violation]
            if counts[violation] < before:
                self._add(entry, -before)
                self._least[violation] = counts[violation]
                self._add(entry, counts[violation])

    def _add(self, entry: Acknowledgement, left: int) -> None:
        """Add the ``left`` contributions of an acknowledgement to the sums; a negative ``left`` removes them again."""
        sign, left = (-1 if left < 0 else 1), abs(left)
        shares: dict[FaultAndClass, int] = {}
        # The shares of faults are taken first. A contribution of a fault may be expected already, and must
        # not count both as expected and as acknowledged.
        for fault, count in sorted(entry.by_fault.items(), key=lambda item: item[0] is None):
            taken = max(0, min(count, left))
            shares[fault, entry.violation_class] = taken
            left -= taken
        none = (None, entry.violation_class)
        shares[none] = shares.get(none, 0) + left
        for place, count in shares.items():
            total = self._left.pop(place, 0) + sign * count
            if total:
                self._left[place] = total
