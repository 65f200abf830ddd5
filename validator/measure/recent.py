"""What was confirmed in each minute of the last day and stands: the verdicts over an hour and a day.

How many of a violation stand is known, and not which: those that were confirmed last, so that what is taken back hides
nothing that may have been confirmed after it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from validator.measure.expected import MINUTE_US

DAY_MINUTES: Final = 24 * 60
_NONE: Final[deque[tuple[int, int]]] = deque()


class RecentlyConfirmed:
    """``by_minute``: minute -> class -> confirmed then, and not taken back since. As large as the day's violations."""

    def __init__(self) -> None:
        self.by_minute: dict[int, dict[str, int]] = {}
        self._minutes: dict[str, deque[tuple[int, int]]] = {}
        """Violation -> minute, and what of it was confirmed then and stands; the oldest first, each minute once."""
        self._stands: dict[str, int] = {}
        """Violation -> the sum of these."""
        self._violations: dict[int, set[str]] = {}
        """Minute -> those of which something was confirmed then."""

    def moved(self, violation: str, name: str, at_us: int, confirmed: int, stands: int) -> None:
        """At ``at_us`` so many more of a violation of class ``name`` were confirmed, or some were taken back, by which
        ``stands`` are confirmed in all."""
        if confirmed:
            self._confirm(violation, name, at_us // MINUTE_US, confirmed)
        minutes = self._minutes.get(violation, _NONE)
        while (beyond := self._stands.get(violation, 0) - stands) > 0:
            minute, count = minutes.popleft()
            taken = min(count, beyond)
            if count > taken:
                minutes.appendleft((minute, count - taken))
            self._add(minute, name, -taken)
            self._stands[violation] -= taken
        self._drop_if_empty(violation)

    def _confirm(self, violation: str, name: str, minute: int, confirmed: int) -> None:
        minutes = self._minutes.setdefault(violation, deque())
        before = minutes.pop()[1] if minutes and minutes[-1][0] == minute else 0
        minutes.append((minute, before + confirmed))
        self._stands[violation] = self._stands.get(violation, 0) + confirmed
        self._violations.setdefault(minute, set()).add(violation)
        self._add(minute, name, confirmed)

    def _drop_if_empty(self, violation: str) -> None:
        if violation in self._minutes and not self._minutes[violation]:
            del self._minutes[violation], self._stands[violation]

    def since(self, minutes: int, now_us: int) -> dict[str, int]:
        """Class -> confirmed over the last ``minutes``, and not taken back."""
        first = now_us // MINUTE_US - minutes
        found: dict[str, int] = {}
        for minute, counts in self.by_minute.items():
            if minute > first:
                for name, count in counts.items():
                    found[name] = found.get(name, 0) + count
        return found

    def forget(self, now_us: int) -> None:
        """Leave out what is older than a day."""
        oldest = oldest_minute(now_us)
        for minute in [minute for minute in self._violations if minute < oldest]:
            self.by_minute.pop(minute, None)
            for violation in self._violations.pop(minute):
                minutes = self._minutes.get(violation, _NONE)
                while minutes and minutes[0][0] < oldest:
                    self._stands[violation] -= minutes.popleft()[1]
                self._drop_if_empty(violation)

    def _add(self, minute: int, name: str, change: int) -> None:
        counts = self.by_minute.setdefault(minute, {})
        counts[name] = counts.get(name, 0) + change
        if not counts[name]:
            del counts[name]
        if not counts:
            del self.by_minute[minute]


def oldest_minute(now_us: int) -> int:
    """The first minute that is known at this instant."""
    return now_us // MINUTE_US - DAY_MINUTES
