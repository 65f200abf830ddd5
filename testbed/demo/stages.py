"""The stages before the one that the demo judges: reference engines without errors, and the events that they leave."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from testbed.demo.files import GROUP, TRANSACTION_SECONDS, topics, window_seconds
from testbed.demo.options import DemoPlan
from testbed.engines import wire
from testbed.engines.base import ReferenceEngine
from testbed.processes import OwnedProcess

_ANSWER_SECONDS_MAX: Final = 10.0


class EarlierStages:
    """The engines of the earlier stages of a plan's workload; most workloads have none."""

    def __init__(self, plan: DemoPlan, bootstrap_servers: str, folder: Path) -> None:
        self._servers = bootstrap_servers
        *self._before, self._last = plan.topics.stages
        self._partitions = topics(plan)
        self._window_ms = window_seconds(plan) * 1000
        self._engines = [
            ReferenceEngine(
                stage.engine(
                    bootstrap_servers,
                    self._window_ms,
                    group=f"{GROUP}-{stage.results}",
                    idle_after_seconds=2.0,
                    commit_interval_seconds=0.5,
                    transaction_timeout_seconds=TRANSACTION_SECONDS,
                ),
                folder / f"engine-{stage.results}",
            )
            for stage in self._before
        ]

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
            self._lag(f"{GROUP}-{stage.results}", [at for topic in stage.inputs for at in self._of(topic)])
            for stage in self._before
        )

    def events(self) -> tuple[int, int]:
        """Return the number of events of the judged stage, and how many of them may be in windows that stay open.
        Raises KafkaException."""
        decoder = wire.Decoder(self._last.workload.streams[0])
        times_ms = [
            record[2]
            for value in self._values(self._last.inputs[0])
            if isinstance(record := decoder.decode(0, value), tuple) and not isinstance(record, wire.FilteredOut)
        ]
        operator = self._last.workload.operator(self._window_ms)
        length_ms = operator.get("window_ms", self._window_ms) + operator.get("max_disorder_ms", 0)
        open_from_ms = max(times_ms, default=0) - length_ms
        return len(times_ms), sum(time_ms >= open_from_ms for time_ms in times_ms)

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
