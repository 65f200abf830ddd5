"""The output in a stretch of broker time, from which phases and faults are measured.

The smallest stretch is one second. Consecutive stretches add up to longer ones without loss, except that the seconds
inside are no longer separate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from validator.measure.histogram import LATENCY_BOUNDS
from validator.model.snapshot import Histogram

SECOND_US: Final = 1_000_000


def coarser(one_us: int | None, other_us: int | None) -> int | None:
    """Return the coarser of two resolutions; None (unknown) if either is None."""
    return None if one_us is None or other_us is None else max(one_us, other_us)


def second_after(instant_us: int) -> int:
    """Return the first whole second that begins at or after an instant: a second belongs to the phase in which it
    begins."""
    return -(-instant_us // SECOND_US)


@dataclass(frozen=True)
class Spread:
    """Latencies of some results: bucket of `LATENCY_BOUNDS` -> results; their sum and their maximum in microseconds."""

    counts: Mapping[int, int]
    sum_us: int
    max_us: int

    @property
    def results(self) -> int:
        """Number of results."""
        return sum(self.counts.values())

    @property
    def mean_us(self) -> float:
        """Mean latency in microseconds."""
        return self.sum_us / self.results

    def plus(self, other: Spread) -> Spread:
        """Return the sum of both."""
        counts = dict(self.counts)
        for bucket, results in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + results
        return Spread(counts, self.sum_us + other.sum_us, max(self.max_us, other.max_us))

    def histogram(self) -> Histogram:
        """Return the latencies as a histogram to publish."""
        counts = tuple(self.counts.get(bucket, 0) for bucket in range(len(LATENCY_BOUNDS) + 1))
        return Histogram(LATENCY_BOUNDS, counts, self.sum_us / 1e6, self.max_us / 1e6)


@dataclass(frozen=True)
class Output:
    """The results of the seconds from ``start_s`` to before ``end_s`` (since the epoch), at least one.

    ``contributions``: number of ids in them. ``first_us``, ``last_us``: broker times. ``gap_us``: the longest time
    between two consecutive results, if known (within one second it is not known and counts as 0). ``latency``:
    definition -> latencies; a result whose input is unknown has none. ``resolution_us``: precision of the instants (0:
    broker time; None: unknown, since the sidecar read some results from a backlog).
    """

    start_s: int
    end_s: int
    results: int
    contributions: int
    first_us: int
    last_us: int
    gap_us: int = 0
    latency: Mapping[str, Spread] = field(default_factory=dict)
    resolution_us: int | None = 0

    def plus(self, other: Output) -> Output:
        """Return the sum of both: two parts of the same second, or two stretches of which none lies in the other."""
        first, last = (self, other) if self.first_us <= other.first_us else (other, self)
        latency = dict(self.latency)
        for name, spread in other.latency.items():
            latency[name] = latency[name].plus(spread) if name in latency else spread
        between = last.first_us - first.last_us if last.start_s >= first.end_s else 0
        return Output(
            min(self.start_s, other.start_s),
            max(self.end_s, other.end_s),
            self.results + other.results,
            self.contributions + other.contributions,
            first.first_us,
            max(self.last_us, other.last_us),
            max(self.gap_us, other.gap_us, between),
            latency,
            coarser(self.resolution_us, other.resolution_us),
        )

    def to_plain(self) -> list[Any]:
        """Return plain values for JSON."""
        latency = {
            n: [s.sum_us, s.max_us, *(x for pair in s.counts.items() for x in pair)] for n, s in self.latency.items()
        }
        return [
            self.start_s,
            self.end_s,
            self.results,
            self.contributions,
            self.first_us,
            self.last_us,
            self.gap_us,
            latency,
            self.resolution_us,
        ]

    @classmethod
    def from_plain(cls, plain: list[Any]) -> Self:
        """Return the value that `to_plain` saved. Raises ValueError if there are too few values."""
        start_s, end_s, results, contributions, first_us, last_us, gap_us, latency, *resolution = plain
        spreads = {
            str(name): Spread(dict(zip(row[2::2], row[3::2], strict=True)), row[0], row[1])
            for name, row in latency.items()
        }
        return cls(start_s, end_s, results, contributions, first_us, last_us, gap_us, spreads, *resolution)


def total_output(outputs: Iterable[Output]) -> Output | None:
    """Return the sum of ``outputs``; None if there are none. They are in order of time, without a common second."""
    # `plus` would create thousands of intermediate values with every batch.
    first: Output | None = None
    end_s = results = contributions = last_us = gap_us = 0
    resolution_us: int | None = 0
    latency: dict[str, tuple[dict[int, int], list[int]]] = {}
    for output in outputs:
        if first is None:
            first = output
        else:
            gap_us = max(gap_us, output.first_us - last_us)
        gap_us = max(gap_us, output.gap_us)
        end_s, last_us = output.end_s, output.last_us
        resolution_us = coarser(resolution_us, output.resolution_us)
        results += output.results
        contributions += output.contributions
        for name, spread in output.latency.items():
            counts, sum_and_max = latency.setdefault(name, ({}, [0, 0]))
            for bucket, count in spread.counts.items():
                counts[bucket] = counts.get(bucket, 0) + count
            sum_and_max[0] += spread.sum_us
            sum_and_max[1] = max(sum_and_max[1], spread.max_us)
    if first is None:
        return None
    spreads = {name: Spread(counts, *sum_and_max) for name, (counts, sum_and_max) in latency.items()}
    return Output(first.start_s, end_s, results, contributions, first.first_us, last_us, gap_us, spreads, resolution_us)
