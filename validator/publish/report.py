"""The report: the contract's `report.json` and the violations beside it, as functions of a snapshot.

Every key of the contract is always present. A measure that the snapshot does not have is null, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, cast

from validator import __version__
from validator.model.classes import Contribution, Guarantee, Result, ViolationClass
from validator.model.snapshot import FaultWindow, Histogram, PartitionCoverage, Phase, Snapshot
from validator.model.terminal import plain_json
from validator.model.violation import Violation
from validator.publish.atomic import replace_file
from validator.publish.report_types import (
    Counts,
    CoverageSums,
    EffectiveGuarantee,
    FaultOfReport,
    Latency,
    PhaseOfReport,
    Report,
    ViolationOfReport,
    ViolationsReport,
)
from validator.publish.times import parse_rfc3339, rfc3339

SCHEMA: Final = 1
REPORT_FILE: Final = "report.json"
VIOLATIONS_FILE: Final = "violations.json"
OVERS: Final = ("1h", "24h")
STATES: Final = ("confirmed", "retracted", "suspected")
LATENCIES: Final = ("last_input", "window_close", "first_input")
INPUT_COUNTS: Final = ("read", "undecodable", "expired", "sampled_out", "out_of_scope")
LATE_COUNTS: Final = ("read", "undecodable")
CELL_COUNTS: Final = ("seen", "closed", "verified", "violated", "open", "estimated", "sampled")
_OF_VIOLATION: Final = {
    it.name: name
    for it in fields(Violation)
    if (name := {"violation_class": "class"}.get(it.name, it.name.removesuffix("_us")))
    in ViolationOfReport.__annotations__
}
"""Field of a violation that is published -> its name in JSON."""


def build(snapshot: Snapshot, effective: EffectiveGuarantee | None = None) -> Report:
    """Return the report of ``snapshot``: all keys of the contract, and further ones such as `time` and `waiting_for`.

    ``effective`` is the block of `validator.publish.effective`; None if the configuration names no file for it.
    """
    opened = snapshot.violations_open
    if opened is None:
        opened = snapshot.violations.get("confirmed", {})
    return {
        "schema": SCHEMA,
        "pipeline": snapshot.pipeline,
        "time": rfc3339(snapshot.taken_us),
        "guarantee": snapshot.guarantee.value,
        "cell_noun": snapshot.cell_noun,
        "outcome": snapshot.verdicts[snapshot.guarantee].value,
        "verdicts": {name.value: snapshot.verdicts[name].value for name in Guarantee},
        "verdicts_over": {over: _verdicts(snapshot.verdicts_over.get(over, {})) for over in OVERS},
        "reasons": list(snapshot.reasons),
        "effective_guarantee": effective,
        "contributions": _contributions(snapshot.contributions),
        "unconsumed_overdue": {
            "contributions": snapshot.unconsumed_overdue,
            "since": rfc3339(snapshot.unconsumed_due_us),
        },
        "results": _counts(snapshot.results, ("read", *Result)),
        "inputs": _counts(snapshot.inputs, INPUT_COUNTS),
        "late_records": _counts(snapshot.late_records, LATE_COUNTS),
        "cells": _counts(snapshot.cells, CELL_COUNTS),
        "reliability": {
            "handled_ratio": settled_ratio(snapshot, "handled"),
            "exact_ratio": settled_ratio(snapshot, "exact"),
            "reliable_throughput_per_second": snapshot.reliable_throughput_per_second,
        },
        "latency_seconds": {name: _latency(snapshot.latency.get(name)) for name in LATENCIES},
        "latency_resolution_seconds": snapshot.latency_resolution_seconds,
        "latency_absent_because": snapshot.latency_absent_because,
        "phases": [_phase(phase) for phase in snapshot.phases],
        "faults": [_fault(fault, snapshot) for fault in snapshot.faults],
        "violations": {
            "confirmed": _by_class(snapshot, "confirmed"),
            "retracted": _by_class(snapshot, "retracted"),
            "suspected": _by_class(snapshot, "suspected"),
            "unacknowledged": {name.value: opened.get(name, 0) for name in ViolationClass},
            "examples": dict(snapshot.examples),
            "first_confirmed": {name: rfc3339(instant) for name, instant in snapshot.first_confirmed_us.items()},
            "loss_hint": snapshot.loss_hint,
        },
        "violations_unacknowledged": snapshot.unacknowledged_open,
        "settled_positions": [published(settled) for settled in snapshot.settled_positions],
        "coverage": {
            "complete": snapshot.coverage_complete,
            "sums": _sums(snapshot.coverage),
            "events": dict(snapshot.events_accounted),
            "answers": dict(snapshot.answers_accounted),
            "second_reading": {
                "ranges": snapshot.read_twice.ranges,
                "offsets": snapshot.read_twice.offsets,
                "not_done": snapshot.read_twice.not_done,
            },
            "differences": list(snapshot.coverage_differences),
            "partitions": [published(partition) for partition in snapshot.coverage],
        },
        "input_watermark": rfc3339(snapshot.input_watermark_us),
        "waiting_for": list(snapshot.waiting_for),
        "cannot_see": list(snapshot.cannot_see),
        "validator": {
            "version": __version__,
            "batches": snapshot.batches,
            "batch_seconds": snapshot.batch_seconds,
            "input_events_per_second": snapshot.input_events_per_second,
            "detection_delay_seconds": {
                "p50": snapshot.detection_delay.quantile(0.5),
                "p99": snapshot.detection_delay.quantile(0.99),
                "max": snapshot.detection_delay.max_seconds,
            },
            "restarts": snapshot.restarts,
            "state_bytes": dict(snapshot.state_bytes),
        },
    }


def build_violations(snapshot: Snapshot) -> ViolationsReport:
    """Return the violations of the snapshot, newest first.

    The list is bounded. ``counts`` are the total numbers of contributions and results in violations.
    """
    records = sorted(snapshot.violations_latest, key=lambda record: (-record.changed_us, record.id))
    return {
        "schema": SCHEMA,
        "pipeline": snapshot.pipeline,
        "time": rfc3339(snapshot.taken_us),
        "counts": {state: sum(snapshot.violations.get(state, {}).values()) for state in STATES},
        "violations": [published(record) for record in records],
    }


def report_of(content: Mapping[str, Any]) -> Report | None:
    """Return ``content``, read from `report.json`, as a report; None if it has another schema.

    The content is not checked further: a reader of a damaged file gets an exception of `published_files.DAMAGED`.
    """
    return cast("Report", content) if content.get("schema") == SCHEMA else None


def render_json(report: Report | Mapping[str, Any]) -> str:
    """Return ``report`` as JSON text for people and scripts."""
    return plain_json(report, indent=2) + "\n"


def write(state: Path, snapshot: Snapshot, effective: EffectiveGuarantee | None = None) -> Report:
    """Replace `report.json` and `violations.json` in the folder ``state``. Returns the report. Raises OSError."""
    report = build(snapshot, effective)
    # Violations first, so that a reader who sees a count in the report finds the evidence.
    replace_file(state / VIOLATIONS_FILE, render_json(build_violations(snapshot)))
    replace_file(state / REPORT_FILE, render_json(report))
    return report


def settled_ratio(snapshot: Snapshot, measure: str) -> float | None:
    """Return ``measure`` (`handled` or `exact`) / expected of settled cells; None if nothing is expected or counted."""
    expected = snapshot.settled.get("expected")
    counted = snapshot.settled.get(measure)
    return counted / expected if expected and counted is not None else None


def _verdicts(verdicts: Mapping[Guarantee, Any]) -> dict[str, str | None]:
    return {name.value: str(verdicts[name].value) if name in verdicts else None for name in Guarantee}


def _by_class(snapshot: Snapshot, state: str) -> dict[str, int]:
    # A class that the core does not name has no violation: here 0 is a result, not an absent measure.
    return {name.value: snapshot.violations.get(state, {}).get(name, 0) for name in ViolationClass}


def _counts(counts: Mapping[str, int], names: tuple[str, ...]) -> Counts:
    return {str(name): counts.get(name) for name in names}


def _contributions(counts: Mapping[str, int]) -> Counts:
    known: Counts = {}
    for name in Contribution:
        if name is Contribution.MISPLACED:
            parts = [counts.get(Contribution.MISPLACED), counts.get(Contribution.UNKNOWN_ID)]
            # A partial sum would be a wrong number.
            known["incorrect"] = None if None in parts else sum(part or 0 for part in parts)
        known[name.value] = counts.get(name)
    return known


def _latency(histogram: Histogram | None) -> Latency:
    if histogram is None:
        return {"count": None, "p50": None, "p90": None, "p99": None, "max": None}
    return {
        "count": histogram.count,
        "p50": histogram.quantile(0.5),
        "p90": histogram.quantile(0.9),
        "p99": histogram.quantile(0.99),
        "max": histogram.max_seconds,
    }


def _phase(phase: Phase) -> PhaseOfReport:
    return {
        "phase": phase.phase,
        "fault": phase.fault,
        "start": rfc3339(phase.start_us),
        "end": rfc3339(phase.end_us),
        "contributions": _contributions(phase.contributions) if phase.contributions else None,
        "results": phase.results,
        "observed_contributions": phase.observed,
        "latency_seconds": {name: _latency(phase.latency.get(name)) for name in LATENCIES},
        "throughput_per_second": phase.throughput_per_second,
        "resolution_seconds": phase.resolution_seconds,
    }


def fault_measure(snapshot: Snapshot, fault: FaultWindow, measure: str) -> float | None:
    """Return a measure of one fault (`recovered`: 0 or 1). The snapshot has it under the fault's id or name."""
    return _measures(snapshot, fault).get(measure)


