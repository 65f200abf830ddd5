"""Rate shapes: the number of events that are due by a given time. Pure arithmetic without a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class RateShape(Protocol):
    """A rate over time, given as its integral."""

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start; does not decrease, may be infinite."""


@dataclass(frozen=True)
class Max:
    """As fast as the producer can send."""

    def events_by(self, seconds: float) -> float:  # noqa: ARG002 - the protocol's
        """Infinite at any time."""
        return math.inf


@dataclass(frozen=True)
class Constant:
    """A constant rate."""

    events_per_second: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        return self.events_per_second * max(0.0, seconds)


@dataclass(frozen=True)
class Ramp:
    """Linear change from one rate to another over ``ramp_seconds``; the second rate is then kept."""

    from_events_per_second: float
    to_events_per_second: float
    ramp_seconds: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        t = max(0.0, seconds)
        inside = min(t, self.ramp_seconds)
        slope = (self.to_events_per_second - self.from_events_per_second) / self.ramp_seconds
        due = self.from_events_per_second * inside + slope * inside * inside / 2
        return due + self.to_events_per_second * (t - inside)


@dataclass(frozen=True)
class Burst:
    """A base rate, and a higher rate during the last ``burst_seconds`` of every ``every_seconds``."""

    base_events_per_second: float
    burst_events_per_second: float
    every_seconds: float
    burst_seconds: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        t = max(0.0, seconds)
        periods, rest = divmod(t, self.every_seconds)
        calm_seconds = self.every_seconds - self.burst_seconds
        per_period = calm_seconds * self.base_events_per_second + self.burst_seconds * self.burst_events_per_second
        calm = min(rest, calm_seconds) * self.base_events_per_second
        return periods * per_period + calm + max(0.0, rest - calm_seconds) * self.burst_events_per_second


def share_of(total: float, producer: int, producers: int) -> float:
    """The part of ``total`` due events that belongs to producer ``producer``; all parts add up to ``floor(total)``."""
    if math.isinf(total):
        return total
    return (int(total) + producers - 1 - producer) // producers
