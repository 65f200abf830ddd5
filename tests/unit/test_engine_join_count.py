"""The count that checks joining engines finds each class of violation, and nothing else."""

from __future__ import annotations

import pytest

from tests.engines.join_count import JoinCount, count

pytestmark = pytest.mark.unit


def test_the_count_finds_each_deviation_of_a_join() -> None:
    inputs = [
        [at(1, 0), at(2, 1), at(3, 2), at(9, 8)],
        [at(1, 0), at(2, 1), at(9, 8)],
    ]
    assert count(inputs, [answer(0, [1, 2], [1, 2])], [[], []], 2000) == JoinCount(4, 4, 0, 0, 0, 0, 0, 0, 0)
    assert count(inputs, [answer(0, [1], [1, 2])], [[], []], 2000) == JoinCount(4, 3, 0, 1, 0, 0, 0, 0, 0)
    assert count(inputs, [answer(0, [1], [1, 2])], [[late(2)], []], 2000) == JoinCount(3, 3, 1, 0, 0, 0, 0, 0, 0)
    assert count(inputs, [answer(0, [1, 2], [1, 2])], [[late(2)], []], 2000) == JoinCount(4, 4, 0, 0, 1, 0, 0, 0, 0)
    assert count(inputs, [answer(2, [3], [])], [[], []], 2000) == JoinCount(4, 1, 0, 4, 0, 0, 1, 0, 0)
    assert count(inputs, [answer(0, [1], [1, 2])], [[], []], 2000, {(0, 2)}) == JoinCount(3, 3, 0, 0, 0, 0, 0, 0, 0)
    assert count(inputs, [answer(0, [1, 2], [1, 2])], [[], []], 2000, {(0, 2)}) == JoinCount(4, 4, 0, 0, 0, 0, 0, 0, 0)
    assert count(inputs, [answer(0, [1, 2, 3], [1, 2, 7])], [[], []], 2000) == JoinCount(4, 6, 0, 0, 0, 2, 0, 0, 0)


def test_a_left_join_owes_clicks_without_an_update_and_no_update_without_clicks() -> None:
    inputs = [[at(1, 0), at(2, 2), at(9, 8)], [at(1, 0), at(3, 4), at(9, 8)]]
    both, alone = answer(0, [1], [1]), answer(2, [2], [])
    assert count(inputs, [both, alone], [[], []], 2000, join="left") == JoinCount(3, 3, 0, 0, 0, 0, 1, 0, 0)
    assert count(inputs, [both], [[], []], 2000, join="left") == JoinCount(3, 2, 0, 1, 0, 0, 0, 0, 0)
    assert count(inputs, [both], [[late(2)], []], 2000, join="left") == JoinCount(2, 2, 1, 0, 0, 0, 0, 0, 0)
    assert count(inputs, [both, alone, answer(4, [], [3])], [[], []], 2000, join="left").updates_alone == 1
    assert count(inputs, [answer(0, [1], []), alone], [[], []], 2000, join="left").missing == 1


def at(number: int, second: int) -> dict[str, object]:
    return {"id": number, "page": "/a", "timestamp": f"1970-01-01T00:00:0{second}.000"}


def answer(second: int, clicks: list[int], updates: list[int]) -> dict[str, object]:
    return {
        "page": "/a", "windowStart": f"1970-01-01T00:00:0{second}.000", "clickIds": clicks, "updateIds": updates
    }  # fmt: skip


def late(number: int) -> dict[str, object]:
    return {"clickId": number}
