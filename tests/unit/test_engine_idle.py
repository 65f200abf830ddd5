"""When the reference engine takes a partition for idle, on a clock and messages in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError

from testbed.engines import job
from testbed.engines.core import BEGINNING_MS, PartitionProgress
from testbed.engines.job import Job, core_of
from testbed.engines.reference import honest
from testbed.engines.settings import EngineSettings
from testbed.engines.sinks import Output

pytestmark = pytest.mark.unit
IDLE_SECONDS: Final = 2.0
SETTINGS: Final = EngineSettings(
    bootstrap_servers="b:1", inputs=("click",), window_ms=1000, idle_after_seconds=IDLE_SECONDS
)


class _Loop(Job):
    """An engine with two partitions, of which `read` gives it messages."""

    def __init__(self) -> None:
        self._settings, self._core, self._plan = SETTINGS, core_of(SETTINGS), honest
        self._decoders, self._at_end_since, self._announced = {}, {}, True
        self._messages: list[Any] = []
        self._written: list[Output] = []
        self._sink: Any = SimpleNamespace(accept=self._written.append)
        self._consumer: Any = SimpleNamespace(consume=lambda *_: self._messages)
        self._next = [0, 0]
        for number in range(2):
            self._core.assign(("click", number), PartitionProgress(0, 0, BEGINNING_MS))
            self._decoders["click", number] = self._decoder("click")

    def read(self, *times_ms: tuple[int, int]) -> list[tuple[str, list[int]]]:
        """Read an event for each partition and time, and then the ends of both. Return the topics and ids written."""
        self._messages = [self._message(number, time_ms) for number, time_ms in times_ms]
        self._messages += [self._message(number, None) for number in range(2)]
        self._written.clear()
        self._read()
        values = [(output.topic, json.loads(output.value or b"")) for output in self._written]
        return [(topic, value["clickIds"] if topic == "output" else [value["clickId"]]) for topic, value in values]

    def _message(self, number: int, time_ms: int | None) -> Any:
        offset = self._next[number]
        value: bytes | None = None
        if time_ms is not None:
            self._next[number] += 1
            at = f"1970-01-01T00:00:{time_ms / 1000:06.3f}"
            value = json.dumps({"id": 100 * number + offset, "page": "/a", "timestamp": at}).encode()
        end = None if value is not None else SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF)
        return SimpleNamespace(
            error=lambda: end, topic=lambda: "click", partition=lambda: number, offset=lambda: offset,
            value=lambda: value,
        )  # fmt: skip


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    of = SimpleNamespace(now=100.0)
    of.monotonic = lambda: of.now
    monkeypatch.setattr(job, "time", of)
    return of


def test_after_a_silence_of_all_partitions_the_first_one_to_go_on_makes_no_event_late(clock: SimpleNamespace) -> None:
    """Their source had not begun, or it had paused. Its first transaction has windows of both, read one by one."""
    engine = _Loop()
    for second in (1, 10):
        assert engine.read() == []
        clock.now += 2 * IDLE_SECONDS
        assert engine.read() == []
        assert all(state.idle for state in engine._core._partitions.values())
        of_each = (second * 1000, second * 1000 + 3000)
        assert engine.read(*((0, ms) for ms in of_each)) == []
        found = engine.read(*((1, ms) for ms in of_each))
        assert [topic for topic, _ in found] == ["output"] * (1 if second == 1 else 2), found
        assert len(found[-1][1]) == 2, "an event of each"


def test_after_a_pause_of_the_engine_no_partition_is_idle(clock: SimpleNamespace) -> None:
    engine = _Loop()
    assert engine.read((0, 1000), (1, 1000)) == []
    clock.now += 2 * IDLE_SECONDS
    assert engine.read((0, 2000)) == []
    assert engine.read((1, 1500), (1, 2000)) == [("output", [0, 100, 101])]


def test_a_partition_is_idle_while_another_one_has_data(clock: SimpleNamespace) -> None:
    engine = _Loop()
    assert engine.read((0, 1000), (1, 1000)) == []
    clock.now += IDLE_SECONDS / 2
    assert engine.read((0, 2000)) == []
    clock.now += IDLE_SECONDS / 2
    assert engine.read((0, 3000)) == [("output", [0, 100]), ("output", [1])]
    assert engine.read((1, 1500)) == [("lateOutput", [101])]


def test_a_partition_without_data_holds_a_sparse_one_up_for_its_time_only(clock: SimpleNamespace) -> None:
    engine = _Loop()
    assert engine.read() == []
    for ms in (1000, 3000, 5000):
        clock.now += 2 * IDLE_SECONDS
        assert engine.read((0, ms)) == []
        clock.now += IDLE_SECONDS
        assert engine.read() == ([] if ms == 1000 else [("output", [ms // 2000 - 1])])
