"""How outputs and progress are written to Kafka: one sink per guarantee, with a common interface.

``accept`` takes outputs. ``commit`` makes all accepted outputs and the given progress durable, in the order of the
guarantee:

- exactly once: outputs and progress in one transaction;
- at least once: outputs first, and progress only after every output is acknowledged;
- at most once: progress first, then the outputs.

The next offset of a partition is committed as the group's offset, which lag monitors can read. The rest of its progress
is the offset's metadata. Both sinks without transactions use an idempotent producer, so a repeat or a loss comes from
the guarantee and not from the client.

Errors: ``RetryFromCommitted`` if the transaction was aborted and the work must be repeated from the last commit.
``KafkaException`` and ``DeliveryError`` end the process.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from testbed.engines.core import BEGINNING_MS, PartitionId, PartitionProgress
from testbed.engines.settings import EngineSettings

_QUEUE_FULL_WAIT_SECONDS = 0.05
_CALL_TIMEOUT_SECONDS = 5.0
_TRIES_MAX = 12
_METADATA_BYTES_MAX = 4096
"""The broker's default (`offset.metadata.max.bytes`)."""


class RetryFromCommitted(Exception):
    """The transaction is aborted: drop everything since the last commit and read again from there."""


class DeliveryError(Exception):
    """An output could not be produced."""


@dataclass(frozen=True)
class Output:
    """A record to produce."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None = None
    """The record's timestamp; None: the time of producing."""


Commit = Mapping[PartitionId, PartitionProgress]


class Sink(Protocol):
    """Destination of outputs and progress."""

    def accept(self, output: Output) -> None:
        """Accept an output. It is durable after the next commit."""

    def commit(self, progress: Commit) -> None:
        """Make all accepted outputs, and ``progress``, durable."""

    def forget(self) -> None:
        """Drop the outputs accepted since the last commit, as far as the guarantee allows."""

    def close(self) -> None:
        """Release the client."""


def open_sink(settings: EngineSettings, consumer: Consumer, name: str, stopping: Callable[[], bool]) -> Sink:
    """Return the sink for the settings' guarantee.

    ``name`` identifies the instance, and fences an earlier instance of that name. While ``stopping`` returns true,
    failed calls are not retried.
    """
    if settings.guarantee == "exactly_once":
        return _ExactlyOnce(settings, consumer, name, stopping)
    if settings.guarantee == "at_least_once":
        return _AtLeastOnce(settings, consumer, stopping)
    return _AtMostOnce(settings, consumer, stopping)


def to_offsets(progress: Commit) -> list[TopicPartition]:
    """Return progress as offsets with metadata. Raises DeliveryError if the metadata is too long for a broker."""
    offsets = []
    for (topic, partition), p in sorted(progress.items()):
        data: dict[str, Any] = {"rebuild_from": p.rebuild_from, "closed_through_ms": p.closed_through_ms}
        if p.stragglers:
            data["stragglers"] = [
                [offset - p.rebuild_from, p.closed_through_ms - closed] for offset, closed in p.stragglers
            ]
        metadata = json.dumps(data, separators=(",", ":"))
        if len(metadata) > _METADATA_BYTES_MAX:
            raise DeliveryError(
                f"{topic}-{partition}: {len(p.stragglers)} events of open sessions arrived behind the watermark, more "
                "than a commit can store: raise max_disorder_ms."
            )
        offsets.append(TopicPartition(topic, partition, p.next_offset, metadata))
    return offsets


def from_offset(offset: TopicPartition, beginning: int) -> PartitionProgress:
    """Return the progress in a committed offset; without one, the partition starts at offset ``beginning``."""
    if offset.offset < 0:
        return PartitionProgress(beginning, beginning, BEGINNING_MS)
    if not offset.metadata:
        return PartitionProgress(offset.offset, offset.offset, BEGINNING_MS)
    data = json.loads(offset.metadata)
    rebuild_from, closed = data["rebuild_from"], data["closed_through_ms"]
    stragglers = tuple((rebuild_from + after, closed - before) for after, before in data.get("stragglers", ()))
    return PartitionProgress(offset.offset, rebuild_from, closed, stragglers)


def producer_options(settings: EngineSettings) -> dict[str, Any]:
    """Return the options of the outputs' producer."""
    return {
        "bootstrap.servers": settings.bootstrap_servers,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        # The size of the largest result; the broker's `message.max.bytes` must allow it.
        "message.max.bytes": 8_000_000,
    }


def produce(producer: Producer, output: Output, report: Any = None) -> None:
    """Queue one output; wait while the queue is full."""
    while True:
        try:
            if output.timestamp_ms is None:
                producer.produce(output.topic, output.value, output.key, on_delivery=report)
            else:
                timestamp = max(0, output.timestamp_ms)  # Kafka has no timestamps before 1970
                producer.produce(output.topic, output.value, output.key, on_delivery=report, timestamp=timestamp)
            return
        except BufferError:
            producer.poll(_QUEUE_FULL_WAIT_SECONDS)


