"""Measures of a fault from real topics with broker time. A restart computes the same from the facts alone."""

from __future__ import annotations

import pytest

from tests.integration.fault_load import ANSWERED, MEASURES, run_load
from tests.integration.sidecar_fixtures import Pipeline
from validator.stream.measuring import FILE


@pytest.mark.full
@pytest.mark.timeout(400)
def test_a_silent_engine_is_downtime_until_it_has_recovered(pipeline: Pipeline) -> None:
    faults = f"{pipeline.name}-faults"
    pipeline.create()
    pipeline.broker.create_topics({faults: 1})
    run_load(pipeline, faults)
    settings = (f"faults.topic={faults}", *MEASURES)
    report = pipeline.once(*settings).report
    (fault,) = report["faults"]
    assert fault["absent_because"] == []
    # 20 ticks of 250 ms are silent: 5 s. The bounds allow for the machine's pace and the longest gap before the fault.
    assert 2.5 <= fault["downtime_seconds"] <= 15
    assert fault["recovered"] is True
    # 32 ticks of 250 ms, in whole seconds. The rate is measured over 2 s.
    assert 5.5 <= fault["recovery_seconds"] <= 20
    # The first owed result is sent once the fault is healed.
    assert 2.5 <= fault["failure_cost_seconds"] <= 15
    assert fault["throughput_penalty_ratio"] < 0.5
    phases = {phase["phase"]: phase for phase in report["phases"]}
    assert [phase["phase"] for phase in report["phases"]] == ["control", "failure", "recovery", "control"]
    before = report["phases"][0]
    assert before["latency_seconds"]["window_close"]["count"] == before["results"] > 12
    assert phases["failure"]["results"] < before["results"] / 4
    assert phases["recovery"]["latency_seconds"]["window_close"]["max"] > 2
    assert phases["failure"]["contributions"]["duplicate"] == 0
    assert sum(phase["results"] for phase in report["phases"]) == ANSWERED
    # Simulate a kill before the file was written: the next start recomputes all of it from the facts.
    (pipeline.state() / FILE).unlink()
    again = pipeline.once(*settings).report
    assert again["phases"] == report["phases"]
    assert again["faults"] == report["faults"]
    assert again["latency_seconds"] == report["latency_seconds"], "latencies are kept elsewhere and counted once"
