"""The life of a sidecar: lock, session, recovery, generations of the query, and an orderly end."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import validator
from validator.config.model import Config
from validator.model.books import Books, TimeRules
from validator.model.classes import Verdict
from validator.model.frontier import Rest
from validator.publish.publisher import Publisher
from validator.reconcile.judge import Rules
from validator.state import identity
from validator.state.acknowledgements import Journal
from validator.state.known_facts import KnownFacts
from validator.state.lock import StateLock, acquire
from validator.state.sizes import TableSizes
from validator.state.tables import SCHEMA_VERSION, StateTables, Table, create_absent, rows_of
from validator.stream import counters, jars
from validator.stream.batch import BatchRunner, ContinuityBroken, NewGenerationWanted
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.faults_topic import FaultsTopic
from validator.stream.judging import Judging
from validator.stream.measuring import Keeper, catch_up
from validator.stream.measuring import opened as opened_ledger
from validator.stream.recovery import follow_acknowledged, recover, restore_record
from validator.stream.reporting import snapshot_of
from validator.stream.run_record import RunRecord
from validator.stream.session import start
from validator.stream.sources import Source, join_of, sources_of, united
from validator.stream.starting import opened, shares

EXIT_STATUS: Final = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.UNKNOWN: 3}
INTERRUPTED: Final = 130
_POLL_SECONDS: Final = 0.2
_LOCK_WAIT_SECONDS: Final = 5.0
_BATCH_END_SECONDS: Final = 20.0
"""How long a batch may take to end when the run is stopped; SIGTERM promises the end within 30 s."""
_TROUBLES_MOST: Final = 5
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


class CannotVerify(Exception):
    """The validator cannot do its work; the verdict is unknown."""

    exit_status = 3


def run(
    config: Config,
    *,
    once: bool = False,
    leave_open: bool = False,
    say: Callable[[str], None] | None = None,
    session: SparkSession | None = None,
) -> int:
    """Judge the pipeline of ``config`` until stopped (SIGTERM, SIGINT), or with ``once`` to the ends of its topics.

    ``session``: a Spark session to borrow (made by `validator.stream.session.start`); it is not stopped at the end.
    Returns the exit status of the declared guarantee's verdict; 130 where ``once`` was stopped before the ends and
    nothing is broken so far. Raises `StateLocked`, `StateMismatch`, `BrokersUnreachable`, `CannotVerify` and the
    configuration's own errors, each with one sentence.
    """
    return Sidecar(config, once=once, leave_open=leave_open, say=say or _say, session=session).run()


class Sidecar:
    """One run on one state folder."""

    def __init__(
        self,
        config: Config,
        *,
        once: bool = False,
        leave_open: bool = False,
        say: Callable[[str], None] | None = None,
        session: SparkSession | None = None,
    ) -> None:
        self._config = config
        self._borrowed = session
        self._once = once
        self._leave_open = leave_open
        self._say = say or _say
        self._stop = threading.Event()
        self._state: Path = config.state.path
        self._tables = StateTables(self._state)
        self._sizes = TableSizes(self._state)
        self._runner: BatchRunner | None = None
        self._noting: threading.Thread | None = None
        self._cut_short = False
        self._keeper = Keeper(self._state)
        self._acknowledged = Journal(self._state)

    def run(self) -> int:
        """See `run`."""
        brokers = Brokers(self._config)
        brokers.topics([])
        jvm_jars = jars.resolve(Path(jars.__file__).with_name("jars.lock"))
        lock = acquire(self._state, wait=_patience(_LOCK_WAIT_SECONDS))
        previous = self._take_signals()
        try:
            identity.check_or_write(self._state, self._config)
            return self._run_locked(brokers, jvm_jars, lock)
        finally:
            for name, handler in previous.items():
                signal.signal(name, handler)
            lock.release()

    def _take_signals(self) -> dict[signal.Signals, Any]:
        """Let SIGTERM and SIGINT end the run in order; returns the handlers of before, none in another thread."""
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {name: signal.signal(name, self._on_signal) for name in (signal.SIGTERM, signal.SIGINT)}

    def stop(self) -> None:
        """Ask the run to end in order, from any thread."""
        self._stop.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._stop.set()

    def _run_locked(self, brokers: Brokers, jvm_jars: list[Path], lock: StateLock) -> int:
        config = self._config
        publisher = Publisher(config, self._state)
        endpoint = publisher.start()
        self._say(f"streamproof {validator.__version__}: {config.pipeline}, status page and metrics at {endpoint.url}")
        spark = self._borrowed
        faults = FaultsTopic(config) if config.faults is not None else None
        try:
            spark = spark or start(
                config.pipeline,
                config.spark.master,
                jvm_jars,
                {str(k): str(v) for k, v in config.spark.options.items()},
                inherit=(lock.descriptor,),
            )
            # A new session takes SIGINT for itself, and would cut a batch short with a KeyboardInterrupt.
            self._take_signals()
            verdict = self._run_generations(spark, brokers, publisher, faults)
            if self._noting is not None:
                self._noting.join()
        except (Py4JError, ConnectionError) as error:
            raise CannotVerify(f"the Spark JVM is gone ({_first_line(error)}): start the sidecar again") from error
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
            said = f"no room is left for the state {self._state} ({error.strerror})"
            raise CannotVerify(f"{said}: free some and start the sidecar again, it goes on from here") from error
        finally:
            publisher.stop()
            if faults is not None:
                faults.close()
            if spark is not None and self._borrowed is None:
                _stop_spark(spark)
        if self._cut_short and verdict is not Verdict.FAIL:
            # What was not read might break the guarantee, so that a pass so far is none.
            self._say("interrupted before the ends of the topics; the next start goes on from here")
            return INTERRUPTED
        return EXIT_STATUS[verdict]

    def _run_generations(
        self, spark: SparkSession, brokers: Brokers, publisher: Publisher, faults: FaultsTopic | None
    ) -> Verdict:
        config = self._config
        rules = Rules(
            window_us=config.oracle.size,
            overdue_after_us=config.timing.overdue_after,
            missing_after_us=config.timing.missing_after,
            collapse=any(entry.duplicates == "collapse" for entry in config.inputs),
            drops_late=config.timing.late_policy == "drop",
            tells_unconsumed=config.engine.consumer_group is not None,
            join=join_of(config),
        )
        record = RunRecord(
            joins=rules.join is not None,
            ledger=opened_ledger(self._state) if config.faults is not None else None,
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
        counters.restore(self._state, record)
        first = True
        troubles = 0
        while True:
            recovered = recover(
                self._tables, TimeRules(config.timing.max_disorder, config.timing.idle_after), config.oracle.size
            )
            known = KnownFacts(self._tables, first_batch=recovered.books.batch + 1)
            judging = Judging(known, rules, cells=recovered.cells, retired=recovered.retired.sums)
            try:
                sources, topics = self._await_topics(brokers, record, recovered.books, judging, publisher)
                if not sources:
                    self._cut_short = self._once and self._stop.is_set()
                    return self._verdict(recovered.books, judging, record)
                lookup_us = max(recovered.books.lookup_us, _now_us())
                record.has_broker_time = brokers.have_append_time(
                    [s.topic for s in sources if s.side.value in ("input", "output")]
                )
                books, lookups = opened(recovered.books, config, brokers, sources, topics, lookup_us)
            except BrokersUnreachable as error:
                if self._once or first:
                    raise
                # They answered before: an outage, which a sidecar outlives.
                self._say(f"{error}; trying again")
                self._stop.wait(1.0)
                continue
            catch_up(self._tables, recovered.books, recovered.cells, record, config.oracle.size)
            limits, balanced = shares(sources, books, lookups, config.limits.records_per_batch)
            generation = self._open_generation()
            if first:
                self._say(_resumes(recovered.books))
            checkpoint = self._state / "checkpoint" / str(generation)
            runner = BatchRunner(
                config=config,
                sources=sources,
                brokers=brokers,
                books=books,
                judging=judging,
                record=record,
                tables=self._tables,
                generation=generation,
                checkpoint=checkpoint,
                starts={place: frontier.next_offset for place, frontier in books.frontiers.items()},
                retired=recovered.retired,
                read_faults=lambda: self._read_faults(faults),
                publish=lambda: self._publish(publisher),
                now_us=_now_us,
                catching_up_limit=config.limits.records_per_batch // 2 if balanced and not self._once else None,
            )
            self._runner = runner
            if first:
                self._note_run(generation)
            first = False
            self._read_faults(faults)
            frame = united(
                spark,
                config,
                sources,
                runner.starts,
                shares=limits,
                cores=spark.sparkContext.defaultParallelism,
                ticking=not self._once,
            )
            outcome = self._run_query(frame, runner)
            if outcome is None or self._stop.is_set():
                self._cut_short = self._once and self._stop.is_set()
                if self._once and not self._cut_short:
                    runner.advance(None, {}, Rest.CLOSED if self._leave_open else Rest.ALL)
                self._keeper.keep_now(record)
                return self._verdict(runner.books, runner.judging, record)
            if isinstance(outcome, NewGenerationWanted):
                troubles = 0
                continue
            # In a row: a batch in between ends the row.
            troubles = 1 if runner.books.batch > recovered.books.batch else troubles + 1
            if troubles > _TROUBLES_MOST or isinstance(outcome, ContinuityBroken):
                raise CannotVerify(f"the query failed {troubles} times in a row: {_first_line(outcome)}") from outcome
            self._say(f"starting again from the committed frontiers: {_first_line(outcome)}")
            self._stop.wait(min(5.0, 0.2 * 2**troubles))

    def _run_query(self, frame: DataFrame, runner: BatchRunner) -> BaseException | None:
        """Run one generation; None when it ended in order, else what ended it."""
        problems: list[BaseException] = []

        def take(batch_frame: DataFrame, spark_batch: int) -> None:
            try:
                runner.process(batch_frame, spark_batch)
            except BaseException as error:  # noqa: BLE001 - raised again, in few words
                # Spark hands back text only; the supervisor decides on the exception itself.
                problems.append(error)
                # A long text (a JVM's trace within ours) overflows the stack of Spark's thread, which then ends unseen.
                raise RuntimeError(_first_line(error)) from None

        writer = (
            frame.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(runner.checkpoint))
            .queryName(f"streamproof {self._state} {runner.generation}")
        )
        writer = writer.trigger(availableNow=True) if self._once else writer.trigger(processingTime="500 milliseconds")
        query = writer.start()
        wanted: NewGenerationWanted | None = None
        while _runs(query) and wanted is None and not self._stop.is_set():
            if self._missing_topic_appeared(runner):
                wanted = NewGenerationWanted("a topic appeared")
            self._stop.wait(_POLL_SECONDS)
        runner.close(_BATCH_END_SECONDS)
        try:
            if _runs(query):
                _stop_query(query)
            else:
                query.awaitTermination()
        except StreamingQueryException as error:
            # What was asked for (the end, a new generation) is no failure; else the cause is our own exception.
            return wanted or (problems[-1] if problems else error)
        return wanted

    def _missing_topic_appeared(self, runner: BatchRunner) -> bool:
        record = runner.record
        if not record.waiting_for:
            return False
        try:
            return bool(runner.brokers.topics(record.waiting_for))
        except BrokersUnreachable:
            # The batches meet it too, and say so.
            return False

    def _await_topics(
        self, brokers: Brokers, record: RunRecord, books: Books, judging: Judging, publisher: Publisher
    ) -> tuple[list[Source], dict[str, Topic]]:
        """The sources whose topics exist; waits while there is none. Without any (stopped, or `--once`): empty."""
        sources = sources_of(self._config)
        said: tuple[str, ...] = ()
        while not self._stop.is_set():
            topics = brokers.topics(source.topic for source in sources)
            absent = tuple(source.topic for source in sources if source.topic not in topics)
            if absent != said:
                for topic in absent:
                    self._say(f"topic {topic} does not exist yet: waiting for it")
                said = absent
            record.waiting_for = absent
            record.waiting_sides = frozenset(source.side.value for source in sources if source.topic in absent)
            if topics or self._once:
                return [source for source in sources if source.topic in topics], topics
            judging.judge_recovered(books)
            publisher.publish(snapshot_of(self._config, books, judging.sums, record))
            self._stop.wait(1.0)
        return [], {}

    def _open_generation(self) -> int:
        """A new generation: a number that no checkpoint folder has, a folder of its own, the old ones removed.

        A number that comes again does no harm: what a writer appends is numbered by batch, and batches only rise.
        """
        folder = self._state / "checkpoint"
        folder.mkdir(exist_ok=True)
        used = [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
        generation = max(used, default=0) + 1
        (folder / str(generation)).mkdir()
        for number in used:
            shutil.rmtree(folder / str(number), ignore_errors=True)
        return generation

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

    def _publish(self, publisher: Publisher) -> None:
        assert self._runner is not None
        runner = self._runner
        follow_acknowledged(self._tables, runner.record, self._acknowledged.read())
        runner.record.classified(runner.judging.sums.counts)
        runner.record.measured_through(runner.books.batch)
        counters.write(self._state, runner.record)
        self._keeper.keep(runner.record, runner.books.lookup_us)
        snapshot = snapshot_of(self._config, runner.books, runner.judging.sums, runner.record)
        publisher.publish(replace(snapshot, state_bytes=self._sizes.recent()))

    def _read_faults(self, faults: FaultsTopic | None) -> None:
        """Take what was told by now: what a batch is about to record is tied to it."""
        assert self._runner is not None
        rows = faults.poll() if faults is not None else []
        if faults is None or not rows:
            return
        self._runner.record.faults = faults.windows()
        self._runner.record_faults(rows)

    def _verdict(self, books: Books, judging: Judging, record: RunRecord) -> Verdict:
        judging.judge_recovered(books)
        return snapshot_of(self._config, books, judging.sums, record).verdicts[self._config.guarantee]


def _resumes(books: Books) -> str:
    if books.batch < 0:
        return "a new state: nothing was read before"
    return f"resuming after batch {books.batch}"


def _runs(query: StreamingQuery) -> bool:
    return bool(query.isActive)


def _stop_query(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (PySparkException, Py4JError):
        # It is over either way; what ended it is already known.
        return


def _stop_spark(spark: SparkSession) -> None:
    try:
        spark.stop()
    except (Py4JError, ConnectionError, OSError):
        return


def _patience(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds

    def again() -> bool:
        if time.monotonic() >= end:
            return False
        time.sleep(0.1)
        return True

    return again


def _now_us() -> int:
    return time.time_ns() // 1000


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
