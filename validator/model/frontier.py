"""Frontiers: how far each partition was read, and the time that this proves. Plain values, no I/O, no clock.

Source: SEMANTICS section 3. The paragraphs are cited at each rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

_LOOKUPS_KEPT = 64
"""Number of unreached lookups kept per partition. Dropping others can delay a proof, but never gives a wrong one."""


NO_LOG: Final = -1
"""The log start offset of a partition that does not exist: its topic was recreated with fewer partitions."""


FOREVER_OFFSET: Final = 2**62
"""Above every offset."""

Outages = tuple[tuple[int, int], ...]
"""Intervals in which the brokers did not answer, oldest first. Each runs from the instant of the last batch before the
outage to that of the first lookup after it."""

Pauses = tuple[tuple[int, int], ...]
"""(offset, instant) pairs of a partition, by offset. See `Frontier.pauses`."""

_PAUSES_KEPT: Final = 16
"""Number of pauses kept per partition. If there are more, the oldest two become one, which excuses more events."""

UNREADABLE_POLICY: Final = ""
"""Stands for a `cleanup.policy` that the sidecar may not read."""


def may_compact(policy: str | None) -> bool:
    """Return whether a topic with this `cleanup.policy` may be compacted. A policy that cannot be read may compact."""
    # SEMANTICS 4.6: a policy that cannot be read may be `compact`. To presume markers could be a false alarm.
    return policy is not None and (policy == UNREADABLE_POLICY or "compact" in policy)


def counted_back_us(at_us: int, length_us: int, outages: Outages) -> int:
    """Return the latest instant that is at least ``length_us`` before ``at_us``, not counting time in ``outages``."""
    # SEMANTICS 3.15: time in which the brokers did not answer proves no loss, since the engine could write nothing
    # either. The result is never later than without the outages, and known proofs stay.
    for before_us, since_us in reversed(outages):
        if since_us < at_us:
            if at_us - since_us >= length_us:
                break
            length_us -= at_us - since_us
        at_us = min(at_us, before_us)
    return at_us - length_us


@dataclass(frozen=True, order=True)
class PartitionId:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True)
class Lookup:
    """Offsets of a partition that a broker returned at one instant of the sidecar's clock.

    ``log_start_offset`` is `NO_LOG` for a partition that its topic no longer has.
    """

    topic_id: str
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    committed_offset: int | None = None


@dataclass(frozen=True)
class PartitionSummary:
    """Summary of one batch's fact rows for one partition.

    ``first_event_time_us``: event time at the lowest decodable offset, if it was requested. ``unexamined``: records of
    an output that are larger than the limits or do not fit into memory. They are not among ``records``. ``unowed``:
    events that decoded and belong to no cell.
    """

    partition_id: PartitionId
    records: int
    undecodable: int
    tombstones: int
    newest_event_time_us: int | None
    first_event_time_us: int | None
    first_time_us: int | None
    last_time_us: int | None
    unexamined: int = 0
    unowed: int = 0


@dataclass(frozen=True)
class Frontier:
    """One partition's frontier after a batch.

    - ``records``: number read since ``first_offset``, including ``undecodable`` records, ``tombstones``, and
      ``unowed`` events, which belong to no cell.
    - ``first_time_us``, ``last_time_us``: the first and the last broker time of these records.
    - ``last_data_us``: lookup instant of the last batch that read a record, or of the first batch.
    - ``unreached``: the (instant, high watermark) pairs that the next offset has not reached yet, oldest first.
    - ``horizon_us``: cells that start before it are out of scope because of this partition.
    - ``read_through_before_us``: ``read_through_us`` before the lookup of the last batch.
    - ``appended_after_us``: the newest record was appended after this instant, which is the read-through time before
      the batch that read it.
    - ``event_after_us``: the same of the newest event that moves the watermark. ``pauses``: (offset, instant) pairs,
      oldest first; the engine may have taken an input partition for idle before it read this offset, and have read
      records of other partitions that were appended before the instant. ``pause_us``: the pauses are at least this
      long. None: pauses are not followed.
    - ``unread_since_us``: the read-through time before the earliest loss of records that were not read yet
      (0: the partition was never read through). For an input, it is 0 after its topic was recreated or its log was
      cut back, since the engine may never have read the lost events.
    - ``unprovable_below``: answers to events below this offset may have expired, or the engine may never have read
      these events.
    - ``cleanup_policy``: that of the topic at the last lookup; `UNREADABLE_POLICY` if it cannot be read.
    - ``compacted_below``: below this offset compaction may have removed records (None: it never did).
    - ``compacted``: offsets without a visible record, as the reader counted them, that compaction may have emptied.
      ``markers``: the other offsets without a visible record.
    """

    side: str
    topic: str
    partition: int
    topic_id: str
    first_offset: int
    next_offset: int
    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    last_data_us: int
    read_through_us: int | None = None
    newest_event_time_us: int | None = None
    committed_offset: int | None = None
    records: int = 0
    undecodable: int = 0
    tombstones: int = 0
    unowed: int = 0
    first_time_us: int | None = None
    last_time_us: int | None = None
    expired: int = 0
    hidden_start: bool = False
    horizon_us: int | None = None
    unread_since_us: int | None = None
    appended_after_us: int | None = None
    event_after_us: int | None = None
    pauses: Pauses | None = None
    pause_us: int | None = None
    unprovable_below: int | None = None
    read_through_before_us: int | None = None
    cleanup_policy: str | None = None
    compacted_below: int | None = None
    compacted: int = 0
    markers: int = 0
    unreached: tuple[tuple[int, int], ...] = ()

    @property
    def held(self) -> bool:
        """Whether an open transaction holds back the partition: records after its begin cannot be read yet."""
        return self.last_stable_offset < self.high_watermark

    @property
    def invisible(self) -> int:
        """Offsets without a visible record, as the reader counted them."""
        return self.compacted + self.markers

    @property
    def exists(self) -> bool:
        """Whether its topic has the partition."""
        return self.log_start_offset != NO_LOG

    @property
    def consumed_below(self) -> int:
        """The offset below which the engine's group has consumed. It is 0 if the group has committed no offset. It is
        also 0 if the committed offset is past the end, and so belongs to an earlier topic of that name."""
        # SEMANTICS 2.8: an offset past the end is that of an earlier log. Taking none as consumed adds no loss.
        committed = self.committed_offset
        return 0 if committed is None or committed > self.high_watermark else committed

    @property
    def lag_events(self) -> int:
        """Offsets between what was read and the high watermark."""
        return max(0, self.high_watermark - self.next_offset)

    def with_policy(self, policy: str, lookup: Lookup) -> Frontier:
        """Return the frontier with the `cleanup.policy` of its topic, looked up later than ``lookup``."""
        below = self.compacted_below
        if may_compact(policy):
            below = FOREVER_OFFSET
        elif below == FOREVER_OFFSET and not may_compact(self.cleanup_policy):
            # SEMANTICS 4.6: the policy had changed before this lookup, since the one before shows no `compact` either:
            # records appended from here on stay.
            below = lookup.high_watermark
        return replace(self, cleanup_policy=policy, compacted_below=below)

    def looked_up(self, at_us: int, lookup: Lookup, next_offset: int) -> Frontier:
        """Return the frontier after the lookup at ``at_us`` of a batch that ends at ``next_offset``."""
        unreached = [*self.unreached, (at_us, lookup.high_watermark)]
        read_through = self.read_through_us
        # SEMANTICS 3.3: read through T once the next offset is at or past the high watermark of T. Not the last stable
        # offset: an open transaction may carry an answer, so it must prevent a proof.
        while unreached and next_offset >= unreached[0][1]:
            read_through = unreached.pop(0)[0]
        if len(unreached) > _LOOKUPS_KEPT:
            # Every other lookup is dropped, but never the newest. A dropped lookup can only delay a proof.
            unreached = [*unreached[:-1:2], unreached[-1]]
        return replace(
            self,
            topic_id=lookup.topic_id,
            next_offset=next_offset,
            log_start_offset=lookup.log_start_offset,
            high_watermark=lookup.high_watermark,
            last_stable_offset=lookup.last_stable_offset,
            committed_offset=lookup.committed_offset,
            read_through_us=read_through,
            read_through_before_us=self.read_through_us,
            unreached=tuple(unreached),
        )

    def with_lookup(self, at_us: int, lookup: Lookup) -> Frontier:
        """Return the frontier after a lookup for which no batch is planned yet. A batch that reads up to this high
        watermark has read through this instant."""
        return replace(self, unreached=(*self.unreached, (at_us, lookup.high_watermark)))

    def with_data(self, at_us: int, read: PartitionSummary) -> Frontier:
        """Return the frontier after the batch of ``at_us``, which read the records that ``read`` summarizes."""
        if read.unexamined:
            # SEMANTICS 4.10, 3.24: unexamined results count as expired since the read-through time before this batch.
            before = self.read_through_before_us or 0
            unread_since_us = before if self.unread_since_us is None else min(before, self.unread_since_us)
            without = replace(self, expired=self.expired + read.unexamined, unread_since_us=unread_since_us)
            return without.with_data(at_us, replace(read, unexamined=0))
        if read.records == 0:
            return self
        known = [t for t in (self.newest_event_time_us, read.newest_event_time_us) if t is not None]
        firsts = [t for t in (self.first_time_us, read.first_time_us) if t is not None]
        lasts = [t for t in (self.last_time_us, read.last_time_us) if t is not None]
        return replace(
            self,
            records=self.records + read.records,
            undecodable=self.undecodable + read.undecodable,
            tombstones=self.tombstones + read.tombstones,
            unowed=self.unowed + read.unowed,
            first_time_us=min(firsts, default=None),
            last_time_us=max(lasts, default=None),
            last_data_us=at_us,
            # SEMANTICS 3.8: everything up to the read-through time before this batch had been read, so its records are
            # newer.
            appended_after_us=self.read_through_before_us,
            # SEMANTICS 2.31: to an engine that skips them, other records are none.
            event_after_us=self.event_after_us if read.newest_event_time_us is None else self.read_through_before_us,
            newest_event_time_us=max(known) if known else None,
        )

    def with_pauses(self, before: Frontier | None, at_us: int, pause_us: int, read_us: int | None) -> Frontier:
        """Return the frontier with its `pauses` after the lookup at ``at_us``.

        ``before``: the frontier before this batch. ``pause_us``: how long a partition must pause at least to be idle to
        the engine. ``read_us``: every input was read through this instant before this batch.
        """
        # Pauses that are shorter than those followed so far, or from before any were followed, are not known.
        followed = (
            before if before is not None and before.pause_us is not None and before.pause_us <= pause_us else None
        )
        found = {} if followed is None else dict(followed.pauses or ())
        begun = self.first_offset if followed is None else followed.next_offset
        # SEMANTICS 2.31: what follows the newest event may have been appended a pause later, up to this lookup.
        if followed is None or self.event_after_us is None or at_us - self.event_after_us >= pause_us:
            found[begun] = at_us + pause_us
        pauses = sorted((at, until_us) for at, until_us in found.items() if read_us is None or read_us < until_us)
        while len(pauses) > _PAUSES_KEPT:
            (offset, _), (_, until_us), *later = pauses
            pauses = [(offset, until_us), *later]
        return replace(self, pauses=tuple(pauses), pause_us=pause_us)

    def idle(self, idle_after_us: int, outages: Outages = ()) -> bool:
        """Return whether the partition had no data for ``idle_after_us`` of its own read-through time and has no unread
        records.

        Without the second condition, a reader that lags on one partition would close cells by the others alone.
        """
        # SEMANTICS 3.7: a reader that lags on one partition must not close cells by the others alone.
        return self.read_through_us is not None and self.was_idle(self.read_through_us, idle_after_us, outages)

    def was_idle(self, at_us: int, idle_after_us: int, outages: Outages = ()) -> bool:
        """Return whether the partition had no data for ``idle_after_us`` before ``at_us``, and has none unread."""
        return self.next_offset >= self.high_watermark and self.last_data_us <= counted_back_us(
            at_us, idle_after_us, outages
        )

    def surely_active(self, at_us: int, idle_after_us: int) -> bool:
        """Return whether the newest record was certainly appended within ``idle_after_us`` before ``at_us``."""
        return self.appended_after_us is not None and self.appended_after_us >= at_us - idle_after_us


def input_watermark_us(
    inputs: Sequence[Frontier],
    before_us: int | None,
    *,
    lookup_us: int,
    slack_us: int,
    idle_after_us: int,
    outages: Outages = (),
) -> int | None:
    """Return the input watermark after the batch of ``lookup_us``; it never falls below ``before_us``.

    SEMANTICS 3.6 to 3.9. It is the minimum of newest event time minus ``slack_us`` over the partitions that are not
    idle. ``slack_us``: disorder plus allowed lateness, since a correct engine may keep a window open that long. If all
    partitions are idle, the watermark stays. It also stays if a partition of the minimum has no event time.

    Idle partitions leave the minimum only while another one is surely active. Without this rule, if all become idle at
    about the same time, the one read last would count alone for a moment. The engine may have seen them become idle in
    another order.
    """
    # SEMANTICS 3.8: all partitions count, unless one is surely active and others are idle.
    counting = [list(inputs)]
    if any(frontier.surely_active(lookup_us, idle_after_us) for frontier in inputs):
        counting = [[frontier for frontier in inputs if not frontier.idle(idle_after_us, outages)]]
    # SEMANTICS 3.9: partitions that were idle when this one's newest record was appended were idle for the engine, too.
    for active in inputs:
        if (at_us := active.appended_after_us) is not None:
            counting.append([it for it in inputs if it is active or not it.was_idle(at_us, idle_after_us, outages)])
    reached = [before_us]
    for frontiers in counting:
        newest = [frontier.newest_event_time_us for frontier in frontiers]
        # SEMANTICS 3.6: a partition without an event may get any event time, so the watermark stays.
        if newest and None not in newest:
            reached.append(min(time for time in newest if time is not None) - slack_us)
    return max((instant for instant in reached if instant is not None), default=None)


def earliest_read_through_us(frontiers: Iterable[Frontier]) -> int | None:
    """Return the instant through which each of ``frontiers`` was read; None if there are no frontiers, or if any was
    never read through."""
    return _earliest([frontier.read_through_us for frontier in frontiers])


def read_but_for_open_transactions_us(frontiers: Iterable[Frontier], lookup_us: int) -> int | None:
    """Return the instant through which each of ``frontiers`` was read, apart from records that open transactions hold
    back; None if there are no frontiers, or if any was never read through."""
    return _earliest(
        [
            lookup_us
            if frontier.held and frontier.next_offset >= frontier.last_stable_offset
            else frontier.read_through_us
            for frontier in frontiers
        ]
    )


def _earliest(times: Sequence[int | None]) -> int | None:
    if not times or any(time is None for time in times):
        return None
    return min(time for time in times if time is not None)


class RunEnd(StrEnum):
    """The assumption about the pipeline at the end of a run with `--once`."""

    NONE = "none"
    """Nothing: time goes on."""
    CLOSED = "closed"
    """The pipeline is at rest. Cells that the watermark has passed are due, the others stay open (`--leave-open`)."""
    ALL = "all"
    """The pipeline is at rest. Every cell closes and is due."""
    OPEN = "open"
    """Nothing: open cells stay open, because the pipeline is not at rest, or because it is not known yet whether the
    engine has input to read. No mark is written."""

    @property
    def closes_all(self) -> bool:
        """Whether cells close even if the watermark has not passed them."""
        return self is RunEnd.ALL

    @property
    def is_due(self) -> bool:
        """Whether closed cells are due, whatever time is proven."""
        return self in (RunEnd.ALL, RunEnd.CLOSED)

    @property
    def is_end(self) -> bool:
        """Whether a run ends: unconsumed contributions are then counted in every cell, due or not."""
        return self is not RunEnd.NONE


@dataclass(frozen=True)
class Clock:
    """The time that one batch proves, as judging needs it. Instants are in microseconds; None: not proven yet.

    - ``inputs_us``: every input was read through this instant.
    - ``unheld_inputs_us``: the same, apart from records that open transactions hold back.
    - ``outputs_us``: every output, late and rejected partition was read through this instant.
    - ``unheld_outputs_us``: the same for those partitions that no open transaction holds back.
    - ``inputs_held``: an open transaction holds back an input. ``outputs_held``: the same for an output, late or
      rejected partition.
    - ``horizon_us``: cells that start before it are out of scope.
    - ``unread_since_us``: the smallest `Frontier.unread_since_us`. ``unprovable_offsets``: the sum of
      `Frontier.unprovable_below` over the inputs; it grows if more events become unprovable.
    - ``retired``: (at, horizon) pairs; at that instant facts of cells that start before the horizon were dropped.
    - ``accepted_records``: number of undecodable records that hide nothing; it only grows.
    - ``outages``: intervals that do not count toward a delay.
    """

    lookup_us: int
    watermark_us: int | None
    inputs_us: int | None
    outputs_us: int | None
    unheld_outputs_us: int | None
    horizon_us: int | None
    unread_since_us: int | None
    unprovable_offsets: int
    outputs_held: bool
    inputs_held: bool
    run_end: RunEnd = RunEnd.NONE
    retired: tuple[tuple[int, int], ...] = ()
    accepted_records: int = 0
    unheld_inputs_us: int | None = None
    outages: Outages = ()

    def bounded_by_inputs(self) -> Clock:
        """Return the clock if absence is proven only up to the instant through which every input was read, too."""

        def bounded(proof_us: int | None) -> int | None:
            return None if proof_us is None or self.inputs_us is None else min(proof_us, self.inputs_us)

        outputs_us, unheld_us = bounded(self.outputs_us), bounded(self.unheld_outputs_us)
        return replace(self, outputs_us=outputs_us, unheld_outputs_us=unheld_us)

    def due_through_us(self, proof_us: int | None, after_us: int) -> int | None:
        """Return the latest instant at least ``after_us`` before ``proof_us``, not counting outages; None for None."""
        return None if proof_us is None else counted_back_us(proof_us, after_us, self.outages)


def clock(
    frontiers: Mapping[PartitionId, Frontier],
    *,
    lookup_us: int,
    watermark_us: int | None,
    run_end: RunEnd = RunEnd.NONE,
) -> Clock:
    """Return the clock of a batch, from the frontiers after it."""
    inputs = [f for f in frontiers.values() if f.side == "input"]
    # SEMANTICS 2.37: a row of a table that is not read yet may explain a result, too.
    causes = [f for f in frontiers.values() if f.side in ("input", "table")] if inputs else []
    answers = [f for f in frontiers.values() if f.side in ("output", "late", "rejected")]
    free = [f for f in answers if not f.held]
    horizons = [f.horizon_us for f in inputs if f.horizon_us is not None]
    unread_since = [f.unread_since_us for f in frontiers.values() if f.unread_since_us is not None]
    return Clock(
        lookup_us=lookup_us,
        watermark_us=watermark_us,
        inputs_us=earliest_read_through_us(causes),
        outputs_us=earliest_read_through_us(answers),
        # SEMANTICS 3.14: if every partition is held, T takes the place of the read-through time.
        unheld_outputs_us=earliest_read_through_us(free) if free else lookup_us,
        # SEMANTICS 3.19: a hidden event of any partition may belong to any cell, so the latest horizon holds for all.
        horizon_us=max(horizons) if horizons else None,
        # SEMANTICS 3.24: several gaps count as one, since the answer to an event may have been in any of them.
        unread_since_us=min(unread_since) if unread_since else None,
        unprovable_offsets=sum(f.unprovable_below or 0 for f in inputs),
        outputs_held=any(f.held for f in answers),
        inputs_held=any(f.held for f in causes),
        run_end=run_end,
        unheld_inputs_us=read_but_for_open_transactions_us(causes, lookup_us),
    )
