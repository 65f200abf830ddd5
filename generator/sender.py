"""Sending: the Kafka client, the keys and partitions of the topic, and the ledger of outcomes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Producer

from generator import journal, wire
from generator.config import GeneratorConfig
from generator.outcomes import Ledger
from generator.partitioning import partition_of
from generator.workloads import sst
from validator.model.kafka_options import librdkafka_options

BLOCKED_WAIT_SECONDS: Final = 0.02
"""Pause before a retry if the client's queue is full."""
CLOSE_SLICE_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Target:
    """A topic, with the key bytes and the partition of the records of every key.

    ``updates``: the topic of the second stream in workload `mst`; ``is_updates``: this target is that stream.
    """

    topic: str
    all_keys: tuple[wire.Key, ...]
    partitions: int
    updates: Target | None = None
    is_updates: bool = False
    kafka_keys: tuple[bytes, ...] = field(init=False)
    key_partitions: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        kafka_keys = tuple(key.kafka_key() for key in self.all_keys)
        object.__setattr__(self, "kafka_keys", kafka_keys)
        object.__setattr__(self, "key_partitions", tuple(partition_of(key, self.partitions) for key in kafka_keys))

    def id_prefix(self, config: GeneratorConfig) -> str | None:
        """Prefix of the ids; None for integer ids."""
        if config.id.kind == "integer":
            return None
        return config.id.update_prefix if self.is_updates else config.id.prefix


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
        rendered = wire.UpdateWire if target.is_updates else wire.ClickWire
        self._wire = rendered(target.all_keys, target.id_prefix(config))
        self._client = Producer(client_options(config))
        self._writer = writer
        self.ledger = Ledger(self._wire.number_in, acknowledges=config.delivery.acks != "0", writer=writer)

    def send(self, batch: sst.SendBatch) -> None:
        """Queue all of ``batch``; wait while the client's queue is full. Raises KafkaException if the client has
        failed.
        """
        event_time = self._config.creation_timestamp == "event_time"
        created_ms = -1 if event_time else time.time_ns() // 1_000_000
        if len(batch) == 0:
            return
        values = self._wire.render(batch.numbers, batch.keys, batch.times_ms, created_ms)
        topic, produce, target = self._target.topic, self._client.produce, self._target
        partitions = [target.key_partitions[key] for key in batch.keys]
        kafka_keys = target.kafka_keys
        first, second = self.ledger.report_first, self.ledger.report_second
        self.ledger.add(batch, partitions)
        for value, key, partition, kind in zip(values, batch.keys, partitions, batch.kinds, strict=True):
            report = second if kind == sst.SECOND_COPY else first
            while True:
                try:
                    produce(topic, value, kafka_keys[key], partition, report)
                    break
                except BufferError:
                    self._client.poll(BLOCKED_WAIT_SECONDS)
        self.settle(0)

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
