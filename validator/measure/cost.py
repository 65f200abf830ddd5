"""The cost of one fault: latency, downtime, recovery, throughput (SEMANTICS section 6; PGVal, Vogel et al.,
StreamBench).

A measure that cannot be computed is None, with the reason as a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from validator.measure.output import SECOND_US, Output, Spread, coarser, second_after
from validator.measure.phases import healed_us, injected, phases
from validator.measure.recovery import Band, Detector, fitted, moving_rates, recovered_at, spread, usual_gap
from validator.measure.series import Series
from validator.model.snapshot import FaultWindow

GAPS_MIN: Final = 2
"""A control phase shows the usual gap of the output if it is at least this many times as long as its longest gap."""


@dataclass(frozen=True)
class CostRules:
    """The rules of comparison, in seconds. ``latency`` is one of the definitions in SEMANTICS section 6."""

    latency: str = "window_close"
    warm_up_seconds: int = 0
    control_seconds_least: int = 10
    control_seconds_most: int = 180
    give_up_seconds: int = 300
    detector: Detector = field(default_factory=Detector)


@dataclass(frozen=True)
class FaultCost:
    """The measures of one fault.

    ``recovered``: None while it is open or cannot be determined. ``is_final``: further output changes nothing.
    ``absent_because``: why measures are None. ``control_start_us``, ``control_end_us``: the control phase of the
    comparison, without the warm-up. ``resolution_us``: precision of the instants behind the measures (None: unknown).
    """

    failure_cost_seconds: float | None = None
    downtime_seconds: float | None = None
    recovery_seconds: float | None = None
    recovered: bool | None = None
    throughput_penalty_ratio: float | None = None
    latency_penalty_ratio: float | None = None
    recovered_us: int | None = None
    is_final: bool = False
    absent_because: tuple[str, ...] = ()
    control_start_us: int | None = None
    control_end_us: int | None = None
    resolution_us: int | None = 0


@dataclass(frozen=True)
class _Extent:
    """The time over which a fault is measured, in seconds since the epoch: its control phase, failure from ``start_s``
    until ``healed_s``, recovery until ``end_s`` at the latest. ``last_s``: a recovery that begins later does not
    count."""

    control_s: int
    control_end_s: int
    start_s: int
    healed_s: int | None
    end_s: int
    last_s: int | None
    until_us: int


def cost_of(
    window: FaultWindow,
    windows: Sequence[FaultWindow],
    series: Series,
    rules: CostRules,
    *,
    until_us: int,
    recovered_us: Mapping[str, int],
) -> FaultCost:
    """Return the cost of ``window``, one of ``windows``, by the output that is known through ``until_us``.

    ``recovered_us``: recovery instants of the faults before it, by id.
    """
    if window.injected_us is None:
        return FaultCost(absent_because=("not measured: the faults topic does not state when the fault was injected",))
    faults = injected(windows)
    until_s = until_us // SECOND_US
    start_s, healed = second_after(window.injected_us), healed_us(window)
    healed_s = None if healed is None else second_after(healed)
    later = [
        w.injected_us for w in faults if w.id != window.id and healed is not None and (w.injected_us or 0) >= healed
    ]
    next_s = min((second_after(instant) for instant in later if instant is not None), default=None)
    last_s = None if healed_s is None else healed_s + rules.give_up_seconds
    control = _control(window, faults, series, rules, recovered_us)
    found = None if control is None else _baseline(*control, series, rules)
    if found is not None:
        rules = replace(rules, detector=found.detector)
    # A fault that recovers at once is still measured over one window of the moving average.
    least_s = start_s + rules.detector.moving_seconds
    # The newest silent seconds can still belong to the next burst.
    silent_s = 0 if found is None else found.gap - 1
    over_s = None if last_s is None else max(last_s + rules.detector.stable_seconds + silent_s, least_s)
    is_final = _is_past(until_s, over_s, next_s)
    if control is None:
        least = rules.control_seconds_least
        return FaultCost(
            is_final=is_final, absent_because=(f"no control phase of at least {least} s with output before the fault",)
        )
    known_s = second_after(until_us)
    end_s = known_s if next_s is None else min(next_s, known_s)
    extent = _Extent(*control, start_s, healed_s, end_s, last_s, until_us)
    reasons: list[str] = []
    mark_s, recovered = _recovery(extent, series, rules, found, reasons, is_final=is_final, next_s=next_s)
    reached_us = None if mark_s is None else max(mark_s * SECOND_US, window.injected_us)
    over = max(mark_s, healed_s) if mark_s is not None and healed_s is not None else last_s
    measured_s = end_s if over is None else min(end_s, max(over, least_s))
    before = series.total(extent.control_s, extent.control_end_s)
    assert before is not None, "a control phase has output"
    after = series.total(start_s, measured_s)
    failing_end_s = measured_s if healed_s is None else min(healed_s, measured_s)
    failing = series.total(start_s, failing_end_s)
    return FaultCost(
        failure_cost_seconds=_latency_cost(before, after, rules, reasons),
        downtime_seconds=_downtime(extent, before, series, measured_s, reasons),
        recovery_seconds=None if reached_us is None else (reached_us - window.injected_us) / 1e6,
        recovered=recovered,
        throughput_penalty_ratio=_throughput_penalty(extent, before, failing, failing_end_s, reasons),
        latency_penalty_ratio=_latency_penalty(before, failing, rules, reasons),
        recovered_us=reached_us,
        is_final=is_final
        or (mark_s is not None and over is not None and _is_past(until_s, max(over, least_s), next_s)),
        absent_because=tuple(reasons),
        control_start_us=extent.control_s * SECOND_US,
        control_end_us=extent.control_end_s * SECOND_US,
        resolution_us=before.resolution_us if after is None else coarser(before.resolution_us, after.resolution_us),
    )


def baseline_from(series: Series, rules: CostRules) -> int | None:
    """Return the first second that a control phase may have; None if there was no output yet."""
    if series.since_s is None or series.cut_s is not None:
        return series.since_s
    return series.since_s + rules.warm_up_seconds


def _is_past(until_s: int, over_s: int | None, next_s: int | None) -> bool:
    """Return whether the output is known until ``over_s`` (None: never), or until the next fault."""
    return over_s is not None and until_s >= (over_s if next_s is None else min(over_s, next_s))


def _control(
    window: FaultWindow,
    faults: Sequence[FaultWindow],
    series: Series,
    rules: CostRules,
    recovered_us: Mapping[str, int],
) -> tuple[int, int] | None:
    """Return the newest of the long enough control phases with output before the fault, as (first second, end)."""
    since_s = baseline_from(series, rules)
    if since_s is None:
        return None
    earlier = faults[: faults.index(window)]
    if not earlier:
        stretches = [(since_s, second_after(window.injected_us or 0))]
    else:
        cut = phases(earlier, recovered_us, since_s * SECOND_US, window.injected_us)
        stretches = [
            (second_after(stretch.start_us), second_after(stretch.end_us))
            for stretch in cut
            if stretch.phase == "control" and stretch.end_us is not None
        ]
    for start_s, end_s in reversed(stretches):
        if end_s - start_s >= rules.control_seconds_least and next(series.between(start_s, end_s), None) is not None:
            return start_s, end_s
    return None


@dataclass(frozen=True)
class _Baseline:
    """The output of the control phase from ``begin_s``: its usual gap in seconds, the detector that fits, the band."""

    begin_s: int
    gap: int
    detector: Detector
    band: Band


def _baseline(control_s: int, control_end_s: int, series: Series, rules: CostRules) -> _Baseline | None:
    """Return the baseline of a control phase; None if it cannot be computed."""
    begin_s = _baseline_from(control_s, control_end_s, series, rules)
    if begin_s > control_end_s - rules.control_seconds_least:
        return None
    counts = series.contributions(begin_s, control_end_s)
    gap = usual_gap(counts)
    found = fitted(spread(counts, gap), rules.detector)
    return None if found is None else _Baseline(begin_s, gap, *found)


def _baseline_from(control_s: int, control_end_s: int, series: Series, rules: CostRules) -> int:
    return max(control_s, control_end_s - rules.control_seconds_most, series.fine_from_s)


def _recovery(
    extent: _Extent,
    series: Series,
    rules: CostRules,
    baseline: _Baseline | None,
    reasons: list[str],
    *,
    is_final: bool,
    next_s: int | None,
) -> tuple[int | None, bool | None]:
    """Return (second from which the output was back in the band, whether it recovered)."""
    detector = rules.detector
    begin_s = _baseline_from(extent.control_s, extent.control_end_s, series, rules)
    first_s = extent.start_s - detector.moving_seconds + 1
    if begin_s > extent.control_end_s - rules.control_seconds_least or first_s < series.fine_from_s:
        reasons.append("recovery unknown: the per-second output counts around the fault are no longer kept")
        return None, None
    if baseline is None:
        reasons.append(f"recovery unknown: the control phase must exceed moving_rate ({detector.moving_seconds} s)")
        return None, None
    band = baseline.band
    if not band.is_steady:
        reasons.append(
            f"recovery unknown: the output of the control phase has no steady rate, not even over half of its length "
            f"(mean {band.mean:.4g} contributions a second, standard deviation {band.deviation:.4g}, over "
            f"{detector.moving_seconds} s)"
        )
        return None, None
    # An incomplete second would look like a drop.
    complete_s = min(extent.end_s, extent.until_us // SECOND_US)
    counts = series.contributions(baseline.begin_s, complete_s)
    output = spread(counts, baseline.gap)[first_s - baseline.begin_s :]
    rates = moving_rates(output, detector.moving_seconds)
    healed = None if extent.healed_s is None else extent.healed_s - extent.start_s
    latest = None if extent.last_s is None else extent.last_s - extent.start_s
    mark = recovered_at(rates, band, healed=healed, stable_seconds=detector.stable_seconds, latest=latest)
    if mark is not None:
        back_s = extent.start_s + mark
        # A burst counts from the silent seconds before it, but the output is back with the burst.
        shown_s = (s for s in range(back_s, complete_s) if counts[s - baseline.begin_s])
        return next(shown_s, back_s) if mark else back_s, True
    if not is_final:
        reasons.append(f"not recovered yet: the rate has not stayed in the band for {detector.stable_seconds} s")
        return None, None
    # The next fault is the reason only if it was injected before the waiting time was over. Otherwise the reason would
    # depend on whether that fault is known yet.
    if next_s is not None and extent.last_s is not None and next_s < extent.last_s + detector.stable_seconds:
        reasons.append("not recovered: the next fault was injected before the rate was back")
    else:
        reasons.append(f"not recovered: the rate was not back within {rules.give_up_seconds} s of healing")
    return None, False


def _latency(output: Output | None, rules: CostRules) -> Spread | None:
    return None if output is None else output.latency.get(rules.latency)


def _latency_cost(before: Output, after: Output | None, rules: CostRules, reasons: list[str]) -> float | None:
    usual, worst = _latency(before, rules), _latency(after, rules)
    if usual is None or worst is None:
        where = "the control phase" if usual is None else "the failure and recovery phases"
        reasons.append(f"failure cost unknown: no {rules.latency} latency was measured in {where}")
        return None
    # A fault never makes an engine faster: a value below control is chance.
    return max(0.0, (worst.max_us - usual.max_us) / 1e6)


def _downtime(extent: _Extent, before: Output, series: Series, measured_s: int, reasons: list[str]) -> float | None:
    usual_us = before.gap_us
    # Silence at the edges is part of a gap whose length is not known.
    edges_us = (
        before.first_us - extent.control_s * SECOND_US,
        extent.control_end_s * SECOND_US - before.last_us,
    )
    if GAPS_MIN * max(usual_us, *edges_us) > (extent.control_end_s - extent.control_s) * SECOND_US:
        reasons.append("downtime unknown: the control phase is too short to show how long the output usually pauses")
        return None
    last = series.last_before(extent.start_s)
    outputs = [*([last] if last is not None else []), *series.between(extent.start_s, measured_s)]
    # The gap inside `last`, the stretch before the fault, belongs to the control phase.
    longest_us = max((b.first_us - a.last_us for a, b in pairwise(outputs)), default=0)
    longest_us = max([longest_us, *(output.gap_us for output in outputs[1:])])
    following = series.first_from(measured_s)
    end_us = min(measured_s * SECOND_US, extent.until_us)
    if following is not None:
        end_us = min(end_us, following.first_us)
    if outputs:
        longest_us = max(longest_us, end_us - outputs[-1].last_us)
    return max(0.0, (longest_us - usual_us) / 1e6)


def _throughput_penalty(
    extent: _Extent, before: Output, failing: Output | None, end_s: int, reasons: list[str]
) -> float | None:
    seconds = end_s - extent.start_s
    if seconds * SECOND_US < max(SECOND_US, before.gap_us):
        reasons.append("throughput penalty unknown: the failure phase is shorter than the usual pause of the output")
        return None
    usual = before.contributions / (extent.control_end_s - extent.control_s)
    if usual == 0:
        reasons.append("throughput penalty unknown: the results of the control phase hold no ids")
        return None
    return (failing.contributions if failing is not None else 0) / seconds / usual


def _latency_penalty(before: Output, failing: Output | None, rules: CostRules, reasons: list[str]) -> float | None:
    usual, now = _latency(before, rules), _latency(failing, rules)
    if usual is None or now is None:
        where = "the control phase" if usual is None else "the failure phase"
        reasons.append(f"latency penalty unknown: no {rules.latency} latency was measured in {where}")
        return None
    if usual.mean_us == 0:
        reasons.append(f"latency penalty unknown: the {rules.latency} latency was 0 in the control phase")
        return None
    return now.mean_us / usual.mean_us
