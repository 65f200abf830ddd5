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
    # A busy machine paces badly; what is tested is a quarter of the rate against all of it.
    "measures.band_ratio=0.5",
)
CONTROL, FAILURE, SLOW, RECOVERED = 24, 20, 12, 32
"""Ticks."""
SLOW_EVERY = 4


def now() -> str:
    return datetime.now(UTC).isoformat()


def run_load(pipeline: Pipeline, faults: str) -> None:
    """One event a tick, each in a window of its own, answered with the next one. While the fault lasts nothing is; and
    for some time after it an old one now and then, so that the output is back well after the healing."""
    pace, began = threading.Event(), time.monotonic()
    same = {"id": "1", "name": "kill", "kind": "process_kill", "target": "engine"}
    healed = CONTROL + FAILURE
    pipeline.clicks(click(0, 0))
    for tick in range(healed + SLOW + RECOVERED):
        pace.wait(max(0.0, began + tick * TICK_SECONDS - time.monotonic()))
        for at, state in ((CONTROL, "injected"), (healed, "healed")):
            if tick == at:
                pipeline.put(faults, json.dumps({**same, "state": state, "time": now()}), key="1")
        pipeline.clicks(click(tick + 1, (tick + 1) * 10))
        if tick < CONTROL or tick >= healed + SLOW:
            pipeline.answers(answer([tick], tick))
        elif tick >= healed and (tick - healed) % SLOW_EVERY == 0:
            owed = CONTROL + (tick - healed) // SLOW_EVERY
            pipeline.answers(answer([owed], owed))


@pytest.mark.timeout(400)
def test_a_silent_engine_is_downtime_until_it_has_recovered(pipeline: Pipeline) -> None:
    faults = f"{pipeline.name}-faults"
    pipeline.create()
    pipeline.broker.create_topics({faults: 1})
    run_load(pipeline, faults)
    told = (f"faults.topic={faults}", *MEASURES)
    report = pipeline.once(*told).report
    (fault,) = report["faults"]
    assert fault["absent_because"] == []
    # 20 ticks of 250 ms are silent: 5 s, to what the machine paces and less than the longest gap of before.
    assert 2.5 <= fault["downtime_seconds"] <= 15
    assert fault["recovered"] is True
    # 32 ticks of 250 ms. To the second, and the rate is one over 2 s.
    assert 5.5 <= fault["recovery_seconds"] <= 20
    # The first of the owed was answered when the fault was over.
    assert 2.5 <= fault["failure_cost_seconds"] <= 15
    assert fault["throughput_penalty_ratio"] < 0.5
    phases = {phase["phase"]: phase for phase in report["phases"]}
    assert [phase["phase"] for phase in report["phases"]] == ["control", "failure", "recovery", "control"]
    before = report["phases"][0]
    assert before["latency_seconds"]["window_close"]["count"] == before["results"] > 12
    assert phases["failure"]["results"] < before["results"] / 4
    assert phases["recovery"]["latency_seconds"]["window_close"]["max"] > 2
    assert phases["failure"]["contributions"]["duplicate"] == 0
    assert sum(phase["results"] for phase in report["phases"]) == CONTROL + SLOW // SLOW_EVERY + RECOVERED
    # Killed before the file was written: a start finds all of it in the facts.
    (pipeline.state() / FILE).unlink()
    again = pipeline.once(*told).report
    assert again["phases"] == report["phases"]
    assert again["faults"] == report["faults"]
    assert again["latency_seconds"] == report["latency_seconds"], "latencies are kept elsewhere and counted once"
