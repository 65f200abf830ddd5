"""Counts of the Kafka Streams DSL, whose results carry no ids, with a SIGKILL of an instance on the way.

The test counts the events of each key (and window) itself, and compares them with the newest result, or with all of
results that are written when a window closes (`suppress`). Exactly once: they are equal. At least once: after the kill,
a result may count events again, and none is lost. The sidecar says the same.
"""

from __future__ import annotations

import struct
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.real import RealEngineSettings
from testbed.engines.settings import Guarantee
from tests.engines.judged import judged
from tests.engines.reading import messages
from tests.engines.topics import until

pytestmark = [pytest.mark.full, pytest.mark.timeout(1100)]
PARTITIONS = 2
KEYS = [f"page-{number}" for number in range(40)]
WINDOW_MS = 2_000
GRACE_MS = 10_000
ROUNDS = 60
READY_SECONDS_MAX = 180.0


class CountEngine(KafkaStreamsEngine):
    """The DSL's counts."""

    counts_in_windows, once = True, False

    def _options(self) -> dict[str, str]:
        windows = {"job.grace.ms": str(GRACE_MS)} if self.counts_in_windows else {"job.window.ms": "0"}
        return super()._options() | {"job.operator": "counts", "job.suppress": str(self.once).lower()} | windows


Cell = tuple[str, int]


class Counts:
    """Topics, load and counts of one run. ``window_ms``: 0 for counts without windows. ``once``: each is written when
    its window closes, not at each update."""

    def __init__(self, broker: EmbeddedBroker, name: str, window_ms: int, *, once: bool) -> None:
        self.servers, self.window_ms, self.once = broker.bootstrap_servers, window_ms, once
        # A second of event time per round, so that windows close during the load.
        self._next_ms, self._step_ms = (int(time.time() * 1000) - 600_000, 1_000) if once else (0, 0)
        self.closed_ms = 0
        self.input, self.output = f"{name}-views", f"{name}-totals"
        # Else the broker writes the time of each record.
        broker.create_topics({self.input: PARTITIONS}, {"message.timestamp.type": "CreateTime"} if once else None)
        broker.create_topics({self.output: PARTITIONS})
        self._producer = Producer({"bootstrap.servers": self.servers, "log_level": 0, "linger.ms": 5})

    def value(self) -> bytes:
        """The value of the next event."""
        return b"view"

    def send(self, rounds: int) -> None:
        """Send events of all keys, some more often than others."""
        for round_ in range(rounds):
            for number, key in enumerate(KEYS):
                for _ in range(1 + (round_ + number) % 3):
                    self._producer.produce(self.input, self.value(), key.encode(), timestamp=self._next_ms)
            assert self._producer.flush(30) == 0
            self._next_ms += self._step_ms
            time.sleep(0.1)

    def close(self) -> None:
        """Send a later event on each partition, so that the windows before it close."""
        self.closed_ms = self._next_ms + 60_000
        for partition in range(PARTITIONS):
            self._producer.produce(self.input, self.value(), b"later", partition, timestamp=self.closed_ms)
        assert self._producer.flush(30) == 0

    def owed(self) -> Counter[Cell]:
        """The number of events of each key and window that closes."""
        return Counter(
            (message.key().decode(), self.start(message.timestamp()[1]))
            for message in messages(self.servers, self.input)
            if not self.closed_ms or message.timestamp()[1] < self.closed_ms
        )

    def start(self, at_ms: int) -> int:
        """The start of the window of a time; 0 without windows."""
        return at_ms - at_ms % self.window_ms if self.window_ms else 0

    def stated(self) -> Counter[Cell]:
        """What the newest result of each key and window states, or all results together if each is final."""
        found = Counter[Cell]()
        for message in messages(self.servers, self.output):
            key, start = message.key(), 0
            if self.window_ms:
                key, start = key[:-8], struct.unpack(">q", key[-8:])[0]
            number = struct.unpack(">q", message.value())[0]
            found[key.decode(), start] = number + (found[key.decode(), start] if self.once else 0)
        return found

    def lacking(self) -> int:
        """How many events the newest results lack."""
        stated = self.stated()
        return sum(max(0, number - stated.get(cell, 0)) for cell, number in self.owed().items())

    def repeated(self) -> int:
        """How many events the newest results count again."""
        owed = self.owed()
        return sum(max(0, number - owed[cell]) for cell, number in self.stated().items())

    def configuration(self, guarantee: Guarantee) -> dict[str, Any]:
        oracle: dict[str, Any] = {"kind": "running_aggregate", "values": {"views": "count"}}
        fields: dict[str, Any] = {"key": "$key", "values": {"views": "$value"}}
        output: dict[str, Any] = {"topic": self.output, "format": "long", "evidence": "values", "fields": fields}
        if self.window_ms:
            oracle |= {"kind": "tumbling_window", "size": f"{self.window_ms}ms"}
            fields["window_start"] = "$key.window_start"
            output["key_format"] = {"kind": "time_windowed", "inner": "text", "size": f"{self.window_ms}ms"}
        return {
            "pipeline": "counts",
            "guarantee": guarantee,
            "inputs": [{"topic": self.input, "format": "text", "fields": {"key": "$key", "event_time": "$timestamp"}}],
            "outputs": [{**output, "emission": "final" if self.once else "cumulative"}],
            "oracle": oracle,
        }


@pytest.mark.parametrize(
    ("window_ms", "once"), [(0, False), (WINDOW_MS, False), (WINDOW_MS, True)], ids=["running", "windows", "suppressed"]
)
@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_the_sidecar_agrees_with_a_count_of_the_topics(
    broker: EmbeddedBroker, tmp_path: Path, guarantee: Guarantee, window_ms: int, *, once: bool
) -> None:
    run = Counts(broker, f"dsl-{guarantee}-{window_ms}-{once}", window_ms, once=once)
    settings = RealEngineSettings(
        input=run.input,
        output=run.output,
        late=f"{run.output}-late",
        group=run.input,
        window_ms=window_ms or WINDOW_MS,
        bootstrap_servers=run.servers,
        parallelism=2,
        guarantee=guarantee,
    )
    with CountEngine(settings, tmp_path / "engine") as engine:
        engine.counts_in_windows, engine.once = window_ms > 0, once
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.send(ROUNDS // 2)
        engine.kill(0)
        engine.restart(0)
        run.send(ROUNDS // 2)
        engine.ready(READY_SECONDS_MAX)
        if once:
            run.close()
        until(lambda: not run.lacking(), READY_SECONDS_MAX, run.lacking)
        engine.stop()
    expected = {"duplicate": run.repeated(), "missing": run.lacking()}
    assert guarantee == "at_least_once" or not any(expected.values())
    given = run.configuration(guarantee)
    status, report = judged(tmp_path / "sidecar", run.servers, given, effective, leaves_open=once)
    found = report["contributions"]
    assert {name: found[name] for name in expected} == expected, report
    assert status == 0, "the engine keeps its guarantee"
    assert found["processed"] == sum(run.owed().values())
