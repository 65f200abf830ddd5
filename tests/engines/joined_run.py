"""One run of a real engine on PGVal's MST: the generator's load, the topics' count, and the sidecar's verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from confluent_kafka import Producer

from generator import run
from testbed.broker import EmbeddedBroker
from testbed.engines.effective import Effective
from testbed.engines.join import Join
from testbed.engines.real import RealEngine
from tests.engines import join_count
from tests.engines.join_count import Event, JoinCount
from tests.engines.judged import judged
from tests.engines.killed_run import (
    EVENTS_PER_WINDOW,
    LOAD_SECONDS,
    PAGES,
    PARTITIONS,
    SETTLE_SECONDS_MAX,
    WINDOW_MS,
    KilledRun,
)
from tests.engines.offline_count import records
from validator.config.examples import EXAMPLES

FIRST_ALONE = 20_000_001
"""The id of the first click, and of the first update, without a partner."""
ALONE_AT_A_TIME = 5
BEHIND_SECONDS = 0.1
"""Lag behind the load's event time, so that the load's own events do not become late. Less than the allowed
disorder."""


class JoinedRun(KilledRun):
    """Topics, load and count of a join. One page has clicks only, and one has updates only."""

    def __init__(
        self,
        broker: EmbeddedBroker,
        topic_names: Callable[[str], str],
        load_seconds: int = LOAD_SECONDS,
        join: Join = "inner",
    ) -> None:
        super().__init__(broker, topic_names, load_seconds)
        self.join = join
        self._alone = 0
        self._beside = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        self.update_input, self.late_updates = topic_names("update"), topic_names("late-updates")
        broker.create_topics(dict.fromkeys((self.update_input, self.late_updates), PARTITIONS))

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """Return the engine ``name`` with two workers that run the join, not started."""
        topics = {"update_input": self.update_input, "late_updates": self.late_updates}
        return super().engine(name, folder, workload="mst", join=self.join, **topics, **more)

    def load(self) -> dict[str, Any]:
        return {**super().load(), "workload": "mst", "update_topic": self.update_input, "update_percent": 5}

    def joined(self) -> JoinCount:
        clicks, updates, results, late, late_updates = (
            records(self.bootstrap_servers, topic)
            for topic in (self.input, self.update_input, self.output, self.late, self.late_updates)
        )
        return join_count.count([clicks, updates], results, [late, late_updates], WINDOW_MS, self.dropped(), self.join)

    def start_load(self) -> None:
        # The load's event time starts at the beginning of the current window.
        self._zero_ms = time.time_ns() // 1_000_000 // WINDOW_MS * WINDOW_MS
        super().start_load()

    def on_progress(self, progress: run.GenerationProgress) -> None:
        """Send clicks without an update and updates without a click, at the event time of the acknowledged load.

        With a later event time, the load's unacknowledged events would become late.
        """
        super().on_progress(progress)
        events_a_second = 1000 * PAGES * EVENTS_PER_WINDOW / WINDOW_MS
        arrived_seconds = self._zero_ms / 1000 + progress.acknowledged / events_a_second
        self._send_alone(arrived_seconds - BEHIND_SECONDS, ALONE_AT_A_TIME)

    def _generate(self) -> None:
        super()._generate()
        # A watermark belongs to one Storm executor. An executor with only these pages closes its windows with these
        # events.
        self._send_alone(self._summaries[0].newest_time_ms / 1000, 1)

    def _send_alone(self, event_time_seconds: float, count: int) -> None:
        event_time = datetime.fromtimestamp(event_time_seconds, UTC).replace(tzinfo=None)
        for topic, page in ((self.input, "/clicks-only"), (self.update_input, "/updates-only")):
            for number in range(self._alone, self._alone + count):
                event = {"id": FIRST_ALONE + number, "timestamp": event_time.isoformat(timespec="milliseconds")}
                self._beside.produce(topic, json.dumps({**event, "page": page}), json.dumps(page))
        self._alone += count
        assert self._beside.flush(30) == 0

    def dropped(self) -> Collection[Event]:
        """Return events that the engine may drop, if it has no topic for late events."""
        return ()

    def finish(self, *, settle: bool = True) -> None:
        """Wait until the load has ended and every owed event has a result."""
        assert settle
        self._load.join()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while self.joined().missing and time.monotonic() < deadline:
            pass  # reading the topics paces this loop

    def validate(self, folder: Path, guarantee: str, effective: Effective) -> tuple[int, dict[str, Any]]:
        """Run ``streamproof validate --once`` on the topics at rest; return its status and its report."""
        given = yaml.safe_load(EXAMPLES["join"])
        given |= {"guarantee": guarantee, "timing": {"max_disorder": f"{self.max_disorder_ms}ms"}}
        given["inputs"][0]["topic"], given["inputs"][1]["topic"] = self.input, self.update_input
        given["outputs"][0]["topic"] = self.output
        ids = [{"path": "clickIds", "input": self.input}, {"path": "updateIds", "input": self.update_input}]
        given["outputs"][0]["fields"]["ids"] = ids
        given["late"][0] |= {"topic": self.late, "input": self.input}
        given["late"][1] |= {"topic": self.late_updates, "input": self.update_input}
        given["oracle"] |= {"join": self.join, "left": self.input, "right": self.update_input, "size": f"{WINDOW_MS}ms"}
        self.configure_sidecar(given)
        return judged(folder, self.bootstrap_servers, given, effective)

    def configure_sidecar(self, given: dict[str, Any]) -> None:
        """Change the sidecar's configuration ``given`` where this run needs another one."""
