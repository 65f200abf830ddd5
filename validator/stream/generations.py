"""The generations of the sidecar's query: each recovers the state, selects topics and runs one query until it ends.

Each generation begins at the committed frontiers and has its own Spark checkpoint (docs/decisions/0001).
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import validator
from validator.config.model import Config
from validator.core.judging import Judging
from validator.core.totals import CellTotals
from validator.model.classes import Verdict
from validator.model.frontier import UNREADABLE_POLICY, Lookup, PartitionId
from validator.model.grading import doubted
from validator.model.progress import IngestProgress
from validator.model.snapshot import Snapshot
from validator.model.wording import plural
from validator.publish.notices import Notices
from validator.publish.progress import Progress
from validator.publish.publisher import Publisher
from validator.publish.report import REPORT_FILE
from validator.publish.times import rfc3339
from validator.reconcile.facts import Side
from validator.reconcile.judge import Rules
from validator.settings.durations import format_duration
from validator.state import identity
from validator.state.acknowledgements import AcknowledgementJournal
from validator.state.folder import SCHEMA
from validator.state.known_facts import KnownFacts
from validator.state.positions import Positions
from validator.state.sizes import TableSizes
from validator.state.tables import StateTables, StateTaken, Table, rows_of
from validator.stream import counters, settling
from validator.stream.batch import BatchRunner, ContinuityBroken, NewGenerationWanted, TopicsChanged
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.canary import canary_of
from validator.stream.doubt_sentences import Example
from validator.stream.examples import Examples
from validator.stream.failures import (
    CannotVerify,
    first_line,
    known_sentence,
    while_it_retries,
    why_ended,
    why_jvm_ended,
    why_state_lost,
)
from validator.stream.faults_topic import FaultsTopicReader
from validator.stream.loss_hints import loss_hint
from validator.stream.measuring import LedgerWriter, catch_up, read_ledger
from validator.stream.outage import BrokersWatch, OutageNote, is_outage
from validator.stream.oversized_records import Isolation, is_exhausted
from validator.stream.query import run_query
from validator.stream.recovery import Recovered, follow_acknowledged, recover, restore_record, time_rules_of
from validator.stream.registry import Registry, RegistrySilent
from validator.stream.reporting import absent_topic, results_of, snapshot_of
from validator.stream.run_record import RunRecord
from validator.stream.saved_cells import SavedCells, Saver, saved_cells
from validator.stream.second_reading import SecondReadings
from validator.stream.sources import Source, planning_frame, reading_of, sources_of
from validator.stream.start_offsets import faults_topic, initial_progress, new_generation, shares, with_faults_topic
from validator.stream.topic_settings import ids_that_repeat, warnings
from validator.stream.workers import Workers

_TROUBLES_MAX: Final = 5
_HINT_SECONDS: Final = 60.0
"""Least time between two looks at what lost events have in common."""
_REGISTRY_SECONDS_MAX: Final = 60.0
"""A run with `--once` ends after the schema registry has not answered for this time."""
_LOOK_SECONDS: Final = 0.5
"""Interval of the looks for blindness."""
_PROMPT_US: Final = 1_000_000
"""Longest time of an answer that is prompt."""
_RECORDS_MIN: Final = 1_000
"""Lower limit of ``records_per_batch`` when it is reduced because batches do not fit into memory."""
_TROUBLES_WITH_CANARY: Final = 2
"""After this many consecutive failures the next query omits the canary, which may be the cause."""


class Generations:
    """Runs the generations of one run on the state of ``tables``.

    They run until ``stop`` is set, or with ``once`` up to the ends of the topics. ``cut_short``: with ``once``, the run
    was stopped before those ends.
    """

    def __init__(
        self,
        config: Config,
        tables: StateTables,
        brokers: Brokers,
        publisher: Publisher,
        faults: FaultsTopicReader | None,
        *,
        once: bool,
        leave_open: bool,
        at_rest: bool,
        say: Callable[[str], None],
        stop: threading.Event,
        notices: Notices | Progress | None = None,
    ) -> None:
        self._config = config
        self._tables = tables
        self._state = tables.state
        self._brokers = brokers
        self._publisher = publisher
        self._faults = faults
        self._faults_read: list[dict[str, object]] = []
        self._once = once
        self._leave_open = leave_open
        self._at_rest = at_rest
        self._begun: dict[PartitionId, Lookup] = {}
        self._say = say
        self._stop = stop
        self._now_us = _Clock().now_us
        self._notices = notices
        if notices is not None and publisher.shown is not None:
            notices.resume(publisher.shown)
        self.cut_short = False
        self._rules = _rules_of(config)
        self._time_rules = time_rules_of(config)
        self._record = RunRecord()
        self._second = SecondReadings(self._record.read_twice)
        self._sizes = TableSizes(self._state)
        self._runner: BatchRunner | None = None
        self._shown: Snapshot | None = None
        self._known: KnownFacts | None = None
        self._hint: str | None = None
        self._hint_of: tuple[int, tuple[tuple[str, int], ...]] = 0, ()
        self._hinted_at = -_HINT_SECONDS
        self._seen_at = time.monotonic()
        self._show_lock = threading.Lock()
        self._published: Snapshot | None = None
        self._is_blind = False
        self._closed = threading.Event()
        self._noting: threading.Thread | None = None
        self._warned: set[tuple[str, str]] = set()
        self._ledger_writer = LedgerWriter(self._state)
        self._acknowledged = AcknowledgementJournal(self._state)
        self._isolation = Isolation(self._state, say)
        self._outage_note = OutageNote(self._state)
        names = [source.topic for source in sources_of(config)]
        self._watch = BrokersWatch(brokers, lambda: brokers.topics(names), say, self._now_us)
        self._records_per_batch = config.limits.records_per_batch
        self._low_memory = False
        self._settled = settling.SettlementJournal(self._state)
        self._examples = Examples(config, found=self._found_example)
        self._registry = None
        if config.schema_registry is not None:
            wait_seconds = _REGISTRY_SECONDS_MAX if once else None
            self._registry = Registry(
                config.schema_registry, self._state, say, stop, self._outage_note.note, wait_seconds=wait_seconds
            )
        self._canary = None if once else canary_of(config, now_us=self._now_us, say=say)

    def close(self) -> None:
        """Stop the thread that looks for blindness, and the canary's, which plants rounds."""
        self._closed.set()
        if self._canary is not None:
            self._canary.close()

    def run(self, spark: SparkSession) -> Verdict:
        """Run the generations. Returns the declared guarantee's verdict at the end.

        Raises `CannotVerify`, `BrokersUnreachable`, `StateDamaged` and `StateTaken`.
        """
        self._record = self._restored()
        self._second = SecondReadings(self._record.read_twice)
        # A thread of its own: if the JVM hangs, so does each thread that asks it for something.
        threading.Thread(target=self._look_for_blindness, name="streamproof-blindness", daemon=True).start()
        try:
            verdict = self._run_generations(spark)
        except (Py4JError, ConnectionError):
            if self._runner is not None and not self._stop.is_set():
                self._isolation.note_jvm_end(self._runner)
            raise
        if self._noting is not None:
            self._noting.join()
        return verdict

    def _restored(self) -> RunRecord:
        """The record of the run, with the measurements and counters of earlier starts."""
        config = self._config
        record = RunRecord(
            explained_by_one=self._rules.oracle.explained_by_one,
            cells_each=self._rules.oracle.cells_most,
            hidden_inputs_lose=self._rules.oracle.hidden_inputs_lose,
            missing_after_us=config.timing.missing_after_us,
            copies_explain=config.copies_explain,
            shared_outputs=config.shared_outputs,
            is_once=self._once,
            ledger=read_ledger(self._state, self._say) if config.faults is not None else None,
            # A loss during a fault is confirmed only `missing_after` after the closing of its window.
            expects_within_us=config.measures.give_up_after_us
            + config.oracle.span_us
            + config.timing.max_disorder_us
            + config.timing.allowed_lateness_us
            + config.timing.idle_after_us
            + config.timing.missing_after_us,
        )
        restore_record(self._tables, record)
        follow_acknowledged(self._tables, record, self._acknowledged.read())
        damage = counters.restore(self._state, record)
        if damage is not None:
            self._say(damage)
        return record

    def _run_generations(self, spark: SparkSession) -> Verdict:
        self._saver = Saver(self._state, self._rules, self._time_rules, self._say)
        troubles = 0
        reported = ""
        while True:
            recovered, judging = self._recovered()
            self._saver.rereads, self._record.unexamined = recovered.rereads, recovered.unread.unexamined
            self._shown = None
            try:
                sources, topics, asked_us = self._await_topics(recovered.progress, judging, recovered.positions)
                if self._outage_note.noted and self._now_us() - asked_us > _PROMPT_US:
                    # The brokers were silent during a part of the request. An outage ends with a request that they
                    # answer at once.
                    sources, topics, asked_us = self._await_topics(recovered.progress, judging, recovered.positions)
                if not sources:
                    self.cut_short = self._once and self._stop.is_set()
                    return self._verdict(recovered.progress, judging)
                progress, lookups = self._open_generation(recovered.progress, sources, topics, asked_us)
                if self._outage_note.noted and progress.batch >= 0:
                    progress = progress.with_outages((progress.lookup_us, asked_us))
                if self._brokers.topics(topics) != topics:
                    # A topic changed during the lookups, so that offsets and topic ids may belong to different topics.
                    continue
            except BrokersUnreachable as error:
                self._outage_note.note()
                if self._once or self._runner is None:
                    raise
                # The brokers answered earlier in this run: the sidecar waits for the end of the outage.
                if str(error) != reported:
                    self._say(f"{error}; trying again")
                reported = str(error)
                self._meanwhile()
                self._stop.wait(1.0)
                continue
            reported = ""
            self._begun = self._begun or lookups
            outcome = self._run_generation(spark, recovered, judging, sources, progress, lookups, asked_us)
            assert self._runner is not None
            runner = self._runner
            if outcome is None or self._stop.is_set():
                try:
                    return self._ended(runner)
                except (NewGenerationWanted, TopicsChanged) as found:
                    # For example, a topic was recreated, or a new partition was found, and judging it needs cells that
                    # left memory.
                    self._record.has_ended, outcome = False, found
            if isinstance(outcome, StateTaken):
                raise outcome
            if isinstance(outcome, RegistrySilent):
                raise CannotVerify(str(outcome)) from outcome
            if isinstance(outcome, NewGenerationWanted):
                troubles = 0
                continue
            if is_exhausted(outcome) and self._isolation.begin(runner):
                self._say("a batch does not fit into memory: its records are read in parts")
                continue
            if is_outage(outcome):
                self._outage_note.note()
            # Only consecutive failures count: a batch that was read and committed in between resets the count. A tick
            # does not: it succeeds although the query fails.
            troubles = 1 if runner.has_read else troubles + 1
            if (why := why_state_lost(self._state) or why_jvm_ended()) is not None:
                # A retry cannot succeed.
                raise CannotVerify(why) from outcome
            why = self._why(outcome, sources)
            if troubles > _TROUBLES_MAX or isinstance(outcome, ContinuityBroken):
                raise CannotVerify(f"the query failed {plural(troubles, 'time')} in a row: {why}") from outcome
            if self._canary is not None and troubles >= _TROUBLES_WITH_CANARY and self._canary.sources:
                self._canary.sideline("the query failed again and again")
            self._say(f"the query restarts after the committed batches: {while_it_retries(why)}")
            self._stop.wait(min(5.0, 0.2 * 2**troubles))

    def _recovered(self) -> tuple[Recovered, Judging]:
        """The state of the tables, and the judging that continues it."""
        recovered = recover(self._tables, self._time_rules, self._config.oracle, self._saved_cells())
        self._known = known = KnownFacts(self._tables, first_batch=recovered.progress.batch + 1)
        return recovered, recovered.judging(known, self._rules)

    def _saved_cells(self) -> SavedCells | None:
        found = saved_cells(self._state, self._rules, self._time_rules)
        if isinstance(found, str):
            self._say(found)
            return None
        return found

    def _why(self, outcome: BaseException, sources: list[Source]) -> str:
        """Why a query ended. Topics are looked up first: a deleted topic causes various errors in Spark's client."""
        try:
            existing = self._brokers.topics(source.topic for source in sources)
        except BrokersUnreachable as error:
            return str(error)
        deleted = [source.topic for source in sources if source.topic not in existing]
        if deleted:
            return ", and ".join(f"topic {topic} was deleted while it was read" for topic in deleted)
        return known_sentence(outcome, self._state) or why_ended(outcome, self._config.kafka.options)

    def _open_generation(
        self, progress: IngestProgress, sources: list[Source], topics: dict[str, Topic], lookup_us: int
    ) -> tuple[IngestProgress, dict[PartitionId, Lookup]]:
        found, lookups = initial_progress(progress, self._config, self._brokers, sources, topics, lookup_us)
        counts = Counter(partition.topic for partition in lookups)
        for _, problem, fix in ids_that_repeat(self._config, counts):
            raise CannotVerify(f"{problem}: {fix}")
        settings = self._brokers.settings(topics)
        for warning in warnings(self._config, topics, settings):
            if warning not in self._warned:
                self._warned.add(warning)
                self._say(f"topic {warning[0]}: {warning[1]}")
        # If the topic settings cannot be read, timestamps may have been set by producers.
        self._record.record_times.topics = frozenset(
            name for name in topics if name not in settings or not settings[name].has_append_time
        )
        policies = {name: settings[name].cleanup_policy if name in settings else UNREADABLE_POLICY for name in topics}
        names = faults_topic(self._config)
        found = with_faults_topic(found, self._config, self._brokers.topics(names, optional=names))
        return found.with_policies(policies, lookups), lookups

    def _run_generation(
        self,
        spark: SparkSession,
        recovered: Recovered,
        judging: Judging,
        sources: list[Source],
        progress: IngestProgress,
        lookups: dict[PartitionId, Lookup],
        lookup_us: int,
    ) -> BaseException | None:
        """Run one generation. Returns what `run_query` returns."""
        config = self._config
        catch_up(self._tables, recovered, self._record)
        limits, balanced = shares(sources, progress, lookups, self._records_per_batch)
        in_parts = self._isolation.wanted
        generation = new_generation(self._state)
        if self._canary is not None:
            self._canary.open(self._brokers)
        is_first = self._runner is None
        if is_first:
            self._say(_resumes(recovered.progress, progress, lookups))
            self._warn_of_group(sources, lookups)
        canary = None if in_parts else self._canary
        of_canary = canary.sources if canary is not None else ()
        reading = reading_of(config, of_canary)
        if in_parts or self._low_memory:
            reading = reading.with_low_memory(isolated=in_parts)
        checkpoint = self._state / "checkpoint" / str(generation)
        workers = Workers(spark, reading, checkpoint / "facts")
        self._runner = runner = BatchRunner(
            config=config,
            sources=sources,
            brokers=self._brokers,
            progress=progress,
            judging=judging,
            record=self._record,
            tables=self._tables,
            generation=generation,
            checkpoint=checkpoint,
            starts={
                partition: frontier.next_offset for partition, frontier in progress.frontiers.items() if frontier.exists
            },
            retired=recovered.retired,
            positions=recovered.positions,
            acknowledged=self._settled.read,
            has_outage=lambda: self._outage_note.noted,
            read_faults=self._read_faults,
            publish=self._publish,
            now_us=self._now_us,
            saver=self._saver,
            canary=canary,
            workers=workers,
            registry=self._registry,
            # A range of a batch that does not fit into memory is not read again.
            second=None if in_parts else self._second,
            catching_up_limit=self._records_per_batch // 2 if balanced and not self._once and not in_parts else None,
        )
        runner.open(recovered.progress, lookups, lookup_us)
        self._outage_note.clear()
        if is_first:
            self._note_run(generation)
            if not self._once:
                # Without the warm-up, the first batch with records waits until the workers have started.
                workers.warm_up()
        self._read_faults()
        if in_parts:
            return self._run_in_parts(runner, lookups)
        frame = planning_frame(
            spark,
            config,
            sources,
            {**runner.starts, **(canary.starts if canary is not None else {})},
            shares=limits,
            canary=of_canary,
        )
        if is_first and self._once:
            # Meanwhile Spark plans the first batch.
            threading.Thread(target=workers.warm_up, name="streamproof-warm-up", daemon=True).start()
        return run_query(
            frame,
            runner,
            once=self._once,
            trigger_us=config.spark.trigger_us,
            stop=self._stop,
            meanwhile=self._meanwhile,
        )

    def _run_in_parts(self, runner: BatchRunner, lookups: Mapping[PartitionId, Lookup]) -> BaseException | None:
        """Read, in parts, a batch that did not fit into memory as a whole."""
        outcome = self._isolation.run(runner, self._stop, lookups, self._meanwhile)
        if not self._isolation.wanted and not self._isolation.skipped:
            # Each record fits on its own: the batch as a whole was too large.
            self._low_memory = True
            self._records_per_batch = max(_RECORDS_MIN, self._records_per_batch // 4)
            self._say(f"from now on a batch reads at most {self._records_per_batch:,} records")
        return outcome

    def _warn_of_group(self, sources: list[Source], lookups: dict[PartitionId, Lookup]) -> None:
        """Warn if the consumer group has committed no offset on an input topic: its name may be misspelt."""
        group = self._config.engine.consumer_group
        inputs = {source.topic for source in sources if source.side is Side.INPUT}
        if group is not None and all(
            lookup.committed_offset is None for partition, lookup in lookups.items() if partition.topic in inputs
        ):
            self._say(
                f"consumer group {group} has committed no offset on the input topics: until it does, no event counts "
                "as consumed (is engine.consumer_group right?)"
            )

    @property
    def shown_verdict(self) -> Verdict:
        """The declared guarantee's verdict in the last published snapshot; UNKNOWN before the first one."""
        last = self._published
        return Verdict.UNKNOWN if last is None else last.verdicts[self._config.guarantee]

    @property
    def doing(self) -> str:
        """What a stop waits for, as a clause."""
        runner = self._runner
        if runner is None:
            return "the state was being recovered"
        return "a batch was being read or judged" if runner.is_running else "the state was being saved, or Spark ended"

    def _ended(self, runner: BatchRunner) -> Verdict:
        self.cut_short = self._once and self._stop.is_set()
        if not self._once and (unread := _unread(runner.progress)):
            self._say(f"not read before the stop: {unread}; the next start continues from here")
        if self._once and not self.cut_short:
            self._examples.wait(self._stop)
            runner.conclude(self._begun, leave_open=self._leave_open, at_rest=self._at_rest)
        self._ledger_writer.write_now(self._record)
        runner.save()
        if self._shown is not None or not runner.is_ahead:
            return self._verdict(runner.progress, runner.judging)
        if runner.is_running:
            # A recovery would wait for the facts that are being written.
            return Verdict.UNKNOWN
        # The batch that failed was judged, but its facts may not be stored.
        recovered, judging = self._recovered()
        return self._verdict(recovered.progress, judging)

    def _await_topics(
        self, progress: IngestProgress, judging: Judging, positions: Positions
    ) -> tuple[list[Source], dict[str, Topic], int]:
        """The sources whose topics exist, these topics, and an instant (microseconds) before they were listed.

        Waits until at least one topic exists. The sources are empty if the run is stopped, or with `--once` if no topic
        exists.
        """
        sources = sources_of(self._config)
        reported: tuple[str, ...] = ()
        while not self._stop.is_set():
            asked_us = max(progress.lookup_us + 1, self._now_us())
            topics = self._brokers.topics(source.topic for source in sources)
            absent = tuple(source.topic for source in sources if source.topic not in topics)
            if absent != reported:
                for topic in absent:
                    self._say(f"{absent_topic(topic, progress)}{'' if self._once else ': waiting for it'}")
                reported = absent
            self._record.waiting_for = absent
            self._record.waiting_sides = frozenset(source.side.value for source in sources if source.topic in absent)
            if topics:
                return [source for source in sources if source.topic in topics], topics, asked_us
            if progress.batch >= 0 or not self._once or (self._state / REPORT_FILE).exists():
                # Without this, the report of `--once` would still be that of an earlier run.
                judging.judge_recovered(progress)
                self._write_counters(progress, judging.sums)
                self._show(snapshot_of(self._config, progress, judging.sums, self._record, positions))
            if self._once:
                so = ", so this run verified nothing" if self._runner is None else ""
                self._say(f"none of the topics exists{so}")
                break
            self._watch.look()
            self._stop.wait(1.0)
        return [], {}, progress.lookup_us

    def _note_run(self, generation: int) -> None:
        """Append this start to the runs table in a background thread, so that the first batch does not wait for it."""
        row = {
            "generation": generation,
            "started_us": self._now_us(),
            "version": validator.__version__,
            "schema": SCHEMA,
            "configuration": json.dumps(identity.identity_of(self._config), sort_keys=True),
        }

        def note() -> None:
            try:
                self._tables.append(
                    rows_of(Table.RUNS, [row]), Table.RUNS, writer=f"run-{row['started_us']}", version=0
                )
            except (OSError, DeltaError, StateTaken) as error:
                why = known_sentence(error, self._state) or first_line(error)
                self._say(f"this start is not recorded in the table `runs` of the state: {while_it_retries(why)}")

        self._noting = threading.Thread(target=note, name="streamproof-runs", daemon=True)
        self._noting.start()

    def _publish(self) -> None:
        assert self._runner is not None
        if (cause := why_state_lost(self._state)) is not None:
            # An append would recreate a deleted table, without its earlier rows.
            raise CannotVerify(cause)
        runner = self._runner
        follow_acknowledged(self._tables, runner.record, self._acknowledged.read())
        hidden = runner.positions.first_hidden()
        unreadable = {**runner.positions.examples, **hidden}
        in_doubt = self._examples.look(runner.progress, unreadable, {partition.topic for partition in hidden})
        for topic in runner.record.examples.keys() - in_doubt:
            del runner.record.examples[topic]
        sums = runner.judging.sums
        runner.record.measured_through(runner.progress.batch)
        self._write_counters(runner.progress, sums)
        self._ledger_writer.write(runner.record, runner.progress.lookup_us)
        snapshot = snapshot_of(self._config, runner.progress, sums, runner.record, runner.positions)
        snapshot = replace(snapshot, loss_hint=self._loss_hint(snapshot))
        canary = self._canary.measures() if self._canary is not None else None
        self._show(replace(snapshot, canary=canary))

    def _loss_hint(self, snapshot: Snapshot) -> str | None:
        """Return what the lost events have in common; while results arrive, it is looked for once a minute."""
        lost = [
            one for one in snapshot.violations_latest if one.violation_class == "missing" and one.state == "confirmed"
        ]
        wanted = snapshot.violations["confirmed"]["missing"], tuple((one.id, one.count) for one in lost)
        pauses = not self._once and time.monotonic() - self._hinted_at < _HINT_SECONDS
        if wanted == self._hint_of or self._known is None or pauses:
            return self._hint if wanted == self._hint_of else None
        self._hint_of, self._hinted_at = wanted, time.monotonic()
        self._hint = loss_hint(self._known.all_in_memory, lost, wanted[0]) if lost else None
        return self._hint

    def _write_counters(self, progress: IngestProgress, sums: CellTotals) -> None:
        """Write the counters for the next start, before any of them is published."""
        self._record.classified(sums.counts)
        self._record.raise_totals(results_of(self._config, progress, sums), sums.counts["processed"])
        counters.write(self._state, self._record)

    def _show(self, snapshot: Snapshot) -> None:
        """Publish the snapshot, with the sizes of the tables."""
        snapshot = replace(snapshot, state_bytes=self._sizes.recent())
        with self._show_lock:
            if self._runner is None or not self._runner.leaves_unread:
                self._seen_at = time.monotonic()
            self._publish_snapshot(snapshot, self._why_blind(snapshot.taken_us))
            self._shown = self._published

    def _look_for_blindness(self) -> None:
        """Publish the last snapshot again, without a pass, whenever no batch was completed for too long."""
        while not self._closed.wait(_LOOK_SECONDS):
            with self._show_lock, suppress(OSError):
                last = self._published
                if last is not None and not self._is_blind and (why := self._why_blind(last.taken_us)) is not None:
                    self._publish_snapshot(last, why)

    def _publish_snapshot(self, snapshot: Snapshot, why_blind: str | None) -> None:
        """Publish the snapshot; without a pass if there is a reason ``why_blind``."""
        self._is_blind = why_blind is not None
        if why_blind is not None:
            over = {span: doubted(verdicts) for span, verdicts in snapshot.verdicts_over.items()}
            reasons = (*snapshot.reasons, why_blind)
            snapshot = replace(snapshot, verdicts=doubted(snapshot.verdicts), verdicts_over=over, reasons=reasons)
        age_seconds = time.monotonic() - self._seen_at
        report = self._publisher.publish(snapshot, age_seconds=age_seconds)
        self._published = snapshot
        if self._notices is not None:
            self._notices.update(report, age_seconds=age_seconds)

    def _meanwhile(self) -> None:
        self._watch.look()
        if self._watch.problem is not None:
            self._outage_note.note()
        if self._notices is not None:
            self._notices.write_status(because=self._watch.problem or self._registry_problem)

    @property
    def _registry_problem(self) -> str | None:
        return None if self._registry is None else self._registry.problem

    def _why_blind(self, taken_us: int) -> str | None:
        """Return why nothing vouches for the pipeline now: for `timing.blind_after` no batch was completed, or Spark
        planned none although records were there. None otherwise, and in a run with `--once`, whose end says what it
        read. ``taken_us``: the instant of the last batch."""
        blind_after_us = self._config.timing.blind_after_us
        silent_us = round((time.monotonic() - self._seen_at) * 1e6)
        if self._once or silent_us < blind_after_us:
            return None
        since_us = min(taken_us, self._now_us() - silent_us)
        why = "" if self._registry_problem is None else f", because {self._registry_problem}"
        return (
            f"no record was read since {rfc3339(since_us)}{why}: nothing after it is verified (timing.blind_after is "
            f"{format_duration(blind_after_us)})"
        )

    def _found_example(self, topic: str, example: Example) -> None:
        self._record.examples[topic] = example

    def _read_faults(self) -> None:
        """Read new records of the faults topic, before a batch attributes its violations to known faults."""
        assert self._runner is not None
        if self._faults is None or self._runner.workers is None:
            return
        # The rows are kept until they are in the table: an append may fail, and a poll returns each record only once.
        self._faults_read += self._faults.poll(self._runner.workers)
        if self._faults_read:
            self._runner.record.faults_read(self._faults_read)
            self._runner.record_faults(self._faults_read)
            self._faults_read = []

    def _verdict(self, progress: IngestProgress, judging: Judging) -> Verdict:
        """The declared guarantee's verdict in the last published snapshot, so that exit status and report agree.

        If this generation has published no snapshot, the recovered state is judged.
        """
        if self._shown is None:
            judging.judge_recovered(progress)
            snapshot = snapshot_of(self._config, progress, judging.sums, self._record)
        else:
            snapshot = self._shown
        verdicts = snapshot.verdicts if self._why_blind(snapshot.taken_us) is None else doubted(snapshot.verdicts)
        return verdicts[self._config.guarantee]


def _rules_of(config: Config) -> Rules:
    return Rules(
        oracle=config.oracle,
        overdue_after_us=config.timing.overdue_after_us,
        missing_after_us=config.timing.missing_after_us,
        max_disorder_us=config.timing.max_disorder_us,
        allowed_lateness_us=config.timing.allowed_lateness_us,
        collapse=config.drops_repeats,
        drops_late=config.timing.late_policy == "drop",
        lateness_scope=config.timing.lateness_scope,
        reports_unconsumed=config.engine.consumer_group is not None,
        several_inputs=len(config.oracle.named_inputs(config.inputs)) > 1,
    )


def _unread(progress: IngestProgress) -> str:
    """Return the records that the last lookup showed and no batch has read, by topic; empty if there are none."""
    counts: dict[str, int] = {}
    for partition, frontier in progress.frontiers.items():
        counts[partition.topic] = counts.get(partition.topic, 0) + frontier.lag_events
    return ", ".join(f"{plural(count, 'offset')} of {topic}" for topic, count in sorted(counts.items()) if count)


def _resumes(recovered: IngestProgress, progress: IngestProgress, lookups: Mapping[PartitionId, Lookup]) -> str:
    frontiers = progress.frontiers
    unread = sum(
        max(0, lookup.high_watermark - frontiers[partition].next_offset)
        for partition, lookup in lookups.items()
        if partition in frontiers
    )
    begin = "a new state" if recovered.batch < 0 else f"resuming after batch {recovered.batch}"
    return f"{begin}: {plural(unread, 'offset')} to read"


class _Clock:
    """Microseconds since the epoch: the wall clock's value at the start of the run, advanced by the monotonic clock.

    SEMANTICS 3.2: a step of the wall clock would shift every deadline of an outstanding result at once.
    """

    def __init__(self) -> None:
        self._offset_us = (time.time_ns() - time.monotonic_ns()) // 1000

    def now_us(self) -> int:
        return self._offset_us + time.monotonic_ns() // 1000
