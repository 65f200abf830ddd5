"""A join whose late events the test sends itself, for a window that already has results, so their outcome is known."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from testbed.engines.join import Join
from testbed.engines.registry import REGISTRY
from tests.engines.join_count import LATE_IDS, Event
from tests.engines.joined_run import JoinedRun
from tests.engines.killed_run import SETTLE_SECONDS_MAX
from tests.engines.offline_count import records

LOAD_SECONDS = 20
LATE_PAGES = 3
FIRST_LATE_ID = 10_000_001


class LateByHand(JoinedRun):
    """For engines whose watermark follows the newest event of all partitions. Their slack is the allowed disorder."""

    def __init__(self, broker: EmbeddedBroker, topic_names: Callable[[str], str], name: str, join: Join) -> None:
        super().__init__(broker, topic_names, LOAD_SECONDS, join)
        self._drops_late = REGISTRY[name].drops_late
        self.max_disorder_ms = REGISTRY[name].slack_ms
        self.late_events: set[Event] = set()

    def load(self) -> dict[str, Any]:
        return {name: value for name, value in super().load().items() if name != "lateness"}

    def before_the_kill(self) -> None:
        """Send a late click and a late update to some pages of the first window with results.

        Return when they are on the late topics. An engine that drops late events has no late topics.
        """
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        # Each of Storm's executors writes the results of its own pages.
        while len(pages := self._emitted()) < 2 or len(pages[min(pages)]) < LATE_PAGES:
            assert time.monotonic() < deadline, "the engine does not answer"
        first = min(pages)
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        moment = (datetime.fromisoformat(first) + timedelta(milliseconds=1)).isoformat(timespec="milliseconds")
        for side, topic in enumerate((self.input, self.update_input)):
            for number, page in enumerate(sorted(pages[first])[:LATE_PAGES], FIRST_LATE_ID):
                event = {"id": number, "timestamp": moment, "page": page}
                producer.produce(topic, json.dumps(event), json.dumps(page))
                self.late_events.add((side, number))
        assert producer.flush(30) == 0
        while not self._drops_late and not self._set_aside() >= self.late_events:
            assert time.monotonic() < deadline, self._set_aside()

    def _emitted(self) -> dict[str, set[str]]:
        """Return start of a window -> pages that have a result."""
        pages = defaultdict(set)
        for result in records(self.bootstrap_servers, self.output):
            pages[result["windowStart"]].add(result["page"])
        return pages

    def _set_aside(self) -> set[Event]:
        return {
            (side, record[LATE_IDS[side]])
            for side, topic in enumerate((self.late, self.late_updates))
            for record in records(self.bootstrap_servers, topic)
        }

    def dropped(self) -> Collection[Event]:
        return self.late_events if self._drops_late else ()

    def configure_sidecar(self, given: dict[str, Any]) -> None:
        if self._drops_late:
            del given["late"]
            given["timing"]["late_policy"] = "drop"
