"""Offsets without a visible record: transaction markers, or records that compaction removed. Includes states of earlier
versions.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit import publish_snapshots
from validator.core.suspicion import Suspicion
from validator.core.totals import CellTotals
from validator.core.unread import Unexamined
from validator.model.frontier import FOREVER_OFFSET, UNREADABLE_POLICY, Frontier, Lookup, PartitionId
from validator.model.progress import IngestProgress, OffsetGap, TimeRules
from validator.reconcile.facts import Side
from validator.stream.reporting import doubts_of
from validator.stream.run_record import RunRecord
from validator.stream.start_offsets import initial_progress

DAY_US = 86_400_000_000
IN, OUT = PartitionId("in", 0), PartitionId("out", 0)


def lookups(end: int) -> dict[PartitionId, Lookup]:
    return {place: Lookup(place.topic, 0, end, end) for place in (IN, OUT)}


def begun() -> IngestProgress:
    """Both topics are read to offset 10 without a gap. The output is read through until the instant 5."""
    frontiers = {
        place: Frontier(side, place.topic, 0, place.topic, 0, 10, 0, 10, 10, 5, read_through_us=5, records=10)
        for place, side in ((IN, "input"), (OUT, "output"))
    }
    return IngestProgress(TimeRules(0, 1), batch=3, lookup_us=5, frontiers=frontiers)


def read(before: IngestProgress, policy: str, *places: PartitionId) -> tuple[IngestProgress, tuple[OffsetGap, ...]]:
    """One more batch, up to offset 14, without a record on ``places``. Both topics have ``policy``."""
    progress = before.looked_up(4, 9, lookups(20), dict.fromkeys(places, 14))
    unaccounted = progress.unaccounted(dict.fromkeys(places, 4))
    assert unaccounted == dict.fromkeys(places, 4)
    return progress.with_policies({"in": policy, "out": policy}, lookups(20)).account_for(unaccounted, before)


def reasons(progress: IngestProgress, record: RunRecord | None = None, overdue: int = 0) -> list[str]:
    config = publish_snapshots.config(Path("state"))
    sums = CellTotals.empty()
    sums = replace(sums, counts={**sums.counts, "overdue": overdue})
    said = [doubt.sentence for doubt in doubts_of(config, progress, record or RunRecord(), sums)]
    return [sentence for sentence in said if "nothing has settled" not in sentence]


@pytest.mark.parametrize("policy", ["compact", "compact,delete", UNREADABLE_POLICY])
def test_records_that_compaction_may_have_removed_count_as_expired(policy: str) -> None:
    progress, offset_gaps = read(begun(), policy, IN, OUT)
    assert offset_gaps == (OffsetGap(IN, 11),)
    assert progress.frontiers[IN].last_data_us == 9, "no idle partition"
    assert (progress.frontiers[OUT].unread_since_us, progress.frontiers[IN].unprovable_below) == (5, 20)
    assert Suspicion().hidden_inputs(progress) == 4
    why = (
        f"cleanup.policy={policy}" if policy else "cleanup.policy could not be read: grant DescribeConfigs on the topic"
    )
    for topic, reason in zip(("in", "out"), reasons(progress), strict=True):
        assert reason.startswith(f"topic {topic} has 4 offsets ")
        assert reason.endswith(f"({why})")


def test_markers_of_a_topic_that_is_not_compacted_hide_nothing() -> None:
    progress, offset_gaps = read(begun(), "delete", IN, OUT)
    assert (offset_gaps, reasons(progress), Suspicion().hidden_inputs(progress)) == ((), [], 0)
    assert (progress.frontiers[OUT].unread_since_us, progress.frontiers[IN].unprovable_below) == (None, None)
    assert progress.unaccounted({}) == {}


def test_records_from_before_the_end_of_compaction_stay_in_doubt() -> None:
    frontier = begun().frontiers[OUT]
    for policy, end, below in (
        ("delete", 11, None),
        ("compact", 12, FOREVER_OFFSET),
        ("delete", 13, FOREVER_OFFSET),  # the policy may have changed after the lookup of this high watermark
        ("delete", 14, 14),
        ("delete", 15, 14),
        ("compact", 16, FOREVER_OFFSET),
    ):
        frontier = frontier.with_policy(policy, Lookup("out", 0, end, end))
        assert frontier.compacted_below == below


@pytest.mark.parametrize(("input_start", "expired"), [(0, 3), (2, 0)])
def test_results_that_expired_before_the_first_read_count_as_expired_if_the_inputs_are_complete(
    input_start: int, expired: int
) -> None:
    """If the inputs lack their first events too, their cells are before the horizon."""
    looked_up = {IN: Lookup("in", input_start, 5, 5), OUT: Lookup("out", 3, 6, 6)}
    brokers: Any = SimpleNamespace(lookup=lambda _: dict(looked_up))
    config: Any = SimpleNamespace(start=SimpleNamespace(kind="earliest"))
    sources: Any = [SimpleNamespace(side=Side.INPUT, topic="in"), SimpleNamespace(side=Side.OUTPUT, topic="out")]
    topics: Any = {name: SimpleNamespace(partitions=(0,), id=name) for name in ("in", "out")}
    progress, _ = initial_progress(IngestProgress(TimeRules(0, 1)), config, brokers, sources, topics, 9)
    found = progress.frontiers[OUT]
    assert (found.next_offset, found.expired, found.invisible, found.unread_since_us) == (3, expired, 0, 0)


@pytest.mark.parametrize(
    ("expired", "unexamined", "sentences"),
    [
        (1, 1, []),
        (3, 1, ["2 records of out-0 expired before they could be read (retention or a recreated topic)"]),
        (1, 0, ["1 record of out-0 expired before it could be read (retention or a recreated topic)"]),
        (1, 2, []),
    ],
)
def test_a_result_that_was_not_examined_is_not_reported_as_expired(
    expired: int, unexamined: int, sentences: list[str]
) -> None:
    """The frontier of an output counts both."""
    progress = begun()
    frontiers = {**progress.frontiers, OUT: replace(progress.frontiers[OUT], expired=expired, unread_since_us=3)}
    found = {OUT: Unexamined(unexamined, 4, "its value has 201 bytes, above limits.value_bytes")}
    record = RunRecord(unexamined=found if unexamined else {})
    said = reasons(replace(progress, frontiers=frontiers), record)
    assert [sentence for sentence in said if "expired before" in sentence] == sentences
    not_examined = [sentence for sentence in said if "not examined: out-0 at offset 4" in sentence]
    assert len(not_examined) == (unexamined > 0)


def test_an_input_record_that_was_not_examined_is_not_subtracted() -> None:
    """It counts as undecodable, not as expired."""
    progress = begun()
    frontiers = {**progress.frontiers, IN: replace(progress.frontiers[IN], expired=1, undecodable=1)}
    record = RunRecord(unexamined={IN: Unexamined(1, 4, "its value has 201 bytes, above limits.value_bytes")})
    said = reasons(replace(progress, frontiers=frontiers), record)
    assert "1 record of in-0 expired before it could be read (retention or a recreated topic)" in said


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        (("output",), "have been answered in results that expired"),
        (("late",), "have been answered in late records that expired"),
        (("input", "late", "output"), "have been answered in results or late records that expired"),
        (("rejected", "late"), "have been answered in late records or rejected records that expired"),
        (("input",), "belong to events that expired before the engine read them"),
    ],
)
def test_the_records_that_may_have_answered_are_named_by_their_side(sides: tuple[str, ...], words: str) -> None:
    expired = Frontier("input", "click", 0, "id", 0, 10, 0, 10, 10, 5, read_through_us=5, records=10, unread_since_us=3)
    frontiers = {PartitionId(side, 0): replace(expired, side=side, topic=side) for side in sides}
    progress = replace(begun(), frontiers=frontiers)
    assert f"7 contributions may {words}" in reasons(progress, overdue=7)
