"""Results that `start` hides may be of events that were appended while the start offsets were looked up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.core.judging import Judging, partition_offsets_of
from validator.model.frontier import Lookup, PartitionId
from validator.model.progress import IngestProgress, TimeRules
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side
from validator.reconcile.judge import Rules
from validator.state.known_facts import KnownFacts
from validator.stream.commit_rows import summaries
from validator.stream.start_offsets import initial_progress

IN, OUT = PartitionId("in", 0), PartitionId("out", 0)
SOURCES: Any = [SimpleNamespace(side=Side.OUTPUT, topic="out"), SimpleNamespace(side=Side.INPUT, topic="in")]
TOPICS: Any = {name: SimpleNamespace(partitions=(0,), id=name) for name in ("in", "out")}


class BusyCluster:
    """The end of ``in`` is looked up. Then event 0 is appended and answered, and the end of ``out`` is looked up."""

    def __init__(self) -> None:
        self.ends = {IN: 0, OUT: 7}

    def lookup(self, topics: object) -> dict[PartitionId, Lookup]:
        del topics
        inputs = self.ends[IN]
        self._append()
        ends = {IN: inputs, OUT: self.ends[OUT]}
        return {place: Lookup(place.topic, 0, end, end) for place, end in ends.items()}

    def at_time(self, topics: object, instant_us: int) -> dict[PartitionId, int]:
        """The timestamps of all results are before the instant."""
        del topics, instant_us
        self._append()
        return {IN: 0, OUT: self.ends[OUT]}

    def committed(self, partitions: object, group: str) -> dict[PartitionId, int]:
        del partitions, group
        return {IN: 0}

    def _append(self) -> None:
        self.ends = {IN: 1, OUT: 8}


@pytest.mark.parametrize("kind", ["latest", "time", "group"])
def test_an_event_whose_result_was_hidden_during_the_lookups_is_not_missing(kind: str) -> None:
    brokers: Any = BusyCluster()
    config: Any = SimpleNamespace(
        start=SimpleNamespace(kind=kind, time_us=1, group="g"), inputs=[SimpleNamespace(topic="in")]
    )
    progress, lookups = initial_progress(IngestProgress(TimeRules(0, MINUTE_US)), config, brokers, SOURCES, TOPICS, 8)
    assert progress.frontiers[OUT].next_offset == 8, "the result of event 0 is hidden"
    progress = progress.looked_up(0, 9, lookups, {})
    rules = Rules(oracle=TumblingWindow.of(MINUTE_US), overdue_after_us=1, missing_after_us=2)
    judging = Judging(KnownFacts(None, first_batch=0), rules)
    ends = {IN: 2, OUT: 8}
    for at_us, rows in ((10, [_event(0, 0), _event(1, MINUTE_US)]), (100, [])):
        now = {place: Lookup(place.topic, 0, end, end) for place, end in ends.items()}
        progress = progress.looked_up(progress.batch + 1, at_us, now, ends)
        read = facts(*({**row, "batch": progress.batch, "lookup_us": at_us} for row in rows)) if rows else None
        progress = progress.with_facts(summaries(read) if read is not None else [])
        offsets = partition_offsets_of(progress, reports_unconsumed=False)
        sums = judging.absorb(read, progress.clock(), offsets)
        sums = judging.absorb(None, progress.clock(), offsets)
    assert (sums.counts["missing"], sums.counts["overdue"]) == (0, 1)


def _event(offset: int, window_us: int) -> dict[str, Any]:
    row = fact("input", [offset], batch=0, lookup_us=0, window_us=window_us)
    place = {"topic": "in", "first_offset": offset, "last_offset": offset, "ids": [{"id": offset, "offset": offset}]}
    return {**row, **place}


def test_a_group_that_committed_on_an_earlier_topic_does_not_look_like_a_log_that_was_cut_back() -> None:
    ends = {place: Lookup(place.topic, 0, 10, 10) for place in (IN, OUT)}
    brokers: Any = SimpleNamespace(lookup=lambda _: dict(ends), committed=lambda *_: {IN: 1_000})
    config: Any = SimpleNamespace(start=SimpleNamespace(kind="group", group="g"), inputs=[SimpleNamespace(topic="in")])
    first, _ = initial_progress(IngestProgress(TimeRules(0, 1)), config, brokers, SOURCES, TOPICS, 8)
    again, _ = initial_progress(first, config, brokers, SOURCES, TOPICS, 9)
    assert not again.cut_back
    assert (first.frontiers[IN].next_offset, first.frontiers[IN].hidden_start) == (10, True)
