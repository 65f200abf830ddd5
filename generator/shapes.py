"""Rate shapes: the number of events that are due by a given time. Pure arithmetic without a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from generator.seed import draw


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


@dataclass(frozen=True)
class SingleBurst:
    """A high rate for the first ``burst_seconds``, then a base rate."""

    base_events_per_second: float
    burst_events_per_second: float
    burst_seconds: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        t = max(0.0, seconds)
        high = min(t, self.burst_seconds)
        return high * self.burst_events_per_second + (t - high) * self.base_events_per_second


@dataclass(frozen=True)
class Cosine:
    """A wave: the highest rate at the start and after every ``every_seconds``, the lowest in between."""

    low_events_per_second: float
    high_events_per_second: float
    every_seconds: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        t, turn = max(0.0, seconds), 2 * math.pi / self.every_seconds
        mean = (self.high_events_per_second + self.low_events_per_second) / 2
        return mean * t + (self.high_events_per_second - mean) * math.sin(turn * t) / turn


@dataclass(frozen=True)
class Steps:
    """A rate for each ``every_seconds``; the last one is kept."""

    events_per_second: tuple[float, ...]
    every_seconds: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        t = max(0.0, seconds)
        number = min(int(t / self.every_seconds), len(self.events_per_second) - 1)
        rest = t - number * self.every_seconds
        return sum(self.events_per_second[:number]) * self.every_seconds + self.events_per_second[number] * rest


@dataclass(frozen=True)
class RandomSteps:
    """A rate for each ``every_seconds``, drawn between two bounds."""

    low_events_per_second: float
    high_events_per_second: float
    every_seconds: float
    seed: int
    _sums: list[float] = field(default_factory=lambda: [0.0], compare=False)

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        number, rest = divmod(max(0.0, seconds), self.every_seconds)
        while len(self._sums) <= number:
            self._sums.append(self._sums[-1] + self._rate(len(self._sums) - 1) * self.every_seconds)
        return self._sums[int(number)] + self._rate(int(number)) * rest

    def _rate(self, number: int) -> float:
        span = self.high_events_per_second - self.low_events_per_second
        return self.low_events_per_second + span * draw(self.seed, "rate", number)


@dataclass(frozen=True)
class Spikes:
    """A base rate, and a higher rate for ``spike_seconds`` somewhere in every ``every_seconds``."""

    base_events_per_second: float
    spike_events_per_second: float
    every_seconds: float
    spike_seconds: float
    seed: int

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        t = max(0.0, seconds)
        number, rest = divmod(t, self.every_seconds)
        begin = draw(self.seed, "spike", int(number)) * (self.every_seconds - self.spike_seconds)
        in_spikes = number * self.spike_seconds + min(max(0.0, rest - begin), self.spike_seconds)
        return t * self.base_events_per_second + in_spikes * (
            self.spike_events_per_second - self.base_events_per_second
        )


@dataclass(frozen=True)
class MicroBatches:
    """A constant rate whose events are due together, ``batches_per_second`` times a second."""

    events_per_second: float
    batches_per_second: float

    def events_by(self, seconds: float) -> float:
        """Events due ``seconds`` after the start."""
        return (
            math.floor(max(0.0, seconds) * self.batches_per_second) * self.events_per_second / self.batches_per_second
        )


def share_of(total: float, producer: int, producers: int) -> float:
    """The part of ``total`` due events that belongs to producer ``producer``; all parts add up to ``floor(total)``."""
    if math.isinf(total):
        return total
    return (int(total) + producers - 1 - producer) // producers
