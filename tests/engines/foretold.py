"""Which ids come out again when an engine that does at least once is killed several times, from what each kill found.

A worker's answers are told from its successor's by their times: a death is noted when all that the dead one had under
way is in the topic, and before its successor answers.
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
    """On the clock of the broker, which is ours."""
    comes_again: Callable[[Answer, int], bool]
    """Whether this id of an answer of the one that died is processed again."""


def foretold(answers: Iterable[Answer], deaths: Iterable[Death]) -> Counter[int]:
    """Id -> how often it comes out besides once. ``deaths`` in their order."""
    again = Counter[int]()
    answers = list(answers)
    born_ms = 0
    for death in deaths:
        of_the_dead = (answer for answer in answers if born_ms < answer.appended_ms <= death.noted_ms)
        # Once a death: that one worker answers an id twice would be no doing of the kill.
        again.update({i for answer in of_the_dead for i in answer.ids if death.comes_again(answer, i)})
        born_ms = death.noted_ms
    return again
