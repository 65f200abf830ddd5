"""What a fault costs, from real topics with broker time, and the same again from the facts alone."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime

import pytest

from tests.integration.sidecar_fixtures import Pipeline, answer, click
from validator.stream.measuring import FILE

TICK_SECONDS = 0.25
MEASURES = (
    "measures.control_least=2s",
    "measures.control_most=30s",
    "measures.moving_rate=2s",
    "measures.stable_for=2s",
    # A busy machine paces badly; what is tested is silence against output.
    "measures.band_ratio=0.9",
)


def now() -> str:
    return datetime.now(UTC).isoformat()


def run_load(pipeline: Pipeline, faults: str, *, control: int, failure: int, recovery: int) -> None:
    """One event a tick, each in a window of its own, answered with the next one; none while the fault lasts."""
    pace, began = threading.Event(), time.monotonic()
    same = {"id": "1", "name": "kill", "kind": "process_kill", "target": "engine"}
    pipeline.clicks(click(0, 0))
    for tick in range(control + failure + recovery):
        pace.wait(max(0.0, began + tick * TICK_SECONDS - time.monotonic()))
        for at, state in ((control, "injected"), (control + failure, "healed")):
            if tick == at:
                pipeline.put(faults, json.dumps({**same, "state": state, "time": now()}), key="1")
        pipeline.clicks(click(tick + 1, (tick + 1) * 10))
        if not control <= tick < control + failure:
            pipeline.answers(answer([tick], tick))


@pytest.mark.extended
@pytest.mark.timeout(400)
def test_a_silent_engine_is_downtime_until_it_has_recovered(pipeline: Pipeline) -> None:
    faults = f"{pipeline.name}-faults"
    pipeline.create()
    pipeline.broker.create_topics({faults: 1})
    run_load(pipeline, faults, control=24, failure=20, recovery=32)
    told = (f"faults.topic={faults}", *MEASURES)
    report = pipeline.once(*told).report
    (fault,) = report["faults"]
    assert fault["absent_because"] == []
    # 20 ticks of 250 ms are silent: 5 s, to what the machine paces and less than the longest gap of before.
    assert 2.5 <= fault["downtime_seconds"] <= 15
    assert fault["recovered"] is True
    # To the second: the one in which the output came back begins up to 1 s before.
    assert 3.5 <= fault["recovery_seconds"] <= 15
    assert fault["failure_cost_seconds"] is not None
    assert fault["throughput_penalty_ratio"] < 0.5
    phases = {phase["phase"]: phase for phase in report["phases"][:3]}
    assert list(phases) == ["control", "failure", "recovery"]
    assert phases["control"]["latency_seconds"]["window_close"]["count"] == phases["control"]["results"] > 12
    assert phases["failure"]["results"] < phases["control"]["results"] / 4
    assert phases["failure"]["contributions"]["duplicate"] == 0
    assert sum(phase["results"] for phase in report["phases"]) == 24 + 32
    # Killed before the file was written: a start finds all of it in the facts.
    (pipeline.state() / FILE).unlink()
    again = pipeline.once(*told).report
    assert again["phases"] == report["phases"]
    assert again["faults"] == report["faults"]
    assert again["latency_seconds"] == report["latency_seconds"], "latencies are kept elsewhere and counted once"
