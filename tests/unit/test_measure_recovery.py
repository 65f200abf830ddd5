"""The recovery detector: the meaning of its parameters, and its agreement with the definition on any series."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.measure.recovery import Band, Detector, band_of, moving_rates, recovered_at

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
