"""Kafka as a client sees it: metadata of one broker, high watermarks and last stable offsets of a topic."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from faults.errors import FaultRefused, Unreachable
from faults.targets import BrokerTarget, TopicTarget
from validator.model.kafka_options import OptionsRefused, librdkafka_options

ANSWER_SECONDS_MAX: Final = 1.0
"""A broker that needs longer for its metadata counts as not answering."""
LOOK_SECONDS_MAX: Final = 10.0

Options = dict[str, str | int | float | bool]
Client = TypeVar("Client")


def options(bootstrap_servers: str, file: Path | None) -> Options:
    """Options of a librdkafka client, including those of the file. Raises FaultRefused if the file cannot be used."""
    read: Options = {}
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise FaultRefused(f"options_file: {file} cannot be read ({error.strerror}).") from error
        for number, line in enumerate(lines, start=1):
            name, equals, value = line.partition("=")
            if line.strip() and not line.startswith("#"):
                if not equals:
                    raise FaultRefused(f"options_file: line {number} of {file} is not name=value; fix it.")
                read[name.strip()] = value.strip()
    try:
        ready = librdkafka_options(read)
    except OptionsRefused as error:
        raise FaultRefused(f"options_file: {file}: {error.problem}; {error.fix}.") from error
    return {"log_level": 0, "reconnect.backoff.max.ms": 500, **ready, "bootstrap.servers": bootstrap_servers}


def admin(bootstrap_servers: str, file: Path | None) -> AdminClient:
    """An admin client. Raises FaultRefused if the options cannot be used."""
    return _made(AdminClient, options(bootstrap_servers, file), file)


def producer(bootstrap_servers: str, file: Path | None, more: Options) -> Producer:
    """A producer with the additional options ``more``. Raises FaultRefused if the options cannot be used."""
    return _made(Producer, {**options(bootstrap_servers, file), **more}, file)


def _made(client: Callable[[Options], Client], given: Options, file: Path | None) -> Client:
    try:
        return client(given)
    except KafkaException as error:
        where = "the options of the target" if file is None else f"the options in {file}"
        raise FaultRefused(f"options_file: the Kafka client refuses {where} ({error.args[0].str()}).") from error


def answers(broker: BrokerTarget) -> bool:
    """Whether this broker returns its metadata. The client knows no other broker."""
    try:
        admin(broker.address, broker.options_file).list_topics(timeout=ANSWER_SECONDS_MAX)
    except KafkaException:
        return False
    return True


class TopicClient:
    """Reads the metadata and offsets of one topic."""

    def __init__(self, name: str, target: TopicTarget) -> None:
        self.name, self.target = name, target
        self._admin = admin(target.bootstrap_servers, target.options_file)

    def partitions(self) -> int:
        """Number of partitions. Raises FaultRefused if the topic does not exist, Unreachable if no broker answers."""
        try:
            found = self._admin.list_topics(self.target.topic, timeout=LOOK_SECONDS_MAX).topics[self.target.topic]
        except KafkaException as error:
            raise Unreachable(f"{self.name}: {self.target.bootstrap_servers} does not answer.") from error
        if found.error is not None:
            raise FaultRefused(f"{self.name}: there is no topic {self.target.topic}; create it, or name another.")
        return len(found.partitions)

    def high_watermark(self, partition: int) -> int:
        """The offset after the last record. Raises KafkaException."""
        return self._end(partition, IsolationLevel.READ_UNCOMMITTED)

    def last_stable_offset(self, partition: int) -> int:
        """The offset at which readers of committed records stop. Raises KafkaException."""
        return self._end(partition, IsolationLevel.READ_COMMITTED)

    def _end(self, partition: int, level: IsolationLevel) -> int:
        asked = TopicPartition(self.target.topic, partition)
        # list_offsets uses the leader and epoch in the client's cache, however old they are. This refreshes the cache.
        self._admin.list_topics(self.target.topic, timeout=LOOK_SECONDS_MAX)
        done = self._admin.list_offsets(
            {asked: OffsetSpec.latest()}, isolation_level=level, request_timeout=LOOK_SECONDS_MAX
        )
        return int(done[asked].result().offset)


def describe_topic(target: TopicTarget) -> str:
    """A description of the topic, or of what is wrong with it, for the operator."""
    try:
        return f"{TopicClient('topic', target).partitions()} partitions of {target.topic}"
    except FaultRefused as error:
        return str(error).removeprefix("topic: ")
