"""A session that an engine answers in parts, and one whose result names another end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from validator.codecs.batches import EVENTS, RESULTS
from validator.codecs.columns import DECODED
from validator.core import split_sessions
from validator.core.judging import Judging
from validator.core.totals import CellTotals
from validator.model.frontier import Clock
from validator.model.lateness_scope import LatenessScope
from validator.oracles.seam import Reads
from validator.oracles.session_window import ROUNDING_US, SessionWindow
from validator.reconcile.compare import PartitionOffsets
from validator.reconcile.facts import Side, completed
from validator.reconcile.grouping import facts_of_events, facts_of_results
from validator.reconcile.judge import Rules
from validator.reconcile.lateness import with_newest_before
from validator.state.known_facts import KnownFacts

S: Final = 1_000_000
GAP: Final = 10
"""The gap in seconds."""
RULES: Final = Rules(oracle=SessionWindow.of(GAP * S), overdue_after_us=1, missing_after_us=2)
SOURCES: Final = [(Side.INPUT, "clicks"), (Side.OUTPUT, "counts")]

Event = tuple[int, int] | tuple[int, int, str] | tuple[int, int, str, int]
"""Id, time, key, partition."""
Result = tuple[int, tuple[int, ...]]
"""Start, ids."""


def facts(events: tuple[Event, ...], results: tuple[Result, ...], ends: tuple[int, ...] = ()) -> pa.Table:
    """The facts of one batch, in the order of the log."""
    of_events: list[dict[str, Any]] = []
    for offset, (id_, time, *others) in enumerate(events):
        key, partition = (*others, *("k", 0)[len(others) :])
        row = {"partition": partition, "offset": offset, "id": id_, "key": key, "event_time_us": time * S}
        of_events.append(row | {"is_owed": True})
    of_results = [
        {"partition": 0, "offset": at, "status": DECODED, "window_start_us": start * S, "key": "k", "ids": ids}
        | {"text_ids": [], "window_end_us": ends[at] if ends else None}
        for at, (start, ids) in enumerate(results)
    ]
    oracle, limit = RULES.oracle, 2**50
    grouped = [
        facts_of_events(pa.Table.from_pylist(of_events, EVENTS), 0, oracle, 0, limit, with_first_event=False),
        facts_of_results(pa.Table.from_pylist(of_results, RESULTS), 1, oracle),
    ]
    table = completed(pa.concat_tables(grouped), SOURCES, batch=0, lookup_us=1, epoch=0)
    return with_newest_before(table, {})


def judged(table: pa.Table, rules: Rules = RULES, others: int = 0) -> CellTotals:
    """The totals long after all sessions were due. ``others``: further partitions with records."""
    judging = Judging(KnownFacts(None, first_batch=0), rules)
    offsets = {("clicks", number): PartitionOffsets() for number in range(1 + others)}
    for at in (100, 200):
        clock = Clock(at, 2**60, at, at, at, None, None, 0, False, False)
        sums = judging.absorb(table if at == 100 else None, clock, offsets)
    return sums


@dataclass(frozen=True)
class Story:
    """``wrong``: contributions that are misplaced and missing. ``unproven``: splits that may be rightful."""

    events: tuple[Event, ...]
    results: tuple[Result, ...]
    wrong: int = 0
    unproven: int = 0
    scope: LatenessScope | None = None
    others: int = 0
    disorder: int = 0
    adds_up: bool = False


IN_ORDER: Final = ((0, 0), (1, 8), (2, 16), (9, 90))
"""A session of three events, and a later one."""
STORIES: Final = {
    "one result": Story(IN_ORDER, ((0, (0, 1, 2)), (90, (9,)))),
    "closed too early": Story(IN_ORDER, ((0, (0, 1)), (16, (2,)), (90, (9,))), wrong=1),
    "the largest part stays": Story(IN_ORDER, ((0, (0,)), (8, (1, 2)), (90, (9,))), wrong=1),
    "no sessions at all": Story(IN_ORDER, ((0, (0,)), (8, (1,)), (16, (2,)), (90, (9,))), wrong=2),
    "one id is in both": Story(IN_ORDER, ((0, (0, 1)), (8, (1, 2)), (90, (9,)))),
    "emission incremental": Story(IN_ORDER, ((0, (0, 1)), (16, (2,)), (90, (9,))), adds_up=True),
    "a pause of more than the gap": Story(((0, 0), (1, 11)), ((0, (0,)), (11, (1,)))),
    "a pause of exactly the gap": Story(((0, 0), (1, 10)), ((0, (0,)), (10, (1,))), wrong=1),
    "read after the first part had ended": Story(((0, 0), (7, 10, "other"), (1, 8)), ((0, (0,)), (8, (1,)))),
    "just not ended": Story(((0, 0), (7, 9, "other"), (1, 8)), ((0, (0,)), (8, (1,))), wrong=1),
    "kept open for the disorder": Story(
        ((0, 0), (7, 12, "other"), (1, 8)), ((0, (0,)), (8, (1,))), wrong=1, disorder=3
    ),
    "the first part came last": Story(((1, 8), (7, 18, "other"), (0, 0)), ((0, (0,)), (8, (1,)))),
    "a late event joins the later part": Story(((0, 0), (2, 16), (7, 11, "other"), (1, 8)), ((0, (0,)), (8, (1, 2)))),
    "ended by the part itself": Story(((0, 0), (2, 19), (1, 9)), ((0, (0,)), (9, (1, 2)))),
    "of another partition": Story(((0, 0), (7, 90, "other", 1), (1, 8)), ((0, (0,)), (8, (1,))), unproven=1, others=1),
    "of another partition, out of scope": Story(
        ((0, 0), (7, 90, "other", 1), (1, 8)), ((0, (0,)), (8, (1,))), wrong=1, others=1, scope="partition"
    ),
    "of another task": Story(
        ((0, 0), (7, 90, "other", 1), (1, 8)), ((0, (0,)), (8, (1,))), wrong=1, others=1, scope="task"
    ),
    "two copies may have two results": Story(((0, 0), (1, 8), (1, 8), (9, 90)), ((0, (0, 1)), (8, (1,)), (90, (9,)))),
}


@pytest.mark.parametrize("name", STORIES)
def test_parts_of_a_session_are_wrong_unless_one_of_them_may_have_been_late(name: str) -> None:
    story = STORIES[name]
    oracle = SessionWindow.of(GAP * S).reading(Reads(adds_up=story.adds_up))
    rules = replace(RULES, oracle=oracle, lateness_scope=story.scope, max_disorder_us=story.disorder * S)
    sums = judged(facts(story.events, story.results), rules, story.others)
    unanswered = sum(event[2:3] == ("other",) for event in story.events)
    assert (sums.counts["misplaced"], sums.counts["missing"] - unanswered, sums.apart) == (story.wrong,) * 3
    assert sums.unproven_splits == story.unproven
    assert sums.counts["duplicate"] == (name == "one id is in both")


def test_the_events_that_moved_the_time_may_be_of_an_earlier_batch() -> None:
    table = facts(((0, 0), (1, 8)), ((0, (0,)), (8, (1,))))
    assert judged(table).apart == 1
    assert judged(with_newest_before(table, {("clicks", 0): 10 * S})).apart == 0
    assert judged(with_newest_before(table, {("clicks", 0): 10 * S - 1})).apart == 1


def test_a_shorter_gap_explains_splits_only_at_longer_pauses_than_those_within_results() -> None:
    short = ((0, 0), (1, 2), (2, 8), (3, 90), (4, 92))
    parted = ((0, (0, 1)), (8, (2,)), (90, (3, 4)))
    sums = judged(facts(short, parted))
    assert (sums.split_us, sums.kept_us) == (6 * S, 2 * S)
    assert split_sessions.suspected(sums) == {"missing", "misplaced"}
    [reason] = split_sessions.sentences(sums)
    assert "a gap of 2s or more, and below 6s fits all results" in reason
    # A session that is answered as a whole has a longer pause. It is known if the pause is between two slots.
    sums = judged(facts((*short[:3], (3, 95), (4, 102)), (*parted[:2], (95, (3, 4)))))
    assert sums.kept_us == 7 * S
    assert not split_sessions.suspected(sums)


LONGER: Final = ((0, 0), (1, 8), (2, 25), (3, 42), (4, 90), (5, 95), (6, 120))
"""Sessions of 0 and 1, of 2, of 3, of 4 and 5, and of 6, after pauses of 17, 17, 48 and 25 s."""
AS_ONE: Final = ((0, (0, 1, 2, 3)), (90, (4, 5)), (120, (6,)))


def test_a_longer_gap_explains_results_of_several_sessions_at_shorter_pauses_than_those_between_results() -> None:
    sums = judged(facts(LONGER, AS_ONE))
    assert (sums.counts["misplaced"], sums.counts["missing"]) == (2, 2)
    assert (sums.joined, sums.joined_us, sums.parted_us) == (2, 17 * S, 25 * S)
    assert split_sessions.suspected(sums) == split_sessions.withdrawn(sums) == {"missing", "misplaced"}
    [reason] = split_sessions.sentences(sums)
    assert "a gap of 17s or more, and below 25s fits all results" in reason
    # The engine of each of these has a defect: it joined sessions at a pause at which it parted others, it answered
    # more than whole sessions, and it lost a session beside.
    parted, more = (((0, (0, 1, 2)), (42, (3,)), *AS_ONE[1:]), ((0, (0, 1, 2, 3, 6)), *AS_ONE[1:]))
    for results in (parted, more, AS_ONE[:2]):
        sums = judged(facts(LONGER, results))
        assert sums.counts["missing"]
        assert "missing" not in split_sessions.suspected(sums)


@pytest.mark.parametrize(("after_us", "wrong"), [(20 * S, 5), (0, 2)])
def test_the_ends_that_a_longer_gap_gives_accuse_no_engine_either(after_us: int, wrong: int) -> None:
    """``after_us``: from the last event of a result to its end."""
    sums = judged(facts(LONGER, AS_ONE, (42 * S + after_us, 95 * S + after_us, 120 * S + after_us)))
    assert sums.counts["missing"] == sums.counts["misplaced"] == wrong
    assert split_sessions.suspected(sums) == {"missing", "misplaced"}


@pytest.mark.parametrize("first", ["all", "head", "others"])
def test_sessions_that_were_answered_together_still_count_after_they_left_memory(first: str) -> None:
    clock = Clock(100, 2**60, 100, 100, 100, None, None, 0, False, False)
    judging = Judging(KnownFacts(None, first_batch=0), RULES)
    judging.absorb(facts(LONGER, AS_ONE), clock, {})
    judging.absorb(None, replace(clock, lookup_us=200, inputs_us=200, outputs_us=200, unheld_outputs_us=200), {})
    whole = judging.sums
    is_head = judging.cells["window_start_us"] == 0
    leave = {"all": is_head | True, "head": is_head, "others": ~is_head & (judging.cells["window_start_us"] < 60 * S)}
    retired = judging.sum_of(leave[first])
    judging.cells.drop(leave[first])
    stay = judging.sum_of(np.ones(len(judging.cells), dtype=np.bool_))
    sums = stay.with_retired(retired)
    assert (sums.joined, sums.joined_us, sums.parted_us) == (whole.joined, whole.joined_us, whole.parted_us)


def test_a_pause_within_a_result_still_counts_after_its_session_left_memory() -> None:
    clock = Clock(100, 2**60, 100, 100, 100, None, None, 0, False, False)
    judging = Judging(KnownFacts(None, first_batch=0), RULES)
    judging.absorb(facts(((3, 95), (4, 102)), ((95, (3, 4)),)), clock, {})
    retired = judging.sum_of(np.ones(len(judging.cells), dtype=np.bool_))
    sums = judged(facts(((0, 200), (1, 206)), ((200, (0,)), (206, (1,))))).with_retired(retired)
    assert (sums.apart, sums.split_us, sums.kept_us) == (1, 6 * S, 7 * S)
    assert not split_sessions.suspected(sums)


@pytest.mark.parametrize(
    ("late_us", "wrong"), [(0, 0), (GAP * S, 0), (ROUNDING_US, 0), (-2 * S, 3), ((GAP + 2) * S, 3)]
)
def test_a_result_names_the_end_of_its_session(late_us: int, wrong: int) -> None:
    """The last event, or a gap later. ``late_us``: the named end, from the last event on."""
    ends = (16 * S + late_us, 90 * S)
    sums = judged(facts(IN_ORDER, ((0, (0, 1, 2)), (90, (9,))), ends))
    assert (sums.counts["misplaced"], sums.counts["missing"]) == (wrong, wrong)
    assert (sums.ends_wrong, sums.ends_right) == (bool(wrong), 2 - bool(wrong))
    assert not split_sessions.suspected(sums)


def test_ends_of_which_none_fits_doubt_the_field() -> None:
    sums = judged(facts(IN_ORDER, ((0, (0, 1, 2)), (90, (9,))), (60 * S, 500 * S)))
    assert sums.counts["misplaced"] == 4
    assert split_sessions.suspected(sums) == {"missing", "misplaced"}
    [reason] = split_sessions.sentences(sums)
    assert "outputs[].fields.window_end" in reason


def test_the_end_of_an_incomplete_result_proves_nothing() -> None:
    sums = judged(facts(IN_ORDER, ((0, (0, 1)), (90, (9,))), (60 * S, 90 * S)))
    assert (sums.counts["misplaced"], sums.counts["missing"]) == (0, 1)


def test_the_newest_time_before_an_event_is_that_of_its_partition() -> None:
    table = facts(((0, 5), (1, 3), (2, 9, "k", 1), (3, 4), (4, 1, "other", 1)), ())
    times = {item["offset"]: item["before_us"] for row in table["times"].to_pylist() for item in row}
    assert times == {0: None, 1: 5 * S, 2: None, 3: 5 * S, 4: 9 * S}
    assert np.array_equal(sorted(times), range(5))
