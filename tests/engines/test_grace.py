"""Windows of the Kafka Streams DSL with a grace period: events that are later are dropped, and only these.

The test applies the rule of `TimeWindows.ofSizeAndGrace` to the order of each partition, and counts the ids of all
results (`suppress`: one for each window), or of the newest one of each window. The sidecar, configured as by a
campaign, says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.broker import EmbeddedBroker
from testbed.engines.effective import Effective
from testbed.engines.real import RealEngine
from testbed.run_files import SidecarFile
from tests.engines.judged import judged
from tests.engines.killed_run import READY_SECONDS_MAX, WINDOW_MS
from tests.engines.reading import messages
from tests.engines.test_generic_job import WorkloadRun
from tests.workload_count import Event, event_of, results_of

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]
GRACE_MS = 1000


class GraceRun(WorkloadRun):
    """A run of `sst` whose load has events that are late by more, and by less, than the grace period."""

    def __init__(self, broker: EmbeddedBroker, topic_names: Callable[[str], str], *, suppress: bool) -> None:
        super().__init__(broker, topic_names, "kafka_streams", "sst", "append" if suppress else "update")
        self._suppress = suppress

    def load(self) -> dict[str, Any]:
        """The load, of which some events are behind the grace period of every window."""
        return {**super().load(), "lateness": {"share": 0.02, "beyond": f"{WINDOW_MS + GRACE_MS}ms"}}

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """Return the engine with the DSL's windows, not started."""
        return super().engine(name, folder, grace_ms=GRACE_MS, suppress=self._suppress, max_disorder_ms=0, **more)

    def dropped(self) -> set[str]:
        """The ids of the events whose window had ended its grace period in their partition."""
        newest: dict[int | None, int] = {}
        found = set()
        for message in messages(self.bootstrap_servers, self.input):
            _, at, name, _ = event_of(self.workload.streams[0], message.value() or b"")
            before = newest.get(message.partition(), at)
            if (at // WINDOW_MS + 1) * WINDOW_MS + GRACE_MS <= before:
                found.add(name)
            newest[message.partition()] = max(at, before)
        return found

    def events(self) -> list[Event]:
        """The events whose results are due."""
        dropped = self.dropped()
        return [event for event in super().events() if event[2] not in dropped]

    def validate(self, folder: Path, effective: Effective) -> tuple[int, dict[str, Any]]:
        """Judge the topics at rest, with the campaign's own configuration."""
        folder.mkdir()
        file = SidecarFile(
            "graced", self.guarantee, self.name, WINDOW_MS, 2_000, 20_000, grace_ms=GRACE_MS, suppress=self._suppress
        )
        given = yaml.safe_load(file.write(self.bootstrap_servers, folder).read_text(encoding="utf-8"))
        given["inputs"][0]["topic"], given["outputs"][0]["topic"] = self.input, self.output
        return judged(folder / "run", self.bootstrap_servers, given, effective, leaves_open=self.waits)


@pytest.mark.parametrize("suppress", [True, False], ids=["suppressed", "updates"])
def test_events_after_the_grace_period_are_dropped_and_no_other(
    broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path, *, suppress: bool
) -> None:
    run = GraceRun(broker, topic_names, suppress=suppress)
    with run.engine("kafka_streams", tmp_path / "engine", guarantee="exactly_once") as engine:
        engine.start()
        engine.ready(READY_SECONDS_MAX)
        effective = engine.effective()
        run.start_load()
        run.finish()
        engine.stop()
    assert run.deviating() == {}
    dropped = len(run.dropped())
    assert dropped > 20
    cells = [cell for cell, _ in results_of(run.workload, messages(run.bootstrap_servers, run.output))]
    assert (len(cells) == len(set(cells))) is suppress, "one result for each window, or several"
    status, report = run.validate(tmp_path / "sidecar", effective)
    found = report["contributions"]
    assert (status, report["verdicts"]["exactly_once"]) == (0, "pass"), report["reasons"]
    assert (found["missing"], found["incorrect"], found["duplicate"]) == (0, 0, 0)
    assert found["dropped_late"] == dropped
    assert found["processed"] == sum(map(len, run.cells().values()))