def _measures(snapshot: Snapshot, fault: FaultWindow) -> Mapping[str, float | None]:
    return snapshot.fault_measures.get(fault.id) or snapshot.fault_measures.get(fault.name) or {}


def _fault(fault: FaultWindow, snapshot: Snapshot) -> FaultOfReport:
    recovered = fault_measure(snapshot, fault, "recovered")
    violations = snapshot.fault_violations.get(fault.id)
    return {
        "id": fault.id,
        "name": fault.name,
        "kind": fault.kind,
        "target": fault.target,
        "start": rfc3339(fault.injected_us),
        "verified": rfc3339(fault.verified_us),
        "heal_started": rfc3339(fault.heal_started_us),
        "healed": rfc3339(fault.healed_us),
        "failure_cost_seconds": fault_measure(snapshot, fault, "failure_cost_seconds"),
        "downtime_seconds": fault_measure(snapshot, fault, "downtime_seconds"),
        "recovery_seconds": fault_measure(snapshot, fault, "recovery_seconds"),
        "recovered": None if recovered is None else bool(recovered),
        "throughput_penalty_ratio": fault_measure(snapshot, fault, "throughput_penalty_ratio"),
        "latency_penalty_ratio": fault_measure(snapshot, fault, "latency_penalty_ratio"),
        "control_start": _instant(fault_measure(snapshot, fault, "control_start_us")),
        "control_end": _instant(fault_measure(snapshot, fault, "control_end_us")),
        "resolution_seconds": _measures(snapshot, fault).get("resolution_seconds", 0.0),
        "absent_because": list(snapshot.fault_absent_because.get(fault.id, ())),
        "expects": sorted(fault.expects),
        "over_because": fault.over_because,
        "violations": None if violations is None else dict(violations),
    }


