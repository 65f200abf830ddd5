"""The smallest change that explains sums: against a search of all changes of one or two events."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from validator.reconcile.explained_sums import SHOWN, Change, Sums, smallest_changes

numbers = st.integers(-3, 3).map(Decimal)
sums_of = st.lists(st.tuples(numbers, numbers), max_size=7)


def all_changes(events: list[Sums], more: int | None, surplus: Sums) -> list[Change[int]]:
    """The changes of as few events as possible, found by trying each."""

    def fits(change: Change[int]) -> bool:
        found = [Decimal(0), Decimal(0)]
        for sign, place in ((-1, change.lost), (1, change.repeated)):
            if place is not None:
                found = [number + sign * one for number, one in zip(found, events[place], strict=True)]
        count = (change.repeated is not None) - (change.lost is not None)
        return tuple(found) == surplus and more in (None, count)

    places = range(len(events))
    singles = [Change(lost=place) for place in places] + [Change(repeated=place) for place in places]
    pairs = [Change(*pair) for pair in permutations(places, 2)] if any(surplus) else []
    return [change for change in singles if fits(change)] or [change for change in pairs if fits(change)]


@given(sums_of, st.sampled_from([-2, -1, 0, 1, 2, None]), st.tuples(numbers, numbers))
def test_the_smallest_changes_are_those_of_a_search(events: list[Sums], more: int | None, surplus: Sums) -> None:
    number, found = smallest_changes(list(enumerate(events)), more, surplus)
    searched = all_changes(events, more, surplus)
    assert number == len(searched)
    assert len(set(found)) == len(found) == min(number, SHOWN)
    assert set(found) <= set(searched)


def test_a_million_pairs_are_counted_and_not_listed() -> None:
    events: list[tuple[int, Sums]] = [(place, (Decimal(place % 2),)) for place in range(2_000)]
    assert smallest_changes(events, 0, (Decimal(1),)) == (1_000_000, [Change(0, 1), Change(0, 3), Change(0, 5)])
