"""The canary beside the batches, with fake brokers: what it reads, when it requests a new query, and that it keeps
nothing for long.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import cast

import pytest

from tests.unit.reconcile_rows import fact, facts
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.measure.canary_rounds import Round
from validator.model.frontier import Lookup, PartitionId
from validator.state import identity
from validator.stream import canary_writer
from validator.stream.brokers import Brokers, BrokersUnreachable, Topic
from validator.stream.canary import SIDELINED_US_MIN, CanaryWatch, canary_of
from validator.stream.canary_writer import CanaryWriter

SECOND = 1_000_000
EVERY = 60 * SECOND
CANARY = 'canary={"input": "ci", "output": "co"}'
INPUT, OUTPUT = PartitionId("ci", 0), PartitionId("co", 0)


def config(folder: Path, *assignments: str) -> Config:
    return loads(EXAMPLES["clickstream"], folder, ["kafka.bootstrap_servers=127.0.0.1:1", *assignments], environment={})


class Cluster:
    """Brokers whose lookups a test sets."""

    def __init__(self) -> None:
        self.ids = {"ci": "A", "co": "B"}
        self.ends = {INPUT: 100, OUTPUT: 50, PartitionId("co", 1): 9}
        self.log_start = 0
        self.answers = True

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        if not self.answers:
            raise BrokersUnreachable("no answer")
        partitions = {name: tuple(place.partition for place in self.ends if place.topic == name) for name in self.ids}
        return {name: Topic(name, self.ids[name], partitions[name]) for name in names if name in self.ids}

    def lookup(self, topics: Mapping[str, Topic]) -> dict[PartitionId, Lookup]:
        places = [place for place in self.ends if place.topic in topics]
        return {p: Lookup(self.ids[p.topic], self.log_start, self.ends[p], self.ends[p]) for p in places}


class Planter:
    """A canary writer whose rounds a test appends to the log."""

    def __init__(self) -> None:
        self.is_planting = False
        self.rounds: list[tuple[Round, int]] = []

    def begin(self) -> None:
        self.is_planting = True

    def pause(self) -> None:
        self.is_planting = False

    def planted(self) -> list[tuple[Round, int]]:
        taken, self.rounds = self.rounds, []
        return taken

    def close(self) -> None:
        self.pause()


class Stage:
    """A canary with its cluster and clock."""

    def __init__(self, folder: Path) -> None:
        self.now_us = 1_000 * EVERY
        self.said: list[str] = []
        self.cluster, self.planter = Cluster(), Planter()
        self.watch = CanaryWatch(config(folder, CANARY), self.planter, now_us=lambda: self.now_us, say=self.said.append)

    def open(self) -> None:
        self.watch.open(cast("Brokers", self.cluster))

    def topics(self) -> dict[str, Topic]:
        return self.cluster.topics(self.watch.topics)

    def batch(self, *records: tuple[str, bytes]) -> None:
        """One batch with these records, which reads everything."""
        self.now_us += SECOND
        rows = []
        for side, value in records:
            record, topic = json.loads(value), {"input": "ci", "output": "co"}[side]
            ids = record.get("ids") or [record["id"]]
            window_us = record["window"] if side == "output" else record["time"] // EVERY * EVERY
            row = fact(side, ids, batch=0, lookup_us=self.now_us, window_us=window_us, key=record["key"])
            newest_us = record.get("time")
            rows.append({**row, "topic": topic, "newest_event_time_us": newest_us})
            self.cluster.ends[PartitionId(topic, 0)] += 1
        read = facts(*rows) if rows else None
        self.watch.judge_batch(read, self.now_us, self.cluster.lookup(self.topics()), self.cluster.ends)

    def plant(self) -> Round:
        """Write a complete round and read it."""
        self.now_us = (self.now_us // EVERY + 1) * EVERY
        round_ = Round(self.now_us // EVERY, EVERY, "p@1")
        self.planter.rounds.append((round_, self.now_us))
        inputs = [("input", value) for value in round_.events()]
        self.batch(*inputs, *[("output", value) for value in round_.results()])
        return round_


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_rounds_are_found_batch_after_batch_and_leave_memory(stage: Stage) -> None:
    stage.open()
    assert stage.planter.is_planting
    for _ in range(30):
        stage.plant()
        for _ in range(3):
            stage.batch()
    measures = stage.watch.measures()
    assert (measures.recall_ratio, measures.false_alarms) == (1, 0)
    assert not stage.said
    # Four minutes of rounds of six cells. The older ones are judged and have left memory with their facts.
    judging = stage.watch._judging
    assert len(judging.cells) <= 5 * 6
    assert sum(table.num_rows for table in judging.known.facts_of_windows(0, 0, 0)) <= 6 * 24


def test_a_stopped_topic_lowers_the_recall_and_is_reported_once(stage: Stage) -> None:
    stage.open()
    for _ in range(6):
        stage.now_us = (stage.now_us // EVERY + 1) * EVERY
        round_ = Round(stage.now_us // EVERY, EVERY, "p@1")
        stage.planter.rounds.append((round_, stage.now_us))
        stage.batch(*[("input", value) for value in round_.events()])  # without the results
    recall = stage.watch.measures().recall_ratio
    assert recall is not None
    assert recall <= 0.25
    assert len([line for line in stage.said if "duplicate, misplaced, unknown_id" in line]) == 1


def test_the_canary_starts_at_the_ends_and_continues_at_its_position(stage: Stage) -> None:
    stage.open()
    assert stage.watch.starts == {INPUT: 100, OUTPUT: 50, PartitionId("co", 1): 9}
    stage.plant()
    stage.open()
    assert stage.watch.starts == {INPUT: 111, OUTPUT: 57, PartitionId("co", 1): 9}
    assert len(stage.watch._recall.waiting) == 1


@pytest.mark.parametrize("change", ["made again", "truncated", "gone and come"])
def test_an_incomplete_round_is_dropped_unjudged(stage: Stage, change: str) -> None:
    stage.open()
    stage.plant()
    if change == "made again":
        stage.cluster.ids["co"] = "C"
        assert stage.watch.wants_query(stage.topics())
    elif change == "truncated":
        stage.cluster.log_start = 200
        stage.cluster.ends = dict.fromkeys(stage.cluster.ends, 300)
    else:
        gone = stage.cluster.ids.pop("co")
        assert stage.watch.wants_query(stage.topics())
        stage.open()
        assert stage.watch.sources == ()
        assert not stage.planter.is_planting, "writing would make the topic"
        assert not stage.watch.wants_query(stage.topics())
        stage.cluster.ids["co"] = gone
        assert stage.watch.wants_query(stage.topics())
    stage.open()
    assert stage.watch.starts == stage.cluster.ends
    assert not stage.watch._recall.waiting
    assert not stage.watch.wants_query(stage.topics())


def test_topics_that_fail_the_query_are_left_out_for_increasing_times(stage: Stage) -> None:
    stage.open()
    for times in (1, 2):
        stage.cluster.answers = False
        stage.open()
        assert stage.watch.sources == ()
        stage.cluster.answers = True
        stage.now_us += times * SIDELINED_US_MIN - 1
        assert not stage.watch.wants_query(stage.topics())
        stage.now_us += 1
        assert stage.watch.wants_query(stage.topics())
    stage.open()
    assert [source.topic for source in stage.watch.sources] == ["co", "ci"]
    assert [sentence.split(" for ")[1] for sentence in stage.said] == ["30s: no answer", "1m: no answer"]


def test_a_canary_is_not_part_of_the_identity_of_a_state(tmp_path: Path) -> None:
    bare, watched = config(tmp_path), config(tmp_path, CANARY)
    assert identity.identity_of(bare) == identity.identity_of(watched)
    assert canary_of(bare, now_us=lambda: 0, say=print) is None


def test_a_writer_without_brokers_plants_nothing_reports_it_once_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary_writer, "_WRITE_SECONDS_MAX", 0.3)
    said: list[str] = []
    twice = threading.Event()
    clock = itertools.count(5 * SECOND, SECOND // 4)  # a quarter of a second passes between two calls
    given = config(tmp_path, CANARY)
    assert given.canary is not None
    given = given.model_copy(update={"canary": given.canary.model_copy(update={"every_us": SECOND})})

    def round_of(number: int) -> Round:
        if said:
            twice.set()
        return Round(number, SECOND, "p@1")

    writer = CanaryWriter(given, round_of, now_us=lambda: next(clock), say=said.append)
    writer.begin()
    assert twice.wait(30)
    writer.close()
    assert not writer._thread.is_alive()
    assert writer.planted() == []
    assert len(said) == 1
    assert "ci and co" in said[0]


class SlowLeader:
    """A producer. The partition of the events accepts them only when the producer is flushed."""

    def __init__(self, _: object) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.delivered: list[tuple[str, bytes]] = []
        self.events_before_a_result: set[int] = set()

    def produce(self, topic: str, value: bytes, **_: object) -> None:
        if topic == "co":
            self.events_before_a_result.add(len(self.delivered))
        self.sent.append((topic, value))

    def flush(self, _: float) -> int:
        self.delivered, self.sent = [*self.delivered, *self.sent], []
        return 0


def test_a_round_is_written_in_the_order_of_an_engine(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # If the results are read first, the canary accuses the correct cell.
    round_ = Round(stage.now_us // EVERY + 1, EVERY, "p@1")
    stage.open()
    stage.now_us += EVERY
    stage.planter.rounds.append((round_, stage.now_us))
    stage.batch(*[("output", value) for value in round_.results()])
    stage.batch(*[("input", value) for value in round_.events()])
    for _ in range(400):
        stage.batch()
    assert stage.watch.measures().false_alarms
    # So they are sent when the events are in the log.
    monkeypatch.setattr(canary_writer, "Producer", SlowLeader)
    writer = CanaryWriter(config(tmp_path, CANARY), lambda _: round_, now_us=lambda: 0, say=print)
    writer._plant(round_, 0)
    assert len(writer.planted()) == 1
    producer = cast("SlowLeader", writer._producer)
    assert producer.events_before_a_result == {len(round_.events())}


def test_a_round_that_is_written_during_a_pause_is_not_planted(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The topic of the results is recreated while a round is written. The new query begins after the events of the
    # round, and reads its results. If the round were planted, the canary would accuse the correct cell.
    stage.open()
    stage.now_us += EVERY
    round_ = Round(stage.now_us // EVERY, EVERY, "p@1")
    stage.cluster.ends[INPUT] += len(round_.events())
    stage.cluster.ids["co"] = "C"
    stage.open()
    stage.planter.rounds.append((round_, stage.now_us))
    following = Round(round_.number + 1, EVERY, "p@1")
    stage.batch(*[("output", value) for value in round_.results()], *[("input", value) for value in following.events()])
    for _ in range(400):
        stage.batch()
    assert stage.watch.measures().false_alarms

    class Recreated(SlowLeader):
        def flush(self, seconds: float) -> int:
            writer.pause()
            writer.begin()
            return super().flush(seconds)

    monkeypatch.setattr(canary_writer, "Producer", Recreated)
    writer = CanaryWriter(config(tmp_path, CANARY), lambda _: round_, now_us=lambda: EVERY // 2, say=print)
    writer._plant(round_, 0)
    writer.close()
    assert writer.planted() == []


def test_a_round_whose_results_are_written_too_late_is_not_planted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = itertools.count(step=2)

    class Slow(SlowLeader):
        def flush(self, timeout: float) -> int:
            next(seconds)
            return super().flush(timeout)

    monkeypatch.setattr(canary_writer, "Producer", Slow)
    given = config(tmp_path, CANARY, "timing.missing_after=3s", "timing.overdue_after=3s")
    round_ = Round(1, EVERY, "p@1")
    writer = CanaryWriter(given, lambda _: round_, now_us=lambda: next(seconds) * SECOND, say=print)
    writer._plant(round_, 0)
    assert writer.planted() == [], "the sidecar may have called the results missing"


def test_nothing_is_written_to_a_topic_after_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Paused(SlowLeader):
        def flush(self, seconds: float) -> int:
            writer.pause()
            return super().flush(seconds)

    monkeypatch.setattr(canary_writer, "Producer", Paused)
    round_ = Round(1, EVERY, "p@1")
    writer = CanaryWriter(config(tmp_path, CANARY), lambda _: round_, now_us=lambda: 0, say=print)
    writer._plant(round_, 0)
    assert {topic for topic, _ in cast("SlowLeader", writer._producer).delivered} == {"ci"}


def test_a_plan_of_too_many_open_rounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"canary\.every .*: more than 1000 rounds would be open"):
        config(tmp_path, 'canary={"input": "ci", "output": "co", "every": "1s"}', "timing.missing_after=1h")
    with pytest.raises(Exception, match=r"canary\.every .*: 500ms is below 1s"):
        config(tmp_path, 'canary={"input": "ci", "output": "co", "every": "500ms"}')
    with pytest.raises(Exception, match=r"canary\.output .*: topic output .* outputs\[0\]\.topic"):
        config(tmp_path, 'canary={"input": "ci", "output": "output"}')
