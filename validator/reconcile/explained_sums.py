"""Which lost or repeated events explain why the sums of a cell's results differ from those of its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import Final, Generic, TypeVar

SHOWN: Final = 3
"""Explanations that are returned, if there are more."""

_Event = TypeVar("_Event", bound=Hashable)
Sums = tuple[Decimal, ...]
"""What an event adds to each sum."""


@dataclass(frozen=True)
class Change(Generic[_Event]):
    """A lost event, a repeated one, or one of each."""

    lost: _Event | None = None
    repeated: _Event | None = None


def smallest_changes(
    events: Sequence[tuple[_Event, Sums]], more: int | None, surplus: Sums
) -> tuple[int, list[Change[_Event]]]:
    """Return how many changes explain the difference, and the first `SHOWN` ones: of a single event if there are any,
    else of one lost and one repeated event.

    ``events``: those of the cell, with what each adds to the sums. ``more``: how many events more than these the
    results state; None if they do not state it. ``surplus``: how much more their sums are.
    """
    # A dictionary of what events add finds the other event of a pair: the work grows with the events, not the pairs.
    places: dict[Sums, list[_Event]] = {}
    for event, sums in events:
        places.setdefault(sums, []).append(event)
    lost = places.get(tuple(-number for number in surplus), ()) if more in (-1, None) else ()
    repeated = places.get(surplus, ()) if more in (1, None) else ()
    singles: list[Change[_Event]] = [Change(lost=event) for event in lost[:SHOWN]]
    singles += [Change(repeated=event) for event in repeated[:SHOWN]]
    if singles or more not in (0, None) or not any(surplus):
        return len(lost) + len(repeated), singles[:SHOWN]
    many = Counter({sums: len(found) for sums, found in places.items()})
    pairs = sum(number * many[_plus(sums, surplus)] for sums, number in list(many.items()))
    return pairs, list(islice(_pairs(places, surplus), SHOWN))


def _pairs(places: dict[Sums, list[_Event]], surplus: Sums) -> Iterator[Change[_Event]]:
    for sums, lost in places.items():
        for one in lost:
            yield from (Change(one, other) for other in places.get(_plus(sums, surplus), ()))


def _plus(sums: Sums, surplus: Sums) -> Sums:
    return tuple(number + more for number, more in zip(sums, surplus, strict=True))
