"""Sending: the Kafka client, the keys and partitions of the topic, and the ledger of outcomes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from confluent_kafka import Producer

from generator import journal
from generator.config import GeneratorConfig
from generator.outcomes import Ledger
from generator.partitioning import partition_of
from generator.sends import SECOND_COPY, SendBatch
from generator.workloads.seam import Columns, Wire
from validator.model.kafka_options import librdkafka_options

BLOCKED_WAIT_SECONDS: Final = 0.02
"""Pause before a retry if the client's queue is full."""
CLOSE_SLICE_SECONDS: Final = 0.25
PLACES_KEPT: Final = 1 << 16
"""Number of keys whose bytes and partition are kept."""


@dataclass(frozen=True)
class Target:
    """The topic of a stream. ``of``: its place among the streams of the workload."""

    topic: str
    partitions: int
    of: int = 0


def wire_of(config: GeneratorConfig, target: Target) -> Wire:
    """The bytes of the target's events."""
    return config.workload.wire(config.workload.streams[target.of], config.load(0, 0))


def client_options(config: GeneratorConfig) -> dict[str, str | int | float | bool]:
    """Options of the client; options from the configuration take precedence."""
    return {
        "bootstrap.servers": config.kafka.bootstrap_servers,
        "partitioner": "murmur2_random",
        "acks": config.delivery.acks,
        "enable.idempotence": config.delivery.idempotent,
        "compression.type": config.delivery.compression,
        "linger.ms": config.delivery.linger,
        # Batches above 1 MiB are slow, and a broker with the default message.max.bytes rejects them.
        "batch.size": 900_000,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 262_144,
        **librdkafka_options(config.kafka.options),
    }


class Sender:
    """Sends batches through one client and keeps the ledger of their outcomes."""

    def __init__(self, config: GeneratorConfig, target: Target, writer: journal.JournalWriter | None) -> None:
        self._config = config
        self._target = target
        self._wire = wire_of(config, target)
        self._place = lru_cache(PLACES_KEPT)(self._place_of)
        self._client = Producer(client_options(config))
        self._writer = writer
        self.ledger = Ledger(self._wire.number_in, acknowledges=config.delivery.acks != "0", writer=writer)

    def send(self, batch: SendBatch) -> None:
        """Queue all of ``batch``; wait while the client's queue is full. Raises KafkaException if the client has
        failed.
        """
        event_time = self._config.creation_timestamp == "event_time"
        created_ms = -1 if event_time else time.time_ns() // 1_000_000
        if len(batch) == 0:
            return
        values = self._wire.render(batch.numbers, batch.keys, batch.times_ms, created_ms)
        topic, produce = self._target.topic, self._client.produce
        places = list(map(self._place, batch.keys))
        first, second = self.ledger.report_first, self.ledger.report_second
        self.ledger.add(batch, [partition for _, partition in places])
        for value, (key, partition), kind in zip(values, places, batch.kinds, strict=True):
            report = second if kind == SECOND_COPY else first
            while True:
                try:
                    produce(topic, value, key, partition, report)
                    break
                except BufferError:
                    self._client.poll(BLOCKED_WAIT_SECONDS)
        self.settle(0)

    def closing(self, first_number: int) -> Columns:
        """Numbers and keys of events that reach all partitions to which events go."""
        return self._wire.closing(first_number, self._partition_of, self._target.partitions)

    def _place_of(self, key: int) -> tuple[bytes, int]:
        kafka_key = self._wire.kafka_key(key)
        return kafka_key, self._partition_of(kafka_key)

    def _partition_of(self, kafka_key: bytes) -> int:
        return partition_of(kafka_key, self._target.partitions)

    def settle(self, wait_seconds: float) -> None:
        """Process delivery reports; wait up to ``wait_seconds`` for one."""
        self._client.poll(wait_seconds)
        self.ledger.settle()

    def finish(self, totals: Mapping[str, object]) -> None:
        """Complete the journal, if there is one, with its totals."""
        if self._writer is not None:
            self._writer.finish(totals)

    def close(self) -> None:
        """Wait for outstanding reports until the flush deadline; sends without a report are then indeterminate."""
        deadline = time.monotonic() + self._config.delivery.flush_deadline / 1000
        while self._client.flush(CLOSE_SLICE_SECONDS) > 0 and time.monotonic() < deadline:
            self.ledger.settle()
        if len(self._client) > 0:
            self._client.purge()
            self._client.flush(CLOSE_SLICE_SECONDS)
        self.ledger.settle()
        self.ledger.abandon()
