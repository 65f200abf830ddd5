"""The offsets of an engine's inputs and of its output, as the broker states them. Call each reader once a second."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

Consumed = Callable[[], Mapping[tuple[str, int], int] | None]
"""(topic, partition) -> the offset up to which an engine without a consumer group has consumed; None: not known yet."""
_ANSWER_SECONDS_MAX: Final = 0.9


Partition = tuple[str, int]


@dataclass(frozen=True)
class Offsets:
    """The events in each partition of the inputs, and those that the engine has consumed; None: it has committed
    nothing."""

    produced: Mapping[Partition, int]
    consumed: Mapping[Partition, int] | None


class InputOffsets:
    """What an engine has consumed of its inputs."""

    def __init__(
        self, bootstrap_servers: str, group: str, topics: Mapping[str, int], own: Consumed | None = None
    ) -> None:
        """``topics``: name -> number of partitions. ``own``: the offsets of an engine without a ``group``."""
        options: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}
        self._admin = AdminClient(options)
        # An AdminClient that asks for a group's offsets may end the process (`validator.stream.brokers`).
        self._consumer = Consumer(options | {"group.id": group, "isolation.level": "read_uncommitted"})
        self._partitions = [TopicPartition(name, i) for name, count in topics.items() for i in range(count)]
        self._consumed = self._committed if own is None else own

    def __call__(self) -> Offsets | None:
        """The offsets now; None if the broker does not answer."""
        try:
            # The ends are asked for last, so that the lag is never negative.
            through = self._consumed()
            ends = self._admin.list_offsets(
                {partition: OffsetSpec.latest() for partition in self._partitions}, request_timeout=_ANSWER_SECONDS_MAX
            )
            produced = {(of.topic, of.partition): end.result().offset for of, end in ends.items()}
        except (KafkaException, ValueError):
            return None
        return Offsets(produced, through)

    def _committed(self) -> Mapping[tuple[str, int], int] | None:
        committed = self._consumer.committed(self._partitions, timeout=_ANSWER_SECONDS_MAX)
        found = {(one.topic, one.partition): one.offset for one in committed if one.offset >= 0}
        return found or None


class TopicEnd:
    """The number of offsets of a topic."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        self._wanted = {TopicPartition(topic, i): OffsetSpec.latest() for i in range(partitions)}

    def __call__(self) -> int | None:
        """The offsets so far; None if the broker does not answer."""
        try:
            ends = self._admin.list_offsets(self._wanted, request_timeout=_ANSWER_SECONDS_MAX).values()
            offsets: list[int] = [end.result().offset for end in ends]
            return sum(offsets)
        except (KafkaException, ValueError):
            return None
