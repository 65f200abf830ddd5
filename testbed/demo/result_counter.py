"""The number of results of the demo's engine, from the end offsets of the output topic, independent of the sidecar."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from confluent_kafka import Consumer, TopicPartition

_ANSWER_SECONDS_MAX: Final = 5.0


class ResultCounter:
    """A context manager that counts committed results."""

    def __init__(self, bootstrap_servers: str, partitions: int) -> None:
        """``partitions``: number of partitions of the topic ``output``."""
        self._reader = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "demo-fault", "log_level": 0})
        self._partitions = [TopicPartition("output", number) for number in range(partitions)]

    def count(self) -> int:
        """Return the sum of the end offsets. Raises KafkaException if the broker does not answer in time."""
        return sum(self._reader.get_watermark_offsets(p, timeout=_ANSWER_SECONDS_MAX)[1] for p in self._partitions)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()
