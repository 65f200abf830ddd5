"""The books of a run: frontiers and totals after each batch. A pure fold, the same live and when rebuilt from facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from validator.model.frontier import (
    Clock,
    Frontier,
    Lookup,
    PartitionId,
    PartitionSummary,
    Rest,
    clock,
    input_watermark_us,
)

FOREVER_US: Final = 2**62
"""Later than any event time."""


@dataclass(frozen=True)
class TimeRules:
    """The part of the configured timing that frontiers need. Microseconds."""

    max_disorder_us: int
    idle_after_us: int


@dataclass(frozen=True)
class Retirement:
    """Retention dropped the facts of cells at ``at_us``; none of them starts at or after ``horizon_us``.

    What turns up later for a cell before that horizon is out of scope: its facts may be gone.
    """

    at_us: int
    horizon_us: int


@dataclass(frozen=True)
class Hole:
    """Offsets of an input partition that were gone before they could be read, all of them before ``before_offset``."""

    place: PartitionId
    before_offset: int


@dataclass(frozen=True)
class Books:
    """Frontiers, watermark and totals after batch ``batch`` (-1: before the first).

    ``lookup_us`` is the instant of that batch; the next one's is later. ``gap_met``: answers were found gone since the
    last batch; the next lookup tells how far inputs had come by then. ``holes``: what was found gone of inputs since
    the last batch. ``replaced``: input partitions whose topic was deleted and made again while it was read: how much of
    them was never read, nobody knows.
    """

    rules: TimeRules
    batch: int = -1
    lookup_us: int = 0
    watermark_us: int | None = None
    frontiers: Mapping[PartitionId, Frontier] = field(default_factory=dict)
    retirements: tuple[Retirement, ...] = ()
    gap_met: bool = False
    holes: tuple[Hole, ...] = ()
    replaced: frozenset[PartitionId] = frozenset()

    def looked_up(
        self, batch: int, lookup_us: int, lookups: Mapping[PartitionId, Lookup], ends: Mapping[PartitionId, int]
    ) -> Books:
        """The books once a batch's end offsets are planned and the brokers were asked at ``lookup_us``."""
        assert lookup_us > self.lookup_us, "the sidecar's clock never falls"
        frontiers = dict(self.frontiers)
        for place, frontier in self.frontiers.items():
            if place in lookups:
                end = max(ends.get(place, frontier.next_offset), frontier.next_offset)
                frontiers[place] = frontier.looked_up(lookup_us, lookups[place], end)
                if self.gap_met and frontier.side == "input":
                    below = max(frontier.unprovable_below or 0, lookups[place].high_watermark)
                    frontiers[place] = replace(frontiers[place], unprovable_below=below)
        return replace(self, batch=batch, lookup_us=lookup_us, frontiers=frontiers, gap_met=False, holes=())

    def with_facts(self, summaries: Iterable[PartitionSummary]) -> Books:
        """The books with what the batch's fact rows say."""
        frontiers = dict(self.frontiers)
        for summary in summaries:
            frontier = frontiers[summary.place]
            moved = frontier.with_data(self.lookup_us, summary)
            if frontier.hidden_start and frontier.horizon_us is None and summary.first_event_time_us is not None:
                # A hidden event may lie at exactly that instant, the first of its window: the cell there is out too.
                moved = replace(moved, horizon_us=summary.first_event_time_us + self.rules.max_disorder_us + 1)
            frontiers[summary.place] = moved
        inputs = [frontier for frontier in frontiers.values() if frontier.side == "input"]
        watermark = input_watermark_us(
            inputs,
            self.watermark_us,
            lookup_us=self.lookup_us,
            max_disorder_us=self.rules.max_disorder_us,
            idle_after_us=self.rules.idle_after_us,
        )
        return replace(self, frontiers=frontiers, watermark_us=watermark)

    def clock(self, *, rest: Rest = Rest.NONE) -> Clock:
        """What these books prove of time."""
        now = clock(self.frontiers, lookup_us=self.lookup_us, watermark_us=self.watermark_us, rest=rest)
        # Until a partition with a hidden start shows an event, what it hides can be of any time: nothing is in scope.
        retired = tuple((r.at_us, r.horizon_us) for r in self.retirements)
        return replace(now, horizon_us=FOREVER_US if self.hiding else now.horizon_us, retired=retired)

    @property
    def hiding(self) -> tuple[PartitionId, ...]:
        """Input partitions whose start is hidden and that have shown no event yet."""
        return tuple(
            place
            for place, frontier in sorted(self.frontiers.items())
            if frontier.side == "input" and frontier.hidden_start and frontier.horizon_us is None
        )

    def records(self, side: str) -> int:
        """Records read so far on one side."""
        return sum(f.records for f in self.frontiers.values() if f.side == side)

    def undecodable(self, side: str) -> int:
        """Those of them that did not decode."""
        return sum(f.undecodable for f in self.frontiers.values() if f.side == side)

    def expired_of(self, side: str) -> int:
        """Offsets of that side that were gone before they were read."""
        return sum(f.expired for f in self.frontiers.values() if f.side == side)

    @property
    def tombstones(self) -> int:
        """Null values read from output topics."""
        return sum(f.tombstones for f in self.frontiers.values())

    @property
    def output_span_us(self) -> tuple[int, int] | None:
        """First and last broker time of the records on output topics."""
        outputs = [f for f in self.frontiers.values() if f.side == "output"]
        firsts = [f.first_time_us for f in outputs if f.first_time_us is not None]
        lasts = [f.last_time_us for f in outputs if f.last_time_us is not None]
        return (min(firsts), max(lasts)) if firsts and lasts else None

    @property
    def expired(self) -> int:
        """Offsets that were gone before they could be read."""
        return sum(frontier.expired for frontier in self.frontiers.values())
