"""The cost of a fault, on outputs that are simple enough to compute it by hand."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.measure_series import BEGIN, fault, second, series, us
from validator.measure.cost import CostRules, FaultCost, cost_of
from validator.measure.output import SECOND_US, Output
from validator.measure.recovery import Detector
from validator.model.snapshot import FaultWindow

pytestmark = pytest.mark.unit

RULES = CostRules(detector=Detector(stable_seconds=10), give_up_seconds=60)
KILL = fault("kill", 60, 70)


def cost(
    outputs: Iterable[Output],
    window: FaultWindow = KILL,
    others: Iterable[FaultWindow] = (),
    *,
    until: float,
    rules: CostRules = RULES,
    recovered: dict[str, float] | None = None,
) -> FaultCost:
    known = {name: us(at) for name, at in (recovered or {}).items()}
    windows = [*others, window]
    return cost_of(window, windows, series(outputs), rules, until_us=us(until), recovered_us=known)


def outage(down: range, seconds: int, worst: float = 9.0) -> list[Output]:
    """Steady output except in ``down``, with one slow result right after it."""
    return [second(at, latency=worst if at == down.stop else 1.0) for at in range(seconds) if at not in down]


def test_an_outage_is_measured_completely() -> None:
    found = cost(outage(range(62, 80), 200), until=200)
    assert found.failure_cost_seconds == 8.0
    # 18 silent seconds make a gap of 19 s. The longest gap of the control phase is 1 s.
    assert found.downtime_seconds == 18.0
    # The rate over 5 s is complete again in second 84, the fifth one after the outage.
    assert (found.recovery_seconds, found.recovered) == (24.0, True)
    assert found.throughput_penalty_ratio == pytest.approx(0.2)
    assert found.latency_penalty_ratio == 1.0
    assert found.is_final
    assert found.absent_because == ()


def test_a_failure_phase_without_results_has_no_latency() -> None:
    found = cost(outage(range(60, 80), 200), until=200)
    assert found.latency_penalty_ratio is None
    (reason,) = found.absent_because
    assert re.match("latency penalty unknown: .* failure phase", reason)


def test_a_fault_without_effect_costs_nothing() -> None:
    found = cost(map(second, range(200)), until=200)
    assert (found.failure_cost_seconds, found.downtime_seconds, found.recovery_seconds) == (0.0, 0.0, 0.0)
    assert found.recovered is True
    assert found.throughput_penalty_ratio == pytest.approx(1.0)


def test_a_higher_rate_during_a_fault_costs_nothing() -> None:
    found = cost([second(at, latency=2.0 if at < 60 else 1.0) for at in range(100)], until=100)
    assert (found.failure_cost_seconds, found.latency_penalty_ratio) == (0.0, 0.5)


def test_recovery_is_unknown_until_its_timeout() -> None:
    found = cost(outage(range(62, 80), 90), until=90)
    assert (found.recovered, found.recovery_seconds, found.is_final) == (None, None, False)
    assert any(reason.startswith("not recovered yet") for reason in found.absent_because)
    assert found.downtime_seconds == 18.0


def test_a_rate_that_does_not_return_within_the_timeout_has_not_recovered() -> None:
    slow = [second(at, contributions=100 if at < 60 else 50) for at in range(200)]
    found = cost(slow, until=200)
    assert (found.recovered, found.recovery_seconds, found.is_final) == (False, None, True)
    assert "within 60 s of healing" in " ".join(found.absent_because)


def test_the_next_fault_ends_the_wait() -> None:
    slow = [second(at, contributions=100 if at < 60 else 50) for at in range(200)]
    found = cost(slow, others=[fault("next", 90, 95)], until=200)
    assert (found.recovered, found.recovery_seconds) == (False, None)
    assert "next fault was injected" in " ".join(found.absent_because)


def test_the_downtime_of_an_active_fault_grows() -> None:
    silent = [second(at) for at in range(62)]
    lasting = fault("kill", 60, None)
    assert cost(silent, lasting, until=80).downtime_seconds == pytest.approx(17.5)
    assert cost(silent, lasting, until=100).downtime_seconds == pytest.approx(37.5)
    assert cost(silent, lasting, until=100).recovered is None


def test_a_fault_that_is_never_healed_may_be_survived() -> None:
    found = cost(outage(range(62, 70), 200), fault("kill", 60, None), until=200)
    assert (found.recovery_seconds, found.recovered, found.is_final) == (14.0, True, False)


def test_silence_after_recovery_is_no_downtime() -> None:
    run = outage(range(62, 70), 120)
    assert cost(run, until=120).downtime_seconds == cost(run, until=500).downtime_seconds == 8.0


def test_without_control_phase_there_is_no_cost() -> None:
    for early in (fault("kill", 0, 5), fault("kill", 5, 7), fault("kill", -20, -10)):
        found = cost(map(second, range(100)), early, until=100)
        assert replace(found, absent_because=(), is_final=False) == FaultCost()
        assert found.absent_because == ("no control phase of at least 10 s with output before the fault",)


def test_warm_up_is_not_part_of_the_control_phase() -> None:
    slow_start = [second(at, latency=30.0 if at < 10 else 1.0) for at in range(100)]
    hot = [replace(o, latency=second(0, latency=5.0).latency) if o.start_s == BEGIN + 65 else o for o in slow_start]
    assert cost(hot, until=100).failure_cost_seconds == 0.0
    warm = cost(hot, until=100, rules=replace(RULES, warm_up_seconds=10))
    assert warm.failure_cost_seconds == 4.0
    assert (warm.control_start_us, warm.control_end_us) == ((BEGIN + 10) * 1_000_000, (BEGIN + 60) * 1_000_000)


def test_a_fault_without_a_published_injection_has_no_cost() -> None:
    found = cost(map(second, range(100)), fault("kill", None, 70), until=100)
    [reason] = found.absent_because
    assert "injected" in reason
    assert replace(found, absent_because=()) == FaultCost()


def test_bursts_without_a_period_have_no_rate_to_recover() -> None:
    bursts = [second(at, contributions=6_000) for at in (0, 40, 50, 120, 130, 170, 230, 300, 390)]
    found = cost(bursts, fault("kill", 190, 200), until=400)
    assert (found.recovered, found.recovery_seconds) == (None, None)
    assert any("no steady rate" in reason for reason in found.absent_because)


def test_bursts_have_a_rate_over_their_period_and_no_downtime() -> None:
    bursts = [second(at, contributions=6_000) for at in range(0, 400, 60)]
    found = cost(bursts, fault("kill", 190, 200), until=400)
    assert (found.recovered, found.recovery_seconds) == (True, 0.0)
    assert found.downtime_seconds == 0.0
    assert found.throughput_penalty_ratio is None, "ten seconds may hold a burst or none by chance"
    late = [output for output in bursts if output.start_s != BEGIN + 240] + [second(250)]
    assert cost(sorted(late, key=lambda o: o.start_s), fault("kill", 190, 200), until=400).downtime_seconds == 10.0


def test_one_burst_is_too_short_for_a_downtime() -> None:
    bursts = [second(at) for at in range(0, 400, 60)]
    found = cost(bursts, fault("kill", 70, 80), until=400)
    assert found.downtime_seconds is None
    assert any("too short" in reason for reason in found.absent_because)


def test_the_next_fault_is_compared_with_control_after_the_last_one() -> None:
    # The first fault halves the rate until 100; then the rate recovers. The second fault has control from 104 to 150.
    run = [
        second(at, contributions=50 if 60 <= at < 100 else 100, latency=3.0 if at >= 104 else 1.0) for at in range(250)
    ]
    second_kill = fault("again", 150, 160)
    found = cost(run, second_kill, [KILL], until=250, recovered={"kill": 104})
    assert (found.failure_cost_seconds, found.recovered) == (0.0, True)
    unrecovered = cost(run, second_kill, [KILL], until=250)
    assert unrecovered.failure_cost_seconds == 2.0, "without recovery the control phase before the first is compared"


def test_overlapping_faults_share_their_control_phase_and_recovery() -> None:
    run = outage(range(62, 95), 200)
    first, other = fault("a", 60, 80), fault("b", 70, 90)
    a, b = cost(run, first, [other], until=200), cost(run, other, [first], until=200)
    assert (a.recovered, a.recovery_seconds, b.recovery_seconds) == (True, 39.0, 29.0)
    assert (a.downtime_seconds, b.downtime_seconds) == (33.0, 33.0)


def test_a_healing_dated_before_its_injection_is_corrected() -> None:
    found = cost(outage(range(62, 70), 200), fault("kill", 60, 50), until=200)
    assert found.recovered is True
    assert found.downtime_seconds == 8.0


@given(st.integers(61, 68), st.integers(1, 25), st.floats(0, 20), st.integers(0, 12))
def test_any_outage_is_measured_as_defined(begin: int, silent: int, slower: float, late: int) -> None:
    run = outage(range(begin, begin + silent), 200, 1.0 + slower)
    found = cost(run, fault("kill", 60, 60 + late), until=200)
    assert found.failure_cost_seconds == pytest.approx(int(slower * SECOND_US) / SECOND_US, abs=2e-6)
    assert found.downtime_seconds == silent
    assert found.recovered is True
    # The first rate over 5 s that contains no silent second.
    assert found.recovery_seconds == begin + silent + 4 - 60


@given(st.integers(62, 199))
def test_final_costs_do_not_change(until: int) -> None:
    run = outage(range(62, 80), 200)
    before = cost([output for output in run if output.start_s < BEGIN + until], until=until)
    if before.is_final:
        assert before == cost(run, until=200)


@pytest.mark.parametrize("slow", [64, 66, 69])
def test_an_immediate_recovery_is_final_once_all_of_it_was_read(slow: int) -> None:
    """The slow result comes after the stable time (2 s), but within the span of a rate (10 s)."""
    rules = CostRules(detector=Detector(moving_seconds=10, stable_seconds=2), give_up_seconds=60)
    run = [second(at, latency=9.0 if at == slow else 1.0) for at in range(200)]
    brief = fault("kill", 60, 60.5)
    whole = cost(run, brief, until=200, rules=rules)
    assert (whole.failure_cost_seconds, whole.recovery_seconds) == (8.0, 0.0)
    for until in range(61, 75):
        early = cost([output for output in run if output.start_s < BEGIN + until], brief, until=until, rules=rules)
        assert early == whole if early.is_final else until < 70


@pytest.mark.parametrize(("injected", "because"), [(100, "next fault was injected"), (150, "within 60 s of healing")])
def test_a_fault_after_the_recovery_timeout_does_not_change_the_reason(injected: int, because: str) -> None:
    slow = [second(at, contributions=100 if at < 60 else 50) for at in range(200)]
    found = cost(slow, others=[fault("next", injected, injected + 5)], until=200)
    assert found.recovered is False
    assert because in " ".join(found.absent_because)
    if injected > 140:  # 70 s, the recovery timeout of 60 s, and 10 s of stable output
        assert found == cost(slow, until=injected - 1), "final before that fault was injected"
