"""Records of the faults topic that do not fit into a worker's memory are left out, and only these, in a bounded
time.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message

from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.model.frontier import Lookup, PartitionId
from validator.stream import faults_topic
from validator.stream.brokers import Topic
from validator.stream.fault_rows import BYTES_MAX
from validator.stream.faults_topic import FaultsTopicReader
from validator.stream.kafka_reading import Range, ReadFailed


class Log:
    """A faults topic, with its brokers and its reader. ``huge``: offsets that end a worker. ``parts``: its partitions.
    ``error_of``: the error that ends the reading of a range."""

    parts: tuple[int, ...] = (0,)
    error_of: Callable[[Range], Exception | None] = staticmethod(lambda one: None)

    def __init__(self, records: int, huge: set[int]) -> None:
        self.records, self.huge, self.failures, self.topic_id, self.answers = records, huge, 0, "1", True

    def __call__(self, *_: object) -> Log:
        return self

    def seen(self, names: Sequence[str]) -> dict[str, Topic | None]:
        return {"faults": Topic("faults", self.topic_id, self.parts)}

    def lookup(self, topics: object) -> dict[PartitionId, Lookup]:
        lookup = Lookup(self.topic_id, 0, self.records, self.records)
        return {PartitionId("faults", part): lookup for part in self.parts}

    def each(self, taken: Callable[[Message], Any], ranges: Sequence[Range], *, isolated: bool) -> Iterator[Any]:
        if not self.answers:
            raise ReadFailed("the brokers did not answer in time")
        for one in ranges:
            if (error := self.error_of(one)) is not None:
                raise error
            for offset in range(one.start, one.end):
                if offset in self.huge:
                    self.failures += 1
                    raise RuntimeError("Python worker exited unexpectedly (crashed)")
                yield taken(Message(topic=one.topic, partition=one.partition, offset=offset, value=fault(offset)))


def fault(offset: int) -> bytes:
    record = {"id": str(offset), "kind": "k", "target": "e", "state": "healed", "time": "2026-01-01T00:00:00Z"}
    return json.dumps(record).encode() + b" " * (BYTES_MAX if offset % 1_000 == 999 else 0)


def polled(monkeypatch: pytest.MonkeyPatch, log: Log, said: list[str]) -> Callable[[], list[int]]:
    monkeypatch.setattr(faults_topic, "Brokers", log)
    topic = FaultsTopicReader(loads(EXAMPLES["clickstream"], Path("/etc"), ["faults.topic=faults"], {}), said.append)
    return lambda: [int(str(row["offset"])) for row in topic.poll(log)]


def test_only_a_huge_record_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        count = chance.choice([1, 2, 50, 1_500])
        log, said = Log(count, {chance.randrange(count)}), list[str]()
        poll = polled(monkeypatch, log, said)
        assert poll() == [offset for offset in range(count) if offset not in log.huge and offset % 1_000 != 999]
        assert len(said) == 1
        assert poll() == []
        log.records += 1
        assert poll() == [count]
        log.topic_id, log.records, log.huge = "2", 3, set()
        assert poll() == [0, 1, 2]


def test_a_recreated_topic_is_read_from_its_start_also_after_a_failed_read(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(5, set())
    poll = polled(monkeypatch, log, [])
    assert poll() == [*range(5)]
    log.topic_id, log.records = "2", 8
    log.error_of = lambda one: RuntimeError("a child process ended")
    with pytest.raises(RuntimeError):
        poll()
    log.error_of = lambda one: None
    assert poll() == [*range(8)]


def test_a_partition_that_cannot_be_read_hides_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    log, said = Log(3, set()), list[str]()
    log.parts = (0, 1)
    monkeypatch.setattr(faults_topic, "_PAUSE_SECONDS", 0.0)
    poll = polled(monkeypatch, log, said)
    log.error_of = lambda one: ReadFailed("a record is damaged") if one.partition == 0 else None
    assert [poll(), poll()] == [[0, 1, 2], []]
    assert said == []
    assert [poll(), poll()] == [[], []]
    assert len(said) == 1
    assert "faults-0" in said[0]
    log.error_of = lambda one: None
    assert poll() == [0, 1, 2]


def test_a_topic_full_of_huge_records_takes_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    log, said = Log(9_000, set(range(0, 8_000, 2))), list[str]()
    poll = polled(monkeypatch, log, said)
    assert not log.huge & set(poll())
    assert log.failures < 50
    assert len(said) < 50
    assert poll() == []


def test_records_not_yet_fetched_are_returned_by_a_later_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    log, said = Log(12_000, set()), list[str]()
    poll = polled(monkeypatch, log, said)
    log.answers = False
    assert poll() == []
    log.answers = True
    assert poll() == []
    monkeypatch.setattr(time, "monotonic", lambda: time.perf_counter() + 1e6)
    found = poll() + poll()
    assert found == [offset for offset in range(12_000) if offset % 1_000 != 999]
    assert not said
