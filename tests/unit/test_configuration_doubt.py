"""Results that put the configuration in doubt, not the pipeline."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from validator.core.totals import CellTotals
from validator.model.configuration_doubt import (
    TopicCounts,
    inputs_in_doubt,
    matches_nothing,
    outputs_in_doubt,
    suspected,
    topics_in_doubt,
    withdrawn,
)
from validator.model.frontier import Frontier, PartitionId
from validator.model.progress import IngestProgress, TimeRules

ALL = {"missing", "duplicate", "misplaced", "unknown_id", "undecodable"}


def progress(side: str, *partitions: tuple[int, int, int], settled: int = 0) -> IngestProgress:
    """The progress of one topic. Per partition: records, undecodable records, tombstones."""
    frontiers = {
        PartitionId("t", number): Frontier(
            side, "t", number, "id", 0, 9, 0, 9, 9, 1, records=records, undecodable=bad, tombstones=nulls
        )
        for number, (records, bad, nulls) in enumerate(partitions)
    }
    return IngestProgress(TimeRules(0, 0), frontiers=frontiers, settled={PartitionId("t", 0): settled})


@pytest.mark.parametrize(
    ("partitions", "settled", "doubted"),
    [
        ([(0, 0, 0)], 0, False),
        ([(1, 1, 0)], 0, True),
        ([(1, 1, 0)], 1, False),
        ([(9, 5, 4)], 0, True),
        ([(5, 5, 0), (1, 0, 0)], 0, False),
        ([(100, 99, 0)], 0, False),
        ([(101, 100, 0)], 0, True),
        ([(101, 100, 0)], 1, False),
    ],
)
def test_a_topic_of_which_nearly_nothing_decodes_is_in_doubt(
    partitions: list[tuple[int, int, int]], settled: int, doubted: bool
) -> None:
    assert bool(topics_in_doubt(progress("output", *partitions, settled=settled))) is doubted


def test_violations_that_a_doubtful_topic_may_explain_are_suspected() -> None:
    none, few = (3, 3, 0), (300, 299, 0)
    assert suspected(progress("output", none), {}, 0, 0, copies_explain=True) == {"undecodable", "missing"}
    assert suspected(progress("input", none), {}, 0, 0, copies_explain=True) == {"duplicate", "misplaced", "unknown_id"}
    assert suspected(progress("input", none), {}, 0, 0, copies_explain=False) == {"misplaced", "unknown_id"}
    assert suspected(progress("late", none), {}, 0, 0, copies_explain=True) == set(), "each answers one, SEMANTICS 4.14"
    for side in ("output", "input", "late", "rejected"):
        assert suspected(progress(side, few), {}, 1, 0, copies_explain=True) == ALL


@pytest.mark.parametrize(
    ("results", "expected", "matched", "beside", "doubted"),
    [
        (0, 1000, 0, 0, False),  # a dead engine writes no results
        (1, 0, 0, 0, False),  # results without ids prove nothing
        (1, 0, 0, 1, True),
        (1, 1000, 0, 1, True),
        (1, 1000, 1, 100, False),
        (1, 1000, 1, 101, True),
        (1, 100, 1, 1000, False),
        (1, 1000, 9, 1000, True),
        (1, 1000, 10, 1000, False),
        (1, 1000, 500, 100_000, False),
    ],
)
def test_nothing_is_confirmed_while_nearly_nothing_matches(
    results: int, expected: int, matched: int, beside: int, doubted: bool
) -> None:
    read = progress("output", (results, 0, 0))
    for name in ("misplaced", "unknown_id", "unresolved"):
        counts = {"expected": expected, "processed": matched, name: beside}
        assert matches_nothing(counts, matched, matched + beside) is doubted
        assert suspected(read, counts, matched, matched + beside, copies_explain=True) == (ALL if doubted else set())
        assert outputs_in_doubt(read, counts, matched, matched + beside) == ({"t"} if doubted else set())


def test_late_and_rejected_records_do_not_count_as_unmatched_results() -> None:
    assert not matches_nothing({"expected": 1000, "unknown_id": 1}, 0, 0)
    assert not matches_nothing({"expected": 1000, "unknown_id": 500}, 2, 2)
    assert withdrawn(progress("output", (2, 0, 0)), {"expected": 1000, "processed": 2, "unknown_id": 500}, 2) == set()


def test_an_output_in_doubt_keeps_its_unreadable_results_suspected_and_any_other_doubt_those_of_all() -> None:
    none, some, few = (3, 3, 0), (3, 1, 0), (300, 299, 0)
    assert outputs_in_doubt(progress("output", none), {}, 0, 0) == {"t"}
    assert outputs_in_doubt(progress("output", some), {}, 1, 0) == set()
    beside = progress("output", some).frontiers
    for read, held in ((few, {"t"}), (none, set())):
        both = progress("input", read)
        inputs = {replace(place, topic="in"): frontier for place, frontier in both.frontiers.items()}
        assert outputs_in_doubt(replace(both, frontiers={**inputs, **beside}), {}, 1, 0) == held
    cut = replace(progress("output", some), cut_back=frozenset([PartitionId("t", 0)]))
    assert outputs_in_doubt(cut, {}, 1, 0) == {"t"}


@pytest.mark.parametrize(
    ("wrong", "processed", "taken"), [(0, 0, False), (1, 0, True), (100, 1, False), (101, 1, True), (900, 9, False)]
)
def test_confirmed_violations_are_retracted_once_nearly_nothing_matches(
    wrong: int, processed: int, taken: bool
) -> None:
    counts = {"expected": 1000, "processed": processed}
    read = progress("output", (1, 0, 0))
    assert withdrawn(read, counts | {"unknown_id": wrong}, wrong) == (ALL if taken else set())
    assert withdrawn(read, counts | {"unresolved": wrong}, wrong) == set(), "it may be resolved yet"
    besides = {"unknown_id": wrong, "unresolved": wrong}
    assert withdrawn(read, counts | besides, wrong) == (ALL if taken and processed else set()), "those of late records"
    assert withdrawn(progress("output", (300, 299, 0)), counts, 0) == ALL
    unread = progress("output", (300, 300, 0))
    # Losses may have been confirmed before the first result.
    assert withdrawn(unread, counts, 0) == (set() if processed else {"missing"})


EXCESS = {"duplicate", "misplaced", "unknown_id"}


@pytest.mark.parametrize(
    ("other", "beside", "held"),
    [
        (TopicCounts(read=0), 5, set()),
        (TopicCounts(read=9, matched=1, outstanding=8), 5, set()),
        (TopicCounts(read=9, undecided=9), 0, EXCESS),
        (TopicCounts(read=9, outstanding=9), 0, {*EXCESS, "missing"}),
        (TopicCounts(read=101, matched=1, outstanding=100), 0, set()),
        (TopicCounts(read=101, matched=1, outstanding=100), 100, set()),
        (TopicCounts(read=101, matched=1, outstanding=100), 101, {*EXCESS, "missing"}),
        (TopicCounts(read=101, matched=1), 101, EXCESS),
    ],
)
def test_an_input_of_which_nearly_nothing_matches_is_in_doubt(other: TopicCounts, beside: int, held: set[str]) -> None:
    inputs = {"fits": TopicCounts(read=900, matched=900), "other": other}
    counts = {"expected": 900 + other.read, "processed": 900 + other.matched, "unknown_id": beside}
    seen = (counts, counts["processed"], counts["processed"] + beside)
    assert inputs_in_doubt(inputs, *seen) == (("other",) if held else ())
    read = progress("output", (1000, 0, 0))
    assert suspected(read, *seen, copies_explain=True, inputs=inputs) == held
    assert suspected(read, *seen, copies_explain=False, inputs=inputs) == held - {"duplicate"}


def test_an_engine_without_results_puts_no_input_in_doubt() -> None:
    inputs = {"a": TopicCounts(read=9, outstanding=9), "b": TopicCounts(read=9, outstanding=9)}
    assert inputs_in_doubt(inputs, {"expected": 18, "missing": 18}, 0, 0) == ()


@pytest.mark.parametrize(
    ("other", "wrong", "taken"),
    [
        (TopicCounts(read=101, matched=1, outstanding=100), 101, True),
        (TopicCounts(read=101, matched=1, outstanding=100), 100, False),
        (TopicCounts(read=102, matched=1, outstanding=100, undecided=1), 101, False),
        (TopicCounts(read=900, matched=9), 901, False),
    ],
)
def test_confirmed_violations_are_retracted_once_nearly_nothing_of_one_input_matches(
    other: TopicCounts, wrong: int, taken: bool
) -> None:
    inputs = {"fits": TopicCounts(read=900, matched=900), "other": other}
    counts = {"expected": 900 + other.read, "processed": 900 + other.matched, "unknown_id": wrong}
    found = withdrawn(progress("output", (9, 0, 0)), counts, 900 + other.matched + wrong, inputs)
    assert found == (ALL - {"undecodable"} if taken else set())


def test_the_counts_of_inputs_are_kept_with_the_totals_of_retired_cells() -> None:
    one = replace(CellTotals.empty(), inputs={"a": TopicCounts(5, 4, 1, 0), "b": TopicCounts(1, 0, 0, 1)})
    again = CellTotals.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert again.plus(replace(CellTotals.empty(), inputs={"b": TopicCounts(2, 1, 1, 1)})).inputs == {
        "a": TopicCounts(5, 4, 1, 0),
        "b": TopicCounts(3, 1, 1, 2),
    }


def test_cells_retired_by_an_earlier_version_leave_no_input_in_doubt() -> None:
    """Totals of an earlier version do not contain the input of each event."""
    counts = {"expected": 500, "unknown_id": 200}
    inputs = {"a": TopicCounts(read=300, matched=1), "b": TopicCounts(read=5, matched=5)}
    given = {name: count for name, count in counts.items() if name != "expected"}
    assert inputs_in_doubt(inputs, counts, 200, 400) == ()
    assert inputs_in_doubt(inputs, given | {"expected": 305}, 200, 400) == ("a",)
    assert withdrawn(IngestProgress(TimeRules(0, 0)), counts | {"processed": 200}, 400, inputs) == frozenset()
    assert (
        withdrawn(IngestProgress(TimeRules(0, 0)), given | {"expected": 305, "processed": 200}, 400, inputs)
        != frozenset()
    )
