"""Values that results of a join state about the pairs of a cell (SEMANTICS 2.12)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from validator.model.stated_values import ADDED, Function
from validator.reconcile.values import Answered, Owed


@dataclass(frozen=True)
class OfPairs(Answered):
    """The events of one side. ``partners_least``, ``partners_most``: how often each of them may be in results."""

    partners_least: int
    partners_most: int

    def owed(self, function: Function) -> Owed | None:
        """Return which values the results may state: each event counts once for each of its pairs."""
        found = super().owed(function)
        if found is None or function not in ADDED or found.low is None or found.high is None:
            return found
        often = self.partners_least, self.partners_most
        bounds = [value * times for value, times in product((found.low, found.high), often)]
        return Owed(min(bounds), max(bounds), found.is_null)

    @property
    def times_most(self) -> int:
        """How often an event counts at most."""
        return self.partners_most
