"""When the configuration is in doubt, not the pipeline."""

from __future__ import annotations

import pytest

from validator.model.books import Books, TimeRules
from validator.model.configuration_doubt import matches_nothing, suspected, topics_in_doubt
from validator.model.frontier import Frontier, PartitionId

ALL = {"missing", "duplicate", "misplaced", "unknown_id", "undecodable"}


def books(side: str, *partitions: tuple[int, int, int], settled: int = 0) -> Books:
    """Of one topic; per partition: records, undecodable, tombstones."""
    frontiers = {
        PartitionId("t", number): Frontier(
            side, "t", number, "id", 0, 9, 0, 9, 9, 1, records=records, undecodable=bad, tombstones=nulls
        )
        for number, (records, bad, nulls) in enumerate(partitions)
    }
    return Books(TimeRules(0, 0), frontiers=frontiers, settled={PartitionId("t", 0): settled})


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
    assert bool(topics_in_doubt(books("output", *partitions, settled=settled))) is doubted


def test_what_a_topic_in_doubt_may_explain_is_suspected() -> None:
    none, few = (3, 3, 0), (300, 299, 0)
    assert suspected(books("output", none), {}, collapse=False) == {"undecodable", "missing"}
    assert suspected(books("input", none), {}, collapse=False) == {"duplicate", "misplaced", "unknown_id"}
    assert suspected(books("input", none), {}, collapse=True) == {"misplaced", "unknown_id"}
    assert suspected(books("late", none), {}, collapse=False) == set(), "each answers one, decision 0091"
    for side in ("output", "input", "late", "rejected"):
        assert suspected(books(side, few), {}, collapse=False) == ALL


@pytest.mark.parametrize(
    ("expected", "processed", "beside", "doubted"),
    [
        (1000, 0, 0, False),  # a dead engine answers nothing
        (1000, 0, 9, False),
        (9, 0, 1000, False),
        (10, 0, 10, True),
        (1000, 9, 1000, True),
        (1000, 10, 1000, False),
        (1000, 500, 100_000, False),
    ],
)
def test_nothing_matches_where_both_sides_have_much(expected: int, processed: int, beside: int, doubted: bool) -> None:
    for name in ("misplaced", "unknown_id", "unresolved"):
        counts = {"expected": expected, "processed": processed, name: beside}
        assert matches_nothing(counts) is doubted
        assert suspected(books("output", (1, 0, 0)), counts, collapse=False) == (ALL if doubted else set())
