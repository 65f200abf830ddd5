"""One run of a real engine on PGVal's MST: the project's own load, the topics' count, and the sidecar's verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import yaml

from testbed.broker import EmbeddedBroker
from testbed.engines.effective import Effective
from testbed.engines.real import RealEngine
from tests.engines import join_count
from tests.engines.join_count import Event, JoinCount
from tests.engines.judged import judged
from tests.engines.killed_run import LOAD_SECONDS, PARTITIONS, SETTLE_SECONDS_MAX, WINDOW_MS, KilledRun
from tests.engines.offline_count import records
from validator.config.examples import EXAMPLES


class JoinedRun(KilledRun):
    """Clicks and updates, and what becomes of them."""

    def __init__(
        self, broker: EmbeddedBroker, topic_names: Callable[[str], str], load_seconds: int = LOAD_SECONDS
    ) -> None:
        super().__init__(broker, topic_names, load_seconds)
        self.update_input, self.late_updates = topic_names("update"), topic_names("late-updates")
        broker.create_topics(dict.fromkeys((self.update_input, self.late_updates), PARTITIONS))

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """The engine ``name`` with two workers that join, not started."""
        topics = {"update_input": self.update_input, "late_updates": self.late_updates}
        return super().engine(name, folder, workload="mst", **topics, **more)

    def load(self) -> dict[str, Any]:
        return {**super().load(), "workload": "mst", "update_topic": self.update_input, "update_percent": 5}

    def joined(self) -> JoinCount:
        clicks, updates, results, late, late_updates = (
            records(self.bootstrap_servers, topic)
            for topic in (self.input, self.update_input, self.output, self.late, self.late_updates)
        )
        return join_count.count([clicks, updates], results, [late, late_updates], WINDOW_MS, self.dropped())

    def dropped(self) -> Collection[Event]:
        """What the engine may drop, since it has no topic for late events."""
        return ()

    def finish(self, *, settle: bool = True) -> None:
        """Wait until the load has ended and all that is owed has come out."""
        assert settle
        self._load.join()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while self.joined().missing and time.monotonic() < deadline:
            pass  # reading the topics paces this loop

    def validate(self, folder: Path, guarantee: str, effective: Effective) -> tuple[int, dict[str, Any]]:
        """``streamproof validate --once`` on the topics at rest: its status and its report."""
        given = yaml.safe_load(EXAMPLES["join"])
        given |= {"guarantee": guarantee, "timing": {"max_disorder": f"{self.max_disorder_ms}ms"}}
        given["inputs"][0]["topic"], given["inputs"][1]["topic"] = self.input, self.update_input
        given["outputs"][0]["topic"] = self.output
        ids = [{"path": "clickIds", "input": self.input}, {"path": "updateIds", "input": self.update_input}]
        given["outputs"][0]["fields"]["ids"] = ids
        given["late"][0] |= {"topic": self.late, "input": self.input}
        given["late"][1] |= {"topic": self.late_updates, "input": self.update_input}
        given["oracle"] |= {"left": self.input, "right": self.update_input, "size": f"{WINDOW_MS}ms"}
        self.tell_sidecar(given)
        return judged(folder, self.bootstrap_servers, given, effective)

    def tell_sidecar(self, given: dict[str, Any]) -> None:
        """Change the sidecar's configuration ``given`` where this run's differs."""
