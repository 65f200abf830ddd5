"""A snapshot as the values of the catalogue's metrics. Pure: no clock, no memory of earlier snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from validator import __version__
from validator.model.classes import EXPECTABLE, OUTSTANDING, Contribution, Guarantee, Result, Verdict, ViolationClass
from validator.model.snapshot import CanaryMeasures, FaultWindow, Histogram, Snapshot
from validator.publish.catalogue import BOUNDS_SECONDS, CATALOGUE, DEFINITIONS, NAN, OVERS, PHASES
from validator.publish.report import fault_measure, settled_ratio

Labels = tuple[str, ...]
FAULT_MEASURES: Final = (
    "fault_failure_cost_seconds",
    "fault_recovery_seconds",
    "fault_downtime_seconds",
    "fault_recovered",
    "fault_throughput_penalty_ratio",
    "fault_latency_penalty_ratio",
    "fault_resolution_seconds",
)
FAULTS_SHOWN: Final = 50
"""Maximum number of faults per metric, because a plan may give each repetition of a fault another name. Active faults
are kept first, so that their alert keeps firing, then the newest ones."""


@dataclass(frozen=True)
class Samples:
    """Metric name -> label values -> value. Histograms are separate."""

    plain: Mapping[str, Mapping[Labels, float]]
    histograms: Mapping[str, Mapping[Labels, Histogram]]


def at_start(scheme: str = "http") -> Samples:
    """Return the samples of a new state before its first batch: every known class at its start value. ``scheme``: that
    of the port."""
    plain: dict[str, dict[Labels, float]] = {}
    histograms: dict[str, dict[Labels, Histogram]] = {}
    for metric in CATALOGUE:
        if metric.kind == "histogram":
            bounds = BOUNDS_SECONDS[metric.name]
            empty = Histogram(bounds, (0,) * (len(bounds) + 1), 0.0, None)
            histograms[metric.name] = dict.fromkeys(metric.known_labels(), empty)
        elif metric.start is not None:
            plain[metric.name] = dict.fromkeys(metric.known_labels(), metric.start)
    for guarantee in Guarantee:
        for over in OVERS:
            plain["guarantee_status"][guarantee, over, Verdict.UNKNOWN] = 1.0
    plain["build_info"] = {(__version__, scheme): 1.0}
    return Samples(plain, histograms)


def of(snapshot: Snapshot) -> Samples:
    """Return the samples of ``snapshot``. A class that it does not count stays at 0, a ratio or time at NaN."""
    contributions = snapshot.contributions
    # A snapshot without totals still shows the present count of each class. The collector keeps the maximum.
    classified = snapshot.classified_total or contributions
    results, processed = snapshot.results_total or snapshot.results, snapshot.processed_total
    opened = snapshot.violations_open
    if opened is None:
        opened = snapshot.violations.get("confirmed", {})
    unexpected = opened if snapshot.violations_unexpected is None else snapshot.violations_unexpected
    plain: dict[str, dict[Labels, float]] = {
        "events_total": {(name,): classified.get(name, 0) for name in Contribution},
        "reclassified_total": {(old, new): count for (old, new), count in snapshot.reclassified_total.items()},
        "contributions": {(name,): contributions.get(name, 0) for name in Contribution},
        "results_total": {(name,): results.get(name, 0) for name in Result},
        "violations_confirmed_total": {
            (name, phase): count for (name, phase), count in snapshot.confirmed_total.items()
        },
        "violations_retracted_total": {(name,): snapshot.retracted_total.get(name, 0) for name in ViolationClass},
        "violations_open": {(name,): opened.get(name, 0) for name in ViolationClass},
        "violations_expected": {(name,): snapshot.violations_expected.get(name, 0) for name in ViolationClass},
        "violations_unexpected": {(name,): unexpected.get(name, 0) for name in ViolationClass},
        "fault_expects": {(name,): float(name in snapshot.expected_now) for name in EXPECTABLE},
        "outstanding_events": {(name,): contributions.get(name, 0) for name in OUTSTANDING},
        "unconsumed_overdue_events": {(): snapshot.unconsumed_overdue},
        "guarantee_status": _statuses(snapshot),
        "guarantee_declared": {(name,): float(name is snapshot.guarantee) for name in Guarantee},
        "reliability_ratio": {
            (measure,): _or_nan(settled_ratio(snapshot, measure)) for measure in ("handled", "exact")
        },
        "reliable_events_total": {(): contributions.get(Contribution.PROCESSED, 0) if processed is None else processed},
        "input_watermark_timestamp_seconds": {(): _seconds(snapshot.input_watermark_us)},
        # A sidecar that waits for its first topic publishes without a batch, with the epoch as its time.
        "last_batch_timestamp_seconds": {(): _seconds(snapshot.taken_us or None)},
        "coverage_complete": {(): float(snapshot.coverage_complete)},
        "coverage_differences": {(): len(snapshot.coverage_differences)},
        "second_reading_offsets_total": {(): snapshot.read_twice.offsets},
        "state_bytes": {(table,): size for table, size in snapshot.state_bytes.items()},
        "latency_resolution_seconds": {(): snapshot.latency_resolution_seconds},
        **_lags(snapshot),
        **_faults(snapshot),
        **_canary(snapshot.canary),
    }
    histograms: dict[str, dict[Labels, Histogram]] = {
        "latency_seconds": _latencies(snapshot),
        "detection_delay_seconds": {(): snapshot.detection_delay},
    }
    if snapshot.batch_durations is not None:
        histograms["batch_duration_seconds"] = {(): snapshot.batch_durations}
    return Samples(plain, histograms)


def _or_nan(value: float | None) -> float:
    return NAN if value is None else value


def _seconds(instant_us: int | None) -> float:
    return NAN if instant_us is None else instant_us / 1e6


def _statuses(snapshot: Snapshot) -> dict[Labels, float]:
    statuses: dict[Labels, float] = {}
    for over in OVERS:
        verdicts = snapshot.verdicts if over == "run" else snapshot.verdicts_over.get(over, {})
        for guarantee in Guarantee:
            verdict = verdicts.get(guarantee, Verdict.UNKNOWN)
            for status in Verdict:
                statuses[guarantee, over, status] = float(status is verdict)
    return statuses


def _lags(snapshot: Snapshot) -> dict[str, dict[Labels, float]]:
    events: dict[Labels, float] = {}
    seconds: dict[Labels, float] = {}
    for partition in snapshot.coverage:
        topic = (partition.topic,)
        events[topic] = events.get(topic, 0) + partition.lag_events
        read_through = partition.read_through_us
        behind = NAN if read_through is None else max(0.0, (snapshot.taken_us - read_through) / 1e6)
        before = seconds.get(topic, 0.0)
        # A partition that was never read through makes the topic's lag unknown, whatever the others show.
        seconds[topic] = NAN if behind != behind or before != before else max(before, behind)
    return {"read_lag_events": events, "read_lag_seconds": seconds}


def _faults(snapshot: Snapshot) -> dict[str, dict[Labels, float]]:
    active: dict[Labels, float] = {}
    measures: dict[str, dict[Labels, float]] = {metric: {} for metric in FAULT_MEASURES}
    newest = sorted(snapshot.faults, key=lambda fault: (_is_active(fault), fault.injected_us or 0))[-FAULTS_SHOWN:]
    for fault in sorted(newest, key=lambda fault: fault.injected_us or 0):
        name = fault.name or fault.kind
        now = _is_active(fault)
        place = (name, fault.kind, fault.target)
        active[place] = max(active.get(place, 0.0), float(now))
        for metric, values in measures.items():
            measured = fault_measure(snapshot, fault, metric.removeprefix("fault_"))
            # If a plan repeats a fault under one name, the latest measure is shown.
            if measured is not None:
                values[name, fault.kind] = measured
    return {"fault_active": active, **measures}


def _canary(canary: CanaryMeasures | None) -> dict[str, dict[Labels, float]]:
    """Return the canary's samples. An absent measure has no series."""
    if canary is None:
        return {}
    delay_us = canary.delay_us_max
    measures = {
        "canary_recall_ratio": canary.recall_ratio,
        "canary_detection_delay_seconds": None if delay_us is None else delay_us / 1e6,
        "canary_false_alarms": canary.false_alarms,
        "canary_judged_timestamp_seconds": canary.judged_us / 1e6,
        "canary_silent_after_seconds": canary.silent_after_us / 1e6,
    }
    shown: dict[str, dict[Labels, float]] = {
        name: {} if value is None else {(): float(value)} for name, value in measures.items()
    }
    shown["canary_class_recall_ratio"] = {(name,): ratio for name, ratio in canary.class_recall_ratio.items()}
    return shown


