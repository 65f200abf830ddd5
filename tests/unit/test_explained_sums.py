"""The smallest change that explains sums: against a search of all changes of one or two events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import permutations
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from validator.cli.explained_values import _Difference
from validator.oracles.passthrough import Passthrough
from validator.oracles.seam import Oracle, Reads
from validator.oracles.tumbling_window import TumblingWindow
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


LONG: Final = ("12345678901234567890.12345678901", "0.00000000009876543210123")
TOTAL: Final = "12345678901234567890.12345678910876543210123"
LONG_MORE: Final = "12345678901235567890.12345678910876543210123"


def rows(events: Sequence[str], results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A fact row for each event, with its field, and one of results."""
    usual = {"status": 0, "batch": 0, "aggregates": None, "results": None}
    found = [
        usual | {"side": "input", "contributions": 1, "aggregates": [{"count": 1, "sum": one, "min": one, "max": one}]}
        for one in events
    ]
    return [*found, usual | {"side": "output", "contributions": len(results), "results": list(results)}]


def reading(oracle: Oracle, values: Mapping[str, str]) -> Oracle:
    return oracle.model_copy(update={"values": values}).reading(Reads(evidence="values", names_ids=False))


def test_sums_of_many_digits_are_exact() -> None:
    oracle = reading(TumblingWindow.of(1_000), {"n": "count", "total": "sum(amount)"})
    for stated, surplus in ((TOTAL, Decimal(0)), (LONG_MORE, Decimal(10**6))):
        result = {"offset": 0, "count": 2, "values": [Decimal(stated)]}
        found = _Difference.of(oracle, rows(LONG, [result]))
        assert isinstance(found, _Difference)
        assert (str(found.sums[0]), found.more, found.surplus) == (TOTAL, 0, (surplus,))


def test_what_doubles_lost_is_no_surplus() -> None:
    oracle, events = reading(TumblingWindow.of(1_000), {"n": "count", "total": "sum(amount)"}), ("0.1", "0.2", "0.3")
    assert (0.1 + 0.2 + 0.3, 0.1 + 0.2) == (0.6000000000000001, 0.30000000000000004)
    for used, surplus in (((0.1, 0.2, 0.3), "0"), ((0.1, 0.2), "-0.3"), ((0.1, 0.2, 0.1), "-0.2")):
        result = {"offset": 0, "count": len(used), "values": [Decimal(repr(sum(used)))]}
        found = _Difference.of(oracle, rows(events, [result]))
        assert isinstance(found, _Difference)
        assert found.exact([tuple(map(Decimal, events))]) == (Decimal(surplus),)


def test_each_result_of_one_event_counts_one() -> None:
    oracle = reading(Passthrough.model_validate({"kind": "passthrough", "bucket": "1ms"}), {})
    result = {"offset": 0, "count": 1, "values": None}
    found = _Difference.of(oracle, rows(LONG, [result]))
    assert isinstance(found, _Difference)
    assert (found.more, found.surplus) == (-1, ())


def test_an_average_alone_is_compared_with_nothing() -> None:
    oracle = reading(TumblingWindow.of(1_000), {"mean": "avg(amount)"})
    result = {"offset": 0, "count": None, "values": [Decimal(1)]}
    found = _Difference.of(oracle, rows(LONG, [result]))
    assert found == "its results state neither a number of events nor an exact sum"
