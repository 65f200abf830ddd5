"""Progress of a run: frontiers and totals after each batch. A pure fold, the same live and when rebuilt from facts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from validator.model.coverage import DIFFERENCES_KEPT, Difference
from validator.model.frontier import (
    Clock,
    Frontier,
    Lookup,
    Outages,
    PartitionId,
    PartitionSummary,
    RunEnd,
    clock,
    earliest_read_through_us,
    input_watermark_us,
)

FOREVER_US: Final = 2**62
"""Later than any event time."""
_OUTAGES_KEPT: Final = 64
"""If there are more, the oldest two and the time between them become one. This can only delay a proof."""


@dataclass(frozen=True)
class TimeRules:
    """The configured times that frontiers need, in microseconds."""

    max_disorder_us: int
    idle_after_us: int
    allowed_lateness_us: int = 0
    pause_us: int | None = None
    """How long a partition must pause at least to be idle to the engine. None: pauses are not followed."""
    follows_inputs: bool = False
    """Whether absence is proven only up to the instant through which every input was read, too, also without pauses."""

    @property
    def slack_us(self) -> int:
        """How far the watermark is behind the newest event time."""
        return self.max_disorder_us + self.allowed_lateness_us


@dataclass(frozen=True)
class Retirement:
    """The retirement of cells at ``at_us``. All of them start before ``horizon_us``, and their facts were dropped.

    Records that are read later for a cell that starts before ``horizon_us`` are out of scope.
    """

    at_us: int
    horizon_us: int


@dataclass(frozen=True)
class OffsetGap:
    """Offsets of an input partition, all of them before ``before_offset``, that expired before they were read."""

    partition_id: PartitionId
    before_offset: int


@dataclass(frozen=True)
class IngestProgress:
    """Frontiers, watermark and totals after batch ``batch`` (-1: before the first).

    - ``lookup_us``: instant of that batch. The instant of the next batch is later.
    - ``results_expired``: expired answers were found since the last batch. They may have answered any event up to the
      high watermarks of the next lookup.
    - ``offset_gaps``: expired input offsets that were found since the last batch.
    - ``replaced``: partitions whose topic was deleted and recreated. How many of their records were never read is not
      known.
    - ``cut_back``: partitions whose log later ended before the committed frontier. The records that were read there may
      not be those that the pipeline has.
    - ``former_ids``: ids of topics that were deleted and recreated. A topic id never returns.
    - ``faults_topics``: the topic ids that the faults topic has had.
    - ``accepted_records``: number of undecodable records per partition that hide nothing, as an operator or the
      pipeline stated (SEMANTICS 4.12).
    - ``outages``: intervals in which the brokers did not answer (SEMANTICS 3.15).
    - ``differences``: what second readings of the topics found to differ from the stored facts.
    - ``superseded_us``: from this instant on the engine has `missing_after` for the records that replace those which
      compaction removed unread; ``is_superseding``: it is that of the batch, since the watermark has not passed the
      newest event time, ``superseded_event_us``, of the batch that met such offsets (None: of this batch).
    """

    rules: TimeRules
    batch: int = -1
    lookup_us: int = 0
    watermark_us: int | None = None
    frontiers: Mapping[PartitionId, Frontier] = field(default_factory=dict)
    retirements: tuple[Retirement, ...] = ()
    results_expired: bool = False
    offset_gaps: tuple[OffsetGap, ...] = ()
    replaced: frozenset[PartitionId] = frozenset()
    cut_back: frozenset[PartitionId] = frozenset()
    faults_topics: frozenset[str] = frozenset()
    former_ids: frozenset[str] = frozenset()
    accepted_records: Mapping[PartitionId, int] = field(default_factory=dict)
    outages: Outages = ()
    differences: tuple[Difference, ...] = ()
    superseded_us: int | None = None
    is_superseding: bool = False
    superseded_event_us: int | None = None

    def looked_up(
        self, batch: int, lookup_us: int, lookups: Mapping[PartitionId, Lookup], ends: Mapping[PartitionId, int]
    ) -> IngestProgress:
        """Return the progress after a batch was planned to ``ends`` and the brokers were looked up at ``lookup_us``."""
        assert lookup_us > self.lookup_us, "each lookup is later than the one before it"
        frontiers = dict(self.frontiers)
        for partition, frontier in self.frontiers.items():
            if partition in lookups:
                # SEMANTICS 3.3: the planned end, since transaction markers make `last offset + 1` too small.
                end = max(ends.get(partition, frontier.next_offset), frontier.next_offset)
                frontiers[partition] = frontier.looked_up(lookup_us, lookups[partition], end)
        if self.results_expired:
            # SEMANTICS 3.24: answers expired, and may have been those of any event so far, also of a topic that does
            # not exist now.
            frontiers = {partition: _unprovable(frontier) for partition, frontier in frontiers.items()}
        frontiers = self._with_pauses(frontiers, lookup_us)
        return replace(
            self, batch=batch, lookup_us=lookup_us, frontiers=frontiers, results_expired=False, offset_gaps=()
        )

    def _with_pauses(self, frontiers: dict[PartitionId, Frontier], lookup_us: int) -> dict[PartitionId, Frontier]:
        """Return ``frontiers`` after the lookup, with the pauses of inputs."""
        if (pause_us := self.rules.pause_us) is None:
            return {
                partition: frontier if frontier.pause_us is None else replace(frontier, pauses=None, pause_us=None)
                for partition, frontier in frontiers.items()
            }
        read_us = earliest_read_through_us(f for f in self.frontiers.values() if f.side == "input" and f.exists)
        return {
            partition: frontier.with_pauses(self.frontiers.get(partition), lookup_us, pause_us, read_us)
            if frontier.side == "input"
            else frontier
            for partition, frontier in frontiers.items()
        }

    def with_lookup(self, lookup_us: int, lookups: Mapping[PartitionId, Lookup]) -> IngestProgress:
        """Return the progress after the brokers were looked up at ``lookup_us`` and nothing else changed.

        SEMANTICS 3.4: a run with `--once` under load depends on this lookup. The run may never reach the high
        watermarks of later lookups, and the lookups of an earlier process are not kept.
        """
        if lookup_us <= self.lookup_us:
            return self
        frontiers = {
            partition: frontier.with_lookup(lookup_us, lookups[partition]) if partition in lookups else frontier
            for partition, frontier in self.frontiers.items()
        }
        return replace(self, lookup_us=lookup_us, frontiers=frontiers)

    def with_outages(self, *found: tuple[int, int]) -> IngestProgress:
        """Return the progress with further outages."""
        outages = tuple(sorted({*self.outages, *found}))
        # SEMANTICS 3.15: a merged outage covers more time, which delays proofs and revokes none.
        while len(outages) > _OUTAGES_KEPT:
            (before_us, _), (_, since_us), *later = outages
            outages = ((before_us, since_us), *later)
        return replace(self, outages=outages)

    def with_differences(self, found: Iterable[Difference]) -> IngestProgress:
        """Return the progress with further differences. The first ones are kept."""
        known = dict.fromkeys((*self.differences, *found))
        return replace(self, differences=tuple(known)[:DIFFERENCES_KEPT])

    def with_policies(self, policies: Mapping[str, str], lookups: Mapping[PartitionId, Lookup]) -> IngestProgress:
        """Return the progress with the `cleanup.policy` of some topics, looked up later than ``lookups``."""
        frontiers = {
            partition: frontier.with_policy(policies[partition.topic], lookups[partition])
            if partition.topic in policies and partition in lookups
            else frontier
            for partition, frontier in self.frontiers.items()
        }
        return replace(self, frontiers=frontiers)

    def unaccounted(self, skipped: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
        """Return, for each partition, how many offsets have no visible record and are not accounted for yet.
        ``skipped``: the offsets that the reader of the newest batch passed without a record."""
        return {
            partition: count
            for partition, count in sorted(skipped.items())
            if partition in self.frontiers and count > 0
        }

    def account_for(
        self,
        unaccounted: Mapping[PartitionId, int],
        before: IngestProgress,
        superseded: Collection[PartitionId] = (),
    ) -> tuple[IngestProgress, tuple[OffsetGap, ...]]:
        """Account for the offsets in ``unaccounted``. Returns the progress, and the offset gaps of inputs.

        The brokers must have been looked up, and the policies of the topics must be known. ``before``: the progress
        after the previous batch. If compaction may have emptied an offset, that offset may have held any record that
        was appended before the lookup. ``superseded``: partitions of tables in which compaction has removed only
        records that a later one replaces.
        """
        frontiers, offset_gaps, results_removed, is_superseding = dict(self.frontiers), [], False, False
        for partition, count in unaccounted.items():
            frontier, known = frontiers[partition], before.frontiers.get(partition)
            began = frontier.first_offset if known is None else known.next_offset
            # SEMANTICS 4.6: only where the topic may be compacted is an offset without a visible record a hidden one.
            if frontier.compacted_below is None or began >= frontier.compacted_below:
                frontiers[partition] = replace(frontier, markers=frontier.markers + count)
                continue
            if partition in superseded:
                frontiers[partition] = replace(frontier, markers=frontier.markers + count, last_data_us=self.lookup_us)
                is_superseding = True
                continue
            compacted = replace(frontier, compacted=frontier.compacted + count)
            if frontier.side == "input":
                # SEMANTICS 3.7: they may have held the partition's newest record, so the partition counts as active.
                compacted = replace(compacted, last_data_us=self.lookup_us)
                offset_gaps.append(OffsetGap(partition, began + 1))
            elif frontier.side != "table":
                through_us = frontier.read_through_before_us or 0
                unread_since_us = (
                    through_us if frontier.unread_since_us is None else min(through_us, frontier.unread_since_us)
                )
                compacted, results_removed = replace(compacted, unread_since_us=unread_since_us), True
            frontiers[partition] = compacted
        if results_removed:
            frontiers = {partition: _unprovable(frontier) for partition, frontier in frontiers.items()}
        found = self._superseding(is_superseding=is_superseding)
        return replace(found, frontiers=frontiers), tuple(offset_gaps)

    def _superseding(self, *, is_superseding: bool) -> IngestProgress:
        """Return the progress with its ``superseded_us``. ``is_superseding``: this batch met such offsets."""
        if is_superseding:
            return replace(self, superseded_us=self.lookup_us, is_superseding=True, superseded_event_us=None)
        if not self.is_superseding:
            return self
        # SEMANTICS 4.6: the later record may have been appended during the reading, so the next lookup counts. What it
        # replaces is due with it (2.14).
        event_us = self.superseded_event_us
        if event_us is None:
            times = (f.newest_event_time_us for f in self.frontiers.values() if f.side == "input")
            event_us = max((time_us for time_us in times if time_us is not None), default=None)
        waits = event_us is not None and (self.watermark_us is None or self.watermark_us <= event_us)
        return replace(self, superseded_us=self.lookup_us, is_superseding=waits, superseded_event_us=event_us)

    def supersedes(self, missing_after_us: int) -> bool:
        """Return whether the engine may still answer a record that was removed since a later one replaces it."""
        if self.superseded_us is None:
            return False
        # SEMANTICS 4.6: once the inputs and the answers are read so far, the engine has used the later record.
        now = self.clock()
        through_us = now.due_through_us(now.outputs_us, missing_after_us)
        return through_us is None or through_us < self.superseded_us

    def with_facts(self, summaries: Iterable[PartitionSummary]) -> IngestProgress:
        """Return the progress after the batch with these fact rows."""
        frontiers = dict(self.frontiers)
        unexamined = False
        for summary in summaries:
            unexamined |= summary.unexamined > 0
            frontier = frontiers[summary.partition_id]
            moved = frontier.with_data(self.lookup_us, summary)
            if frontier.hidden_start and frontier.horizon_us is None and summary.first_event_time_us is not None:
                # SEMANTICS 3.19: a hidden event may have exactly this time and begin its window there, so `+ 1`: that
                # cell is out of scope, too.
                moved = replace(moved, horizon_us=summary.first_event_time_us + self.rules.max_disorder_us + 1)
            frontiers[summary.partition_id] = moved
        if unexamined:
            # SEMANTICS 4.10, 3.24: answers that were not examined existed at the lookup, and so did the events that
            # they answer.
            frontiers = {partition: _unprovable(frontier) for partition, frontier in frontiers.items()}
        inputs = [frontier for frontier in frontiers.values() if frontier.side == "input"]
        watermark = input_watermark_us(
            inputs,
            self.watermark_us,
            lookup_us=self.lookup_us,
            slack_us=self.rules.slack_us,
            idle_after_us=self.rules.idle_after_us,
            outages=self.outages,
        )
        return replace(self, frontiers=frontiers, watermark_us=watermark)

    def clock(self, *, run_end: RunEnd = RunEnd.NONE) -> Clock:
        """Return what this progress proves about time."""
        now = clock(self.frontiers, lookup_us=self.lookup_us, watermark_us=self.watermark_us, run_end=run_end)
        # SEMANTICS 3.20: until a partition with a hidden start has an event, the hidden events can have any time:
        # nothing is in scope.
        retired = tuple((r.at_us, r.horizon_us) for r in self.retirements)
        horizon = FOREVER_US if self.partitions_with_hidden_start else now.horizon_us
        accepted = sum(self.accepted_records.values())
        if self.rules.pause_us is not None or self.rules.follows_inputs:
            # SEMANTICS 2.31: what other partitions passed during a pause must be known. 2.35: a change that is not read
            # may have removed what results lack.
            now = now.bounded_by_inputs()
        return replace(now, horizon_us=horizon, retired=retired, accepted_records=accepted, outages=self.outages)

    @property
    def partitions_with_hidden_start(self) -> tuple[PartitionId, ...]:
        """Input partitions with a hidden start of which no event was read yet."""
        return tuple(
            partition
            for partition, frontier in sorted(self.frontiers.items())
            if frontier.side == "input" and frontier.hidden_start and frontier.horizon_us is None
        )

    @property
    def known_before(self) -> dict[tuple[str, int], int]:
        """Partition -> what precedes the records of the newest batch: the newest event time, and of a table the instant
        through which the partition had been read."""
        found = {
            (partition.topic, partition.partition): frontier.read_through_before_us
            if frontier.side == "table"
            else frontier.newest_event_time_us
            for partition, frontier in self.frontiers.items()
        }
        return {partition: value for partition, value in found.items() if value is not None}

    @property
    def rows_are_hidden(self) -> bool:
        """Whether rows of a table may be unknown: they could not be read, or their topic was recreated or cut back."""
        lost = any(self.frontiers[at].side == "table" for at in self.replaced | self.cut_back if at in self.frontiers)
        return lost or bool(self.hidden("table") + self.expired_of("table") + self.compacted_of("table"))

    @property
    def inputs_replaced(self) -> bool:
        """Whether an input topic was deleted and recreated."""
        frontiers = [self.frontiers.get(partition) for partition in self.replaced]
        return any(frontier is None or frontier.side == "input" for frontier in frontiers)

    def records(self, side: str) -> int:
        """Return the number of records read so far on one side."""
        return sum(f.records for f in self.frontiers.values() if f.side == side)

    def undecodable(self, side: str) -> int:
        """Return the number of records of the side that did not decode."""
        return sum(f.undecodable for f in self.frontiers.values() if f.side == side)

    def hidden(self, side: str) -> int:
        """Return the number of undecodable records of the side that are not settled: their content is not known."""
        # SEMANTICS 4.12: a settled record hides nothing.
        return self.undecodable(side) - sum(
            count
            for partition, count in self.accepted_records.items()
            if partition in self.frontiers and self.frontiers[partition].side == side
        )

    def expired_of(self, side: str) -> int:
        """Return the number of offsets of the side that expired before they were read."""
        return sum(f.expired for f in self.frontiers.values() if f.side == side)

    def compacted_of(self, side: str) -> int:
        """Return the number of offsets of the side whose records compaction may have removed before they were read."""
        return sum(f.compacted for f in self.frontiers.values() if f.side == side)

    def unowed(self) -> int:
        """Return the number of events that belong to no cell."""
        return sum(f.unowed for f in self.frontiers.values())

    def tombstones(self, side: str) -> int:
        """Return the number of null values of the side that are counted and ignored."""
        return sum(f.tombstones for f in self.frontiers.values() if f.side == side)

    @property
    def output_span_us(self) -> tuple[int, int] | None:
        """First and last broker time of the records on output topics."""
        outputs = [f for f in self.frontiers.values() if f.side == "output"]
        firsts = [f.first_time_us for f in outputs if f.first_time_us is not None]
        lasts = [f.last_time_us for f in outputs if f.last_time_us is not None]
        return (min(firsts), max(lasts)) if firsts and lasts else None

    @property
    def compacted(self) -> int:
        """Number of offsets that may be records that compaction removed before they were read."""
        return sum(frontier.compacted for frontier in self.frontiers.values())

    @property
    def expired(self) -> int:
        """Number of offsets that expired before they were read."""
        return sum(frontier.expired for frontier in self.frontiers.values())


def _unprovable(frontier: Frontier) -> Frontier:
    """Return an input's frontier with the mark that results of its events so far may have expired. Other frontiers are
    returned unchanged."""
    if frontier.side != "input":
        return frontier
    return replace(frontier, unprovable_below=max(frontier.unprovable_below or 0, frontier.high_watermark))