class _ExactlyOnce:
    def __init__(self, settings: EngineSettings, consumer: Consumer, name: str, stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        timeout_ms = int(settings.transaction_timeout_seconds * 1000)
        self._consumer = consumer
        self._producer = Producer(
            {
                **producer_options(settings),
                "transactional.id": name,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
            }
        )
        self._open = False
        self._too_large: KafkaError | None = None
        self._committed: dict[PartitionId, PartitionProgress] = {}
        self._try(lambda: self._producer.init_transactions(_CALL_TIMEOUT_SECONDS))

    def accept(self, output: Output) -> None:
        self._try(lambda: self._put(output))

    def commit(self, progress: Commit) -> None:
        changed = {p: at for p, at in progress.items() if self._committed.get(p) != at}
        if not self._open and not changed:
            return
        self._try(self._begin)
        if changed:
            offsets, member = to_offsets(changed), self._consumer.consumer_group_metadata()
            self._try(lambda: self._producer.send_offsets_to_transaction(offsets, member, _CALL_TIMEOUT_SECONDS))
        self._try(lambda: self._producer.commit_transaction(_CALL_TIMEOUT_SECONDS))
        self._open = False
        self._committed.update(changed)

    def forget(self) -> None:
        self._committed.clear()
        if self._open:
            self._open = False
            self._try(lambda: self._producer.abort_transaction(_CALL_TIMEOUT_SECONDS))

    def close(self) -> None:
        self.forget()

    def _put(self, output: Output) -> None:
        self._begin()
        produce(self._producer, output, self._report)
        self._producer.poll(0)

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            self._too_large = error

    def _begin(self) -> None:
        if not self._open:
            self._producer.begin_transaction()
            self._open = True

    def _try(self, call: Callable[[], object]) -> None:
        """Call until it succeeds. If an error cannot be retried, abort the transaction and raise RetryFromCommitted."""
        for tries_left in range(_TRIES_MAX - 1, -1, -1):
            try:
                call()
                return
            except KafkaException as error:
                reason: KafkaError = self._too_large or error.args[0]
                if reason.code() == KafkaError.MSG_SIZE_TOO_LARGE:
                    # No retry makes it smaller.
                    raise DeliveryError(f"A result is too large: raise message.max.bytes ({reason}).") from error
                # A retriable call must be repeated: the client continues the earlier operation and returns its result.
                if reason.fatal() or not (reason.retriable() or reason.txn_requires_abort() or self._open):
                    raise
                if not reason.retriable() or reason.txn_requires_abort():
                    self.forget()
                    raise RetryFromCommitted(str(reason)) from error
                if tries_left == 0 or self._stopping():
                    raise


class _Plain:
    """Base of the two sinks without transactions: a producer that records failures."""

    def __init__(self, settings: EngineSettings, consumer: Consumer, stopping: Callable[[], bool]) -> None:
        self._consumer = consumer
        self._stopping = stopping
        self._producer = Producer({"message.timeout.ms": 60_000, **producer_options(settings)})
        self._failures: list[str] = []
        self._committed: dict[PartitionId, PartitionProgress] = {}

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failures.append(str(error))

    def _flush(self) -> None:
        while left := self._producer.flush(_CALL_TIMEOUT_SECONDS):
            if self._stopping():
                raise DeliveryError(f"Outputs not acknowledged when the engine was asked to stop: {left}.")
        if self._failures:
            raise DeliveryError(f"Outputs not produced: {len(self._failures)}; first reason: {self._failures[0]}")

    def _store(self, progress: Commit) -> None:
        changed = {p: at for p, at in progress.items() if self._committed.get(p) != at}
        if changed:
            try:
                results = self._consumer.commit(offsets=to_offsets(changed), asynchronous=False)
                failed = next((r.error for r in results or [] if r.error is not None), None)
            except KafkaException as error:
                failed = error.args[0]
            if failed is not None:
                if failed.fatal():
                    raise KafkaException(failed)
                self.forget()
                raise RetryFromCommitted(str(failed))
            self._committed.update(changed)

    def forget(self) -> None:
        self._committed.clear()

    def close(self) -> None:
        self._flush()


class _AtLeastOnce(_Plain):
    def accept(self, output: Output) -> None:
        produce(self._producer, output, self._report)
        self._producer.poll(0)

    def commit(self, progress: Commit) -> None:
        self._flush()
        self._store(progress)


class _AtMostOnce(_Plain):
    def __init__(self, settings: EngineSettings, consumer: Consumer, stopping: Callable[[], bool]) -> None:
        super().__init__(settings, consumer, stopping)
        self._waiting: list[Output] = []

    def accept(self, output: Output) -> None:
        self._waiting.append(output)

    def commit(self, progress: Commit) -> None:
        self._store(progress)
        waiting, self._waiting = self._waiting, []
        for output in waiting:
            produce(self._producer, output, self._report)
        self._flush()

    def forget(self) -> None:
        super().forget()
        self._waiting.clear()
