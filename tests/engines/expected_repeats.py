"""Predicts which ids an at-least-once engine repeats after several kills, from the state that each kill left.

A result is assigned to a worker by its append time. A death is recorded when everything that the killed worker had sent
is in the topic, and before its successor sends a result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.engines.topics import Answer


@dataclass(frozen=True)
class Death:
    """One SIGKILL."""

    noted_ms: int
    """On the broker's clock, which is also the test's."""
    is_repeated: Callable[[Answer, int], bool]
    """Return whether the killed worker's successor repeats this id of the given result."""


def expected_repeats(answers: Iterable[Answer], deaths: Iterable[Death]) -> Counter[int]:
    """Return id -> how many extra times it occurs. ``deaths`` are in order."""
    again = Counter[int]()
    answers = list(answers)
    born_ms = 0
    for death in deaths:
        of_the_dead = (answer for answer in answers if born_ms < answer.appended_ms <= death.noted_ms)
        # Once per death: a second result of an id by the same worker is not an effect of the kill.
        again.update({i for answer in of_the_dead for i in answer.ids if death.is_repeated(answer, i)})
        born_ms = death.noted_ms
    return again
