"""Second readings (SEMANTICS 5.2): which ranges are read again, what counts as a difference, and what proves
nothing. A reader of the real topic is in `tests/integration/test_sidecar_coverage.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.unit.fed_run import Fed, FedRun
from tests.unit.memory_tables import MemoryTables
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.model.classes import Verdict
from validator.model.coverage import Difference, RangeCount, ReadTwice
from validator.model.frontier import Frontier, Lookup, PartitionId
from validator.state.tables import Table
from validator.stream.brokers import Brokers, Topic
from validator.stream.kafka_reading import Range, ReadFailed
from validator.stream.second_reading import JustRead, SecondReadings

IN = PartitionId("in", 0)


def row(offset: int, *ids: int, **more: Any) -> dict[str, Any]:
    place = {"topic": "in", "partition": 0, "first_offset": offset, "last_offset": offset + len(ids) - 1}
    return {**fact("input", list(ids), batch=7, lookup_us=9), **place, "records": len(ids), "epoch": 3, **more}


ROWS = (row(10, 1, 2), row(12, 3), row(13, 4, batch=6), row(14, 5, topic="other"))
"""Offsets 10 to 12 of the topic are stored in batch 7."""


@dataclass
class Log:
    """The brokers' answers. ``again``: the fact rows that second readings find, one after the other."""

    again: list[Sequence[dict[str, Any]]]
    topic_id: str = "id"
    start: int = 0
    end: int = 100
    policy: str = "delete"
    asked: list[Range] = field(default_factory=list)

    def topics(self, names: Sequence[str]) -> dict[str, Topic]:
        return {name: Topic(name, self.topic_id, (0,)) for name in names}

    def lookup(self, topics: Sequence[str]) -> dict[PartitionId, Lookup]:
        return {PartitionId(name, 0): Lookup(self.topic_id, self.start, self.end, self.end) for name in topics}

    def policies(self, topics: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(topics, self.policy)

    def read(self, wanted: Range) -> pa.Table:
        self.asked.append(wanted)
        rows = self.again.pop(0) if len(self.again) > 1 else self.again[0]
        if not rows:
            raise ReadFailed("no answer")
        return facts(*rows)


def just_read(log: Log, *, compacted_below: int | None = None, without_ids: frozenset[str] = frozenset()) -> JustRead:
    tables = MemoryTables()
    tables.append(facts(*ROWS), Table.FACTS, writer="w", version=7)
    frontier = Frontier("input", "in", 0, "id", 0, 20, 0, 100, 100, 5, compacted_below=compacted_below)
    brokers = cast("Brokers", log)
    return JustRead(7, 3, tables, brokers, {IN: frontier}, log.read, without_ids)


def looked(log: Log, **more: Any) -> SecondReadings:
    second = SecondReadings(ReadTwice())
    second.look(just_read(log, **more), Range(0, "in", 0, 10, 13), [Range(0, "in", 0, 0, 20)], ())
    return second


def test_the_same_records_make_no_difference_in_whatever_rows() -> None:
    log = Log([[row(10, 1), row(11, 2, 3)]])
    second = looked(log)
    assert (second.found, second.done) == ([], ReadTwice(1, 3, 0))
    assert log.asked == [Range(0, "in", 0, 10, 13)]


@pytest.mark.parametrize(
    ("again", "expected"),
    [
        ([row(10, 1, 2, 3, 4)], Difference("in", 0, 10, 13, 3, 4)),
        ([row(10, 1, 2)], Difference("in", 0, 10, 13, 3, 2)),
        ([row(10, 1, 2, 8)], Difference("in", 0, 10, 13, 3, 3)),
        ([row(10, 1, 2), row(12, 3, status=1)], Difference("in", 0, 10, 13, 3, 3)),
    ],
    ids=["one more", "one less", "another id", "another status"],
)
def test_other_records_make_a_difference(again: Sequence[dict[str, Any]], expected: Difference) -> None:
    second = looked(Log([again]))
    assert second.found == [expected]
    assert second.done == ReadTwice(1, 3, 0)


@pytest.mark.parametrize(
    "log",
    [
        Log([[]]),
        Log([[row(10, 1, 2)], []]),
        Log([[row(10, 1, 2)], [row(10, 1, 2, 3)]]),
        Log([[row(10, 1, 2)]], topic_id="recreated"),
        Log([[row(10, 1, 2)]], start=11),
        Log([[row(10, 1, 2)]], end=12),
    ],
    ids=["no answer", "no second answer", "a third answer", "recreated", "expired", "cut back"],
)
def test_a_second_reading_that_proves_nothing_is_counted_as_not_done(log: Log) -> None:
    second = looked(log)
    assert (second.found, second.done) == ([], ReadTwice(0, 0, 1))


@pytest.mark.parametrize(("policy", "below"), [("compact", None), ("", None), ("delete", 11)])
def test_records_that_compaction_may_have_removed_make_no_difference(policy: str, below: int | None) -> None:
    assert looked(Log([[row(10, 1, 2)]], policy=policy), compacted_below=below).found == []
    more = looked(Log([[row(10, 1, 2, 3, 4)]], policy=policy), compacted_below=below)
    assert [one.found for one in more.found] == [4]


def test_only_the_records_count_if_results_replace_each_other() -> None:
    assert looked(Log([[row(10, 1, 2, 8)]]), without_ids=frozenset({"in"})).found == []
    assert len(looked(Log([[row(10, 1, 2)]]), without_ids=frozenset({"in"})).found) == 1


def gap_at(*gaps: tuple[int, int]) -> RangeCount:
    return RangeCount("in", 0, sum(end - first for first, end in gaps), gaps)


def test_the_first_gap_of_a_partition_is_read_at_once_and_must_be_empty() -> None:
    """A reader that leaves out a visible record leaves a gap."""
    log, second = Log([[row(15, 9)]]), SecondReadings(ReadTwice())
    ranges = [Range(0, "in", 0, 0, 20)]
    second.look(just_read(log), None, ranges, ())
    assert log.asked == []
    second.look(just_read(log), None, ranges, [gap_at((15, 16))])
    assert second.found == [Difference("in", 0, 15, 16, 0, 1)]
    asked = len(log.asked)
    second.look(just_read(log), None, ranges, [gap_at((16, 17))])
    assert len(log.asked) == asked, "further gaps wait for the next random range"


def chosen(seed: int, ranges: Sequence[Range]) -> tuple[Sequence[Range], Range]:
    cut, found = SecondReadings(ReadTwice()).chosen(ranges, 2, seed)
    assert found is not None
    return cut, found


def test_a_random_range_of_a_batch_becomes_a_part_of_its_own() -> None:
    ranges = [Range(0, "a", 0, 100, 9_000), Range(1, "b", 3, 7, 8), Range(2, "canary", 0, 0, 50_000)]
    offsets = {(one.topic, offset) for one in ranges for offset in range(one.start, one.end)}
    starts = set()
    for seed in range(200):
        cut, found = chosen(seed, ranges)
        assert found in cut
        assert found.end - found.start == (2_000 if found.topic == "a" else 1)
        assert found.topic != "canary"
        assert {(one.topic, offset) for one in cut for offset in range(one.start, one.end)} == offsets
        assert sum(one.end - one.start for one in cut) == len(offsets)
        starts.add(found.start)
        assert chosen(seed, ranges) == (cut, found)
    assert min(starts) < 1_000
    assert max(starts) > 6_000


def test_a_second_reading_is_due_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr("validator.stream.second_reading.time.monotonic", lambda: now[0])
    second, ranges = SecondReadings(ReadTwice()), [Range(0, "in", 0, 10, 13)]
    cut, wanted = second.chosen(ranges, 1, 0)
    assert wanted == ranges[0]
    second.look(just_read(Log([[row(10, 1, 2), row(12, 3)]])), wanted, cut, ())
    now[0] += 59.0
    assert second.chosen(ranges, 1, 1) == (ranges, None)
    now[0] += 2.0
    assert second.chosen(ranges, 1, 1)[1] is not None


def test_after_a_range_that_could_not_be_read_the_next_is_smaller() -> None:
    second = looked(Log([[]]))
    second._due = 0.0
    _, wanted = second.chosen([Range(0, "in", 0, 0, 9_000)], 1, 0)
    assert wanted is not None
    assert wanted.end - wanted.start == 500


class _Run(FedRun):
    planted = True


@pytest.mark.parametrize("saves", [False, True])
def test_a_difference_is_committed_shown_and_kept(saves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict stays unknown after a restart, and after the retirement of everything that was read by then."""
    monkeypatch.setattr(_Run, "saves", saves)
    run = _Run(tmp_path, settings=("state.retention=2h", "oracle.bucket=60s"), example="filter")
    run.feed([Fed("orders", (1,)), Fed("paid-orders", (1,))])
    second = run.runner.second = SecondReadings(ReadTwice(), _due=float("inf"))
    second.found.append(Difference("orders", 0, 0, 1, 1, 0))
    batch = run.runner.progress.batch
    shown = run.feed([])
    assert run.runner.progress.batch == batch + 1, "a difference is committed without records, before the next tick"
    assert second.found == []
    expected = "a second reading of orders-0 at offset 0 found 0 records, but the stored facts count 1"
    number = 1
    while run.runner.retired.through_epoch < 0:
        assert shown.coverage_differences == (expected,)
        assert set(shown.verdicts.values()) == {Verdict.UNKNOWN}
        number, at_us = number + 1, number * MINUTE_US
        run.restart()
        more = [Fed("orders", (number,), at_us), Fed("paid-orders", (number,), at_us)]
        shown = run.feed(more, after_us=60 * MINUTE_US)
    run.restart()
    assert run.runner.progress.differences == (Difference("orders", 0, 0, 1, 1, 0),)


def test_at_the_end_of_a_run_the_last_range_is_read_again() -> None:
    log = Log([[row(10, 1, 2), row(12, 3)]])
    second = looked(log)
    log.again = [[row(10, 1, 2)]]
    second.look_at_end()
    assert [one.found for one in second.found] == [2]
