"""The load of an engine that sends no results during a fault, and the expected measures."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime

from tests.integration.sidecar_fixtures import Pipeline, answer, click

MEASURES = (
    "measures.control_least=2s",
    "measures.control_most=30s",
    "measures.moving_rate=2s",
    "measures.stable_for=2s",
    # A busy machine does not keep the pace. The tests compare a quarter of the rate with the whole rate.
    "measures.band_ratio=0.5",
)
CONTROL, FAILURE, SLOW, RECOVERED = 24, 20, 12, 32
"""Ticks."""
SLOW_EVERY = 4
ANSWERED = CONTROL + SLOW // SLOW_EVERY + RECOVERED
LOST = FAILURE + SLOW - SLOW // SLOW_EVERY
"""Events without a result. The last event's window stays open."""


def now() -> str:
    return datetime.now(UTC).isoformat()


def run_load(pipeline: Pipeline, faults: str, tick_seconds: float = 0.25) -> None:
    """Send one event per tick, each in its own window, and its result one tick later. During the fault no result is
    sent. For ``SLOW`` ticks after the healing, an owed result is sent only every ``SLOW_EVERY`` ticks, so the output
    recovers well after the healing."""
    pace, began = threading.Event(), time.monotonic()
    same = {"id": "1", "name": "kill", "kind": "process_kill", "target": "engine"}
    healed = CONTROL + FAILURE
    pipeline.clicks(click(0, 0))
    for tick in range(healed + SLOW + RECOVERED):
        pace.wait(max(0.0, began + tick * tick_seconds - time.monotonic()))
        for at, state in ((CONTROL, "injected"), (healed, "healed")):
            if tick == at:
                pipeline.put(faults, json.dumps({**same, "state": state, "time": now()}), key="1")
        pipeline.clicks(click(tick + 1, (tick + 1) * 10))
        if tick < CONTROL or tick >= healed + SLOW:
            pipeline.answers(answer([tick], tick))
        elif tick >= healed and (tick - healed) % SLOW_EVERY == 0:
            owed = CONTROL + (tick - healed) // SLOW_EVERY
            pipeline.answers(answer([owed], owed))
