"""The recovery detector: the meaning of its parameters, and its agreement with the definition on any series."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from validator.measure.recovery import Band, Detector, band_of, fitted, moving_rates, recovered_at, spread, usual_gap

pytestmark = pytest.mark.unit

BAND = Band(100.0, 0.0, 0.15)
IN, OUT = 100.0, 0.0


def test_a_moving_rate_is_the_mean_of_the_last_seconds() -> None:
    assert moving_rates([10, 20, 30, 40], 2) == [15, 25, 35]
    assert moving_rates([10], 2) == []


def test_the_band_is_that_of_the_moving_rates() -> None:
    band = band_of([100, 200] * 10, Detector(moving_seconds=2))
    assert band is not None
    assert (band.mean, band.deviation, band.is_steady) == (150, 0, True)
    assert [band.holds(rate) for rate in (127, 128, 172, 173)] == [False, True, True, False]


def test_neither_bursts_nor_silence_are_a_steady_rate() -> None:
    bursts = band_of([600 if second % 60 == 0 else 0 for second in range(180)], Detector())
    silence = band_of([0] * 60, Detector())
    assert bursts is not None
    assert silence is not None
    assert (bursts.is_steady, silence.is_steady) == (False, False)


def test_a_control_phase_too_short_for_two_rates_has_no_band() -> None:
    assert band_of([100] * 5, Detector(moving_seconds=5)) is None


def test_recovery_begins_where_the_rate_is_back_and_stays() -> None:
    rates = [IN, OUT, OUT, IN, IN, OUT, IN, IN, IN, IN]
    assert recovered_at(rates, BAND, healed=2, stable_seconds=3) == 6
    assert recovered_at(rates, BAND, healed=2, stable_seconds=5) is None


def test_an_undisturbed_rate_recovers_at_once() -> None:
    assert recovered_at([IN] * 7, BAND, healed=4, stable_seconds=3) == 0
    assert recovered_at([IN] * 6, BAND, healed=4, stable_seconds=3) is None


def test_a_late_drop_in_the_failure_phase_delays_recovery() -> None:
    rates = [IN] * 10 + [OUT] * 3 + [IN] * 10
    assert recovered_at(rates, BAND, healed=14, stable_seconds=3) == 13
    assert recovered_at(rates, BAND, healed=None, stable_seconds=3) == 13


def test_a_recovery_after_the_latest_second_does_not_count() -> None:
    rates = [OUT] * 5 + [IN] * 5
    assert recovered_at(rates, BAND, healed=1, stable_seconds=3, latest=5) == 5
    assert recovered_at(rates, BAND, healed=1, stable_seconds=3, latest=4) is None


def by_definition(rates: list[float], healed: int | None, stable: int) -> int | None:
    """The first index from which all rates are in the band until ``stable`` seconds after max(index, healing)."""
    for mark in range(len(rates)):
        if healed is None:
            span = rates[mark:]
            if len(span) >= stable and all(map(BAND.holds, span)):
                return mark
            continue
        end = max(mark, healed) + stable
        if end <= len(rates) and all(map(BAND.holds, rates[mark:end])):
            return mark
    return None


@given(
    st.lists(st.sampled_from([IN, IN, IN, OUT, 114.0, 116.0]), max_size=40),
    st.one_of(st.none(), st.integers(0, 45)),
    st.integers(1, 6),
)
def test_recovery_agrees_with_its_definition(rates: list[float], healed: int | None, stable: int) -> None:
    assert recovered_at(rates, BAND, healed=healed, stable_seconds=stable) == by_definition(rates, healed, stable)


def test_a_burst_counts_as_output_of_the_silent_seconds_before_it() -> None:
    counts = [0, 30, 0, 0, 30, 0, 0, 0, 0, 0, 60, 0]
    assert usual_gap(counts[:5]) == 3
    # After a silence that is longer than usual, the burst is divided among the usual gap. The last second is not known.
    assert spread(counts, 3) == [10, 10, 10, 10, 10, 0, 0, 0, 20, 20, 20]
    assert spread([5, 7, 0], usual_gap([5, 7])) == [5, 7, 0]
    assert (spread([], 1), spread([0, 0], 1), usual_gap([0, 9])) == ([], [0, 0], 1)


RATE = 100
DETECTOR = Detector(moving_seconds=5, stable_seconds=10)


def engine_output(
    period: int, seconds: int, down: range, capacity: list[int], jitter: Callable[[], int] = lambda: 0
) -> tuple[list[int], int | None]:
    """The output per second of an engine that closes windows, or commits, after ``period`` seconds, or later.

    It writes nothing in ``down``, and at most ``capacity`` contributions in any other second. Also returns the first
    second after ``down`` in which its backlog is empty.
    """
    queue, counts, drained, due, arrived = 0, [], None, 0, RATE * (period - 1)
    for at in range(seconds):
        arrived += RATE
        if at >= due:
            queue, arrived, due = queue + arrived, 0, at + period + jitter()
        counts.append(0 if at in down else min(queue, capacity[at]))
        queue -= counts[-1]
        if at >= down.stop and queue == 0 and drained is None:
            drained = at
    return counts, drained


def recovery_of(counts: list[int], down: range) -> tuple[int | None, int]:
    """(second of the recovery from ``down``, seconds of the moving rate), as `validator.measure.cost` computes it."""
    gap = usual_gap(counts[: down.start])
    found = fitted(spread(counts[: down.start], gap), DETECTOR)
    assert found is not None
    fit, band = found
    rates = moving_rates(spread(counts, gap)[down.start - fit.moving_seconds + 1 :], fit.moving_seconds)
    mark = recovered_at(rates, band, healed=len(down), stable_seconds=fit.stable_seconds)
    if mark is None or not band.is_steady:
        return None, fit.moving_seconds
    return next(s for s in range(down.start + mark, len(counts)) if counts[s]), fit.moving_seconds


@given(
    period=st.integers(1, 30),
    lasts=st.integers(1, 4),
    offset=st.integers(0, 29),
    speed=st.sampled_from([1.5, 2, 5, 50]),
)
@settings(deadline=None)
def test_an_output_in_bursts_recovers_a_moving_rate_and_a_period_after_its_backlog_at_the_latest(
    period: int, lasts: int, offset: int, speed: float
) -> None:
    start = 4 * max(period, 5) + offset
    # Shorter outages of a burst may be invisible: no window is late.
    down = range(start, start + lasts * max(2 * period, 10))
    seconds = down.stop + 12 * len(down) + 6 * max(period, 10)
    works = [int(RATE * speed)] * seconds
    counts, drained = engine_output(period, seconds, down, works)
    mark, over = recovery_of(counts, down)
    assert over <= max(period, 8)
    assert mark is not None
    assert drained is not None
    assert down.stop <= mark
    # The backlog ends between two windows. The output is as usual from the next one, and the moving rate after it.
    usual = drained + -drained % period
    assert drained - over < mark <= usual + over + period
    halved = [*works[: down.stop], *([RATE // 2] * (seconds - down.stop))]
    assert recovery_of(engine_output(period, seconds, down, halved)[0], down)[0] is None
    assert recovery_of(engine_output(period, seconds, range(start, seconds), works)[0], down)[0] is None


@given(period=st.integers(1, 6), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_batches_of_uneven_length_recover_after_the_outage_or_not_at_all(period: int, seed: int) -> None:
    draw = Random(seed)
    down, seconds = range(60, 90), 400

    def jitter() -> int:
        return draw.randint(0, period // 3)

    counts, drained = engine_output(period, seconds, down, [3 * RATE] * seconds, jitter)
    mark, over = recovery_of(counts, down)
    assert mark is not None
    assert drained is not None
    assert down.stop <= mark
    assert drained - over - period <= mark
    stopped, _ = engine_output(period, seconds, range(60, seconds), [3 * RATE] * seconds, jitter)
    assert recovery_of(stopped, down)[0] is None
