"""Fault of a topic: a transaction stays open, so that readers of committed records wait.

Healing initializes a producer with the same transactional id. Kafka then aborts the earlier transaction.
This works from any process, also if the process that opened the transaction has ended. The record is never committed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException, Message, Producer

from faults.backends.kafka import LOOK_SECONDS_MAX, TopicClient, producer
from faults.errors import FaultRefused, Unreachable
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import TransactionParameters
from faults.targets import TopicTarget

_RECORD: Final = b"streamproof transaction_hang: never committed"


class TransactionHang:
    """Opens a transaction, writes one record, and keeps the transaction open."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        assert isinstance(fault.parameters, TransactionParameters)
        self.facts = facts
        self._parameters = fault.parameters
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, TopicTarget)}
        self._ids = {name: f"streamproof-fault-{fault.id}-{name}" for name in self._targets}
        self._producers: list[Producer] = []
        self._topics: dict[str, TopicClient] = {}

    def prepare(self) -> None:
        """Raise FaultRefused if the topic or the partition does not exist."""
        for name in self._targets:
            count = self._topic(name).partitions()
            if self._parameters.partition >= count:
                raise FaultRefused(
                    f"{name}: the topic has no partition {self._parameters.partition}; "
                    f"choose one from 0 to {count - 1}."
                )

    def inject(self) -> None:
        """Open the transaction, and wait until the broker has acknowledged the record. Raises FaultRefused."""
        for name, target in self._targets.items():
            writer = self._producer(name)
            written: list[Message] = []
            failed: list[str] = []

            def note(
                error: object, message: Message, written: list[Message] = written, failed: list[str] = failed
            ) -> None:
                if error is None:
                    written.append(message)
                else:
                    failed.append(str(error))

            try:
                writer.init_transactions(LOOK_SECONDS_MAX)
                writer.begin_transaction()
                writer.produce(target.topic, _RECORD, partition=self._parameters.partition, on_delivery=note)
                writer.flush(LOOK_SECONDS_MAX)
            except KafkaException as error:
                raise FaultRefused(f"{name}: no transaction could be opened ({error.args[0].str()}).") from error
            if not written:
                raise FaultRefused(f"{name}: the broker did not accept the record ({'; '.join(failed) or 'no reply'}).")
            offset = written[0].offset()
            assert offset is not None
            self._producers.append(writer)
            self.facts = Facts(offsets={**self.facts.offsets, self._place(name): offset})

    def maintain(self) -> None:
        """Does nothing: the broker keeps the transaction open."""

    def is_active(self) -> bool:
        """Whether readers of committed records cannot pass the record."""
        return all(self._is_held(name) for name in self._targets)

    def heal(self) -> None:
        """Abort the transactions by taking over their ids. Raises FaultRefused; Unreachable if a retry may help."""

        def take_over(name: str) -> None:
            try:
                self._producer(name).init_transactions(LOOK_SECONDS_MAX)
            except KafkaException as error:
                why = error.args[0]
                kind = Unreachable if why.retriable() else FaultRefused
                raise kind(f"{name}: its transaction could not be ended ({why.str()}).") from error

        for_each(self._targets, take_over)
        self._producers.clear()

    def is_healed(self) -> bool:
        """Whether the last stable offset is past the record or, if its offset is unknown, at the high watermark."""
        return all(self._is_passed(name) for name in self._targets)

    def _is_held(self, name: str) -> bool:
        topic, partition = self._topic(name), self._parameters.partition
        try:
            stable = topic.last_stable_offset(partition)
            return stable <= self.facts.offsets[self._place(name)] < topic.high_watermark(partition)
        except KafkaException:
            return False

    def _is_passed(self, name: str) -> bool:
        topic, partition = self._topic(name), self._parameters.partition
        offset = self.facts.offsets.get(self._place(name))
        try:
            stable = topic.last_stable_offset(partition)
            return stable > offset if offset is not None else stable >= topic.high_watermark(partition)
        except KafkaException:
            return False

    def _place(self, name: str) -> str:
        return f"{self._targets[name].topic}/{self._parameters.partition}"

    def _topic(self, name: str) -> TopicClient:
        if name not in self._topics:
            self._topics[name] = TopicClient(name, self._targets[name])
        return self._topics[name]

    def _producer(self, name: str) -> Producer:
        target = self._targets[name]
        return producer(
            target.bootstrap_servers,
            target.options_file,
            {
                "transactional.id": self._ids[name],
                "transaction.timeout.ms": round(self._parameters.timeout * 1000),
                "linger.ms": 0,
            },
        )
