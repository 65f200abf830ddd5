"""The wall clock of a time zone, as arrays: which time it shows at an instant, and when it shows a time.

A wall time is the number of microseconds that the clock shows since 1970-01-01 00:00. A wall clock skips times (gaps)
and shows times twice.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Self

import numpy as np

from validator.model.arrays import Ints
from validator.model.zones import zone

FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
LAST: Final = datetime(2100, 1, 1, tzinfo=UTC)
"""Changes of the clock are known between these instants. Before and after, the clock does not change."""
_FARTHEST_US: Final = 2**63 - 2**57
"""Later instants, which mark absent values, are clamped, so that no sum wraps."""


@dataclass(frozen=True, eq=False)
class WallClock:
    """Between ``changes_us[i - 1]`` and ``changes_us[i]`` the clock is ``offsets_us[i]`` ahead of UTC."""

    changes_us: Ints
    offsets_us: Ints
    _begins_us: Ints
    """Per stretch between two changes: its first instant."""
    _ends_us: Ints
    """Per stretch: the instant after its last one."""
    _highest_us: Ints
    """Per change: the wall time that no clock before it has reached."""
    _lowest_us: Ints
    """Per stretch: the lowest wall time of all later stretches."""

    @classmethod
    def of(cls, changes_us: list[int], offsets_us: list[int]) -> Self:
        """Return the clock with these changes, in rising order."""
        changes, offsets = np.array(changes_us, dtype=np.int64), np.array(offsets_us, dtype=np.int64)
        highest = np.maximum.accumulate(changes + offsets[:-1])
        lowest = np.minimum.accumulate((changes + offsets[1:])[::-1])[::-1]
        return cls(
            changes,
            offsets,
            np.concatenate([[-_FARTHEST_US], changes]),
            np.concatenate([changes, [_FARTHEST_US]]),
            highest,
            np.concatenate([lowest, [_FARTHEST_US]]),
        )

    @property
    def grain_us(self) -> int:
        """The largest time of which every change and every offset is a multiple."""
        return math.gcd(*self.changes_us.tolist(), *self.offsets_us.tolist())

    @property
    def longest_gap_us(self) -> int:
        """The longest stretch of wall times that is skipped at once."""
        return int(np.diff(self.offsets_us).max(initial=0))

    @property
    def longest_repeat_us(self) -> int:
        """The longest stretch of wall times that is shown twice."""
        return int(-np.diff(self.offsets_us).min(initial=0))

    @property
    def fingerprint(self) -> str:
        """Equal for clocks that show the same times."""
        return hashlib.sha256(self.changes_us.tobytes() + self.offsets_us.tobytes()).hexdigest()[:12]

    def shown_at(self, instants_us: Ints) -> Ints:
        """Return the wall time at each instant."""
        return self._shown_in(self._stretch(instants_us), instants_us)

    def lowest_from(self, instants_us: Ints) -> Ints:
        """Return the lowest wall time that the clock shows at or after each instant."""
        stretch = self._stretch(instants_us)
        return np.minimum(self._shown_in(stretch, instants_us), self._lowest_us[stretch])

    def first_at(self, wall_us: Ints) -> Ints:
        """Return the first instant at which the clock shows each wall time or a later one."""
        stretch = np.searchsorted(self._highest_us, wall_us, side="right")
        found: Ints = np.maximum(self._begins_us[stretch], wall_us - self.offsets_us[stretch])
        return found

    def past(self, wall_us: Ints) -> Ints:
        """Return the instant after the last one at which the clock shows a time below each wall time."""
        stretch = np.searchsorted(self._lowest_us[:-1], wall_us, side="left")
        found: Ints = np.minimum(self._ends_us[stretch], wall_us - self.offsets_us[stretch])
        return found

    def _stretch(self, instants_us: Ints) -> Ints:
        return np.searchsorted(self.changes_us, instants_us, side="right")

    def _shown_in(self, stretch: Ints, instants_us: Ints) -> Ints:
        return np.clip(instants_us, -_FARTHEST_US, _FARTHEST_US) + self.offsets_us[stretch]


@functools.cache
def wall_clock(name: str) -> WallClock:
    """Return the clock of the zone with one of `validator.model.zones.zone_names`."""
    found = zone(name)

    def offset(at: datetime) -> timedelta:
        return at.astimezone(found).utcoffset() or timedelta(0)

    at, before = FIRST, offset(FIRST)
    changes, offsets = [], [before]
    # No zone has changed twice within a day.
    while at < LAST:
        at += timedelta(days=1)
        if (after := offset(at)) != before:
            low, high = at - timedelta(days=1), at
            while high - low > timedelta(seconds=1):
                middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                low, high = (low, middle) if offset(middle) == after else (middle, high)
            changes.append(high)
            offsets.append(after)
            before = after
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return WallClock.of(
        [(change - epoch) // timedelta(microseconds=1) for change in changes],
        [one // timedelta(microseconds=1) for one in offsets],
    )
