"""Reads a few records of topics beside the stream: the newest ones, the one at a position, or the events of a cell.

Run `newest`, `events_of_cell` and `why_undecodable` with `validator.stream.bounded.bounded`: the decompressed size of a
record is not limited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from validator.codecs.one_record import Decoded, Event, Record, RecordDecoder, Tombstone, Undecodable, Unexamined
from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused, librdkafka_options
from validator.model.kafka_refusals import ClientMessages, Refusal, refusal_of_kind
from validator.model.schemas import NO_SCHEMAS, SchemaUnknown
from validator.stream.clients import for_librdkafka, made, why_refused
from validator.stream.registry import Registry, RegistrySilent
from validator.stream.sources import readers_of, sources_of

_POLL_SECONDS: Final = 0.1
_REGISTRY_SECONDS: Final = 3.0
_FETCHED_BYTES_MAX: Final = 2**20
"""Compressed bytes per fetch. A broker returns at least one record batch of a partition, even if it is larger."""


@dataclass(frozen=True)
class TopicStarted:
    """Reading of the newest records of ``topic`` begins. Partition -> first offset, and offset after the last.
    ``is_whole``: every record that the topic still has is read."""

    topic: str
    starts: dict[int, int]
    ends: dict[int, int]
    is_whole: bool = False


@dataclass(frozen=True)
class TopicAnswered:
    """Reading of ``topic`` has ended. ``refusal``: why it is incomplete; None if it is complete."""

    topic: str
    refusal: Refusal | None = None


@contextmanager
def _consumer(config: Config, client_messages: Mapping[str, Any]) -> Iterator[Consumer]:
    ours = {
        "isolation.level": config.kafka.isolation_level,
        "group.id": "streamproof-samples",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.message.max.bytes": _FETCHED_BYTES_MAX,
        "fetch.max.bytes": _FETCHED_BYTES_MAX,
        "queued.max.messages.kbytes": 16 * 1024,
        **client_messages,
    }
    consumer = made(Consumer, for_librdkafka(config, ours))
    try:
        yield consumer
    finally:
        consumer.close()


def why_undecodable(
    config: Config, topic: str, partition: int, offset: int, seconds: float
) -> Iterator[tuple[Undecodable, ...]]:
    """Why the record at a position of a pipeline's topic does not decode: every field that does not fit, as one item.

    The item is empty if the record decodes, has expired, or is not received within ``seconds``.
    """
    record = _record_at(config, topic, partition, offset, seconds)
    yield SingleDecoder(config, topic).problems(record) if record is not None else ()


class OffsetRange(NamedTuple):
    """The offsets of a partition from ``first`` to ``last``."""

    topic: str
    partition: int
    first: int
    last: int


class ReadEvent(NamedTuple):
    """An event of a cell, by its position. ``addends``: as in `Event`."""

    topic: str
    partition: int
    offset: int
    addends: tuple[Decimal | None, ...]


def events_of_cell(
    config: Config, ranges: Sequence[OffsetRange], start_us: int | None, key: str, seconds: float
) -> Iterator[ReadEvent]:
    """The events of a window, or without windows of a key, that owe a result, as far as ``ranges`` still have them.

    Raises OptionsRefused, KafkaException.
    """
    with _consumer(config, {"log_level": 0}) as consumer:
        for one in ranges:
            decoder = SingleDecoder(config, one.topic)
            for record in _records_of(consumer, one, time.monotonic() + seconds):
                for event in decoder.decode_all(record):
                    if isinstance(event, Event) and event.is_owed and event.key == key:
                        times = np.array([event.event_time_us], dtype=np.int64)
                        if start_us is None or start_us in config.oracle.assigned(times).starts:
                            yield ReadEvent(one.topic, record.partition, record.offset, event.addends)


def _records_of(consumer: Consumer, wanted: OffsetRange, deadline: float) -> Iterator[Record]:
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.first)])
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            continue
        error, offset = message.error(), int(message.offset() or 0)
        _check_size(error)
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            raise KafkaException(error)
        if error is None and offset <= wanted.last:
            yield _record(message)
        if error is not None or offset >= wanted.last:
            return


class SingleDecoder:
    """Decodes single records of one of the pipeline's topics, and looks up their schemas."""

    def __init__(self, config: Config, topic: str) -> None:
        self._config = config
        self._sources = [source for source in sources_of(config) if source.topic == topic]
        settings, stop = config.schema_registry, threading.Event()
        self._registry = None
        if settings is not None:
            self._registry = Registry(settings, None, lambda _: None, stop, wait_seconds=_REGISTRY_SECONDS)
        self._decoder = self._made()

    def _made(self) -> RecordDecoder:
        schemas = NO_SCHEMAS if self._registry is None else self._registry.schemas
        [reader] = readers_of(self._config, self._sources, schemas=schemas)
        return reader.decoder

    def decode_all(self, record: Record) -> Sequence[Decoded | Tombstone | Undecodable]:
        """As `RecordDecoder.decode_all`. If the registry does not answer, the record is not examined."""
        while True:
            try:
                return self._decoder.decode_all(record)
            except SchemaUnknown as unknown:
                assert self._registry is not None, "a configuration without a registry names no schema"
                try:
                    self._registry.look_up(unknown.schemas)
                except RegistrySilent as silent:
                    return [Unexamined(None, None, f"is not examined: {silent}")]
                self._decoder = self._made()

    def problems(self, record: Record) -> tuple[Undecodable, ...]:
        """As `RecordDecoder.problems`."""
        first = self.decode_all(record)[0]
        if not isinstance(first, Undecodable):
            return ()
        return (first,) if isinstance(first, Unexamined) else self._decoder.problems(record)


