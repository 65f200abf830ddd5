"""A few records of a topic, read beside the stream: the newest ones, or the one at a position."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Message, TopicPartition

from validator.codecs.one_record import Record
from validator.config.model import Config
from validator.model.kafka_options import OptionsRefused
from validator.stream.clients import for_librdkafka, made

_CONSUME_SECONDS: Final = 0.1
_FETCHED_BYTES_MOST: Final = 4 * 1024 * 1024


@contextmanager
def _consumer(config: Config) -> Iterator[Consumer]:
    ours = {
        "isolation.level": config.kafka.isolation_level,
        "group.id": "streamproof-samples",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "fetch.message.max.bytes": _FETCHED_BYTES_MOST,
        "queued.max.messages.kbytes": 16 * 1024,
        "log_level": 0,
    }
    consumer = made(Consumer, for_librdkafka(config, ours))
    try:
        yield consumer
    finally:
        consumer.close()


def record_at(config: Config, topic: str, partition: int, offset: int, seconds: float) -> Record | None:
    """The record at a position; None where it is gone, or does not come within ``seconds``."""
    try:
        with _consumer(config) as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                for message in consumer.consume(1, timeout=_CONSUME_SECONDS):
                    if message.error() is not None:
                        return None
                    return _record(message) if message.offset() == offset else None
    except (KafkaException, OptionsRefused):
        return None
    return None


def newest(config: Config, topic: str, partitions: Sequence[int], most: int, seconds: float) -> list[Record]:
    """Up to ``most`` of the newest visible records of a topic, the oldest first in each partition; what comes within
    ``seconds``. Raises KafkaException."""
    share = max(1, most // max(1, len(partitions)))
    found: list[Record] = []
    with _consumer(config) as consumer:
        ends: dict[int, int] = {}
        starts = []
        for number in partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=seconds)
            if high > low:
                ends[number] = high
                starts.append(TopicPartition(topic, number, max(low, high - share)))
        if not starts:
            return []
        consumer.assign(starts)
        deadline = time.monotonic() + seconds
        while ends and len(found) < most and time.monotonic() < deadline:
            for message in consumer.consume(100, timeout=_CONSUME_SECONDS):
                error, number = message.error(), int(message.partition() or 0)
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                        ends.pop(number, None)
                    continue
                found.append(_record(message))
                if int(message.offset() or 0) + 1 >= ends.get(number, 0):
                    ends.pop(number, None)
    return found[:most]


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
