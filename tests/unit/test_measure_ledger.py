"""A ledger measured batch by batch equals one measured from the whole run at once, even after a restart."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.measure_series import BEGIN, fault, second, series, us
from validator.measure.cost import CostRules
from validator.measure.ledger import FAULTS_MAX, FINAL_MAX, Ledger
from validator.measure.output import SECOND_US, Output
from validator.measure.recovery import Detector
from validator.model.snapshot import FaultWindow

pytestmark = pytest.mark.unit

RULES = CostRules(detector=Detector(stable_seconds=10), give_up_seconds=60)
FAULTS = (fault("kill", 60, 70), fault("pause", 150, 155))
DOWN = {*range(62, 80), *range(151, 160)}
RUN = [second(at, latency=5.0 if at in (80, 160) else 1.0) for at in range(2_400) if at not in DOWN]


def windows_until(until: float) -> tuple[FaultWindow, ...]:
    """The faults known at an instant."""
    known = [window for window in FAULTS if (window.injected_us or 0) <= us(until)]
    return tuple(w if (w.healed_us or 0) <= us(until) else replace(w, healed_us=None) for w in known)


def fed(ledger: Ledger, since: int, until: int) -> None:
    for output in RUN:
        if BEGIN + since <= output.start_s < BEGIN + until:
            ledger.series.add(output)


def test_phases_follow_each_other_with_their_output() -> None:
    ledger = Ledger(series([output for output in RUN if output.start_s < BEGIN + 300]))
    found, costs = ledger.measure(FAULTS, RULES, until_us=us(300))
    named = [(p.stretch.phase, p.stretch.fault.name if p.stretch.fault else None, p.seconds) for p in found]
    assert named == [
        ("control", None, 60), ("failure", "kill", 10), ("recovery", "kill", 14),
        ("control", None, 66), ("failure", "pause", 5), ("recovery", "pause", 9), ("control", None, 136),
    ]  # fmt: skip
    assert [p.output.contributions if p.output else 0 for p in found] == [6000, 200, 400, 6600, 100, 400, 13600]
    assert {name: cost.recovery_seconds for name, cost in costs.items()} == {"kill": 24.0, "pause": 14.0}
    assert costs["pause"].failure_cost_seconds == 4.0, "its control phase comes after the first recovery"


@given(st.lists(st.integers(1, 400), max_size=12), st.integers(0, 12))
@settings(deadline=None, max_examples=40)
def test_batch_boundaries_and_restarts_do_not_change_the_ledger(cuts: list[int], restart: int) -> None:
    ledger, now = Ledger(), 0
    for i, cut in enumerate([*cuts, 2_400]):
        until = min(2_400, now + cut)
        fed(ledger, now, until)
        ledger.measure(windows_until(until), RULES, until_us=us(until))
        if i == restart:
            ledger = Ledger.from_plain(json.loads(json.dumps(ledger.to_plain())))
        now = until
    phases, costs = ledger.measure(FAULTS, RULES, until_us=us(2_400))
    whole = Ledger(series(RUN))
    expected_phases, expected = whole.measure(FAULTS, RULES, until_us=us(2_400))
    assert costs == expected
    assert phases == expected_phases


def test_an_unknown_instant_measures_nothing() -> None:
    found, costs = Ledger(series(RUN)).measure(FAULTS, RULES, until_us=None)
    assert costs == {}
    assert found
    assert not any(phase.is_known for phase in found)


def test_a_fault_published_too_late_has_unknown_phases_and_no_recovery() -> None:
    ledger = Ledger(series(RUN))
    ledger.measure((), RULES, until_us=us(2_400))
    found, costs = ledger.measure((fault("late", 90, 100),), RULES, until_us=us(2_400))
    assert [phase.is_known for phase in found] == [False] * 3
    assert (costs["late"].recovery_seconds, costs["late"].recovered) == (None, None)
    assert any("per-second output counts" in reason for reason in costs["late"].absent_because)


@pytest.mark.full
def test_the_ledger_is_bounded() -> None:
    ledger = Ledger()
    for hour in range(26):
        for at in range(hour * 3_600, (hour + 1) * 3_600, 20):
            ledger.series.add(second(at))
        faults = [fault(f"f{i}", i * 60, i * 60 + 5) for i in range((hour + 1) * 60)]
        phases, costs = ledger.measure(faults, RULES, until_us=us((hour + 1) * 3_600))
        assert len(costs) <= FAULTS_MAX
        assert len(phases) <= 3 * FAULTS_MAX + 1
    assert len(ledger.final) <= FINAL_MAX
    assert len(ledger.series.outputs) < 4_000


def test_silence_is_a_phase_without_output() -> None:
    ledger = Ledger(series([second(at) for at in range(60)]))
    found, _ = ledger.measure((fault("kill", 60, None),), RULES, until_us=us(90))
    assert (found[-1].output, found[-1].seconds, found[-1].is_known) == (None, 30, True)


def test_output_before_the_oldest_kept_second_is_unknown() -> None:
    ledger = Ledger(series([Output(BEGIN, BEGIN + 1, 1, 1, BEGIN * SECOND_US, BEGIN * SECOND_US)]))
    ledger.series.thin(BEGIN + 100_000, None, ())
    found, _ = ledger.measure((fault("old", 10, 20), fault("new", 99_000, 99_010)), RULES, until_us=us(100_000))
    assert [phase.is_known for phase in found] == [False, True, True] or found[0].stretch.start_us >= us(13_600)


def test_the_end_of_the_warm_up_is_kept_to_the_second() -> None:
    """The control phase is long ago. A minute that spans its beginning would be missing from it."""
    rules = replace(RULES, warm_up_seconds=5)
    late = fault("late", 2_300, 2_340)
    whole = Ledger(series(RUN))
    _, expected = whole.measure((late,), rules, until_us=us(2_390))
    ledger = Ledger()
    for until in range(0, 2_400, 30):
        fed(ledger, until - 30, until)
        ledger.measure((), rules, until_us=us(until))
    fed(ledger, 2_370, 2_390)
    _, costs = ledger.measure((late,), rules, until_us=us(2_390))
    assert expected["late"].throughput_penalty_ratio is not None
    assert costs["late"].throughput_penalty_ratio == expected["late"].throughput_penalty_ratio
