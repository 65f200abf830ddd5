"""The series of output: sums lose only the values of single seconds; thinning is bounded and keeps phases apart."""

from __future__ import annotations

import json
from functools import reduce
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.measure_series import BEGIN, second, series
from validator.measure.output import SECOND_US, Output, Spread, second_after, total_output
from validator.measure.series import COARSE_SECONDS, FINE_SECONDS, FINE_SECONDS_MAX, KEPT_SECONDS, Series

pytestmark = pytest.mark.unit

SECONDS = st.lists(st.integers(0, 3_000), min_size=1, max_size=60)


def test_an_instant_within_a_second_is_rounded_up_to_the_next() -> None:
    assert (second_after(10 * SECOND_US), second_after(10 * SECOND_US + 1)) == (10, 11)


def test_the_sum_of_two_parts_includes_the_gap_between_them() -> None:
    total = second(0).plus(second(1)).plus(second(9))
    assert (total.start_s, total.end_s, total.results, total.contributions) == (BEGIN, BEGIN + 10, 3, 300)
    assert total.gap_us == 8 * SECOND_US
    assert second(9).plus(second(0)) == second(0).plus(second(9))


def test_the_same_second_in_two_parts_has_no_gap() -> None:
    first = Output(5, 6, 1, 10, 5_000_000, 5_100_000, 0, {"last_input": Spread({1: 1}, 7, 7)})
    more = Output(5, 6, 2, 20, 5_900_000, 5_950_000, 0, {"last_input": Spread({1: 1, 2: 1}, 30, 20)})
    assert first.plus(more) == Output(
        5, 6, 3, 30, 5_000_000, 5_950_000, 0, {"last_input": Spread({1: 2, 2: 1}, 37, 20)}
    )


def test_a_spread_is_published_as_a_histogram() -> None:
    histogram = Spread({0: 2, 7: 1}, 1_020_000, 1_000_000).histogram()
    assert (histogram.count, histogram.counts[0], histogram.counts[7], histogram.max_seconds) == (3, 2, 1, 1.0)


@given(SECONDS, st.randoms())
def test_the_order_in_which_seconds_are_read_makes_no_difference(at: list[int], random: object) -> None:
    ordered, shuffled = Series(), Series()
    for place in sorted(at):
        ordered.add(second(place))
    random.shuffle(at)  # type: ignore[attr-defined]
    for place in at:
        shuffled.add(second(place))
    assert list(ordered.between(0, BEGIN * 2)) == list(shuffled.between(0, BEGIN * 2))


@given(SECONDS, st.lists(st.integers(0, 3_000), max_size=5))
@settings(deadline=None)
def test_thinning_keeps_totals_gaps_and_edges(at: list[int], edges: list[int]) -> None:
    full, thin = series(map(second, sorted(set(at)))), series(map(second, sorted(set(at))))
    edges = sorted({BEGIN + edge for edge in edges})
    for now in range(BEGIN, BEGIN + 5_000, 500):
        thin.thin(now, None, edges)
    assert thin.total(0, BEGIN * 2) == full.total(0, BEGIN * 2)
    for start, end in pairwise([0, *edges, BEGIN * 2]):
        assert thin.total(start, end) == full.total(start, end)


def test_old_seconds_become_minutes_and_new_ones_stay() -> None:
    run = series(second(at) for at in range(3_600))
    run.thin(BEGIN + 3_600, None, ())
    assert len(run.outputs) <= FINE_SECONDS + COARSE_SECONDS + (3_600 - FINE_SECONDS) // COARSE_SECONDS + 1
    assert run.contributions(run.fine_from_s, BEGIN + 3_600) == [100] * (BEGIN + 3_600 - run.fine_from_s)
    with pytest.raises(AssertionError, match="kept one by one"):
        run.contributions(BEGIN, BEGIN + 10)


def test_seconds_that_a_fault_needs_are_kept_for_a_bounded_time() -> None:
    run = series(second(at) for at in range(10_000))
    run.thin(BEGIN + 5_000, BEGIN + 2_000, ())
    assert BEGIN + 1_900 <= run.fine_from_s <= BEGIN + 2_000
    run.thin(BEGIN + 10_000, BEGIN + 2_000, ())
    assert BEGIN + 10_000 - FINE_SECONDS_MAX - COARSE_SECONDS <= run.fine_from_s <= BEGIN + 10_000 - FINE_SECONDS_MAX


def test_a_day_is_kept() -> None:
    run = series([second(0), second(KEPT_SECONDS)])
    run.thin(BEGIN + KEPT_SECONDS + 10, None, ())
    assert len(run.outputs) == 1
    assert run.since_s == BEGIN + 10
    run.add(second(5))
    assert len(run.outputs) == 1, "what is older than the series is left out"


def test_a_second_read_late_joins_its_minute() -> None:
    run = series(second(at) for at in range(0, 120, 2))
    run.thin(BEGIN + 2_000, None, ())
    minutes = len(run.outputs)
    run.add(second(31))
    total = run.total(0, BEGIN * 2)
    assert total is not None
    assert (len(run.outputs), total.results) == (minutes, 61)


@given(SECONDS)
def test_the_total_equals_the_sum_of_the_parts(at: list[int]) -> None:
    parts = [second(place, contributions=place) for place in sorted(set(at))]
    assert total_output(parts) == reduce(Output.plus, parts)
    assert total_output([]) is None


@given(SECONDS)
def test_plain_values_survive_json(at: list[int]) -> None:
    total = total_output(map(second, sorted(set(at))))
    assert total is not None
    assert Output.from_plain(json.loads(json.dumps(total.to_plain()))) == total
