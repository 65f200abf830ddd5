"""The reference against histories that are small enough to judge by hand: the classes of SEMANTICS section 2.

Windows are [0, 10), [10, 20), ...; overdue after 5 and missing after 10. An event at 10 closes window 0.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.property.tiny import (
    CLICKS,
    CLICKS_1,
    COUNTS,
    COUNTS_1,
    LATE,
    REJECTED,
    TIMING,
    Story,
    event,
    late,
    rejected,
    result,
    undecodable,
)

pytestmark = pytest.mark.property

ALL = (CLICKS, COUNTS, LATE, REJECTED)
COLLAPSE = replace(TIMING, duplicates="collapse")
DROP = replace(TIMING, late_policy="drop")


# Handled contributions


def test_an_event_that_its_result_carries_is_processed() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "a"))
    assert story.counts(0, "a") == {"processed": 1}
    assert story.judge().results == {"correct": 1}


def test_an_event_on_the_late_topic_is_late_in_the_cell_of_its_own_time() -> None:
    story = Story(places=ALL).step(1, event("a", 13)).step(2, late("a", 13))
    assert story.counts(10, "a") == {"late": 1}


def test_an_event_on_the_dead_letter_topic_is_rejected() -> None:
    story = Story(places=ALL).step(1, event("a", 3)).step(2, rejected("a", 3))
    assert story.counts(0, "a") == {"rejected": 1}


def test_a_copy_is_processed_before_late_before_rejected() -> None:
    story = Story(places=ALL).step(1, event("a", 3)).step(2, rejected("a", 3), late("a", 3))
    assert story.counts(0, "a") == {"late": 1, "duplicate": 1}
    assert story.step(3, result(0, "a")).counts(0, "a") == {"processed": 1, "duplicate": 2}


def test_windows_start_at_the_offset_also_before_the_epoch() -> None:
    story = Story(replace(TIMING, window_offset_us=3)).step(1, event("a", -8), event("b", -7), event("c", 2))
    assert set(story.judge().contributions) == {(-17, "k"), (-7, "k")}
    assert set(story.judge().contributions[-7, "k"]) == {"b", "c"}


# Duplicates


def test_a_result_that_lists_an_id_twice_duplicates_it() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "a", "a"))
    assert story.counts(0, "a") == {"processed": 1, "duplicate": 1}
    assert story.confirmed() == {("duplicate", "a")}
    assert story.judge().results == {"excess": 1}


def test_a_second_result_with_the_same_ids_is_in_excess_and_the_first_is_correct() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "a")).step(3, result(0, "a"))
    assert story.counts(0, "a") == {"processed": 1, "duplicate": 1}
    assert story.judge().results == {"correct": 1, "excess": 1}


def test_two_results_of_a_cell_with_disjoint_ids_are_both_correct() -> None:
    story = Story().step(1, event("a", 3), event("b", 4)).step(2, result(0, "a")).step(3, result(0, "b"))
    assert story.judge().results == {"correct": 2}
    assert story.judge().totals == {"expected": 2, "processed": 2}


def test_a_producer_that_sends_twice_expects_two() -> None:
    story = Story().step(1, event("a", 3), event("a", 3)).step(2, result(0, "a", "a"))
    assert story.counts(0, "a") == {"processed": 2}


def test_collapse_expects_one_of_an_id_that_was_sent_twice() -> None:
    story = Story(COLLAPSE).step(1, event("a", 3), event("a", 3)).step(2, result(0, "a"))
    assert story.counts(0, "a") == {"processed": 1}
    assert story.step(3, result(0, "a")).counts(0, "a") == {"processed": 1, "duplicate": 1}


def test_a_duplicate_is_retracted_when_a_second_copy_of_the_event_is_read() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "a", "a"))
    assert story.confirmed() == {("duplicate", "a")}
    after = story.step(3, event("a", 3)).judge()
    assert (after.confirmed, len(after.ever_confirmed), len(after.retracted)) == (frozenset(), 1, 1)


# Incorrect


def test_an_id_of_another_window_is_misplaced_and_outstanding_at_home() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(10, "a"))
    assert story.counts(10, "a") == {"misplaced": 1}
    assert story.counts(0, "a") == {"pending": 1}
    assert story.judge().results == {"misplaced": 1}
    assert story.confirmed() == {("misplaced", "a")}


def test_an_id_of_another_key_is_misplaced() -> None:
    story = Story().step(1, event("a", 3, key="k")).step(2, result(0, "a", key="other"))
    assert story.counts(0, "a", key="other") == {"misplaced": 1}


def test_an_id_that_no_input_had_is_unknown_and_its_result_in_excess() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "a", "ghost"))
    assert story.counts(0, "ghost") == {"unknown_id": 1}
    assert story.judge().results == {"excess": 1}
    assert story.confirmed() == {("unknown_id", "ghost")}


def test_an_invented_late_record_is_unknown() -> None:
    story = Story(places=ALL).step(1, event("a", 3)).step(2, late("ghost", 3))
    assert story.counts(0, "ghost") == {"unknown_id": 1}


def test_an_undecodable_input_keeps_an_unknown_id_suspected() -> None:
    story = Story().step(1, event("a", 3), undecodable("clicks")).step(2, result(0, "ghost"))
    assert story.counts(0, "ghost") == {"unknown_id": 1}
    assert story.confirmed() == set()
    assert {found.id for found in story.judge().suspected} == {"ghost"}


def test_expired_input_keeps_an_unknown_id_suspected() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(0, "ghost"), expired={CLICKS: 1})
    assert story.counts(0, "ghost") == {"unknown_id": 1}
    assert story.confirmed() == set()


def test_enough_hidden_inputs_keep_an_excess_suspected() -> None:
    story = Story().step(1, event("a", 3), event("b", 4), undecodable("clicks"))
    story.step(2, result(0, "a", "b"), result(0, "a"))
    assert story.confirmed() == set()
    assert {(found.kind, found.id) for found in story.judge().suspected} == {("duplicate", "a")}
    story.step(3, result(0, "b"))
    assert story.confirmed() == {("duplicate", "a"), ("duplicate", "b")}, "one copy explains one of the two"


def test_expired_input_keeps_a_misplaced_id_suspected() -> None:
    story = Story().step(1, event("a", 3)).step(2, result(10, "a"), expired={CLICKS: 1})
    assert story.confirmed() == set()
    assert {(found.kind, found.id) for found in story.judge().suspected} == {("misplaced", "a")}


def test_a_hidden_copy_does_not_explain_a_duplicate_if_repeats_are_dropped() -> None:
    story = Story(COLLAPSE).step(1, event("a", 3), undecodable("clicks")).step(2, result(0, "a", "a"))
    assert story.confirmed() == {("duplicate", "a")}


def test_a_hidden_copy_may_explain_a_late_record_if_repeats_are_dropped() -> None:
    story = (
        Story(COLLAPSE, places=ALL).step(1, event("a", 3), undecodable("clicks")).step(2, result(0, "a"), late("a", 3))
    )
    assert story.confirmed() == set()
    assert {(found.kind, found.id) for found in story.judge().suspected} == {("duplicate", "a")}


def test_an_undecodable_result_is_a_violation_at_once() -> None:
    story = Story().step(1, undecodable("counts"), unread={CLICKS: 1})
    assert story.confirmed() == {("undecodable", "0")}
    assert story.judge().results == {"undecodable": 1}


# Unresolved: an output may be read before its input


def test_an_output_read_before_its_input_is_unresolved_and_then_processed() -> None:
    story = Story().step(1, result(0, "a"), unread={CLICKS: 1})
    assert story.counts(0, "a") == {"unresolved": 1}
    assert story.judge().results == {"unjudged": 1}
    assert story.step(2, event("a", 3)).counts(0, "a") == {"processed": 1}
    assert story.judge().ever_confirmed == frozenset()


def test_unresolved_becomes_unknown_when_every_input_is_read_through_to_the_lookup() -> None:
    story = Story(places=(CLICKS, CLICKS_1, COUNTS)).step(1, result(0, "a"), unread={CLICKS: 1, CLICKS_1: 1})
    story.step(2, event("b", 3), unread={CLICKS_1: 1})
    assert story.counts(0, "a") == {"unresolved": 1}
    story.step(3, event("c", 3, partition=1), unread={CLICKS: 5, CLICKS_1: 5})
    assert story.counts(0, "a") == {"unknown_id": 1}, "what was appended after T = 1 need not be read"


def test_any_newer_observation_of_the_cell_starts_the_wait_again() -> None:
    story = Story().step(1, result(0, "a")).step(2, result(0, "b"), unread={CLICKS: 1})
    assert story.counts(0, "a") == {"unresolved": 1}
    assert story.step(3, event("b", 3)).counts(0, "a") == {"unknown_id": 1}


def test_an_open_input_transaction_keeps_excess_unresolved() -> None:
    story = Story().step(1, result(0, "a"), held={CLICKS: 1})
    assert story.counts(0, "a") == {"unresolved": 1}
    assert story.counts(0, "a", final="once") == {"unresolved": 1}


def test_copies_beyond_the_expected_number_are_unresolved() -> None:
    story = Story().step(1, event("a", 3), result(0, "a", "a"), unread={CLICKS: 1})
    assert story.counts(0, "a") == {"processed": 1, "unresolved": 1}


# Outstanding


def closed_at_10() -> Story:
    """Event `a` of window 0, closed at T = 10 by an event at 10, without an answer."""
    return Story().step(1, event("a", 3)).step(10, event("next", 10))


def test_an_open_cell_is_pending_however_long_it_lasts() -> None:
    assert Story().step(1, event("a", 3)).step(900).counts(0, "a") == {"pending": 1}


def test_overdue_and_missing_begin_exactly_at_their_delays() -> None:
    story = closed_at_10()
    assert story.counts(0, "a") == {"pending": 1}
    assert story.step(14).counts(0, "a") == {"pending": 1}
    assert story.step(15).counts(0, "a") == {"overdue": 1}
    assert story.step(19).counts(0, "a") == {"overdue": 1}
    assert story.confirmed() == set()
    assert story.step(20).counts(0, "a") == {"missing": 1}
    assert story.confirmed() == {("missing", "a")}


def test_a_missing_event_is_retracted_when_its_result_is_read() -> None:
    story = closed_at_10().step(20).step(21, result(0, "a"))
    assert story.counts(0, "a") == {"processed": 1}
    assert len(story.judge().retracted) == 1


def test_an_unread_output_partition_proves_no_absence() -> None:
    story = Story(places=(CLICKS, COUNTS, COUNTS_1)).step(1, event("a", 3)).step(10, event("next", 10))
    assert story.step(50, unread={COUNTS_1: 1}).counts(0, "a") == {"pending": 1}
    assert story.step(51, result(10, "next", partition=1)).counts(0, "a") == {"missing": 1}


def test_the_late_and_rejected_topics_must_be_read_through_too() -> None:
    story = Story(places=ALL).step(1, event("a", 3)).step(10, event("next", 10)).step(50, unread={REJECTED: 1})
    assert story.counts(0, "a") == {"pending": 1}


def test_read_through_is_of_the_lookup_whose_end_was_reached() -> None:
    story = closed_at_10().step(15, unread={COUNTS: 1}).step(30, result(10, "x"), unread={COUNTS: 9})
    assert story.counts(0, "a") == {"overdue": 1}, "read to the end as of T = 15, though T is 30"


def test_a_late_event_gives_its_cell_its_time_again() -> None:
    story = closed_at_10().step(20)
    assert story.counts(0, "a") == {"missing": 1}
    story.step(21, event("b", 4))
    assert (story.counts(0, "a"), story.counts(0, "b")) == ({"pending": 1}, {"pending": 1})
    story.step(31)
    assert (story.counts(0, "a"), story.counts(0, "b")) == ({"missing": 1}, {"missing": 1})


def test_an_incomplete_result_leaves_the_rest_outstanding() -> None:
    story = Story().step(1, event("a", 3), event("b", 4), event("next", 10)).step(2, result(0, "a")).step(11)
    assert (story.counts(0, "a"), story.counts(0, "b")) == ({"processed": 1}, {"missing": 1})
    assert story.judge().results == {"incomplete": 1}


def test_an_open_output_transaction_blocks_instead_of_overdue() -> None:
    story = closed_at_10().step(15, held={COUNTS: 1})
    assert story.counts(0, "a") == {"blocked": 1}
    assert story.step(99, held={COUNTS: 1}).counts(0, "a") == {"blocked": 1}
    assert story.step(100, result(0, "a"), markers={COUNTS: 1}).counts(0, "a") == {"processed": 1}


def test_an_open_transaction_on_one_partition_blocks_what_the_others_have_read_through() -> None:
    story = Story(places=(CLICKS, COUNTS, COUNTS_1)).step(1, event("a", 3)).step(10, event("next", 10))
    assert story.step(20, held={COUNTS: 1}, unread={COUNTS_1: 1}).counts(0, "a") == {"pending": 1}


def test_an_aborted_transaction_ends_the_blocking() -> None:
    story = closed_at_10().step(20, held={COUNTS: 1}).step(21, markers={COUNTS: 2})
    assert story.counts(0, "a") == {"missing": 1}


def test_a_transaction_that_opens_after_the_proof_does_not_hold_it_back() -> None:
    assert closed_at_10().step(20).step(21, held={COUNTS: 1}).counts(0, "a") == {"missing": 1}


def test_an_event_at_the_committed_offset_is_unconsumed_and_one_before_it_is_missing() -> None:
    story = Story().step(1, event("a", 3), event("b", 4), event("next", 10)).step(11, committed={CLICKS: 1})
    assert (story.counts(0, "a"), story.counts(0, "b")) == ({"missing": 1}, {"unconsumed": 1})


def test_a_group_that_committed_nothing_on_a_partition_consumed_nothing_of_it() -> None:
    assert closed_at_10().step(20, committed={}).counts(0, "a") == {"unconsumed": 1}


def test_unconsumed_begins_when_overdue_would() -> None:
    assert closed_at_10().step(14, committed={CLICKS: 0}).counts(0, "a") == {"pending": 1}
    assert closed_at_10().step(15, committed={CLICKS: 0}).counts(0, "a") == {"unconsumed": 1}


# Dropped as late


def dropped(policy_drop: bool = True, lateness_us: int = 0, disorder_us: int = 0, newest_us: int = 10) -> Story:
    timing = replace(DROP if policy_drop else TIMING, allowed_lateness_us=lateness_us, max_disorder_us=disorder_us)
    return Story(timing).step(1, event("next", newest_us), event("a", 3)).step(2, event("close", 30))


def test_an_event_after_its_windows_legal_close_is_dropped_late_from_the_time_it_is_overdue() -> None:
    assert dropped().step(5).counts(0, "a") == {"pending": 1}, "closed at T = 1"
    assert dropped().step(6).counts(0, "a") == {"dropped_late": 1}
    assert dropped().step(99).counts(0, "a") == {"dropped_late": 1}
    assert dropped().step(8).confirmed() == set()


def test_a_late_event_is_dropped_only_once_the_engine_has_read_it() -> None:
    assert dropped().step(99, committed={CLICKS: 1}).counts(0, "a") == {"unconsumed": 1}
    assert dropped().step(99, committed={CLICKS: 2}).counts(0, "a") == {"dropped_late": 1}


def test_under_policy_report_a_dropped_event_is_missing() -> None:
    assert dropped(policy_drop=False).step(99).counts(0, "a") == {"missing": 1}


@pytest.mark.parametrize(("newest_us", "found"), [(14, "missing"), (15, "dropped_late")])
def test_lateness_begins_at_the_end_plus_allowed_lateness_plus_disorder(newest_us: int, found: str) -> None:
    story = dropped(lateness_us=2, disorder_us=3, newest_us=newest_us).step(99)
    assert story.counts(0, "a") == {found: 1}


def test_lateness_is_by_partition() -> None:
    story = Story(DROP, places=(CLICKS, CLICKS_1, COUNTS))
    story.step(1, event("next", 10)).step(2, event("a", 3, partition=1), event("close", 30, partition=1)).step(99)
    assert story.counts(0, "a") == {"missing": 1}


def test_an_event_that_was_handled_late_is_not_dropped() -> None:
    story = Story(DROP, places=ALL).step(1, event("next", 10), event("a", 3), late("a", 3)).step(99)
    assert story.counts(0, "a") == {"late": 1}


def test_outstanding_copies_of_an_id_are_late_first() -> None:
    story = Story(DROP).step(1, event("a", 3), event("a", 3), event("next", 10), event("a", 3)).step(2, result(0, "a"))
    assert story.step(99).counts(0, "a") == {"processed": 1, "dropped_late": 1, "missing": 1}


def test_an_event_too_far_ahead_makes_no_other_certainly_late() -> None:
    timing = replace(DROP, max_ahead_us=20)
    story = Story(timing).step(1, event("far", 22), event("a", 3)).step(10, event("next", 10)).step(99)
    assert story.counts(0, "a") == {"overdue": 1}
    story = Story(timing).step(1, event("a", 3), event("far", 22)).step(10, event("next", 10)).step(99)
    assert story.counts(0, "a") == {"missing": 1}
    story = Story(timing).step(1, event("far", 21), event("a", 3)).step(10, event("next", 10)).step(99)
    assert story.counts(0, "a") == {"dropped_late": 1}
