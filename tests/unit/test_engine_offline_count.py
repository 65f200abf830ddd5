"""The count that checks real engines finds each class of violation, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.engines.offline_count import Count, Record, count

WINDOW_MS = 2000
CLICKS: list[Record] = [
    {"id": 1, "page": "/a", "timestamp": "1970-01-01T00:00:00.001"},
    {"id": 2, "page": "/a", "timestamp": "1970-01-01T00:00:01.999"},
    {"id": 3, "page": "/b", "timestamp": "1970-01-01T00:00:02.000"},
    {"id": 4, "page": "/b", "timestamp": "1970-01-01T00:00:10.000"},  # closes the windows before it
]
PERFECT = Count(events=3, processed=3, missing=0, duplicates=0, misplaced=0, late=0, second_results=0, newest=3)


def result(page: str, second: int, *ids: int) -> Record:
    return {"page": page, "windowStart": f"1970-01-01T00:00:0{second}.000", "clickIds": list(ids)}


@pytest.mark.parametrize(
    ("results", "late", "expected"),
    [
        ([result("/a", 0, 1, 2), result("/b", 2, 3)], [], PERFECT),
        ([result("/a", 0, 1), result("/a", 0, 2), result("/b", 2, 3)], [], replace(PERFECT, second_results=1)),
        ([result("/a", 0, 1), result("/b", 2, 3)], [2], replace(PERFECT, processed=2, late=1)),
        ([result("/a", 0, 1, 2)], [], replace(PERFECT, processed=2, missing=1, newest=2)),
        ([result("/a", 0, 1, 2, 2), result("/b", 2, 3)], [], replace(PERFECT, duplicates=1)),
        ([result("/a", 0, 1, 2), result("/b", 2, 3)], [3], replace(PERFECT, duplicates=1)),
        ([result("/a", 0, 1, 2), result("/b", 0, 3)], [], replace(PERFECT, misplaced=1)),
        ([result("/a", 0, 1, 2, 9), result("/b", 2, 3)], [], replace(PERFECT, processed=4, misplaced=1, newest=9)),
    ],
)
def test_each_deviation_is_counted_in_its_class(results: list[Record], late: list[int], expected: Count) -> None:
    assert count(CLICKS, results, [{"clickId": event} for event in late], WINDOW_MS) == expected
