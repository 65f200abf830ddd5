"""Processes a micro-batch exactly once, in this order: plan, look up, read, commit facts, derive rows, publish.

The cells are judged while the facts are written. This changes only the memory, which the next generation rebuilds.

If the sidecar is killed before the commit of the facts, nothing has happened. If it is killed after the commit, the
next generation starts after this batch and derives the rows that the tables lack.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa

from validator.config.model import Config
from validator.core.judging import Judging
from validator.core.suspicion import Suspicion
from validator.core.unread import unread_rows
from validator.measure.latency import latency_buckets
from validator.model.coverage import RangeCount, skipped_of
from validator.model.frontier import Lookup, PartitionId, PartitionSummary, RunEnd
from validator.model.progress import IngestProgress, OffsetGap
from validator.model.schemas import NO_SCHEMAS, Schemas
from validator.reconcile.evidence.kinds import evidence_of
from validator.reconcile.facts import Side, completed
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import with_newest_before, with_possible_reaches
from validator.reconcile.upserts import replaced_facts
from validator.state.positions import Positions, Settlement
from validator.state.tables import SCHEMAS, StateTables, Table, rows_of
from validator.stream import fault_records, retention
from validator.stream.brokers import Brokers, Topic
from validator.stream.canary import CanaryWatch
from validator.stream.commit_rows import (
    epoch_of,
    frontier_rows,
    log_resets,
    mark_row,
    offset_gap_rows,
    pause_rows,
    rest_mark,
    skipped_row,
    summaries,
    topic_marks,
)
from validator.stream.end_of_run import EndOfRun
from validator.stream.failpoints import reach
from validator.stream.failures import first_line
from validator.stream.kafka_reading import Range
from validator.stream.offset_log import planned_ends
from validator.stream.recording import CommitContext, record
from validator.stream.recovery import lateness_of
from validator.stream.registry import Registry
from validator.stream.retention import Retired
from validator.stream.run_record import RunRecord
from validator.stream.saved_cells import Saver
from validator.stream.second_reading import JustRead, SecondReadings
from validator.stream.sources import Source, readers_of
from validator.stream.stage import Stage
from validator.stream.start_offsets import (
    absent_partitions,
    added_frontier,
    faults_topic,
    gaps_before,
    is_cut_back,
    with_faults_topic,
)
from validator.stream.workers import FactsRead, SchemasUnknown, Workers

FRONTIERS_EVERY_US: Final = 60_000_000
"""Interval of copies to the derived table of frontiers. The facts table has the frontiers of every batch."""
POLICIES_EVERY_US: Final = 60_000_000
"""Interval of `cleanup.policy` lookups for topics whose offsets all have a visible record."""


class ContinuityBroken(Exception):
    """A batch does not start at the committed frontiers. This is a defect of the sidecar. Nothing was written."""


class TopicsChanged(Exception):
    """What the brokers say about the topics does not fit the committed frontiers, from which a new query starts."""


class TopicReplaced(TopicsChanged):
    """The id of a topic changed: the topic was deleted and recreated."""


class LogCutBack(TopicsChanged):
    """The log of a partition ends before its committed frontier."""


class TopicDeleted(TopicsChanged):
    """A topic was deleted while it was read."""


class PartitionUnlisted(TopicsChanged):
    """The brokers do not list a partition of which Spark planned records: the answer came from stale metadata."""


class NewGenerationWanted(Exception):
    """The query should restart from the committed frontiers, with other limits or topics. Not an error."""


@dataclass
class BatchRunner:
    """Runs the batches of one generation. `process` is the body of `foreachBatch`.

    ``opened_batch``: the last batch that is committed when the query starts. ``workers``: they read the records.
    ``second``: reads some of them again; None: nothing is read again. ``registry``: it has their schemas, if any.
    ``has_outage``: returns whether a request to the brokers has failed since this generation began. The next generation
    commits that outage.
    ``has_read``: whether a batch of the query was completed. ``is_ticking``: the newest batch is a tick.
    ``is_ahead``: the memory may be ahead of the committed tables, since a batch is being committed or did not complete.
    After such a batch there is no further one: its facts would be folded twice.
    """

    config: Config
    sources: list[Source]
    brokers: Brokers
    progress: IngestProgress
    judging: Judging
    record: RunRecord
    tables: StateTables
    generation: int
    checkpoint: Path
    starts: Mapping[PartitionId, int]
    read_faults: Callable[[], None]
    publish: Callable[[], None]
    now_us: Callable[[], int]
    catching_up_limit: int | None = None
    saver: Saver | None = None
    canary: CanaryWatch | None = None
    workers: Workers | None = None
    second: SecondReadings | None = None
    registry: Registry | None = None
    committed_us: int = 0
    opened_batch: int = -1
    is_ahead: bool = False
    has_read: bool = False
    is_ticking: bool = False
    retired: Retired = field(default_factory=Retired)
    ends_of_batch: Mapping[PartitionId, int] = field(default_factory=dict)
    positions: Positions = field(default_factory=Positions)
    acknowledged: Callable[[], Sequence[Settlement]] = tuple
    has_outage: Callable[[], bool] = lambda: False
    _frontiers_us: int = 0
    _policies_us: int = 0
    _saved: int = -1
    _batch_lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False
    _advanced_at: float = field(default_factory=time.monotonic)

    @property
    def _read(self) -> list[Source]:
        """The query's sources in order: the pipeline's, then the canary's."""
        return [*self.sources, *(self.canary.sources if self.canary is not None else ())]

    @property
    def rules(self) -> Rules:
        """The rules by which cells are judged."""
        return self.judging.rules

    @property
    def suspicion(self) -> Suspicion:
        """The rules by which violations stay suspected."""
        return self.record.suspicion

    def open(self, before: IngestProgress, lookups: Mapping[PartitionId, Lookup], lookup_us: int) -> None:
        """Commit the initial frontiers of this generation, unless they equal the committed ones in ``before``.

        The next generation must know which topics this one was about to read, and which records had expired.
        """
        self.opened_batch, self._policies_us = before.batch, lookup_us
        if self.progress == before:
            self.progress = self.progress.with_lookup(lookup_us, lookups)
            return
        progress = self.progress.looked_up(before.batch + 1, lookup_us, lookups, {})
        rows = [frontier_rows(progress, before.watermark_us, self._retention)]
        rows += [mark_row(progress, mark, self._retention) for mark in topic_marks(before, progress)]
        if self.progress.offset_gaps:
            gap_rows = offset_gap_rows(progress, self.progress.offset_gaps, self._reach_us(progress), self._retention)
            rows.append(gap_rows)
            self.judging.cells.absorb(gap_rows)
        if self.rules.follows_pauses:
            late_rows = pause_rows(progress, None, self.judging.cells.lateness, self._retention)
            rows.append(late_rows)
            self.judging.cells.absorb(late_rows)
        self.tables.append(pa.concat_tables(rows), Table.FACTS, writer=self._writer, version=progress.batch)
        for partition, offset in log_resets(before, progress):
            self.positions.reset_log(partition, offset, progress.batch)
        self.progress, self.opened_batch = progress.with_facts([]), progress.batch

    @property
    def leaves_unread(self) -> bool:
        """Whether the newest batch is a tick that found records which Spark should have planned to read. If Spark has
        stopped, there are only such ticks."""
        return self.is_ticking and any(
            frontier.last_stable_offset > frontier.next_offset for frontier in self.progress.frontiers.values()
        )

    @property
    def is_running(self) -> bool:
        """Whether a batch is being processed."""
        return self._batch_lock.locked()

    def process(self, spark_batch: int) -> None:
        """Process one micro-batch, up to the offsets that Spark planned for it. Does nothing after `close`."""
        with self._batch_lock:
            if not self._closed:
                self.is_ticking = False
                self._process(spark_batch)
                self.has_read = True
                self._advanced_at = time.monotonic()

    def tick(self, after_seconds: float) -> None:
        """Let time pass without records (SEMANTICS 3.5), if no batch is running and none has ended within the last
        ``after_seconds``. Does nothing after `close`."""
        if not self._batch_lock.acquire(blocking=False):
            return
        try:
            if not self._closed and not self.is_ahead and time.monotonic() - self._advanced_at >= after_seconds:
                self.is_ticking = True
                self.advance({})
                self._advanced_at = time.monotonic()
        finally:
            self._batch_lock.release()

    def close(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the current batch to complete, and accept no further one. Returns whether it is
        complete: until then it may still commit."""
        waited = self._batch_lock.acquire(timeout=seconds)
        self._closed = True
        if waited:
            self._batch_lock.release()
        return waited

    def _process(self, spark_batch: int) -> None:
        reach("batch_begun")
        names = [source.topic for source in self._read]
        self.ends_of_batch = ends = planned_ends(self.checkpoint, spark_batch, names)
        before = planned_ends(self.checkpoint, spark_batch - 1, names) if spark_batch > 0 else self.starts
        for partition, offset in before.items():
            known = self.progress.frontiers.get(partition)
            if known is not None and known.next_offset != offset:
                raise ContinuityBroken(
                    f"batch {spark_batch} starts {partition} at offset {offset}, "
                    f"but the committed frontier is offset {known.next_offset}"
                )
        self.advance(ends)

    def holds_records(self, partition: PartitionId, start: int, end: int) -> bool:
        """Whether there is a record from ``start`` up to ``end``, exclusive. Reads and decodes; commits nothing."""
        facts, _ = self._facts(self._ranges({partition: start}, {partition: end}), self.progress)
        return any(found.records or found.unexamined for found in summaries(facts))

    def skip(self, partition: PartitionId, offset: int) -> None:
        """Commit that the record at ``offset``, the next one of its partition, is skipped."""
        self.advance({partition: offset + 1}, skipped=partition)

    def conclude(self, begun: Mapping[PartitionId, Lookup], *, leave_open: bool, at_rest: bool) -> None:
        """End a run with `--once`. ``begun``: the lookups at the start of the run."""
        if self.second is not None:
            self.second.look_at_end()
        end = EndOfRun(RunEnd.CLOSED if leave_open else RunEnd.ALL, begun, checked=not at_rest)
        if self.rules.reports_unconsumed:
            # An engine with unconsumed input is not at rest, so unconsumed contributions are decided first.
            self.advance({}, replace(end, only_unconsumed=True))
            if self.judging.sums.unconsumed:
                self.record.has_ended = True
                self.publish()
                return
        self.advance({}, end)

    def advance(
        self, ends: Mapping[PartitionId, int], end: EndOfRun | None = None, *, skipped: PartitionId | None = None
    ) -> None:
        """Read up to ``ends``, commit, judge, record and publish.

        ``end``: set at the end of a `--once` run, whose conclusions depend on whether the pipeline is at rest.
        ``skipped``: the partition whose next record is not read.
        """
        assert not self.is_ahead, "no batch follows one that did not complete"
        if self.has_outage():
            # Spark's client waited for the brokers, so no request failed.
            raise NewGenerationWanted("the brokers did not answer for some time")
        began = time.monotonic()
        # The instant is taken before the lookups: a topic or partition that they do not list had no result by then.
        lookup_us = max(self.progress.lookup_us + 1, self.now_us())
        canary = self.canary
        names = [*[source.topic for source in self.sources], *self.record.waiting_for]
        extra = [*faults_topic(self.config), *(canary.topics if canary is not None else ())]
        existing = topics = self.brokers.topics([*names, *extra], optional=extra)
        appeared = [topic for topic in self.record.waiting_for if topic in topics]
        if end is None and appeared:
            raise NewGenerationWanted("a topic appeared")
        if canary is not None and canary.wants_query(existing):
            raise NewGenerationWanted("a canary topic was created, deleted or recreated")
        topics = {source.topic: topics[source.topic] for source in self.sources if source.topic in topics}
        self._check_topics(topics)
        lookups = self.brokers.lookup({**topics, **(canary.read_of(existing) if canary is not None else {})})
        lookups |= absent_partitions(self.progress.frontiers, topics)
        self._check_ends(lookups)
        self._check_listed(lookups, ends)
        known = with_faults_topic(self._with_new_partitions(lookups, lookup_us), self.config, existing)
        progress = known.looked_up(known.batch + 1, lookup_us, lookups, ends)
        moved = any(
            progress.frontiers[partition].next_offset > frontier.next_offset
            for partition, frontier in known.frontiers.items()
        )
        if self.second is not None:
            progress = progress.with_differences(self.second.found)
        wanted = moved or (canary is not None and canary.moves(ends))
        facts, counts, chosen = None, tuple[RangeCount, ...](), None
        ranges: Sequence[Range] = ()
        if wanted and skipped is None:
            starts = {partition: frontier.next_offset for partition, frontier in known.frontiers.items()}
            ranges = self._ranges({**starts, **(canary.next_offsets if canary is not None else {})}, ends)
            if self.second is not None:
                ranges, chosen = self.second.chosen(ranges, len(self.sources), progress.batch)
            facts, counts = self._facts(ranges, progress)
        if skipped is not None:
            offset = self.progress.frontiers[skipped].next_offset
            facts = skipped_row(progress, skipped, offset, self._reach_us(progress), self._retention)
        planted = None
        if canary is not None and facts is not None:
            planted, facts = canary.split_facts(facts)
        run_end = RunEnd.NONE
        if end is not None:
            # Before the last commit of the run no published verdict is a pass: the process may end earlier.
            self.record.has_ended = not end.only_unconsumed
            # A topic that does not exist is reported separately.
            existing_frontiers = {
                partition: frontier for partition, frontier in progress.frontiers.items() if partition.topic in topics
            }
            why_not = end.why_not_at_rest(existing_frontiers, appeared)
            run_end = end.if_at_rest if why_not is None and not end.only_unconsumed else RunEnd.OPEN
            # With --leave-open, a pipeline that is not at rest does not make the verdict unknown. Only elapsed time
            # settles cells then.
            self.record.leaves_open = not end.if_at_rest.closes_all
            self.record.not_at_rest_because = None if self.record.leaves_open else why_not
            self.record.left_open_because = why_not if self.record.leaves_open else None
        differs = progress.differences != self.progress.differences
        if moved or end is not None or differs or self._tick_is_due(lookup_us):
            summarised = summaries(facts) if moved and facts is not None else []
            progress, offset_gaps = self._accounted(progress, lookups, counts)
            offset_gaps = (*known.offset_gaps, *offset_gaps)
            # If no topic was recreated since the lookups, lookups and records are of the same topic.
            self._check_topics(self.brokers.topics(topics))
            self._commit(progress, facts if moved else None, summarised, offset_gaps, run_end, began)
            if self.second is not None:
                self.second.found.clear()
                if moved:
                    self.second.look(self._just_read(progress), chosen, ranges, counts)
        if canary is not None:
            # The canary is judged last, so that its failure cannot affect the pipeline's batch.
            try:
                canary.judge_batch(planted, lookup_us, lookups, ends)
            except Exception as error:
                # The canary is left out here, and not by `Generations`: each committed batch restarts the count of
                # consecutive failures on which `Generations` decides.
                canary.sideline(first_line(error))
                raise NewGenerationWanted("the canary is paused for some time") from error

    def _accounted(
        self,
        progress: IngestProgress,
        lookups: Mapping[PartitionId, Lookup],
        counts: Sequence[RangeCount],
    ) -> tuple[IngestProgress, tuple[OffsetGap, ...]]:
        """Account for offsets without a visible record. ``counts``: what the reader counted.

        Returns the new progress, and the input offsets among them whose records compaction may have removed.
        The `cleanup.policy` of a topic is looked up after a batch that met such offsets, and every `POLICIES_EVERY_US`.
        """
        unaccounted = progress.unaccounted(skipped_of(counts))
        topics = {partition.topic for partition in unaccounted}
        if progress.lookup_us - self._policies_us >= POLICIES_EVERY_US:
            topics, self._policies_us = {source.topic for source in self.sources}, progress.lookup_us
        if topics:
            progress = progress.with_policies(self.brokers.policies(topics), lookups)
        return progress.account_for(unaccounted, self.progress, self._superseded(unaccounted))

    def _superseded(self, unaccounted: Collection[PartitionId]) -> Collection[PartitionId]:
        """Those of these partitions in which compaction has removed no deletion of a row that was read."""
        kept = self.judging.cells.kept_rows
        upserts = {partition.topic for partition in unaccounted} & {*self.config.oracle.reads.upserts}
        settings = self.brokers.settings(upserts) if upserts else {}
        found = []
        for partition in unaccounted:
            if kept is not None and partition.topic in settings:
                known = self.progress.frontiers.get(partition)
                since_us = None if known is None else known.read_through_us
                if since_us is None:
                    since_us = kept.begun_us(partition.topic, partition.partition) or self.progress.lookup_us
                # SEMANTICS 4.6: all that was appended up to then was read. The other half of the time is for clocks and
                # replication.
                if self.now_us() - since_us <= settings[partition.topic].deletions_kept_us // 2:
                    found.append(partition)
        return found

    def _commit(
        self,
        progress: IngestProgress,
        facts: pa.Table | None,
        summarised: Sequence[PartitionSummary],
        offset_gaps: Sequence[OffsetGap],
        run_end: RunEnd,
        began: float,
    ) -> None:
        """Append the facts and frontiers of one batch; judge, record and publish.

        ``summarised``: summary of the facts per partition. ``offset_gaps``: input offsets whose records may have been
        removed before they were read. ``began``: start of the batch on the monotonic clock, in seconds.
        """
        self.is_ahead = True
        frontiers = frontier_rows(progress, self.progress.watermark_us, self._retention)
        if offset_gaps:
            # These rows count no records, so the summaries in ``summarised`` stay valid.
            gap_rows = offset_gap_rows(progress, offset_gaps, self._reach_us(progress), self._retention)
            facts = gap_rows if facts is None else pa.concat_tables([facts, gap_rows])
        if self.rules.follows_pauses:
            late_rows = pause_rows(progress, facts, self.judging.cells.lateness, self._retention)
            if late_rows.num_rows:
                facts = late_rows if facts is None else pa.concat_tables([facts, late_rows])
        rows = [frontiers] if facts is None else [facts, frontiers]
        rows += [mark_row(progress, mark, self._retention) for mark in topic_marks(self.progress, progress)]
        if run_end.is_due:
            reach("before_rest")
            rows.append(mark_row(progress, rest_mark(run_end), self._retention))
        unread = None if facts is None else unread_rows(facts)
        # Positions are no effect of the step: settlements are rows of the append that runs beside it (decision 0007).
        if unread is not None:
            self.positions.absorb(unread)
        settled = self.positions.settle(self.acknowledged())
        rows += [mark_row(progress, one.to_mark(), self._retention) for one in settled]
        progress = replace(progress, accepted_records=dict(self.positions.accepted_records))
        if run_end.is_due:
            # SEMANTICS 3.27: the engine has used all records.
            progress = replace(progress, superseded_us=None, is_superseding=False, superseded_event_us=None)
        reach("before_facts")
        begun = self.tables.begin_append(
            pa.concat_tables(rows), Table.FACTS, writer=self._writer, version=progress.batch
        )
        progress = progress.with_facts(summarised)
        # If the append fails, the cells in memory are ahead of the tables, and this generation ends. Nothing is
        # recorded or published before the facts are stored.
        try:
            if settled and self.rules.asks_lateness:
                self.judging.cells.lateness = lateness_of(self.tables, self.positions, self.retired.through_epoch)
            if self.judging.is_overtaken_by(progress.clock().horizon_us):
                raise NewGenerationWanted("the first event of a new partition puts settled cells out of scope")
            effects = self.judging.step(
                None if facts is None else self.positions.unsettled(facts),
                progress,
                self.suspicion,
                unread=unread,
                run_end=run_end,
            )
            reach("after_judging")
        finally:
            begun.result()
            self.committed_us, self.progress = progress.lookup_us, progress
        reach("after_rest" if run_end.is_due else "after_facts")
        self.read_faults()
        context = CommitContext(self.tables, self._writer, progress.batch, progress.lookup_us)
        record(effects, context, self.record, self.now_us)
        self._measure_latency(facts)
        if run_end.is_end or progress.lookup_us - self._frontiers_us >= FRONTIERS_EVERY_US:
            self._copy_frontiers(frontiers)
        reach("before_publishing")
        read = sum(s.records for s in summarised if self.progress.frontiers[s.partition_id].side == "input")
        self.record.batch_done(time.monotonic() - began, read, self.now_us())
        self.publish()
        reach("after_publishing")
        retired = self.retired
        self._retire()
        self.is_ahead = False
        # A retirement, or a settlement by an operator, makes earlier saved cells useless for the next start.
        if self.saver is not None and (self.saver.is_due or settled or self.retired is not retired):
            self._save()
        self._check_limits()

    def save(self) -> None:
        """Save the cells after the last batch, unless a batch is running or the last one did not complete."""
        if self._batch_lock.acquire(blocking=False):
            try:
                self._save()
            finally:
                self._batch_lock.release()

    def _save(self) -> None:
        if self.saver is not None and not self.is_ahead and max(self._saved, self.opened_batch) < self.progress.batch:
            self.saver.save(self.judging, self.progress, self.retired, self.positions)
            self._saved = self.progress.batch
            reach("after_saving")

    def _copy_frontiers(self, rows: pa.Table) -> None:
        """Append this batch's frontier rows to the derived table of frontiers."""
        copied = [{**row, **row["frontier"]} for row in rows.to_pylist()]
        named = [{name: row[name] for name in SCHEMAS[Table.FRONTIERS].names} for row in copied]
        self.tables.append(
            rows_of(Table.FRONTIERS, named), Table.FRONTIERS, writer=self._writer, version=self.progress.batch
        )
        self._frontiers_us = self.progress.lookup_us

    def _retire(self) -> None:
        """Retire cells once a whole epoch of facts is older than the retention."""
        retention_us = self._retention
        read = {source.topic for source in self.sources}
        absent = {partition.topic for partition in self.progress.frontiers if partition.topic not in read}
        through = retention.droppable(self.judging, self.progress, retention_us, absent)
        if self.judging.judged is None or through <= self.retired.through_epoch:
            return
        oldest = retention.oldest_epoch(self.tables.state)
        if oldest is None or oldest > through:
            return
        held = self.suspicion.unprovable_if_retired(self.progress, self.judging.sums)
        plan = retention.plan(
            self.tables, self.judging, self.progress, self.retired, retention_us, self.positions, held, absent
        )
        self.progress = retention.commit(
            plan, self.tables, self.judging, self.progress, retention_us, writer=self._writer
        )
        self.retired = plan.retired

    @property
    def _writer(self) -> str:
        return f"generation-{self.generation}"

    @property
    def _retention(self) -> int:
        return self.config.state.retention_us

    def record_faults(self, rows: list[dict[str, object]]) -> None:
        """Append new records of the faults topic to the state."""
        fault_records.record(self.tables, rows, self.progress.batch)

    def _just_read(self, progress: IngestProgress) -> JustRead:
        """The committed batch of ``progress``."""
        assert self.workers is not None, "only a run without records has no workers"
        reads = self.config.oracle.reads
        return JustRead(
            batch=progress.batch,
            epoch=epoch_of(progress.lookup_us, self._retention),
            tables=self.tables,
            brokers=self.brokers,
            frontiers=self.progress.frontiers,
            facts_again=partial(self.workers.facts_again, self._stage(progress, self._schemas)),
            without_ids=frozenset(s.topic for s in self.sources if reads.replaces and s.side is Side.OUTPUT),
            sums_wrap_at=(0, *evidence_of(self.config.oracle).moduli),
            upserts=frozenset(reads.upserts),
        )

    def _ranges(self, starts: Mapping[PartitionId, int], ends: Mapping[PartitionId, int]) -> list[Range]:
        numbers = {source.topic: number for number, source in enumerate(self._read)}
        return [
            Range(numbers[partition.topic], partition.topic, partition.partition, starts[partition], end)
            for partition, end in sorted(ends.items())
            if partition.topic in numbers and starts.get(partition, end) < end
        ]

    @property
    def _schemas(self) -> Schemas:
        """The schemas of the registry that are known."""
        return NO_SCHEMAS if self.registry is None else self.registry.schemas

    def _stage(self, progress: IngestProgress, schemas: Schemas) -> Stage:
        """The stage of the batch of ``progress``. ``schemas``: those of the registry that are known."""
        canary = self.canary.sources if self.canary is not None else ()
        return Stage(
            readers_of(self.config, self.sources, canary, schemas),
            limit_us=progress.lookup_us + self.config.timing.max_ahead_us,
            with_first_event=bool(progress.partitions_with_hidden_start),
            read_us={
                n: progress.lookup_us for n, s in enumerate(self._read) if s.topic in self.record.record_times.topics
            },
        )

    def _read_ranges(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        """Read ranges; again, if their records name schemas that must be looked up first (SEMANTICS 3.15)."""
        assert self.workers is not None, "only a run without records has no workers"
        schemas = self._schemas
        while True:
            try:
                return self.workers.facts(self._stage(progress, schemas), ranges)
            except SchemasUnknown as unknown:
                assert self.registry is not None, "a configuration without a registry has no records that name a schema"
                self.registry.look_up(unknown.schemas)
                # What the registry did not have a moment ago stays absent until the batch is read.
                schemas = {**dict.fromkeys(unknown.schemas), **schemas, **self.registry.schemas}

    def _facts(self, ranges: Sequence[Range], progress: IngestProgress) -> FactsRead:
        """The fact rows of ``ranges``, and what was counted there: one Spark job, whose workers read, decode and group
        the records."""
        grouped, counts = self._read_ranges(ranges, progress)
        complete = partial(
            completed,
            sources=[(source.side, source.topic) for source in self._read],
            batch=progress.batch,
            lookup_us=progress.lookup_us,
            epoch=epoch_of(progress.lookup_us, self._retention),
        )
        facts, oracle, kept = complete(grouped), self.config.oracle, self.judging.cells.kept_rows
        if kept is not None:
            numbers = {source.topic: number for number, source in enumerate(self._read)}
            limit_us = progress.lookup_us + self.config.timing.max_ahead_us
            replaced = replaced_facts(kept, facts, numbers, oracle, self._slack, limit_us)
            facts = pa.concat_tables([facts, complete(replaced)])
        facts = with_possible_reaches(
            facts, self._reach_us(progress), lambda starts: oracle.latest_reaches_us(starts, self._slack)
        )
        return FactsRead(with_newest_before(facts, progress.known_before), counts)

    def _reach_us(self, progress: IngestProgress) -> int:
        """The reach (`validator.reconcile.lateness`) of an event whose time is `max_ahead` after the lookup."""
        return self.config.oracle.reach_at(progress.lookup_us + self.config.timing.max_ahead_us, self._slack)

    @property
    def _slack(self) -> int:
        return self.config.timing.max_disorder_us + self.config.timing.allowed_lateness_us

    def _measure_latency(self, facts: pa.Table | None) -> None:
        record_times = self.record.record_times
        resolution_us = record_times.batch_committed(self.progress)
        if facts is not None:
            left = self.judging.evicted.opened_us()
            found = latency_buckets(facts, self.judging.cells, left, since_us=record_times.since_us)
            self.record.latency_measured(found, resolution_us)

    def _tick_is_due(self, lookup_us: int) -> bool:
        """Whether a batch without records is due: each tick while cells are unsettled, else every ten ticks."""
        since = lookup_us - self.committed_us
        sums = self.judging.sums
        open_cells = sums.cells_seen - sums.cells_settled
        return since >= (self.config.timing.tick_us if open_cells else 10 * self.config.timing.tick_us)

    def _check_topics(self, topics: Mapping[str, Topic]) -> None:
        for source in self.sources:
            if source.topic not in topics:
                raise TopicDeleted(f"topic {source.topic} was deleted while it was read")
        for partition, frontier in self.progress.frontiers.items():
            if partition.topic in topics and topics[partition.topic].id != frontier.topic_id:
                raise TopicReplaced(f"topic {partition.topic} was deleted and recreated")

    def _check_ends(self, lookups: Mapping[PartitionId, Lookup]) -> None:
        for partition, frontier in self.progress.frontiers.items():
            if partition in lookups and is_cut_back(frontier, lookups[partition]):
                raise LogCutBack(
                    f"the log of {partition} ends at offset {lookups[partition].high_watermark}, but "
                    f"it was read up to offset {frontier.next_offset}"
                )

    def _check_listed(self, lookups: Mapping[PartitionId, Lookup], ends: Mapping[PartitionId, int]) -> None:
        """Without a lookup the frontier would stay, and the records of the batch would be read twice."""
        for partition, end in sorted(ends.items()):
            frontier = self.progress.frontiers.get(partition)
            if frontier is not None and partition not in lookups and frontier.next_offset < end:
                raise PartitionUnlisted(f"the brokers did not list {partition} for a moment")

    def _with_new_partitions(self, lookups: Mapping[PartitionId, Lookup], lookup_us: int) -> IngestProgress:
        """The progress with a frontier for every partition.

        A partition that was created after this batch was planned gets a frontier as well: while its records are unread,
        no absence is proven.
        """
        side = {source.topic: source.side for source in self.sources}
        known = self.progress.frontiers
        added = {
            partition: added_frontier(side[partition.topic], partition, lookup, lookup_us)
            for partition, lookup in lookups.items()
            if partition not in known and partition.topic in side
        }
        expired = any(frontier.unread_since_us is not None for frontier in added.values())
        gaps = tuple(gap for partition, frontier in added.items() for gap in gaps_before(partition, frontier))
        return replace(self.progress, frontiers={**known, **added}, results_expired=expired, offset_gaps=gaps)

    def _check_limits(self) -> None:
        """Raise `NewGenerationWanted` once a backlog is read: the topics' shares of a batch are too tight then."""
        if self.catching_up_limit is not None:
            lag = sum(frontier.lag_events for frontier in self.progress.frontiers.values())
            if lag < self.catching_up_limit:
                raise NewGenerationWanted("the backlog has been read")