def _instant(micros: float | None) -> str | None:
    return None if micros is None else rfc3339(round(micros))


def _sums(partitions: tuple[PartitionCoverage, ...]) -> CoverageSums:
    records = sum(p.records for p in partitions)
    expired = sum(p.expired for p in partitions)
    invisible = sum(p.invisible for p in partitions)
    spanned = sum(p.next_offset - p.first_offset for p in partitions)
    return {"records": records, "expired": expired, "invisible": invisible, "offsets_spanned": spanned}


def published(part: object) -> Any:
    """Return a part of the snapshot by the contract's names. A field `X_us` is published as the instant `X`."""
    names = _OF_VIOLATION if isinstance(part, Violation) else {name: name.removesuffix("_us") for name in vars(part)}
    return {
        key: rfc3339(value) if name.endswith("_us") else list(value) if isinstance(value, tuple) else value
        for name, key in names.items()
        for value in (getattr(part, name),)
    }


def records_of(violations: Mapping[str, Any] | None) -> tuple[Violation, ...]:
    """Return the violations that `violations.json` lists; none if it is absent. May raise an exception of
    `published_files.DAMAGED` if the content is from a file."""
    return () if violations is None else tuple(map(_record, violations["violations"]))


def _record(entry: Mapping[str, Any]) -> Violation:
    """Return the violation whose published form is ``entry``."""
    given = {name: entry[key] for name, key in _OF_VIOLATION.items()}
    instants = {name: text and parse_rfc3339(text) for name, text in given.items() if name.endswith("_us")}
    return Violation(**given | instants | {"ids": tuple(given["ids"])})
