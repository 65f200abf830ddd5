"""Records that could not be read may have made an event late. An engine that drops late events is then not accused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from tests.unit.lateness_rows import clock, judged, passing, poison
from tests.unit.reconcile_rows import MINUTE_US, fact, facts
from validator.codecs.columns import UNDECODABLE
from validator.core.judging import Judging
from validator.model.frontier import Frontier, Lookup, PartitionId
from validator.model.lateness_scope import LatenessScope
from validator.model.progress import IngestProgress, OffsetGap, TimeRules
from validator.oracles.tumbling_window import TumblingWindow
from validator.reconcile.facts import Side
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import POSSIBLE_MAX, Lateness, lateness_rows, with_possible_reaches
from validator.state.known_facts import KnownFacts
from validator.state.tables import StateTables, Table, rows_of
from validator.stream.brokers import Topic
from validator.stream.commit_rows import frontier_rows, mark_row, offset_gap_rows, replaced_by, replaced_mark
from validator.stream.recovery import recover
from validator.stream.run_record import RunRecord
from validator.stream.start_offsets import _after_loss, initial_progress

INPUT = PartitionId("input", 0)
DAY_US = 86_400_000_000


def no_reach(starts: object) -> Any:
    raise AssertionError(f"no event is too far ahead: {starts}")


def test_an_event_that_a_hidden_record_may_have_made_late_is_never_missing() -> None:
    event = fact("input", [7], batch=0, lookup_us=1)
    lost = {"expected": 1, "missing": 1}
    assert judged(event) == lost
    assert judged(event, poison(-1)) == {"expected": 1, "overdue": 1}
    assert judged(event, poison(5)) == lost, "a record that comes after it"
    assert judged(event, poison(-1, reach_us=0)) == lost, "a window that ends later than any sane event time"
    assert judged({**event, "partition": 1}, poison(-1)) == lost, "another partition"
    assert judged(event, poison(-1), drops_late=False) == lost, "an engine that must not drop"


@pytest.mark.parametrize(
    ("scope", "excusing"),
    [
        ("partition", set()),
        ("topic", {("input", 1)}),
        ("task", {("other", 0)}),
        ("global", {("input", 1), ("other", 0), ("other", 1)}),
        (None, {("input", 1), ("other", 0), ("other", 1)}),
    ],
)
def test_a_partition_in_the_scope_of_lateness_may_have_made_an_event_late(
    scope: LatenessScope | None, excusing: set[tuple[str, int]]
) -> None:
    event = fact("input", [7], batch=0, lookup_us=1)
    answer = fact("output", [8], batch=0, lookup_us=1, window_us=MINUTE_US)
    lost, excused = {"missing": 1}, {"overdue": 1}
    found = {"expected": 2, "processed": 1}
    for other in (("input", 1), ("other", 0), ("other", 1)):
        expected = found | (excused if other in excusing else lost)
        assert judged(event, passing(*other), answer, scope=scope) == expected, other
        hidden = {**poison(90), "topic": other[0], "partition": other[1]}
        assert judged(event, hidden, scope=scope) == {"expected": 1} | (excused if other in excusing else lost), other
        assert judged(event, passing(*other, end_us=0), answer, scope=scope) == found | lost, "not past the end"


def test_a_certainly_late_event_is_classified_as_dropped_late() -> None:
    event = fact("input", [7], batch=0, lookup_us=1)
    newer = {**fact("input", [8], batch=0, lookup_us=1, window_us=MINUTE_US), "first_offset": -2, "reach_us": MINUTE_US}
    answer = fact("output", [8], batch=0, lookup_us=1, window_us=MINUTE_US)
    assert judged(event, poison(-1), newer, answer) == {"expected": 2, "processed": 1, "dropped_late": 1}


def test_the_ids_of_a_loss_exclude_possibly_late_events() -> None:
    excused = fact("input", [1], batch=0, lookup_us=1)
    lost = {**fact("input", [2], batch=0, lookup_us=1), "partition": 1}
    rules = Rules(
        oracle=TumblingWindow.of(MINUTE_US),
        overdue_after_us=1,
        missing_after_us=2,
        drops_late=True,
        lateness_scope="partition",
    )
    judging = Judging(KnownFacts(None, first_batch=0), rules)
    judging.absorb(rows_of(Table.FACTS, [excused, lost, poison(-1)]), clock(100), {})
    judging.absorb(None, clock(10 * MINUTE_US), {})
    assert judging.evidence == {(0, "missing"): ("2",)}


def test_undecodable_inputs_get_the_reach_that_they_may_have_had() -> None:
    rows = rows_of(
        Table.FACTS,
        [
            poison(3, None),
            {**poison(4, None), "side": "output", "topic": "output"},
            fact("input", [1], batch=0, lookup_us=1),
        ],
    )
    doubted = with_possible_reaches(rows, 5, no_reach)
    assert doubted["reach_us"].to_pylist() == [5, None, None]
    lateness = Lateness()
    lateness.absorb(doubted)
    assert (lateness.possible, lateness.proven) == ({("input", 0): {5: 3}}, {})


def test_an_event_too_far_ahead_may_have_made_events_late_up_to_its_window() -> None:
    """An engine without `max_ahead` may have advanced its time to such an event. Losses of later events are unproven.
    Retention keeps this fact."""
    far = {**fact("input", [9], batch=0, lookup_us=1, window_us=MINUTE_US), "newest_event_time_us": None}
    far |= {"first_offset": -3, "reach_us": None}
    event = fact("input", [7], batch=0, lookup_us=1)
    window = TumblingWindow.of(MINUTE_US, 0)
    [with_reach, untouched] = with_possible_reaches(
        rows_of(Table.FACTS, [far, event]), 5, lambda starts: window.latest_reaches_us(starts, 0)
    ).to_pylist()
    assert (with_reach["reach_us"], untouched["reach_us"]) == (MINUTE_US, None)
    assert judged(event, with_reach) == {"expected": 2, "overdue": 1, "missing": 1}, "its own loss is not in doubt"
    assert judged(event, {**with_reach, "first_offset": 1}) == {"expected": 2, "missing": 2}, "it came after the event"
    [carried] = lateness_rows(rows_of(Table.FACTS, [with_reach]), 0)
    assert judged(event, carried) == {"expected": 1, "overdue": 1}


@pytest.mark.full
def test_events_with_wrong_clocks_take_bounded_memory() -> None:
    ends = [MINUTE_US * number for number in range(1, 3 * POSSIBLE_MAX)]
    lateness = Lateness()
    for number, end in enumerate(ends):
        lateness.absorb(rows_of(Table.FACTS, [poison(number, end)]))
    found = lateness.possible["input", 0]
    assert len(found) <= POSSIBLE_MAX
    exact = [(end, number) for number, end in enumerate(ends)]
    for end, offset in exact:  # every doubt is kept
        assert min(known for at, known in found.items() if at >= end) <= offset


@pytest.mark.parametrize("closed_right", [False, True])
def test_the_reach_of_a_window_is_that_of_its_latest_event(closed_right: bool) -> None:
    window = TumblingWindow.of(10, 3, closed="right" if closed_right else "left")
    starts = [3, 13, -17]
    latest = [start + (10 if closed_right else 9) for start in starts]
    for slack_us in (0, 1, 9, 10):
        found = window.latest_reaches_us(np.array(starts), slack_us).tolist()
        assert found == [window.reach_at(instant, slack_us) for instant in latest]
    assert window.latest_reaches_us(np.array([2**63 - 1]), 5)[0] > 2**62, "does not wrap"


@pytest.mark.parametrize("closed_right", [False, True])
def test_the_reach_of_an_instant_is_the_latest_window_boundary_that_has_passed(closed_right: bool) -> None:
    window = TumblingWindow.of(10, 3, closed="right" if closed_right else "left")
    # An engine may close a window at its boundary, also if an event at the boundary belongs to the window.
    ends = window.ends_us(np.array([3, 13, 13, -17, -7]) - 10)
    assert [window.reach_at(instant, 0) for instant in (12, 13, 14, -8, -7)] == ends.tolist()
    assert window.reach_at(20, 7) == window.reach_at(13, 0)


@pytest.mark.parametrize("closed_right", [False, True])
def test_the_end_of_a_window_is_the_first_instant_that_is_not_in_it(closed_right: bool) -> None:
    window = TumblingWindow.of(10, 3, closed="right" if closed_right else "left")
    [end] = window.ends_us(np.array([3])).tolist()
    assert window.assigned(np.array([end - 1, end])).starts.tolist() == [3, 13]


# Expired records


def frontier(**of: Any) -> Frontier:
    kept = Frontier("input", "input", 0, "one", 0, 10, 0, 12, 12, 1)
    return replace(kept, **of)


def test_expired_offsets_end_before_the_first_remaining_one() -> None:
    """Offsets up to 14 expired. The hidden record counts as the last of them: the events after it may be late."""
    found = _after_loss(frontier(), Lookup("one", 15, 20, 20), 5)
    progress = IngestProgress(TimeRules(0, 1), batch=3, lookup_us=9, frontiers={INPUT: found})
    [row] = offset_gap_rows(progress, [OffsetGap(INPUT, found.next_offset)], 60, DAY_US).to_pylist()
    assert (row["kind"], row["side"], row["status"], row["records"]) == ("fact", "input", UNDECODABLE, 0)
    assert (row["first_offset"], row["reach_us"], row["batch"], row["lookup_us"]) == (14, 60, 3, 9)


def test_the_record_count_of_a_recreated_topic_is_unknown(tmp_path: Path) -> None:
    """Three repeats would be more than the two records that are known to be lost."""
    tables, place = StateTables(tmp_path), PartitionId("clicks-a.b", 11)
    progress = IngestProgress(TimeRules(0, 1), batch=0, lookup_us=9, frontiers={INPUT: frontier(expired=2)})
    rows = [frontier_rows(progress, None, DAY_US), mark_row(progress, replaced_mark(place), DAY_US)]
    tables.append(pa.concat_tables(rows), Table.FACTS, writer="w", version=0)
    record, judging = RunRecord(), Judging(KnownFacts(None, first_batch=0), Rules(TumblingWindow.of(MINUTE_US), 1, 2))
    judging.absorb(facts(fact("input", [1], batch=0, lookup_us=1)), clock(5), {})
    sums = judging.absorb(facts(fact("output", [1, 1, 1, 1], batch=1, lookup_us=6)), clock(9), {})
    assert sums.on_record["duplicate"] == 3
    assert record.suspicion.by_hidden_records(progress, sums) == {"unknown_id", "misplaced"}
    again = recover(tables, TimeRules(0, 1), TumblingWindow.of(MINUTE_US)).progress
    assert again.replaced == {place}
    assert record.suspicion.by_hidden_records(again, sums) == {"unknown_id", "duplicate", "misplaced"}


def test_other_marks_name_no_topic() -> None:
    assert replaced_by(["rest_all", "retired {}"]) == frozenset()


def topics_of(*lookups: Lookup, progress: IngestProgress, side: Side = Side.INPUT) -> IngestProgress:
    """The progress after opening a generation on one topic with these lookups, one per partition."""
    found = {PartitionId("input", number): lookup for number, lookup in enumerate(lookups)}
    brokers = SimpleNamespace(lookup=lambda _: found, at_time=lambda *_: {})
    config = SimpleNamespace(start=SimpleNamespace(kind="earliest"))
    sources: Any = [SimpleNamespace(side=side, topic="input")]
    topics = {"input": Topic("input", lookups[0].topic_id, tuple(range(len(lookups))))}
    return initial_progress(progress, cast("Any", config), cast("Any", brokers), sources, topics, 9)[0]


def test_a_start_reports_expired_inputs_until_a_batch_has_recorded_them() -> None:
    second = PartitionId("input", 1)
    before = IngestProgress(
        TimeRules(0, 1), batch=0, lookup_us=8, frontiers={INPUT: frontier(), second: frontier(partition=1)}
    )
    found = topics_of(Lookup("one", 15, 20, 20), Lookup("one", 0, 12, 12), progress=before)
    assert (found.offset_gaps, found.replaced) == ((OffsetGap(INPUT, 15),), frozenset())
    read, first = before.frontiers[INPUT], found.frontiers[INPUT]
    assert (first.next_offset, first.expired) == (15, read.expired + 15 - read.next_offset)
    again = topics_of(Lookup("one", 15, 20, 20), Lookup("one", 11, 12, 12), progress=found)
    assert again.offset_gaps == (OffsetGap(INPUT, 15), OffsetGap(second, 11))
    assert again.looked_up(1, 10, {}, {}).offset_gaps == ()


def test_a_start_reports_a_recreated_input() -> None:
    before = IngestProgress(TimeRules(0, 1), batch=0, lookup_us=8, frontiers={INPUT: frontier()})
    found = topics_of(Lookup("two", 0, 3, 3), progress=before)
    assert (found.offset_gaps, found.replaced) == ((OffsetGap(INPUT, 0),), frozenset({INPUT}))
    assert found.looked_up(1, 10, {}, {}).replaced == {INPUT}


def test_expired_results_make_no_event_late() -> None:
    before = IngestProgress(TimeRules(0, 1), batch=0, lookup_us=8, frontiers={INPUT: frontier(side="output")})
    for lookup, replaced in ((Lookup("one", 15, 20, 20), set()), (Lookup("two", 0, 3, 3), {INPUT})):
        found = topics_of(lookup, progress=before, side=Side.OUTPUT)
        assert (found.offset_gaps, found.replaced, found.results_expired) == ((), replaced, True)
