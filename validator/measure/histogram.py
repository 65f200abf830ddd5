"""Bucketed measures in seconds: tens of milliseconds to tens of minutes (SEMANTICS section 6)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Final

from validator.model.snapshot import Histogram

LATENCY_BOUNDS: Final = (
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0,
    15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 1200.0, 1800.0,
)  # fmt: skip
"""Upper bounds of the latency buckets, in seconds."""


@dataclass
class Tally:
    """A histogram that grows."""

    bounds: tuple[float, ...] = LATENCY_BOUNDS
    counts: list[int] = field(default_factory=list)
    sum_seconds: float = 0.0
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)

    def add(self, seconds: float, times: int = 1) -> None:
        """Count a value ``times`` times. A negative value (clocks differ) counts as 0."""
        value = max(0.0, seconds)
        self.add_bucket(bisect_left(self.bounds, value), times, value * times, value)

    def add_bucket(self, bucket: int, times: int, sum_seconds: float, max_seconds: float) -> None:
        """Count ``times`` values that lie in ``bucket``."""
        self.counts[bucket] += times
        self.sum_seconds += sum_seconds
        self.max_seconds = max_seconds if self.max_seconds is None else max(self.max_seconds, max_seconds)

    def frozen(self) -> Histogram:
        """Return the value to publish."""
        return Histogram(self.bounds, tuple(self.counts), self.sum_seconds, self.max_seconds)
