"""Second readings: now and then, and where the reader met a gap, a new consumer reads a small range again. What it
finds is compared with the stored facts of that range (SEMANTICS 5.2).

Before a batch is read, a range of it is chosen at random and read as a part of its own, so that it has its own fact
rows. `validator.stream.reading_again` reads it a second time, in a worker. A range that cannot be read again as a whole
is no evidence: it counts as not done.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from validator.codecs.columns import REMOVED
from validator.model.arrays import Ints, ints
from validator.model.coverage import Difference, RangeCount, ReadTwice
from validator.model.frontier import Frontier, PartitionId, may_compact
from validator.reconcile.facts import Kind
from validator.state.tables import StateTables, Table
from validator.stream.brokers import Brokers
from validator.stream.kafka_reading import Range, ReadFailed

EVERY_SECONDS: Final = 60.0
"""Interval of second readings, unless a partition has its first gap."""
_OFFSETS_MAX: Final = 2_000
"""Offsets of a range that is read again."""
_OFFSETS_MIN: Final = 20
"""After a range that could not be read again, the next one has a quarter of its offsets, but not fewer than these."""
_COMPARED: Final = ("records", "contributions", "hash_a", "hash_b")
"""Columns of fact rows whose sums a second reading must repeat."""

Totals = dict[int, tuple[int, ...]]
"""Status of records -> the sums of `_COMPARED` over their fact rows."""


@dataclass(frozen=True)
class JustRead:
    """A batch whose facts are stored: what a second reading of its ranges needs.

    ``frontiers``: after the batch. ``facts_again``: the fact rows of a second reading of a range. ``without_ids``:
    topics of which one result replaces another, so that only the records of a range are compared. ``sums_wrap_at``: the
    modulus of each sum of `_COMPARED`; 0: none. ``upserts``: topics whose records replace rows.
    """

    batch: int
    epoch: int
    tables: StateTables
    brokers: Brokers
    frontiers: Mapping[PartitionId, Frontier]
    facts_again: Callable[[Range], pa.Table]
    without_ids: frozenset[str] = frozenset()
    sums_wrap_at: tuple[int, ...] = (0,) * len(_COMPARED)
    upserts: frozenset[str] = frozenset()

    def stored(self, wanted: Range) -> Totals:
        """The sums over the stored fact rows of a range that was read as a part of its own, or of a gap."""
        where = (
            (ds.field("epoch") == self.epoch)
            & (ds.field("batch") == self.batch)
            & (ds.field("kind") == Kind.FACT.value)
            & (ds.field("topic") == wanted.topic)
            & (ds.field("partition") == wanted.partition)
            & (ds.field("first_offset") >= wanted.start)
            & (ds.field("last_offset") < wanted.end)
        )
        parts = list(self.tables.scan(Table.FACTS, ("status", *_COMPARED), where))
        return self._totals(pa.concat_tables(parts), wanted) if parts else {}

    def found_again(self, wanted: Range) -> Totals:
        """The same sums over the records that a second reading finds. Raises as `Workers.facts_again` does."""
        return self._totals(self.facts_again(wanted), wanted)

    def _totals(self, facts: pa.Table, wanted: Range) -> Totals:
        names = _COMPARED[:1] if wanted.topic in self.without_ids else _COMPARED
        if wanted.topic in self.upserts:
            # What a record replaces may lie before the range.
            facts = facts.filter(pc.not_equal(facts["status"], REMOVED))
        status = ints(facts["status"])
        sums = {name: ints(facts[name], 0) for name in names}
        # Hashes add up modulo 2**64, those of values modulo a prime, whatever parts the rows of the range have.
        wrap_at = dict(zip(_COMPARED, self.sums_wrap_at, strict=True))

        def total(values: Ints, modulus: int) -> int:
            return int(values.sum()) % modulus if modulus else int(values.sum())

        return {
            of: tuple(total(sums[name][status == of], wrap_at[name]) for name in names)
            for of in np.unique(status).tolist()
        }

    def is_as_read(self, wanted: Range) -> bool:
        """Whether the brokers still have the log that was read, from the start of the range on."""
        topics = self.brokers.topics([wanted.topic])
        partition = PartitionId(wanted.topic, wanted.partition)
        lookup = self.brokers.lookup(topics).get(partition)
        if lookup is None or lookup.topic_id != self.frontiers[partition].topic_id:
            return False
        return lookup.log_start_offset <= wanted.start and lookup.high_watermark >= wanted.end

    def may_lack(self, wanted: Range) -> bool:
        """Whether compaction may have removed records of the range since they were read."""
        frontier = self.frontiers[PartitionId(wanted.topic, wanted.partition)]
        compacts = any(map(may_compact, self.brokers.policies({wanted.topic}).values()))
        return compacts or (frontier.compacted_below is not None and wanted.start < frontier.compacted_below)


@dataclass
class SecondReadings:
    """Chooses the ranges that are read again, and compares them.

    ``done``: how much was read again so far. ``found``: differences that are not committed yet.
    """

    done: ReadTwice
    every_seconds: float = EVERY_SECONDS
    found: list[Difference] = field(default_factory=list)
    _due: float = 0.0
    _offsets: int = _OFFSETS_MAX
    _had_gaps: set[PartitionId] = field(default_factory=set)
    _newest: tuple[JustRead, Range] | None = None

    def chosen(self, ranges: Sequence[Range], sources: int, seed: int) -> tuple[Sequence[Range], Range | None]:
        """The ranges of a batch, with a range of its own for a second reading if one is due; and this range.

        ``sources``: only topics with lower numbers are read again. ``seed``: the choice depends on nothing else.
        """
        mine = [one for one in ranges if one.source < sources]
        if not mine or time.monotonic() < self._due:
            return ranges, None
        chance = random.Random(seed)
        [whole] = chance.choices(mine, [one.end - one.start for one in mine])
        chosen = self._within(whole, chance)
        parts = [whole._replace(end=chosen.start), chosen, whole._replace(start=chosen.end)]
        others = [one for one in ranges if one is not whole]
        return [*others, *(part for part in parts if part.start < part.end)], chosen

    def _within(self, whole: Range, chance: random.Random) -> Range:
        size = min(self._offsets, whole.end - whole.start)
        start = chance.randint(whole.start, whole.end - size)
        return whole._replace(start=start, end=start + size)

    def look(self, read: JustRead, chosen: Range | None, ranges: Sequence[Range], counts: Sequence[RangeCount]) -> None:
        """Read again what is due after a batch: ``chosen``, and a gap among those that its reader met in ``ranges``.

        A gap is due with ``chosen``, and at once if it is the first gap of its partition: on a topic without
        transactions and compaction there is none.
        """
        wanted = [] if chosen is None else [chosen]
        sources = {one.topic: one.source for one in ranges}
        gaps = [count for count in counts if count.gaps and count.partition_id in read.frontiers]
        new = [count for count in gaps if count.partition_id not in self._had_gaps]
        chance = random.Random(read.batch)
        if gaps and (new or chosen is not None):
            count = chance.choice(new or gaps)
            self._had_gaps.add(count.partition_id)
            first, end = chance.choice(count.gaps)
            wanted.append(self._within(Range(sources[count.topic], count.topic, count.partition, first, end), chance))
        for one in wanted:
            self._read_again(read, one)
        if wanted:
            self._due = time.monotonic() + self.every_seconds

    def look_at_end(self) -> None:
        """Read the range that was chosen last again, at the end of a run."""
        if self._newest is not None:
            self._read_again(*self._newest)

    def _read_again(self, read: JustRead, wanted: Range) -> None:
        self._newest = read, wanted
        try:
            difference = _difference(read, wanted)
        except Exception:  # noqa: BLE001 - whatever prevents a second reading proves nothing
            self.done.not_done += 1
            self._offsets = max(_OFFSETS_MIN, self._offsets // 4)
            return
        self.done.ranges += 1
        self.done.offsets += wanted.end - wanted.start
        self._offsets = _OFFSETS_MAX
        if difference is not None:
            self.found.append(difference)


def _difference(read: JustRead, wanted: Range) -> Difference | None:
    """The difference between the stored facts of a range and a second reading; None if there is none.

    A difference counts only if a third reading finds the same as the second, and the log is still the one that was
    read. Raises `ReadFailed` otherwise. Records that compaction may have removed meanwhile make no difference.
    """
    stored, found = read.stored(wanted), read.found_again(wanted)
    if stored == found:
        return None
    if not read.is_as_read(wanted) or read.found_again(wanted) != found:
        raise ReadFailed("the log changes")
    before, now = (sum(sums[0] for sums in totals.values()) for totals in (stored, found))
    if now <= before and read.may_lack(wanted):
        return None
    return Difference(wanted.topic, wanted.partition, wanted.start, wanted.end, before, now)
