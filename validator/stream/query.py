"""Starts, watches and stops the streaming query of one generation."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from validator.stream.batch import BatchRunner, NewGenerationWanted
from validator.stream.brokers import BrokersUnreachable
from validator.stream.failures import first_line

_POLL_SECONDS: Final = 0.2
_TICK_SECONDS: Final = 1.0
"""Time without a batch after which the sidecar's time advances without records, if `timing.tick` allows it."""
_BATCH_END_SECONDS: Final = 20.0
"""Time for the current batch to complete when the run is stopped. SIGTERM ends the sidecar within 30 s."""
_POLLING_DELAY: Final = "spark.sql.streaming.pollingDelay"
"""Milliseconds between two of Spark's looks for new offsets while there are none."""


def run_query(
    frame: DataFrame,
    runner: BatchRunner,
    *,
    once: bool,
    trigger_us: int,
    stop: threading.Event,
    meanwhile: Callable[[], None],
) -> BaseException | None:
    """Run the query of one generation until ``stop`` is set, or with ``once`` up to the ends of the topics.

    ``trigger_us``: trigger interval in microseconds. ``meanwhile`` is called every `_POLL_SECONDS`.
    Returns None after an orderly end, else the exception that ended the query.

    Spark waits for a trigger by the wall clock of its JVM: a step of that clock backwards would stop the query for as
    long as the step. So Spark plans each batch as soon as the one before it has ended, and everything that waits here
    waits by a monotonic clock: a batch until it has taken the trigger interval, and a tick until there was no batch for
    a second, or for `timing.tick` if that is shorter.
    """
    problems: list[BaseException] = []
    ended = threading.Event()

    def take(batch_frame: DataFrame, spark_batch: int) -> None:
        del batch_frame  # the records of its offsets are read by the workers
        began = time.monotonic()
        try:
            runner.process(spark_batch)
        except BaseException as error:  # noqa: BLE001 - raised again, with a short text
            # Spark returns only the text of an error; the caller needs the exception itself.
            problems.append(error)
            # A long text (with a JVM stack trace) overflows the stack of Spark's thread, which then ends silently.
            raise RuntimeError(first_line(error)) from None
        if not once:
            ended.wait(max(0.0, trigger_us / 1e6 - (time.monotonic() - began)))

    def tick() -> None:
        while not ended.wait(_POLL_SECONDS):
            try:
                runner.tick(min(_TICK_SECONDS, runner.config.timing.tick_us / 1e6))
            except BaseException as error:  # noqa: BLE001 - it ends the query, as the failure of a batch does
                problems.append(error)
                return

    frame.sparkSession.conf.set(_POLLING_DELAY, str(max(1, trigger_us // 1000)))
    writer = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(runner.checkpoint))
        .queryName(f"streamproof {runner.tables.state} {runner.generation}")
    )
    query = (writer.trigger(availableNow=True) if once else writer.trigger(processingTime="0 seconds")).start()
    if not once:
        threading.Thread(target=tick, name="streamproof-tick", daemon=True).start()
    wanted: NewGenerationWanted | None = None
    try:
        while _runs(query) and wanted is None and not problems and not stop.is_set():
            if _missing_topic_appeared(runner):
                wanted = NewGenerationWanted("a topic appeared")
            meanwhile()
            stop.wait(_POLL_SECONDS)
    finally:
        ended.set()
        # The next generation must not begin while a batch of this one may still commit.
        while not runner.close(_BATCH_END_SECONDS) and not stop.is_set():
            meanwhile()
    # The first problem is the cause: a batch that follows another one's failure fails because of it.
    problem = problems[0] if problems else None
    try:
        if _runs(query):
            _stop_query(query)
        else:
            query.awaitTermination()
    except StreamingQueryException as error:
        # A requested new generation is not a failure. Otherwise the cause is the exception that `take` kept.
        return wanted or problem or error
    return wanted or problem


def _missing_topic_appeared(runner: BatchRunner) -> bool:
    record = runner.record
    if not record.waiting_for:
        return False
    try:
        return bool(runner.brokers.topics(record.waiting_for))
    except BrokersUnreachable:
        # The next batch fails for the same reason, and reports it.
        return False


def _runs(query: StreamingQuery) -> bool:
    return bool(query.isActive)


def _stop_query(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (PySparkException, Py4JError):
        # The query has ended in any case, for a reason that is already known.
        return
