"""Sending: the client, the topic's keys and partitions, and the ledger of what became of the sends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from confluent_kafka import Producer

from generator import journal, wire
from generator.clock import Clock
from generator.config import GeneratorConfig
from generator.outcomes import Ledger
from generator.partitioning import partition_of
from generator.workloads import sst
from validator.model.kafka_options import librdkafka_options

BLOCKED_WAIT_SECONDS: Final = 0.02
"""How long to wait for room in the client's queue before trying again."""
CLOSE_SLICE_SECONDS: Final = 0.25


@dataclass(frozen=True)
class Target:
    """The topic, and for every key the bytes and the partition of its records.

    ``updates``: where the second stream of the workload `mst` goes; ``is_updates``: this is it.
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
        """What its ids begin with; None where they are integers."""
        if config.id.kind == "integer":
            return None
        return config.id.update_prefix if self.is_updates else config.id.prefix


def client_options(config: GeneratorConfig) -> dict[str, str | int | float | bool]:
    """Options of the client; those of the configuration win."""
    return {
        "bootstrap.servers": config.kafka.bootstrap_servers,
        "partitioner": "murmur2_random",
        "acks": config.delivery.acks,
        "enable.idempotence": config.delivery.idempotent,
        "compression.type": config.delivery.compression,
        "linger.ms": config.delivery.linger,
        # Batches above 1 MiB are slow, and refused by a broker with the default message.max.bytes.
        "batch.size": 900_000,
        "queue.buffering.max.messages": 200_000,
        "queue.buffering.max.kbytes": 262_144,
        **librdkafka_options(config.kafka.options),
    }


class Sender:
    """Sends batches through one client and keeps the ledger of their outcomes."""

    def __init__(
        self, config: GeneratorConfig, target: Target, clock: Clock, writer: journal.JournalWriter | None
    ) -> None:
        self._config = config
        self._target = target
        self._clock = clock
        rendered = wire.UpdateWire if target.is_updates else wire.ClickWire
        self._wire = rendered(target.all_keys, target.id_prefix(config))
        self._client = Producer(client_options(config))
        self._writer = writer
        self.ledger = Ledger(self._wire.number_in, acknowledges=config.delivery.acks != "0", writer=writer)

    def send(self, batch: sst.SendBatch) -> None:
        """Queue all of ``batch``, waiting while the client's queue is full. Raises KafkaException when it is dead."""
        event_time = self._config.creation_timestamp == "event_time"
        created_ms = -1 if event_time else self._clock.now_ms()
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
        """Take in delivery reports, waiting up to ``wait_seconds`` for one."""
        self._client.poll(wait_seconds)
        self.ledger.settle()

    def finish(self, totals: Mapping[str, object]) -> None:
        """End the journal, where there is one, with its totals."""
        if self._writer is not None:
            self._writer.finish(totals)

    def close(self) -> None:
        """Wait for outstanding reports up to the flush deadline; what is left then is indeterminate."""
        deadline = self._clock.monotonic_seconds() + self._config.delivery.flush_deadline / 1000
        while self._client.flush(CLOSE_SLICE_SECONDS) > 0 and self._clock.monotonic_seconds() < deadline:
            self.ledger.settle()
        if len(self._client) > 0:
            self._client.purge()
            self._client.flush(CLOSE_SLICE_SECONDS)
        self.ledger.settle()
        self.ledger.abandon()