def _record_at(config: Config, topic: str, partition: int, offset: int, seconds: float) -> Record | None:
    try:
        with _consumer(config, {"log_level": 0}) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                message = consumer.poll(_POLL_SECONDS)
                if message is not None:
                    _check_size(message.error())
                    return _record(message) if message.error() is None and message.offset() == offset else None
    except (KafkaException, OptionsRefused):
        return None
    return None


def newest(
    config: Config, topics: Mapping[str, Sequence[int]], most: Mapping[str, int], seconds: float
) -> Iterator[TopicStarted | TopicAnswered | tuple[str, Record]]:
    """The newest visible records of topics, topic by topic, in offset order within each partition.

    ``topics``: topic -> its partitions. ``most``: topic -> approximate number of records. Ends after the first topic
    that cannot be read completely within ``seconds``, unless only the permission to read it is missing. Raises
    OptionsRefused.
    """
    client_messages = ClientMessages()
    with _consumer(config, client_messages.options()) as consumer:
        for topic, partitions in topics.items():
            refusal = None
            try:
                unanswered = yield from _newest_of(consumer, topic, partitions, most[topic], seconds)
                if unanswered:
                    refusal = why_refused(config, client_messages) or no_answer(topic, seconds)
            except KafkaException as error:
                is_right = error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
                refusal = (
                    refusal_of_kind("topic", librdkafka_options(config.kafka.options), names=topic)
                    if is_right
                    else why_refused(config, client_messages) or Refusal("", error.args[0].str(), "check the brokers")
                )
            yield TopicAnswered(topic, refusal)
            if refusal is not None and refusal.kind != "topic":
                return


def _newest_of(
    consumer: Consumer, topic: str, partitions: Sequence[int], most: int, seconds: float
) -> Generator[TopicStarted | tuple[str, Record], None, bool]:
    """The newest records of one topic. Returns whether a partition did not answer. Raises KafkaException."""
    share = max(1, most // max(1, len(partitions)))
    ends: dict[int, int] = {}
    starts: dict[int, int] = {}
    is_whole = True
    for number in partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=seconds)
        # Empty partitions are read as well: the broker then shows whether the client may read them.
        starts[number], ends[number] = max(low, high - share), high
        is_whole &= starts[number] == low
    yield TopicStarted(topic, starts, dict(ends), is_whole)
    consumer.assign([TopicPartition(topic, number, start) for number, start in starts.items()])
    silent = set(starts)
    deadline = time.monotonic() + seconds
    while ends and time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            continue
        error, number = message.error(), int(message.partition() or 0)
        _check_size(error)
        if error is None:
            silent.discard(number)
            yield topic, _record(message)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise KafkaException(error)
        elif error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            continue
        if error is not None or int(message.offset() or 0) + 1 >= ends.get(number, 0):
            silent.discard(number)
            ends.pop(number, None)
    return bool(silent)


def no_answer(topic: str, seconds: float) -> Refusal:
    """The refusal for a topic of which no record was received within ``seconds``."""
    return Refusal("", f"no record of {topic} came within {seconds:g} s", "check the brokers that lead its partitions")


def _check_size(error: KafkaError | None) -> None:
    """Raise MemoryError if the client could not decompress a record, for lack of memory or because of its own limit."""
    if error is not None and error.code() == KafkaError._BAD_COMPRESSION:  # noqa: SLF001 - its public name
        raise MemoryError


def _record(message: Message) -> Record:
    kind, at_ms = message.timestamp()
    return Record(
        value=_bytes(message.value()),
        key=_bytes(message.key()),
        headers=tuple((str(name), _bytes(value)) for name, value in list(message.headers() or ())),
        timestamp_us=0 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms * 1000,
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
