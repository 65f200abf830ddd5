"""Which random histories a run has.

``STREAMPROOF_WORLDS`` scales their numbers: 2000 for all, by default; 1000 for half of them, and more for a hunt. If a
run has only some of the histories, ``STREAMPROOF_TEST_SEED`` chooses which. The first tier takes it from the commit.
Tests with many combinations of parameters are halved in the same way.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, TypeVar

Value = TypeVar("Value")

SHARE: Final = int(os.environ.get("STREAMPROOF_WORLDS", "2000")) / 2000
IS_STANDING: Final = SHARE >= 1
"""Whether the run has all histories. Tests assert of these that they contain every class and event."""
_CHOICE: Final = os.environ.get("STREAMPROOF_TEST_SEED", "0")


def seeds(number: int) -> Sequence[int]:
    """The seeds of this run's share of ``number`` histories."""
    if IS_STANDING:
        return range(scaled(number))
    return sorted(Random(_CHOICE).sample(range(number), scaled(number)))


def some(values: Iterable[Value]) -> list[Value]:
    """This run's share of the parameters of a test, at least one."""
    given = list(values)
    if IS_STANDING:
        return given
    chosen = Random(f"{_CHOICE}/{len(given)}").sample(range(len(given)), scaled(len(given)))
    return [given[at] for at in sorted(chosen)]


def scaled(number: int) -> int:
    """The share of ``number`` that this run has, at least one."""
    return max(1, round(number * SHARE))
