"""Results of fake campaign runs: no engine is started."""

from __future__ import annotations

from typing import Any

from testbed.campaign.matrix import Run
from testbed.campaign.plan import CampaignPlan, parse
from testbed.campaign.result import RunResult, result_of

PLAN: dict[str, Any] = {
    "engines": ["kafka_streams", "flink"],
    "guarantees": ["at_least_once", "exactly_once"],
    "faults": ["none", "crash"],
    "repetitions": 2,
}


def plan(**changes: Any) -> CampaignPlan:
    return parse({**PLAN, **changes})


def report(**changes: Any) -> dict[str, Any]:
    """The parts of a sidecar's report that a result uses. ``changes``: values of the fault."""
    latency = {"window_close": {"count": 6, "p50": 0.5, "p90": 0.8, "p99": 0.9, "max": 1.0}}
    fault = {
        "failure_cost_seconds": 7.0, "downtime_seconds": 3.0, "recovery_seconds": 9.0, "recovered": True,
        "throughput_penalty_ratio": 0.5, "latency_penalty_ratio": 2.5, "absent_because": [],
        "healed": "2026-01-01T00:01:00+00:00", **changes,
    }  # fmt: skip
    return {
        "outcome": "pass",
        "verdicts": {"at_most_once": "pass", "at_least_once": "pass", "exactly_once": "pass"},
        "reasons": [],
        "contributions": {"duplicate": 0, "missing": 0, "incorrect": 0, "late": 0},
        "reliability": {"handled_ratio": 1.0, "exact_ratio": 1.0},
        "coverage": {"complete": True},
        "faults": [fault],
        "phases": [
            {
                "phase": phase,
                "results": 6,
                "throughput_per_second": rate,
                "latency_seconds": latency,
                "observed_contributions": 110,
                "contributions": {"duplicate": 10, "missing": 25, "incorrect": 0},
            }
            for phase, rate in (("control", 3000.0), ("failure", 100.0), ("recovery", 3100.0), ("control", 1.0))
        ],
    }


def fake(run: Run, **changes: Any) -> RunResult:
    """A run without violations. ``changes``: values of the result."""
    build_table = result_of(
        run, report(), started="2026-01-01T00:00:00+00:00", seconds=100.0, sent=1000, settled=True, read_back=None
    )
    return build_table.model_copy(update=changes)
