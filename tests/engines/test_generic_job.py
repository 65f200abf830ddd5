"""Workloads beside PGVal's on the generic job of a real engine: a worker is SIGKILLed between a result and its commit,
and restarted.

Exactly once, no event of the topics is missing from the results, and none is repeated: by the workload's offline count,
and by the sidecar.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from generator.workloads.kinds import named
from testbed.broker import EmbeddedBroker
from testbed.engines.effective import Effective
from testbed.engines.real import RealEngine
from tests.engines.judged import judged
from tests.engines.killed_run import SETTLE_SECONDS_MAX, WINDOW_MS, KilledRun
from tests.engines.reading import messages
from tests.workload_count import Event, cells_of, deviations, event_of, ids_in

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]


class WorkloadRun(KilledRun):
    """Topics, load and count of a workload with one stream, whose results are in windows or have no window."""

    def __init__(self, broker: EmbeddedBroker, topic_names: Callable[[str], str], kind: str) -> None:
        super().__init__(broker, topic_names)
        self.workload = named(kind)
        self.has_windows = not self.workload.operator(WINDOW_MS)

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """Return the engine ``name`` with two workers that run the workload, not started."""
        return super().engine(name, folder, workload=self.workload.kind, **more)

    def load(self) -> dict[str, Any]:
        """The load, in which no event is late."""
        given = {**super().load(), "workload": self.workload.kind}
        del given["lateness"]
        return given

    def events(self) -> list[Event]:
        """The events whose results are due: all but those of the last windows."""
        [stream] = self.workload.streams
        found = [event_of(stream, message.value() or b"") for message in messages(self.bootstrap_servers, self.input)]
        newest = max(at for _, at, _, _ in found)
        return [event for event in found if event[1] < newest] if self.has_windows else found

    def deviating(self) -> dict[Any, int]:
        """Class and cell of what the results lack or have too often."""
        results = messages(self.bootstrap_servers, self.output)
        if self.workload.aggregates:
            return dict(deviations(self.workload, self.events(), results, WINDOW_MS))
        due = Counter(
            (cell, event[2]) for cell, its in cells_of(self.workload, self.events(), WINDOW_MS).items() for event in its
        )
        found = ids_in(self.workload, results)
        return {("missing", *one): n for one, n in (due - found).items()} | {
            ("duplicate", *one): n for one, n in (found - due).items()
        }

    def finish(self, *, settle: bool = True) -> None:
        """Wait until the load has ended and no result is outstanding."""
        assert settle
        self._load.join()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while any(name == "missing" for name, *_ in self.deviating()) and time.monotonic() < deadline:
            pass  # reading the topics paces this loop

    def validate(self, folder: Path, effective: Effective) -> tuple[int, dict[str, Any]]:
        """Run ``streamproof validate --once`` on the topics at rest; return its status and its report."""
        [stream] = self.workload.streams
        given = {
            "pipeline": self.workload.kind,
            "guarantee": "exactly_once",
            "inputs": [stream.input(self.input, has_ids=not self.workload.aggregates)],
            "outputs": [{"topic": self.output, **self.workload.output((self.input,))}],
            "oracle": self.workload.oracle((self.input,), WINDOW_MS),
            "timing": {"max_disorder": f"{self.max_disorder_ms}ms"},
        }
        return judged(folder, self.bootstrap_servers, given, effective, leaves_open=self.has_windows)


@pytest.mark.parametrize("kind", ["statistics", "nexmark_q12", "nexmark_q7", "projection"])
def test_a_killed_worker_costs_nothing_exactly_once(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, kind: str
) -> None:
    run = WorkloadRun(broker, topic_names, kind)
    effective = run.through_a_kill("kafka_streams", tmp_path / "engine", "exactly_once")
    assert effective.guarantee == "exactly_once"
    assert run.deviating() == {}
    status, report = run.validate(tmp_path / "sidecar", effective)
    assert (status, report["verdicts"]["exactly_once"]) == (0, "pass"), report["reasons"]
    assert report["contributions"]["processed"] >= len(run.events()) > 9_000
