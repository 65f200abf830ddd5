"""Publishes to the faults topic. If the broker is itself the target, records are published when it answers again."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from faults.config import KafkaSection
from faults.errors import FaultConfigError, NotPublished, Unreachable
from faults.fault import State
from faults.journal import Entry, Journal
from validator.model.kafka_options import librdkafka_options
from validator.model.kafka_refusals import TRANSIENT, ClientMessages, missing_right, refusal

_FLUSH_SECONDS_MAX: Final = 30.0
_LOOK_SECONDS_MAX: Final = 10.0


class FaultsTopicWriter:
    """Publishes the states of faults, with the times of the journal. A record may be published twice."""

    def __init__(self, kafka: KafkaSection) -> None:
        self._kafka = kafka
        self._failed: str | None = None
        options = librdkafka_options(kafka.options)
        self._options, self._heard = options, ClientMessages()
        self._producer = Producer(
            {
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "reconnect.backoff.max.ms": 500,
                "message.timeout.ms": 24 * 3600 * 1000,
                **self._heard.options(),
                **options,
                "bootstrap.servers": kafka.bootstrap_servers,
            }
        )

    def check(self) -> None:
        """Raise FaultConfigError if the topic does not exist or cannot be used, Unreachable if no broker answers."""
        try:
            metadata = self._producer.list_topics(self._kafka.topic, timeout=_LOOK_SECONDS_MAX)
        except KafkaException as error:
            self._producer.poll(0)
            why = refusal(self._heard.texts, self._options)
            if why is not None and why.kind not in TRANSIENT:
                raise FaultConfigError(f"kafka: the brokers cannot be used: {why}.") from error
            raise Unreachable(
                f"kafka.bootstrap_servers: {self._kafka.bootstrap_servers} does not answer; start the broker, name "
                "another address, or leave kafka: out to keep windows in the journal only."
            ) from error
        problem = metadata.topics[self._kafka.topic].error
        if problem is not None and problem.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            missing = ": ".join(missing_right("WRITE", f"topic {self._kafka.topic}", self._options))
            raise FaultConfigError(f"kafka.topic: {missing}.")
        if problem is not None:
            raise FaultConfigError(
                f"kafka.topic: there is no topic {self._kafka.topic}; create it, or leave kafka: out to keep windows "
                "in the journal only."
            )

    def publish(self, entry: Entry, *states: State) -> None:
        """Publish these states of a fault. Returns at once."""
        for state in states:
            self.write(entry.fault.id, entry.fault.record(state, entry.states[state], entry.over_because))

    def write(self, fault_id: str, record: str) -> None:
        """Publish one record. Returns at once, since healing must not wait; `flush` reports a failure."""
        try:
            self._producer.produce(self._kafka.topic, record.encode(), key=fault_id, on_delivery=self._delivered)
            self._producer.poll(0)
        except (KafkaException, BufferError) as error:
            self._failed = str(error)

    def flush(self) -> None:
        """Wait until all records are acknowledged. Raises NotPublished."""
        if self._producer.flush(_FLUSH_SECONDS_MAX) or self._failed is not None:
            why = self._failed or "the broker does not answer"
            raise NotPublished(
                f"{self._kafka.topic}: the broker did not acknowledge all records ({why}); "
                "`streamproof faults heal CONFIG` writes them again."
            )

    def _delivered(self, error: object, _: Message) -> None:
        if error is not None:
            self._failed = str(error)


def publish_missing(topic: FaultsTopicWriter | None, journal: Journal) -> None:
    """Publish all states of each fault for which the topic may lack a state. Raises NotPublished."""
    entries = [entry for entry in journal.entries.values() if entry.was_injected and not entry.is_published]
    if topic is None or not entries:
        return
    for entry in entries:
        topic.publish(entry, *entry.states)
    topic.flush()
    for entry in entries:
        if entry.is_healed:
            journal.mark_published(entry)
