"""The loop of one engine instance: Kafka in, the core, a sink out. All decisions are in ``core``."""

from __future__ import annotations

import faulthandler
import heapq
import itertools
import signal
import sys
import time
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testbed.engines import wire
from testbed.engines.core import Core, EventId, LateEvent, PartitionId, Record, Result, WindowCore
from testbed.engines.distinct import DistinctCore
from testbed.engines.intervals import IntervalCore
from testbed.engines.join import JoinCore, is_right
from testbed.engines.mutations import EmittedResult
from testbed.engines.passthrough import PassthroughCore
from testbed.engines.running import ChangedCore, CumulativeCore, RunningCore
from testbed.engines.sessions import SessionCore
from testbed.engines.settings import EngineSettings
from testbed.engines.sinks import Output, RetryFromCommitted, from_offset, open_sink, produce, producer_options

OutputPlanner = Callable[[Sequence[Result | LateEvent]], Iterable[EmittedResult | LateEvent]]
"""Correct results -> the results to produce. The reference engine produces all of them, the mutant does not."""

POLL_RECORDS_MAX = 2000
POLL_SECONDS = 0.05
READY = "ready"
"""A log line that begins with this word means that partitions are assigned and their state is restored."""
_CALL_TIMEOUT_SECONDS = 60.0
_RETRIES_MAX = 20
_HANG_SECONDS = 5.0
_NO_WAY_ON = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001 - its public name
    KafkaError.OFFSET_OUT_OF_RANGE,
    # A fatal error as a message, such as that of a fenced instance: its `fatal()` is false, and nothing follows it.
    KafkaError._FATAL,  # noqa: SLF001
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)


class JobError(Exception):
    """The engine cannot continue; one sentence."""


