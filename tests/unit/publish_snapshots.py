"""Snapshots to publish in tests, as values of the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.model.classes import Contribution, Guarantee, Result, Verdict, ViolationClass
from validator.model.coverage import ReadTwice
from validator.model.snapshot import (
    CanaryMeasures,
    FaultWindow,
    Histogram,
    PartitionCoverage,
    Phase,
    SettledPositions,
    Snapshot,
)
from validator.model.violation import Violation
from validator.publish.report import build_violations, records_of

NOON_US = 1_769_860_800_000_000  # 2026-01-31T12:00:00Z
SECOND = 1_000_000
BOUNDS = (0.1, 1.0, 10.0)
EMPTY = Histogram(BOUNDS, (0, 0, 0, 0), 0.0, None)
SEEN = CanaryMeasures(
    judged_us=NOON_US - 60 * SECOND,
    silent_after_us=300 * SECOND,
    recall_ratio=1.0,
    class_recall_ratio={"missing": 1.0, "duplicate": 1.0},
    delay_us_max=2 * SECOND,
    false_alarms=0,
)
"""A canary whose violations are found."""


def config(state: Path) -> Config:
    """The clickstream example on a free port, with its state in ``state``."""
    return loads(EXAMPLES["clickstream"], state, ["metrics.port=0", f"state.path={state}"], environment={})


def clean() -> Snapshot:
    """A run without violations, and without latency."""
    return Snapshot(
        pipeline="clickstream",
        guarantee=Guarantee.EXACTLY_ONCE,
        cell_noun="window",
        taken_us=NOON_US,
        verdicts=dict.fromkeys(Guarantee, Verdict.PASS),
        verdicts_over={over: dict.fromkeys(Guarantee, Verdict.PASS) for over in ("1h", "24h")},
        reasons=(),
        contributions={**dict.fromkeys(Contribution, 0), "expected": 1000, "processed": 990, "pending": 10},
        results={"read": 50, **dict.fromkeys(Result, 0), "correct": 50},
        inputs={"read": 1000, "undecodable": 0, "expired": 0, "sampled_out": 0, "out_of_scope": 0},
        late_records={"read": 0, "undecodable": 0},
        cells={"seen": 60, "closed": 50, "verified": 50, "violated": 0, "open": 10, "estimated": 0, "sampled": 1},
        reliable_throughput_per_second=123.456,
        latency={},
        latency_absent_because="topic output has CreateTime",
        phases=(),
        faults=(),
        violations={"confirmed": {}, "retracted": {}, "suspected": {}},
        violations_latest=(),
        confirmed_total={},
        retracted_total={},
        coverage_complete=True,
        coverage=(
            PartitionCoverage(
                "input", "click", 0, 0, 1005, 1010, 1010, 1000, 0, 5, NOON_US - SECOND, NOON_US - 2 * SECOND, 5
            ),
            PartitionCoverage("output", "output", 0, 0, 50, 50, 50, 50, 0, 0, None, None, 0),
        ),
        events_accounted={
            "read": 1000,
            "settled": 985,
            "open": 10,
            "out_of_scope": 0,
            "in_no_cell": 5,
            "undecodable": 0,
            "tombstone": 0,
        },
        answers_accounted={"read": 50, "in_cells": 50, "undecodable": 0, "tombstone": 0},
        read_twice=ReadTwice(3, 1_200, 0),
        input_watermark_us=NOON_US - SECOND,
        batches=7,
        batch_seconds=0.4,
        input_events_per_second=500.0,
        detection_delay=EMPTY,
        restarts=0,
        state_bytes={"facts": 4096},
        settled={"expected": 990, "handled": 990, "exact": 980},
    )


def broken() -> Snapshot:
    """The same run after a fault: 3 events lost, 2 repeated, one violation acknowledged."""
    healthy = clean()
    return replace(
        healthy,
        verdicts={
            Guarantee.AT_MOST_ONCE: Verdict.FAIL,
            Guarantee.AT_LEAST_ONCE: Verdict.FAIL,
            Guarantee.EXACTLY_ONCE: Verdict.FAIL,
        },
        reasons=("2 cells have confirmed violations.",),
        contributions={**healthy.contributions, "missing": 3, "duplicate": 2, "processed": 987},
        latency={"last_input": Histogram(BOUNDS, (1, 2, 3, 1), 44.5, 30.0)},
        latency_absent_because=None,
        phases=(
            Phase(
                "control",
                None,
                NOON_US - 60 * SECOND,
                NOON_US - 30 * SECOND,
                {"expected": 500},
                {"last_input": Histogram(BOUNDS, (1, 2, 0, 0), 1.5, 0.9)},
                50.0,
            ),
            Phase(
                "failure",
                "kill-one-worker",
                NOON_US - 30 * SECOND,
                None,
                {"expected": 500},
                {"last_input": Histogram(BOUNDS, (0, 0, 3, 1), 43.0, 30.0)},
                5.0,
            ),
        ),
        faults=(
            FaultWindow(
                "f-1", "kill-one-worker", "process_kill", "taskmanager-1", NOON_US - 30 * SECOND, None, None, None
            ),
        ),
        fault_measures={"f-1": {"failure_cost_seconds": 29.1, "downtime_seconds": 12.0, "recovered": 0.0}},
        fault_violations={"f-1": {"missing": 1, "duplicate": 1}},
        violations={"confirmed": {"missing": 3, "duplicate": 2}, "retracted": {"missing": 1}, "suspected": {}},
        first_confirmed_us={"missing": NOON_US - SECOND, "duplicate": NOON_US},
        settled_positions=(SettledPositions("click", 1, 7, 9, 2, "ack", "a probe"),),
        violations_latest=(violation("v-1", "missing", NOON_US - SECOND), violation("v-2", "duplicate", NOON_US)),
        violations_open={"missing": 1},
        confirmed_total={("missing", "failure"): 2, ("duplicate", "failure"): 1},
        retracted_total={ViolationClass.MISSING: 1},
        unacknowledged_open=1,
    )


def newest(snapshot: Snapshot) -> tuple[Violation, ...]:
    """The violations that `violations.json` lists after ``snapshot``."""
    return records_of(build_violations(snapshot))


def violation(name: str, of_class: str, changed_us: int, key: str = "/help") -> Violation:
    """A confirmed violation of one cell."""
    return Violation(
        name, of_class, "confirmed", NOON_US - 120 * SECOND, key, 2, ("17", "18"), changed_us, changed_us, "failure",
        "kill-one-worker", None, f"2 ids of the window are {of_class}.",
    )  # fmt: skip
