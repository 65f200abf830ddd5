"""The stages before the one that a demo or a campaign judges: reference engines without errors, and the events that
they leave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from testbed.engines import wire
from testbed.engines.base import ReferenceEngine
from testbed.processes import OwnedProcess
from testbed.run_files import Topics

TRANSACTION_SECONDS: Final = 10.0
"""Timeout of a transaction of the reference engine. If the broker dies, the worker waits this long and restarts."""
_ANSWER_SECONDS_MAX: Final = 10.0


class EarlierStages:
    """The engines of the earlier stages of a workload; most workloads have none."""

    def __init__(
        self,
        topics: Topics,
        partitions: Mapping[str, int],
        window_ms: int,
        *,
        group: str,
        bootstrap_servers: str,
        folder: Path,
    ) -> None:
        """``partitions``: of each topic. ``group``: the beginning of the names of their groups."""
        self._servers = bootstrap_servers
        self._group = group
        *self._before, self._last = topics.stages
        self._partitions = partitions
        self._window_ms = window_ms
        self._engines = [
            ReferenceEngine(
                stage.engine(
                    bootstrap_servers,
                    self._window_ms,
                    group=f"{group}-{stage.results}",
                    idle_after_seconds=2.0,
                    commit_interval_seconds=0.5,
                    transaction_timeout_seconds=TRANSACTION_SECONDS,
                ),
                folder / f"engine-{stage.results}",
            )
            for stage in self._before
        ]

    def __bool__(self) -> bool:
        """Whether there are some."""
        return bool(self._before)

    def start(self) -> list[OwnedProcess]:
        """Start the engines, and return their processes."""
        for engine in self._engines:
            engine.start()
        return [engine.process(0) for engine in self._engines]

    def kill(self) -> None:
        """End the engines."""
        for engine in self._engines:
            engine.kill()

    def lag(self) -> int:
        """Return how many events the earlier stages have not committed. Raises KafkaException."""
        return sum(
            self._lag(f"{self._group}-{stage.results}", [at for topic in stage.inputs for at in self._of(topic)])
            for stage in self._before
        )

    def events(self) -> tuple[int, int]:
        """Return the number of events of the judged stage, and in how many windows that stay open they may be, added
        up. Raises KafkaException."""
        decoder = wire.Decoder(self._last.workload.streams[0])
        times_ms = [
            record[2]
            for value in self._values(self._last.inputs[0])
            if isinstance(record := decoder.decode(0, value), tuple) and not isinstance(record, wire.FilteredOut)
        ]
        return len(times_ms), left_open(times_ms, self._last.workload.operator(self._window_ms), self._window_ms)

    def _of(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, number, 0) for number in range(self._partitions[topic])]

    def _lag(self, group: str, partitions: list[TopicPartition]) -> int:
        with closing(Consumer({"bootstrap.servers": self._servers, "group.id": group, "log_level": 0})) as consumer:
            return sum(
                consumer.get_watermark_offsets(one, timeout=_ANSWER_SECONDS_MAX)[1] - max(0, one.offset)
                for one in consumer.committed(partitions, timeout=_ANSWER_SECONDS_MAX)
            )

    def _values(self, topic: str) -> list[bytes | None]:
        options = {"bootstrap.servers": self._servers, "group.id": "demo-stages", "enable.partition.eof": True}
        values: list[bytes | None] = []
        with closing(Consumer({**options, "isolation.level": "read_committed", "log_level": 0})) as consumer:
            consumer.assign(self._of(topic))
            left = self._partitions[topic]
            while left and (message := consumer.poll(_ANSWER_SECONDS_MAX)) is not None:
                error = message.error()
                if error is None:
                    values.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    left -= 1
        return values


def left_open(times_ms: Sequence[int], operator: Mapping[str, Any], window_ms: int) -> int:
    """Return the number of pairs of an event and a window of it that stays open when there are no further events.
    Each partition's newest event may be a slide behind the newest of all."""
    length_ms = operator.get("window_ms", window_ms)
    slide_ms = operator.get("slide_ms", length_ms)
    closed_ms = max(times_ms, default=0) - operator.get("max_disorder_ms", 0) - slide_ms
    ends_ms = range(slide_ms, length_ms + 1, slide_ms)
    return sum(time_ms - time_ms % slide_ms + end_ms > closed_ms for time_ms in times_ms for end_ms in ends_ms)
