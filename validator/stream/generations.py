"""The generations of a sidecar's query: recovery, the topics to read, a query until it ends, and again.

Each generation begins at the committed frontiers, with a checkpoint of its own (decision 0002).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from pyspark.sql import SparkSession

import validator
from validator.config.model import Config
from validator.model.books import Books, TimeRules
from validator.model.classes import Verdict
from validator.model.frontier import Lookup, PartitionId, Rest
from validator.publish.publisher import Publisher
from validator.reconcile.judge import Rules
from validator.state import identity
from validator.state.acknowledgements import Journal
from validator.state.known_facts import KnownFacts
from validator.state.sizes import TableSizes
from validator.state.tables import SCHEMA_VERSION, StateTables, Table, create_absent, rows_of
from validator.stream import counters
from validator.stream.batch import BatchRunner, ContinuityBroken, NewGenerationWanted
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.canary import canary_of
from validator.stream.failures import CannotVerify, first_line
from validator.stream.faults_topic import FaultsTopic
from validator.stream.judging import Judging
from validator.stream.measuring import Keeper, catch_up
from validator.stream.measuring import opened as opened_ledger
from validator.stream.query import run_query
from validator.stream.recovery import Recovered, follow_acknowledged, recover, restore_record
from validator.stream.reporting import results_of, snapshot_of
from validator.stream.run_record import RunRecord
from validator.stream.sources import Source, join_of, sources_of, united
from validator.stream.starting import new_generation, opened, shares

_TROUBLES_MOST: Final = 5
_TROUBLES_WITH_CANARY: Final = 2
"""So many failures in a row, and the next query does without the canary, which may be their cause."""


class Generations:
    """Those of one run, on the state of ``tables``, until ``stop`` is set; with ``once`` to the ends of the topics.

    ``cut_short``: it was stopped before those ends.
    """

    def __init__(
        self,
        config: Config,
        tables: StateTables,
        brokers: Brokers,
        publisher: Publisher,
        faults: FaultsTopic | None,
        *,
        once: bool,
        leave_open: bool,
        say: Callable[[str], None],
        stop: threading.Event,
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
        self._say = say
        self._stop = stop
        self.cut_short = False
        self._rules = _rules_of(config)
        self._record = RunRecord()
        self._sizes = TableSizes(self._state)
        self._runner: BatchRunner | None = None
        self._noting: threading.Thread | None = None
        self._keeper = Keeper(self._state)
        self._acknowledged = Journal(self._state)
        self._canary = None if once else canary_of(config, now_us=_now_us, say=say)

    def close(self) -> None:
        """End what works beside the query."""
        if self._canary is not None:
            self._canary.close()

    def run(self, spark: SparkSession) -> Verdict:
        """The declared guarantee's verdict at the end. Raises `CannotVerify`, `BrokersUnreachable`, `StateDamaged`."""
        self._record = self._restored()
        verdict = self._one_after_another(spark)
        if self._noting is not None:
            self._noting.join()
        return verdict

    def _restored(self) -> RunRecord:
        """What was measured and recorded before this start."""
        config = self._config
        record = RunRecord(
            joins=self._rules.join is not None,
            collapse=self._rules.collapse,
            ledger=opened_ledger(self._state, self._say) if config.faults is not None else None,
            # What is lost in a fault is proven when its window has closed and its answer is overdue for good.
            expects_within_us=config.measures.give_up_after
            + config.oracle.size
            + config.timing.max_disorder
            + config.timing.allowed_lateness
            + config.timing.idle_after
            + config.timing.missing_after,
        )
        restore_record(self._tables, record)
        follow_acknowledged(self._tables, record, self._acknowledged.read())
        damage = counters.restore(self._state, record)
        if damage is not None:
            self._say(damage)
        return record

    def _one_after_another(self, spark: SparkSession) -> Verdict:
        timing = self._config.timing
        troubles = 0
        while True:
            recovered = recover(
                self._tables, TimeRules(timing.max_disorder, timing.idle_after), self._config.oracle.size
            )
            known = KnownFacts(self._tables, first_batch=recovered.books.batch + 1)
            judging = Judging(known, self._rules, cells=recovered.cells, retired=recovered.retired.sums)
            try:
                sources, topics = self._await_topics(recovered.books, judging)
                if not sources:
                    self.cut_short = self._once and self._stop.is_set()
                    return self._verdict(recovered.books, judging)
                books, lookups = self._opened(recovered.books, sources, topics)
            except BrokersUnreachable as error:
                if self._once or self._runner is None:
                    raise
                # They answered before: an outage, which a sidecar outlives.
                self._say(f"{error}; trying again")
                self._stop.wait(1.0)
                continue
            outcome = self._queried(spark, recovered, judging, sources, books, lookups)
            assert self._runner is not None
            runner = self._runner
            if outcome is None or self._stop.is_set():
                return self._ended(runner)
            if isinstance(outcome, NewGenerationWanted):
                troubles = 0
                continue
            # In a row: a batch in between ends the row.
            troubles = 1 if runner.books.batch > recovered.books.batch else troubles + 1
            if troubles > _TROUBLES_MOST or isinstance(outcome, ContinuityBroken):
                raise CannotVerify(f"the query failed {troubles} times in a row: {first_line(outcome)}") from outcome
            if self._canary is not None and troubles >= _TROUBLES_WITH_CANARY and self._canary.sources:
                self._canary.sideline("the query failed again and again")
            self._say(f"starting again from the committed frontiers: {first_line(outcome)}")
            self._stop.wait(min(5.0, 0.2 * 2**troubles))

    def _opened(
        self, books: Books, sources: list[Source], topics: dict[str, Topic]
    ) -> tuple[Books, dict[PartitionId, Lookup]]:
        lookup_us = max(books.lookup_us, _now_us())
        self._record.has_broker_time = self._brokers.have_append_time(
            [s.topic for s in sources if s.side.value in ("input", "output")]
        )
        return opened(books, self._config, self._brokers, sources, topics, lookup_us)

    def _queried(
        self,
        spark: SparkSession,
        recovered: Recovered,
        judging: Judging,
        sources: list[Source],
        books: Books,
        lookups: dict[PartitionId, Lookup],
    ) -> BaseException | None:
        """Run one generation; what `run_query` says of its end."""
        config = self._config
        catch_up(self._tables, recovered.books, recovered.cells, self._record, config.oracle.size)
        limits, balanced = shares(sources, books, lookups, config.limits.records_per_batch)
        generation = new_generation(self._state)
        if self._canary is not None:
            self._canary.open(self._brokers)
        is_first = self._runner is None
        if is_first:
            self._say(_resumes(recovered.books))
        self._runner = runner = BatchRunner(
            config=config,
            sources=sources,
            brokers=self._brokers,
            books=books,
            judging=judging,
            record=self._record,
            tables=self._tables,
            generation=generation,
            checkpoint=self._state / "checkpoint" / str(generation),
            starts={place: frontier.next_offset for place, frontier in books.frontiers.items()},
            retired=recovered.retired,
            read_faults=self._read_faults,
            publish=self._publish,
            now_us=_now_us,
            canary=self._canary,
            catching_up_limit=config.limits.records_per_batch // 2 if balanced and not self._once else None,
        )
        if is_first:
            self._note_run(generation)
        self._read_faults()
        frame = united(
            spark,
            config,
            sources,
            {**runner.starts, **(self._canary.starts if self._canary is not None else {})},
            shares=limits,
            cores=spark.sparkContext.defaultParallelism,
            ticking=not self._once,
            canary=self._canary.sources if self._canary is not None else (),
        )
        return run_query(
            frame, runner, once=self._once, trigger_us=config.spark.trigger, stop=self._stop
        )  # fmt: skip

    def _ended(self, runner: BatchRunner) -> Verdict:
        self.cut_short = self._once and self._stop.is_set()
        if self._once and not self.cut_short:
            runner.advance(None, {}, Rest.CLOSED if self._leave_open else Rest.ALL)
        self._keeper.keep_now(self._record)
        return self._verdict(runner.books, runner.judging)

    def _await_topics(self, books: Books, judging: Judging) -> tuple[list[Source], dict[str, Topic]]:
        """The sources whose topics exist; waits while there is none. Without any (stopped, or `--once`): empty."""
        sources = sources_of(self._config)
        said: tuple[str, ...] = ()
        while not self._stop.is_set():
            topics = self._brokers.topics(source.topic for source in sources)
            absent = tuple(source.topic for source in sources if source.topic not in topics)
            if absent != said:
                for topic in absent:
                    self._say(f"topic {topic} does not exist yet: waiting for it")
                said = absent
            self._record.waiting_for = absent
            self._record.waiting_sides = frozenset(source.side.value for source in sources if source.topic in absent)
            if topics or self._once:
                return [source for source in sources if source.topic in topics], topics
            judging.judge_recovered(books)
            self._publisher.publish(snapshot_of(self._config, books, judging.sums, self._record))
            self._stop.wait(1.0)
        return [], {}

    def _note_run(self, generation: int) -> None:
        """Append to the runs table and make the tables that are still absent, beside the first batch: nobody waits."""
        row = {
            "generation": generation,
            "started_us": _now_us(),
            "version": validator.__version__,
            "schema": SCHEMA_VERSION,
            "configuration": json.dumps(identity.identity_of(self._config), sort_keys=True),
        }

        def note() -> None:
            self._tables.append(rows_of(Table.RUNS, [row]), Table.RUNS, writer=f"run-{row['started_us']}", version=0)
            create_absent(self._state)

        self._noting = threading.Thread(target=note, name="streamproof-runs", daemon=True)
        self._noting.start()

    def _publish(self) -> None:
        assert self._runner is not None
        runner = self._runner
        follow_acknowledged(self._tables, runner.record, self._acknowledged.read())
        sums = runner.judging.sums
        runner.record.classified(sums.counts)
        runner.record.rose(results_of(runner.books, sums), sums.counts["processed"])
        runner.record.measured_through(runner.books.batch)
        counters.write(self._state, runner.record)
        self._keeper.keep(runner.record, runner.books.lookup_us)
        snapshot = snapshot_of(self._config, runner.books, runner.judging.sums, runner.record)
        canary = self._canary.standing() if self._canary is not None else None
        self._publisher.publish(replace(snapshot, state_bytes=self._sizes.recent(), canary=canary))

    def _read_faults(self) -> None:
        """Take what was told by now: what a batch is about to record is tied to it."""
        assert self._runner is not None
        if self._faults is None:
            return
        # Kept until they are in the table: an append may fail, and no poll brings them again.
        self._faults_read += self._faults.poll()
        if self._faults_read:
            self._runner.record.faults_told(self._faults_read)
            self._runner.record_faults(self._faults_read)
            self._faults_read = []

    def _verdict(self, books: Books, judging: Judging) -> Verdict:
        judging.judge_recovered(books)
        return snapshot_of(self._config, books, judging.sums, self._record).verdicts[self._config.guarantee]


def _rules_of(config: Config) -> Rules:
    return Rules(
        window_us=config.oracle.size,
        overdue_after_us=config.timing.overdue_after,
        missing_after_us=config.timing.missing_after,
        collapse=any(entry.duplicates == "collapse" for entry in config.inputs),
        drops_late=config.timing.late_policy == "drop",
        tells_unconsumed=config.engine.consumer_group is not None,
        join=join_of(config),
    )


def _resumes(books: Books) -> str:
    if books.batch < 0:
        return "a new state: nothing was read before"
    return f"resuming after batch {books.batch}"


def _now_us() -> int:
    return time.time_ns() // 1000
