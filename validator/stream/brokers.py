"""What the brokers say: which topics exist, where their logs start and end, what a group committed.

All that the sidecar asks of Kafka outside Spark's own source goes through here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from validator.config.model import Config
from validator.model.frontier import Lookup, PartitionId

_TIMEOUT_SECONDS: Final = 20.0
_NOT_THERE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_EXCEPTION,  # no topic can have such a name
    KafkaError.TOPIC_AUTHORIZATION_FAILED,  # brokers do not even list what one may not see
)
_EARLIEST: Final[OffsetSpec] = OffsetSpec.earliest()
_LATEST: Final[OffsetSpec] = OffsetSpec.latest()


class BrokersUnreachable(Exception):
    """No answer from the brokers within the time-out."""


@dataclass(frozen=True)
class Topic:
    """A topic that exists: its id (a recreated topic has another) and its partitions."""

    name: str
    id: str
    partitions: tuple[int, ...]


class Brokers:
    """The cluster of one configuration. Raises `BrokersUnreachable` from every call."""

    def __init__(self, config: Config) -> None:
        self._servers = config.kafka.bootstrap_servers
        self._group = config.engine.consumer_group
        options = {str(name): str(value) for name, value in config.kafka.options.items()}
        self._admin = AdminClient(
            {
                **librdkafka_options(options),
                "bootstrap.servers": self._servers,
                "socket.timeout.ms": 10_000,
                "log_level": 2,
                "client.id": "streamproof",
            }
        )

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of ``names`` that exist. What else the cluster has is not asked for: there can be thousands."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        try:
            described = self._admin.describe_topics(TopicCollection(wanted), request_timeout=_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise self._unreachable(error) from error
        found = {}
        for name, future in described.items():
            try:
                answer = future.result()
            except KafkaException as error:
                if error.args[0].code() in _NOT_THERE:
                    continue
                raise self._unreachable(error) from error
            partitions = tuple(sorted(partition.id for partition in answer.partitions))
            if partitions:
                found[name] = Topic(name, str(answer.topic_id), partitions)
        return found

    def lookup(self, topics: Mapping[str, Topic]) -> dict[PartitionId, Lookup]:
        """Log start, high watermark, last stable offset and (with a group) committed offset of every partition.

        Call `topics` before: asked for offsets alone, the client goes on with the leader that it knew, and fails for
        good once another one was elected.
        """
        partitions = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
        if not partitions:
            return {}
        starts = self._offsets(partitions, _EARLIEST, IsolationLevel.READ_UNCOMMITTED)
        # The high watermark before the stable offset: asked the other way round, records appended in between
        # would look like an open transaction.
        high = self._offsets(partitions, _LATEST, IsolationLevel.READ_UNCOMMITTED)
        stable = self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        committed = self.committed(partitions) if self._group is not None else {}
        return {
            place: Lookup(
                topic_id=topics[place.topic].id,
                log_start_offset=starts[place],
                high_watermark=high[place],
                last_stable_offset=min(stable[place], high[place]),
                committed_offset=committed.get(place),
            )
            for place in high
        }

    def have_append_time(self, topics: Iterable[str]) -> bool:
        """Whether every topic stamps its records itself (LogAppendTime); only then is there a latency."""
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
        if not asked:
            return False
        try:
            answers = self._admin.describe_configs(asked, request_timeout=_TIMEOUT_SECONDS)
            return all(
                future.result()["message.timestamp.type"].value == "LogAppendTime" for future in answers.values()
            )
        except KafkaException:
            # Not allowed to see it, or just deleted: nothing is claimed.
            return False

    def at_time(self, topics: Mapping[str, Topic], instant_us: int) -> dict[PartitionId, int]:
        """First offset whose record timestamp is at or after the instant; the end where there is none."""
        partitions = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
        found = self._offsets(partitions, OffsetSpec.for_timestamp(instant_us // 1000), IsolationLevel.READ_UNCOMMITTED)
        ends = self._offsets(partitions, _LATEST, IsolationLevel.READ_COMMITTED)
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}

    def committed(self, partitions: list[TopicPartition], group: str | None = None) -> dict[PartitionId, int]:
        """Committed offsets of the engine's group (or of ``group``); partitions without one are left out."""
        name = group or self._group
        assert name is not None
        try:
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name, partitions)], request_timeout=_TIMEOUT_SECONDS
            )
            answer = asked[name].result()
        except KafkaException as error:
            raise self._unreachable(error) from error
        return {PartitionId(p.topic, p.partition): p.offset for p in answer.topic_partitions if p.offset >= 0}

    def _offsets(
        self, partitions: list[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
    ) -> dict[PartitionId, int]:
        try:
            asked = self._admin.list_offsets(
                dict.fromkeys(partitions, spec),
                isolation_level=isolation,
                request_timeout=_TIMEOUT_SECONDS,
            )
            return {PartitionId(p.topic, p.partition): future.result().offset for p, future in asked.items()}
        except KafkaException as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: KafkaException) -> BrokersUnreachable:
        reason = error.args[0].str() if error.args else str(error)
        return BrokersUnreachable(
            f"no answer from the Kafka brokers at {self._servers} ({reason}): check kafka.bootstrap_servers"
        )


_JAVA_ONLY: Final = ("key.deserializer", "value.deserializer", "max.poll.records", "fetch.max.bytes")


def librdkafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Client options for librdkafka: those that only the Java client knows are left out."""
    return {name: value for name, value in options.items() if name not in _JAVA_ONLY and not name.startswith("rd.")}
