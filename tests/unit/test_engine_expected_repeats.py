"""The repeats predicted for a kill depend on the state at the kill and on the results of the killed instance."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.engines.expected_repeats import Death, expected_repeats
from tests.engines.topics import Answer

pytestmark = pytest.mark.unit


def answer(appended_ms: int, *ids: int) -> Answer:
    return Answer("/a", 0, ids, appended_ms)


def death(noted_ms: int, least: int) -> Death:
    """A kill after which the ids from ``least`` on are read again."""
    return Death(noted_ms, lambda _, number: number >= least)


def test_uncommitted_results_are_repeated() -> None:
    answers = [answer(10, 1, 2, 3), answer(30, 2, 3, 4)]
    assert expected_repeats(answers, [death(20, 2)]) == Counter([2, 3])


def test_each_death_states_values_the_results_of_the_dead_instance() -> None:
    answers = [answer(10, 1, 2), answer(30, 2), answer(50, 2, 3)]
    assert expected_repeats(answers, [death(20, 2), death(40, 2)]) == Counter([2, 2])
    assert expected_repeats(answers, [death(20, 2), death(25, 2)]) == Counter([2]), (
        "an instance that dies without a result adds nothing"
    )
    assert expected_repeats(answers, [death(40, 2)]) == Counter([2]), (
        "two results of one worker are not repeats of the kill"
    )