def log(text: str) -> None:
    """Write one line to the process's log."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def core_of(settings: EngineSettings, own_end: Callable[[EventId], int | None] | None = None) -> Core:
    """Return the operator of the settings. ``own_end``: that of the id of a left event."""
    bounds = (settings.max_disorder_ms, settings.allowed_lateness_ms)
    if settings.operator == "passthrough":
        return PassthroughCore(*bounds)
    if settings.operator == "running_aggregate":
        if settings.workload.aggregates:
            return ChangedCore(*bounds, every=settings.every)
        return (CumulativeCore if settings.emission == "cumulative" else RunningCore)(*bounds)
    if settings.operator == "distinct":
        return DistinctCore(settings.window_ms, *bounds)
    if settings.gap_ms is not None:
        return SessionCore(settings.gap_ms, *bounds)
    if settings.join is None or settings.right_prefix is None:
        return WindowCore(settings.window_ms, *bounds, slide_ms=settings.slide_ms)
    if settings.operator == "interval":
        bounds = (settings.before_ms, settings.after_ms)
        return IntervalCore(*bounds, right_prefix=settings.right_prefix, own_end=own_end)
    return JoinCore(settings.window_ms, *bounds, join=settings.join, right_prefix=settings.right_prefix)


class Job:
    """One instance. ``run`` blocks until SIGTERM, or until the end of the input if requested."""

    def __init__(self, settings: EngineSettings, instance: int, plan: OutputPlanner) -> None:
        self._settings = settings
        self._plan = plan
        self._name = f"{settings.group}-{instance}"
        self._core = core_of(settings, self._own_end)
        self._decoders: dict[PartitionId, wire.Decoder] = {}
        self._at_end_since: dict[PartitionId, float] = {}
        self._delayed: list[tuple[float, int, list[Output]]] = []
        self._serial = itertools.count()
        self._aborter: Producer | None = None
        self._stopping = False
        self._announced = True
        self._skipped = 0
        self._consumer = Consumer(self._consumer_options())
        self._sink = open_sink(settings, self._consumer, self._name, lambda: self._stopping)

    def run(self, *, stop_at_end: bool, close_at_end: bool) -> None:
        """Process until SIGTERM, or with ``stop_at_end`` up to the current ends of the assigned partitions.

        ``close_at_end`` then closes open windows and produces their results. Raises JobError, KafkaException,
        DeliveryError.
        """
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        self._consumer.subscribe(
            list(self._settings.inputs), on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )
        ends: dict[PartitionId, int] = {}
        committed_at, retries = time.monotonic(), 0
        while not self._stopping:
            try:
                self._read()
                self._release_delayed(time.monotonic())
                if time.monotonic() - committed_at >= self._settings.commit_interval_seconds:
                    self._commit()
                    committed_at, retries = time.monotonic(), 0
                if stop_at_end and self._reached(ends):
                    if close_at_end:
                        self._core.close_all()
                        self._answer()
                    break
            except RetryFromCommitted as reason:
                retries += 1
                if retries > _RETRIES_MAX:
                    raise JobError(f"{_RETRIES_MAX} retries in a row failed: {reason}") from reason
                log(f"retry from the last commit: {reason}")
                self._restart_from_committed(self._consumer.assignment())
        self._release_delayed(float("inf"))
        self._commit()
        self._consumer.close()
        self._sink.close()
        log("stopped")

    def _consumer_options(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "bootstrap.servers": settings.bootstrap_servers,
            "group.id": settings.group,
            **({"group.instance.id": self._name} if settings.static_membership else {}),
            "client.id": self._name,
            "session.timeout.ms": int(settings.session_timeout_seconds * 1000),
            "heartbeat.interval.ms": int(settings.session_timeout_seconds * 1000 / 6),
            # The range strategy assigns the same partition of every input to one instance. Eager rebalancing keeps the
            # callbacks simple.
            "partition.assignment.strategy": "range",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            # A start outside the log means lost input: fail instead of skipping it.
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
            "fetch.error.backoff.ms": 50,
        }

    def _read(self) -> None:
        by_partition: dict[PartitionId, list[Record]] = {}
        ends: list[tuple[PartitionId, int]] = []
        ends_of_left_out: dict[PartitionId, int] = {}
        for message in self._consumer.consume(POLL_RECORDS_MAX, POLL_SECONDS):
            error, offset = message.error(), message.offset()
            partition = (message.topic() or "", message.partition() or 0)
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    ends.append((partition, offset or 0))
                else:
                    self._consumer_error(error)
                continue
            decoder = self._decoders.get(partition)
            if decoder is None:
                continue
            found = decoder.records(offset or 0, message.value())
            if found is None:
                self._reject(message)
            elif isinstance(found, wire.FilteredOut):
                ends_of_left_out[partition] = found.offset + 1
            else:
                by_partition.setdefault(partition, []).extend(found)
        if by_partition:
            self._notice_silence()
        for partition, records in by_partition.items():
            self._at_end_since.pop(partition, None)
            self._core.process(partition, records)
        for partition, offset in ends_of_left_out.items():
            self._core.read_through(partition, offset)
        for partition, offset in ends:
            self._at_end(partition, offset)
        self._notice_idle()
        self._answer()
        self._announce()

    def _consumer_error(self, error: KafkaError) -> None:
        """Continue if the client retries by itself. Raises KafkaException if the instance is fenced or input is
        lost."""
        if error.code() in _NO_WAY_ON:
            raise KafkaException(error)
        log(f"consumer: {error.str()}")

    def _at_end(self, partition: PartitionId, offset: int) -> None:
        if partition in self._decoders:
            self._core.read_through(partition, offset)
            self._at_end_since.setdefault(partition, time.monotonic())

    def _notice_idle(self) -> None:
        for partition in self._idle(time.monotonic()):
            self._core.set_idle(partition)

    def _notice_silence(self) -> None:
        """If all partitions were idle, their source had paused, or this process. They go on together, but what is read
        first may be of one only: each of the others gets the full time again."""
        now = time.monotonic()
        if len(self._idle(now)) == len(self._decoders):
            self._core.wake()
            self._at_end_since = dict.fromkeys(self._at_end_since, now)

    def _idle(self, now: float) -> list[PartitionId]:
        idle_after = self._settings.idle_after_seconds
        if idle_after is None:
            return []
        return [partition for partition, since in self._at_end_since.items() if now - since >= idle_after]

    def _reject(self, message: Message) -> None:
        self._skipped += 1
        log(f"undecodable: {message.topic()}-{message.partition()}@{message.offset()} ({self._skipped} so far)")
        if self._settings.rejected is not None:
            self._sink.accept(Output(self._settings.rejected, message.key(), message.value() or b""))

    def _answer(self) -> None:
        answers = self._core.take()
        if not answers:
            return
        for planned in self._plan(answers):
            if isinstance(planned, LateEvent):
                self._sink.accept(self._late(planned))
            elif planned.is_aborted:
                self._abort(self._results(planned.result))
            elif planned.is_withdrawn:
                self._sink.accept(self._withdrawal(planned.result))
            elif planned.delay_seconds > 0:
                due = time.monotonic() + planned.delay_seconds
                heapq.heappush(self._delayed, (due, next(self._serial), self._results(planned.result)))
            else:
                self._accept(self._results(planned.result))
        self._forget_fields(answers)

    def _forget_fields(self, answers: Iterable[Result | LateEvent]) -> None:
        """Drop the fields of events whose only results were planned."""
        operator = self._settings.operator
        if self._core.recovering or operator not in ("passthrough", "tumbling"):
            return
        for decoder in self._decoders.values():
            if operator == "passthrough":
                decoder.more.clear()
                continue
            for answer in answers if decoder.more else ():
                for event_id in answer.ids if isinstance(answer, Result) else (answer.id,):
                    decoder.more.pop(event_id, None)

    def _release_delayed(self, now: float) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            self._accept(heapq.heappop(self._delayed)[2])

    def _accept(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            self._sink.accept(output)

    def _abort(self, outputs: Iterable[Output]) -> None:
        """Produce ``outputs`` in a separate transaction, and abort it."""
        if self._aborter is None:
            options = {**producer_options(self._settings), "transactional.id": f"{self._name}-abort"}
            self._aborter = Producer(options)
            self._aborter.init_transactions()
        self._aborter.begin_transaction()
        for output in outputs:
            produce(self._aborter, output)
        self._aborter.flush()
        self._aborter.abort_transaction()

    def _results(self, result: Result) -> list[Output]:
        settings, of = self._settings, self._settings.workload
        if settings.operator == "passthrough":
            more = ChainMap(*(decoder.more for decoder in self._decoders.values()))
            return [
                Output(
                    settings.output,
                    wire.key_bytes(result.key),
                    wire.event_bytes(event_id, result.key, time_ms, of.streams[0], more.get(event_id, {})),
                    time_ms,
                )
                for event_id, time_ms in zip(result.ids, result.times_ms, strict=True)
            ]
        key, rows = wire.key_bytes(result.key), self._rows(result)
        if not of.has_ids:
            return [Output(settings.output, key, wire.values_bytes(result, rows, of))]
        if settings.operator == "running_aggregate":
            whole = Output(settings.output, key, wire.running_bytes(result, of))
            return [self._withdrawal(result), whole] if settings.emission == "cumulative" else [whole]
        beside = wire.beside_ids(rows, of)
        if of.changes and settings.slide_ms is not None:
            beside |= wire.changes(result, rows, of, settings.slide_ms)
        if of.partitioned_by in beside:
            key = wire.key_bytes((beside[of.partitioned_by],))
        return [Output(settings.output, key, wire.result_bytes(result, settings.right_prefix, of, beside))]

    def _rows(self, result: Result) -> list[Mapping[str, Any]]:
        """Return the fields that results need of each event."""
        of = self._settings.workload
        if not (of.kept or of.aggregates):
            return []
        fields = ChainMap(*(decoder.more for decoder in self._decoders.values()))
        return [fields.get(event_id, {}) for event_id in result.ids]

    def _own_end(self, event_id: EventId) -> int | None:
        if (path := self._settings.until) is None:
            return None
        return next(int(one.more[event_id][path]) for one in self._decoders.values() if event_id in one.more)

    def _withdrawal(self, result: Result) -> Output:
        return Output(self._settings.output, wire.key_bytes(result.key), None)

    def _late(self, event: LateEvent) -> Output:
        settings = self._settings
        prefix = settings.right_prefix
        topic = settings.late_updates if prefix is not None and is_right(event.id, prefix) else settings.late
        return Output(topic, wire.key_bytes(event.key), wire.late_bytes(event, prefix, settings.workload))

    def _commit(self) -> None:
        if not self._decoders:
            return
        # send_offsets_to_transaction can hang past its timeout (librdkafka issue 5456; observed after a broker's
        # death). By then the broker has aborted the transaction: end with status 1, as for any other failure.
        faulthandler.dump_traceback_later(self._settings.transaction_timeout_seconds + _HANG_SECONDS, exit=True)
        try:
            self._sink.commit(self._core.progress())
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _reached(self, ends: dict[PartitionId, int]) -> bool:
        """Return whether all assigned partitions were read to their ends as of the first call."""
        if not self._decoders or self._core.recovering:
            return False
        for topic, partition in self._decoders:
            if (topic, partition) not in ends:
                ends[topic, partition] = self._ends((topic, partition))[1]
        return all(self._core.next_offset(p) >= ends[p] for p in self._decoders)

    def _ends(self, partition: PartitionId) -> tuple[int, int]:
        """Return low and high watermark."""
        found = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=_CALL_TIMEOUT_SECONDS)
        assert found is not None
        return found

    def _announce(self) -> None:
        if not self._announced and not self._core.recovering:
            self._announced = True
            log(f"{READY} {self._name} {' '.join(f'{t}-{p}' for t, p in sorted(self._decoders))}")

    def _restart_from_committed(self, partitions: Sequence[TopicPartition]) -> None:
        """Take on ``partitions`` in the state of their last commit, and drop everything else."""
        self._core.reset()
        self._decoders.clear()
        self._at_end_since.clear()
        self._announced = False
        bare = [TopicPartition(p.topic, p.partition) for p in partitions]
        starts = []
        for offset in self._consumer.committed(bare, timeout=_CALL_TIMEOUT_SECONDS) if bare else []:
            if offset.error is not None:
                raise KafkaException(offset.error)
            low, _ = self._ends((offset.topic, offset.partition))
            progress = from_offset(offset, low)
            if progress.rebuild_from < low and self._settings.guarantee != "at_most_once":
                raise JobError(
                    f"{offset.topic}-{offset.partition} starts at offset {low}, but open windows need it from offset "
                    f"{progress.rebuild_from}: raise the retention of {offset.topic}."
                )
            if self._settings.guarantee == "at_most_once":
                # Events that were read and have no result yet are lost: this is the guarantee.
                progress = type(progress)(progress.next_offset, progress.next_offset, progress.closed_through_ms)
            partition = (offset.topic, offset.partition)
            self._core.assign(partition, progress)
            self._decoders[partition] = self._decoder(partition[0])
            starts.append(TopicPartition(*partition, progress.rebuild_from))
        self._consumer.assign(starts)

    def _decoder(self, topic: str) -> wire.Decoder:
        settings, of = self._settings, self._settings.workload
        fields_of = of if settings.operator == "passthrough" or of.kept or of.aggregates else None
        if settings.join is not None and topic != settings.inputs[0]:
            return wire.Decoder(of.streams[-1], settings.right_prefix, settings.where_right, fields_of)
        return wire.Decoder(of.streams[0], None, settings.where, fields_of)

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._restart_from_committed(partitions)

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        try:
            self._answer()
            self._commit()
        except RetryFromCommitted as reason:
            log(f"partitions revoked before their results were committed: {reason}")
        self._drop_all()

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        log("partitions lost: another member has them")
        self._drop_all()

    def _drop_all(self) -> None:
        self._sink.forget()
        self._core.reset()
        self._decoders.clear()
        self._at_end_since.clear()
        self._consumer.unassign()

    def _stop(self, _signal: int, _frame: object) -> None:
        self._stopping = True
