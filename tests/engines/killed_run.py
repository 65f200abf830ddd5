"""One run of a real engine on the generator's load, with a SIGKILL between a result and its commit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from generator import config, run
from testbed.broker import EmbeddedBroker
from testbed.engines.effective import Effective
from testbed.engines.real import RealEngine, RealEngineSettings
from testbed.engines.registry import REGISTRY, make_engine
from testbed.engines.settings import Guarantee
from testbed.engines.spark_settings import SparkSettings
from tests.engines.judged import assert_sidecar_agrees
from tests.engines.offline_count import Count, count, records

WINDOW_MS = 2000
PARTITIONS = 3
READY_SECONDS_MAX = 120.0
SETTLE_SECONDS_MAX = 90.0
LOAD_SECONDS = 12
"""Event time follows the wall clock, so the engine alone determines which events are late."""
EVENTS_PER_WINDOW = 300
PAGES = 6
FLUSHING_EVENTS = PAGES
"""These come last, only to close the windows before them."""


class KilledRun:
    """Topics, load and count of one run."""

    max_disorder_ms = 300
    """The setting of the engine and of the sidecar."""

    def __init__(
        self, broker: EmbeddedBroker, topic_names: Callable[[str], str], load_seconds: int = LOAD_SECONDS
    ) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.input, self.output, self.late = topic_names("click"), topic_names("output"), topic_names("late")
        broker.create_topics(dict.fromkeys((self.input, self.output, self.late), PARTITIONS))
        self._admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        self._load_seconds = load_seconds
        self._drops_late = False
        self._half_way = threading.Event()
        self._ended = threading.Event()
        self._summaries: list[run.GenerationSummary] = []
        self._load = threading.Thread(target=self._generate)

    def engine(self, name: str, folder: Path, **more: Any) -> RealEngine:
        """Return the engine ``name`` with two workers on this run's topics, not started.

        For an engine that drops late events, the load has none, and `max_disorder_ms` is at least the engine's slack.
        """
        if REGISTRY[name].drops_late:
            self._drops_late = True
            self.max_disorder_ms = max(self.max_disorder_ms, REGISTRY[name].slack_ms)
        settings = (SparkSettings if name == "spark" else RealEngineSettings)(
            input=self.input,
            output=self.output,
            late=self.late,
            group=self.input,
            window_ms=WINDOW_MS,
            **{
                "bootstrap_servers": self.bootstrap_servers,
                "parallelism": 2,
                "max_disorder_ms": self.max_disorder_ms,
                **more,
            },
        )
        return make_engine(name, settings, folder)

    def through_a_kill(self, name: str, folder: Path, guarantee: Guarantee, **more: Any) -> Effective:
        """Run the load on the engine ``name``, and kill a worker between a result and its commit. Return the
        engine's effective guarantee."""
        with self.engine(name, folder, guarantee=guarantee, **more) as engine:
            engine.start()
            engine.ready(READY_SECONDS_MAX)
            effective = engine.effective()
            self.start_load()
            self.await_half_way()
            self.before_the_kill()
            self.await_answers(uncommitted=guarantee == "exactly_once")
            engine.kill(0)
            assert not engine.instances[0].alive
            engine.restart(0)
            engine.ready(READY_SECONDS_MAX)
            self.finish()
            engine.stop()
        return effective

    def before_the_kill(self) -> None:
        """Hook: called when half of the load is sent, before the kill."""

    def start_load(self) -> None:
        self._load.start()

    def await_half_way(self) -> None:
        assert self._half_way.wait(READY_SECONDS_MAX)

    def await_answers(self, *, uncommitted: bool) -> None:
        """Return right after more has been written to the output topic. ``uncommitted``: in an open transaction."""
        before = self._ends(IsolationLevel.READ_UNCOMMITTED)
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            if self.uncommitted() if uncommitted else sum(self._ends(IsolationLevel.READ_UNCOMMITTED)) > sum(before):
                return
            assert time.monotonic() < deadline, "the engine answers no more"

    def uncommitted(self) -> int:
        """Return the number of offsets of the output topic that read_committed consumers cannot pass yet."""
        return sum(self._ends(IsolationLevel.READ_UNCOMMITTED)) - sum(self._ends(IsolationLevel.READ_COMMITTED))

    def loads(self) -> bool:
        """Return whether the load is still running."""
        return self._load.is_alive()

    def end_load(self) -> None:
        """Stop the load early: afterwards it sends only the events that close the windows."""
        self._ended.set()

    def finish(self, *, settle: bool = True) -> None:
        """Wait until the load has ended and the output has every due event. Without ``settle``, only the newest id
        is awaited."""
        self._load.join()
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        newest = self._summaries[0].acknowledged - FLUSHING_EVENTS
        while time.monotonic() < deadline:
            counted = self.count()  # reading the topics paces this loop
            if counted.newest >= newest and (not settle or not counted.missing):
                return

    def count(self) -> Count:
        clicks, results, late = (records(self.bootstrap_servers, t) for t in (self.input, self.output, self.late))
        return count(clicks, results, late, WINDOW_MS)

    def agreed(self, folder: Path, guarantee: Guarantee, effective: Effective) -> Count:
        """Return the count of the topics at rest; assert that the sidecar's count and verdicts agree with it."""
        counted, _ = assert_sidecar_agrees(
            folder, self.bootstrap_servers, effective, input_topic=self.input, output=self.output, late=self.late,
            guarantee=guarantee, window_ms=WINDOW_MS,
        )  # fmt: skip
        return counted

    def sent(self) -> int:
        return self._summaries[0].acknowledged

    def load(self) -> dict[str, Any]:
        """Return the generator's configuration."""
        lateness = {} if self._drops_late else {"lateness": {"share": 0.01, "beyond": "3s"}}
        return {
            "kafka": {"bootstrap_servers": self.bootstrap_servers},
            "topic": self.input,
            "window": f"{WINDOW_MS}ms",
            "keys": {"pages": PAGES},
            "events_per_window": EVENTS_PER_WINDOW,
            "start": "now",
            "rate": {"shape": "event_time", "speed": 1},
            "limit": {"duration": f"{self._load_seconds}s"},
            "flush_windows": True,
            "disorder": {"share": 0.1, "within": "300ms"},
            "delivery": {"linger": "5ms"},
            **lateness,
        }

    def _generate(self) -> None:
        load = config.parse(self.load())
        self._summaries.append(run.generate(load, stop=self._ended, on_progress=self.on_progress))

    def on_progress(self, progress: run.GenerationProgress) -> None:
        """Callback of the load, twice a second."""
        if progress.sent >= EVENTS_PER_WINDOW * PAGES * self._load_seconds * 1000 // WINDOW_MS // 2:
            self._half_way.set()

    def _ends(self, isolation: IsolationLevel) -> list[int]:
        asked = {TopicPartition(self.output, partition): OffsetSpec.latest() for partition in range(PARTITIONS)}
        answers = self._admin.list_offsets(asked, isolation_level=isolation, request_timeout=10)
        return [answer.result().offset for answer in answers.values()]
