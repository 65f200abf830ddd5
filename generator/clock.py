"""The generator reads time only through this module, so that tests can use a manual clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The time functions that a producer uses."""

    def monotonic_seconds(self) -> float:
        """Seconds from an arbitrary origin; never falls."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""


class SystemClock:
    """The machine's clock."""

    def monotonic_seconds(self) -> float:
        """Seconds from an arbitrary origin."""
        return time.monotonic()

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when `advance` is called."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def monotonic_seconds(self) -> float:
        """Seconds from an arbitrary origin."""
        return self._now_ms / 1000

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return self._now_ms

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward by ``milliseconds``, which must not be negative."""
        assert milliseconds >= 0
        self._now_ms += milliseconds
