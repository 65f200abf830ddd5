"""The reference against histories that are small enough to judge by hand: time, scope and endings (SEMANTICS section
3).

Windows are [0, 10), [10, 20), ...; overdue after 5 and missing after 10. An event at 10 closes window 0.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.property.history import History
from tests.property.reference import classify
from tests.property.tiny import (
    CLICKS,
    CLICKS_1,
    COUNTS,
    COUNTS_1,
    LATE,
    TIMING,
    Story,
    event,
    late,
    result,
    undecodable,
)

pytestmark = pytest.mark.property

TWO_INPUTS = (CLICKS, CLICKS_1, COUNTS)
IDLE_20 = replace(TIMING, idle_after_us=20)


# Watermark and closing


def test_the_watermark_is_the_newest_event_time_less_disorder() -> None:
    story = Story(replace(TIMING, max_disorder_us=4)).step(1, event("a", 30), event("b", 3))
    assert story.judge().input_watermark_us == 26


def test_the_watermark_is_the_minimum_over_partitions_and_waits_for_each() -> None:
    story = Story(places=TWO_INPUTS).step(1, event("a", 30))
    assert story.judge().input_watermark_us is None
    assert story.step(2, event("b", 7, partition=1)).judge().input_watermark_us == 7


def test_the_watermark_never_falls() -> None:
    story = Story().step(1, event("a", 30))
    assert story.step(2, event("b", 3)).judge().input_watermark_us == 30


@pytest.mark.parametrize(("time_us", "closed"), [(9, False), (10, True)])
def test_a_cell_closes_when_the_watermark_reaches_its_end(time_us: int, closed: bool) -> None:
    assert Story().step(1, event("a", 3), event("b", time_us)).judge().closed[0, "k"] is closed


def test_an_event_too_far_ahead_of_its_reading_moves_no_watermark() -> None:
    timing = replace(TIMING, max_ahead_us=5)
    assert Story(timing).step(1, event("a", 3), event("far", 7)).judge().input_watermark_us == 3
    assert Story(timing).step(1, event("a", 3), event("near", 6)).judge().input_watermark_us == 6


# Idle partitions


def busy_beside_silent(silent_until_us: int, **unread: int) -> Story:
    """Partition 1 has an event at T = 1 and then falls silent. Partition 0 has one at every lookup."""
    story = Story(IDLE_20, TWO_INPUTS).step(0).step(1, event("a", 3), event("b", 3, partition=1))
    for now in range(5, silent_until_us + 1, 4):
        story.step(now, event(f"t{now}", now), unread={CLICKS_1: unread.get("unread", 0)})
    return story


def test_a_partition_leaves_the_minimum_after_idle_after_of_read_through_time() -> None:
    assert busy_beside_silent(17).judge().input_watermark_us == 3
    assert busy_beside_silent(21).judge().input_watermark_us == 21


def test_a_partition_leaves_the_minimum_even_if_batches_are_further_apart_than_idle_after() -> None:
    story = Story(IDLE_20, TWO_INPUTS).step(0).step(1, event("a", 3), event("b", 3, partition=1))
    assert story.step(30, event("t30", 30)).judge().input_watermark_us == 3, "perhaps appended at T = 2"
    assert story.step(60, event("t60", 60)).judge().input_watermark_us == 60, "appended after T = 30"


def test_a_partition_with_unread_records_is_not_idle() -> None:
    assert busy_beside_silent(41, unread=1).judge().input_watermark_us == 3


def test_a_partition_that_never_had_a_record_is_idle_from_the_first_lookup_on() -> None:
    story = Story(IDLE_20, TWO_INPUTS).step(1)
    for now in range(5, 22, 4):
        story.step(now, event(f"t{now}", now))
    assert story.judge().input_watermark_us == 21
    assert classify(story.history(), 4).input_watermark_us is None, "at T = 17, 16 after the first lookup"


def test_an_undecodable_record_keeps_its_partition_from_being_idle() -> None:
    story = Story(IDLE_20, TWO_INPUTS).step(0).step(1, event("a", 3), event("b", 3, partition=1))
    for now in range(5, 40, 4):
        story.step(now, event(f"t{now}", now, partition=1), undecodable("clicks"))
    assert story.judge().input_watermark_us == 3


def test_with_all_idle_the_watermark_stays() -> None:
    story = Story(IDLE_20, TWO_INPUTS).step(0).step(1, event("a", 9), event("b", 13, partition=1)).step(99)
    assert story.judge().input_watermark_us == 9
    assert story.judge().closed[0, "k"] is False


def test_the_last_partition_to_be_read_does_not_close_cells_alone() -> None:
    # Both partitions are silent from T = 10 on, but the record of the second one is read later, at T = 12. At T = 31
    # the first partition is idle and the second one is not. An engine may have seen them fall silent in another order.
    story = Story(IDLE_20, TWO_INPUTS).step(10, event("a", 9), unread={CLICKS_1: 1})
    story.step(12, event("b", 13, partition=1)).step(31)
    assert story.judge().input_watermark_us == 9
    assert story.step(99).counts(0, "a") == {"pending": 1}


# Order and time have no effect where they must not


def test_a_tick_without_records_lets_time_pass() -> None:
    story = Story().step(1, event("a", 3), event("next", 10))
    assert story.step(11).counts(0, "a") == {"missing": 1}


def test_batch_boundaries_do_not_change_the_end() -> None:
    records = (event("a", 3), event("b", 4), event("next", 10), event("far", 50))
    answers = (result(0, "a", "ghost"), result(10, "next", "a"))
    whole = Story().step(1, *records, *answers).step(99)
    cut = (
        Story().step(1, answers[0], unread={CLICKS: 4, COUNTS: 1}).step(1, *records[:2], unread={CLICKS: 2, COUNTS: 1})
    )
    cut.step(2, records[2], answers[1], unread={CLICKS: 1}).step(3, records[3]).step(99)
    assert whole.judge().contributions == cut.judge().contributions
    assert whole.judge().totals == {
        "expected": 4, "processed": 2, "unknown_id": 1, "misplaced": 1, "missing": 1, "pending": 1,
    }  # fmt: skip


# Horizon


@pytest.mark.parametrize(("start", "log_start"), [(7, 0), (7, 7), (8, 7)])
def test_a_hidden_start_excludes_cells_up_to_the_first_event_plus_disorder(start: int, log_start: int) -> None:
    story = Story(replace(TIMING, max_disorder_us=5)).begins(CLICKS, start, log_start)
    story.step(1, event("a", 15), event("b", 25), event("c", 35), result(20, "hidden"), result(30, "c"))
    assert story.counts(10, "a") == {"out_of_scope": 1}
    assert story.counts(20, "b") == {"out_of_scope": 1}, "a hidden event may lie at exactly 20 = 15 + 5"
    assert story.counts(20, "hidden") == {}
    assert story.counts(30, "c") == {"processed": 1}
    assert story.judge().totals == {"expected": 1, "processed": 1, "out_of_scope": 2}
    assert story.judge().results == {"correct": 1, "unjudged": 1}


def test_a_cell_after_the_horizon_is_judged() -> None:
    story = Story(replace(TIMING, max_disorder_us=4)).begins(CLICKS, 7)
    assert story.step(1, event("a", 15), event("b", 25)).counts(20, "b") == {"pending": 1}


def test_a_first_event_too_far_ahead_puts_only_cells_within_max_ahead_out_of_scope() -> None:
    story = Story(replace(TIMING, max_ahead_us=20, max_disorder_us=5)).begins(CLICKS, 7)
    story.step(1, event("far", 999)).step(2, event("a", 25), event("b", 35))
    assert story.counts(20, "a") == {"out_of_scope": 1}, "a hidden event may lie at 26 = 1 + 20 + 5"
    assert story.counts(30, "b") == {"pending": 1}


def test_a_log_read_from_its_first_offset_hides_nothing() -> None:
    assert Story().step(1, event("a", 3)).counts(0, "a") == {"pending": 1}


def test_a_hidden_start_without_any_event_hides_everything() -> None:
    story = Story(places=TWO_INPUTS).begins(CLICKS_1, 5).step(1, event("a", 3))
    assert story.counts(0, "a") == {"out_of_scope": 1}
    assert story.step(2, event("b", -20, partition=1)).counts(0, "a") == {"pending": 1}


def test_an_id_of_an_event_out_of_scope_is_misplaced_in_a_cell_in_scope() -> None:
    story = Story().begins(CLICKS, 7).step(1, event("a", 15), event("b", 25), result(20, "a"))
    assert story.counts(20, "a") == {"misplaced": 1}


# Expired answers


def test_hidden_results_leave_older_events_overdue_and_younger_ones_provable() -> None:
    story = Story().begins(COUNTS, 7).step(1, event("a", 3)).step(2, event("b", 4), event("next", 10)).step(99)
    assert story.counts(0, "a") == {"overdue": 1}, "it was there before the first lookup: the answer may be hidden"
    assert story.counts(0, "b") == {"missing": 1}, "it came after the first lookup, and so did its answer"


def test_expired_results_leave_outstanding_events_overdue_unless_proven_before() -> None:
    story = Story().step(1, event("a", 3), event("next", 10)).step(10).step(12, expired={COUNTS: 2}).step(99)
    assert story.counts(0, "a") == {"overdue": 1}
    story = Story().step(1, event("a", 3), event("next", 10)).step(11).step(12, expired={COUNTS: 2}).step(99)
    assert story.counts(0, "a") == {"missing": 1}


def test_an_undecodable_late_record_keeps_missing_events_suspected() -> None:
    story = Story(places=(CLICKS, COUNTS, LATE)).step(1, event("a", 3), event("next", 10), undecodable("late"))
    assert story.step(11).counts(0, "a") == {"missing": 1}
    assert story.confirmed() == set()
    assert {(found.kind, found.id) for found in story.judge().suspected} == {("missing", "a")}


# The end of a run


def test_once_closes_every_cell_and_calls_outstanding_missing() -> None:
    story = Story().step(1, event("a", 3))
    assert story.counts(0, "a") == {"pending": 1}
    assert story.counts(0, "a", final="once") == {"missing": 1}
    assert story.judge("once").closed[0, "k"] is True
    assert story.confirmed("once") == {("missing", "a")}


def test_once_decides_unresolved_observations() -> None:
    story = Story().step(1, result(0, "ghost"), unread={CLICKS: 1})
    assert story.counts(0, "ghost", final="once") == {"unknown_id": 1}


def test_once_leaves_contributions_of_an_open_transaction_blocked() -> None:
    story = Story().step(1, event("a", 3)).step(2, held={COUNTS: 1})
    assert story.counts(0, "a", final="once") == {"blocked": 1}


def test_once_keeps_a_loss_proven_before_the_transaction_opened() -> None:
    story = Story(places=(CLICKS, COUNTS, COUNTS_1)).step(1, event("a", 3), event("next", 10))
    story.step(11, unread={COUNTS_1: 1}).step(12, held={COUNTS: 1}, unread={COUNTS_1: 1})
    assert story.counts(0, "a") == {"pending": 1}
    assert story.counts(0, "a", final="once") == {"missing": 1}
    assert story.counts(10, "next", final="once") == {"blocked": 1}


def test_once_leaves_unconsumed_and_dropped_late_unchanged() -> None:
    story = Story(replace(TIMING, late_policy="drop")).step(
        1, event("next", 10), event("a", 3), event("b", 11), event("c", 3), committed={CLICKS: 2}
    )
    assert story.counts(0, "a", final="once") == {"dropped_late": 1}
    assert story.counts(10, "b", final="once") == story.counts(0, "c", final="once") == {"unconsumed": 1}
    assert story.counts(10, "next", final="once") == {"missing": 1}


def test_leave_open_waits_for_no_timer_but_for_the_watermark() -> None:
    story = Story().step(1, event("a", 3), event("next", 10))
    assert story.counts(0, "a", final="leave_open") == {"missing": 1}
    assert story.counts(10, "next", final="leave_open") == {"pending": 1}


def test_at_the_end_of_a_run_unconsumed_events_are_neither_pending_nor_blocked() -> None:
    story = Story().step(1, event("a", 3), event("next", 10), committed={CLICKS: 1})
    assert story.counts(10, "next") == {"pending": 1}
    assert story.counts(10, "next", final="leave_open") == {"unconsumed": 1}
    story = Story().step(1, event("a", 3)).step(2, held={COUNTS: 1}, committed={CLICKS: 0})
    assert story.counts(0, "a", final="once") == {"unconsumed": 1}


def test_late_records_of_an_open_cell_are_judged_as_results_are() -> None:
    story = Story(places=(CLICKS, COUNTS, LATE)).step(1, event("a", 3), late("a", 3), late("a", 13))
    assert story.counts(0, "a") == {"late": 1}
    assert story.counts(10, "a") == {"misplaced": 1}


def test_the_verdict_on_a_prefix_does_not_depend_on_later_steps() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "a"))
    history = story.history("once")
    assert classify(history, 0).contributions == {(0, "k"): {"a": {"pending": 1}}}
    assert classify(history, 0) == classify(History(history.timing, history.steps[:1]), 0)