def _is_active(fault: FaultWindow) -> bool:
    return fault.injected_us is not None and fault.healed_us is None


def _latencies(snapshot: Snapshot) -> dict[Labels, Histogram]:
    if snapshot.latency_by_phase:
        return {(definition, phase): histogram for (definition, phase), histogram in snapshot.latency_by_phase.items()}
    latencies: dict[Labels, Histogram] = {}
    for definition in DEFINITIONS:
        for phase in PHASES:
            parts = [p.latency[definition] for p in snapshot.phases if p.phase == phase and definition in p.latency]
            if parts:
                latencies[definition, phase] = _sum(parts)
        # Without faults the whole run is control. With faults, a sum over all phases belongs to no phase.
        if definition in snapshot.latency and not snapshot.phases:
            latencies[definition, "control"] = snapshot.latency[definition]
    return latencies


def _sum(parts: Iterable[Histogram]) -> Histogram:
    first, *others = parts
    counts = list(first.counts)
    total, top = first.sum_seconds, first.max_seconds
    for part in others:
        if part.bounds != first.bounds:
            raise ValueError(f"histograms of one measure have different bounds: {part.bounds} and {first.bounds}")
        counts = [a + b for a, b in zip(counts, part.counts, strict=True)]
        total += part.sum_seconds
        top = max((t for t in (top, part.max_seconds) if t is not None), default=None)
    return Histogram(first.bounds, tuple(counts), total, top)
