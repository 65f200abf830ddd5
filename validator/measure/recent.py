"""Confirmed and not retracted violations by minute of the last day, for the verdicts over an hour and a day.

The number of contributions of a violation that *stand* (are confirmed and not retracted) is known, but not which ones
stand. Those that were confirmed last are assumed to stand. A retraction thus hides no later confirmation.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from validator.measure.expected import MINUTE_US

DAY_MINUTES: Final = 24 * 60
_NONE: Final[deque[tuple[int, int]]] = deque()


class RecentlyConfirmed:
    """``by_minute``: minute -> class -> confirmed in it and not retracted since. Memory grows with a day's
    violations."""

    def __init__(self) -> None:
        self.by_minute: dict[int, dict[str, int]] = {}
        self._minutes: dict[str, deque[tuple[int, int]]] = {}
        """Violation -> (minute, contributions confirmed in it that stand); the oldest first, each minute once."""
        self._confirmed_now: dict[str, int] = {}
        """Violation -> sum of these contributions."""
        self._violations: dict[int, set[str]] = {}
        """Minute -> violations of which contributions were confirmed in it."""

    def apply_change(self, violation: str, name: str, at_us: int, confirmed: int, confirmed_now: int) -> None:
        """Note a change of a violation of class ``name`` at ``at_us``. ``confirmed``: contributions that the change
        confirmed. ``confirmed_now``: those of the violation that are confirmed after it."""
        if confirmed:
            self._confirm(violation, name, at_us // MINUTE_US, confirmed)
        minutes = self._minutes.get(violation, _NONE)
        while (beyond := self._confirmed_now.get(violation, 0) - confirmed_now) > 0:
            minute, count = minutes.popleft()
            taken = min(count, beyond)
            if count > taken:
                minutes.appendleft((minute, count - taken))
            self._add(minute, name, -taken)
            self._confirmed_now[violation] -= taken
        self._drop_if_empty(violation)

    def _confirm(self, violation: str, name: str, minute: int, confirmed: int) -> None:
        minutes = self._minutes.setdefault(violation, deque())
        before = minutes.pop()[1] if minutes and minutes[-1][0] == minute else 0
        minutes.append((minute, before + confirmed))
        self._confirmed_now[violation] = self._confirmed_now.get(violation, 0) + confirmed
        self._violations.setdefault(minute, set()).add(violation)
        self._add(minute, name, confirmed)

    def _drop_if_empty(self, violation: str) -> None:
        if violation in self._minutes and not self._minutes[violation]:
            del self._minutes[violation], self._confirmed_now[violation]

    def since(self, minutes: int, now_us: int) -> dict[str, int]:
        """Return class -> contributions confirmed over the last ``minutes`` and not retracted."""
        first = now_us // MINUTE_US - minutes
        found: dict[str, int] = {}
        for minute, counts in self.by_minute.items():
            if minute > first:
                for name, count in counts.items():
                    found[name] = found.get(name, 0) + count
        return found

    def forget(self, now_us: int) -> None:
        """Drop minutes that are older than a day."""
        oldest = oldest_minute(now_us)
        for minute in [minute for minute in self._violations if minute < oldest]:
            self.by_minute.pop(minute, None)
            for violation in self._violations.pop(minute):
                minutes = self._minutes.get(violation, _NONE)
                while minutes and minutes[0][0] < oldest:
                    self._confirmed_now[violation] -= minutes.popleft()[1]
                self._drop_if_empty(violation)

    def _add(self, minute: int, name: str, change: int) -> None:
        counts = self.by_minute.setdefault(minute, {})
        counts[name] = counts.get(name, 0) + change
        if not counts[name]:
            del counts[name]
        if not counts:
            del self.by_minute[minute]


def oldest_minute(now_us: int) -> int:
    """Return the first minute that is kept at this instant."""
    return now_us // MINUTE_US - DAY_MINUTES
