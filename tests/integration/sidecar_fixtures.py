"""A pipeline of real topics and a sidecar in this process: a test appends records and checks the verdict.

All tests share one broker (`tests/conftest.py`) and one Spark session. There are no sleeps: a test waits for a report
that satisfies a condition, and fails at once if the sidecar ends earlier.
"""

from __future__ import annotations

import functools
import itertools
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from validator.config.load import loads
from validator.config.model import Config
from validator.stream import jars, session
from validator.stream.sidecar import Sidecar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from testbed.broker import EmbeddedBroker

WINDOW_SECONDS: Final = 10
WAIT_SECONDS_MAX: Final = 240.0
EXACTLY_ONCE: Final = "exactly_once"
Report = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CONFIG: Final = """\
pipeline: {name}
guarantee: exactly_once
kafka: {{bootstrap_servers: "{servers}"}}
inputs: [{{topic: {name}-in, fields: {{id: id, key: page, event_time: timestamp}}}}]
outputs: [{{topic: {name}-out, fields: {{key: page, window_start: windowStart, ids: [clickIds]}}}}]
late: [{{topic: {name}-late, fields: {{id: clickId, key: page, event_time: clickTimestamp}}}}]
oracle: {{kind: tumbling_window, size: 10s}}
timing: {{idle_after: 2s, overdue_after: 2s, missing_after: 4s, tick: 300ms}}
state: {{path: {state}}}
metrics: {{port: 0}}
"""


def iso(seconds: float) -> str:
    """The event time ``seconds`` after the epoch, as PGVal writes it (no zone)."""
    return (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat(timespec="milliseconds")


def click(event_id: object, seconds: float, page: object = "a", **more: object) -> str:
    """An input event."""
    return json.dumps({"id": event_id, "page": page, "timestamp": iso(seconds), **more})


def answer(ids: Sequence[object], window: int = 0, page: object = "a") -> str:
    """A result for the window number ``window`` of ``page``."""
    return json.dumps({"page": page, "windowStart": iso(window * WINDOW_SECONDS), "clickIds": list(ids)})


def set_aside(event_id: object, seconds: float, page: str = "a") -> str:
    """A record of the late topic."""
    return json.dumps({"clickId": event_id, "page": page, "clickTimestamp": iso(seconds)})


def aside_topic(role: str, topic: str) -> str:
    """The setting that makes ``topic``, whose records are those of `set_aside`, the only one of ``role``: ``late`` or
    ``rejected``."""
    return f"{role}=[{{topic: {topic}, fields: {{id: clickId, key: page, event_time: clickTimestamp}}}}]"


@functools.cache
def shared_session() -> SparkSession:
    """The one Spark session of a pytest run; its JVM ends with this process."""
    jvm_jars = jars.resolve(Path(jars.__file__).with_name("jars.lock"))
    return session.start("tests", "local[2]", jvm_jars, {"spark.driver.memory": "2g"})


@dataclass
class Run:
    """The end of a sidecar's run: its exit status, its last report, and the lines that it printed."""

    status: int
    report: Report
    said: list[str]

    def counts(self, *names: str) -> dict[str, int]:
        """Contributions by class: those named, or all that are not 0."""
        return counts(self.report, *names)

    @property
    def verdicts(self) -> tuple[str, str, str]:
        """At most once, at least once, exactly once."""
        return verdicts(self.report)


def counts(report: Report, *names: str) -> dict[str, int]:
    """Return contributions by class: the named classes, or all that are not 0. `incorrect` is a sum of others and is
    omitted."""
    found: dict[str, int] = report["contributions"]
    if names:
        return {name: found[name] for name in names}
    return {name: count for name, count in found.items() if count and name != "incorrect"}


def verdicts(report: Report) -> tuple[str, str, str]:
    """At most once, at least once, exactly once."""
    said = report["verdicts"]
    return said["at_most_once"], said["at_least_once"], said["exactly_once"]


@dataclass
class Live:
    """A sidecar that runs in a separate thread."""

    sidecar: Sidecar
    state: Path
    said: list[str]
    ended: threading.Event = field(default_factory=threading.Event)
    status: int | None = None
    error: BaseException | None = None

    def run(self) -> None:
        try:
            self.status = self.sidecar.run()
        except BaseException as error:  # noqa: BLE001 - handed to the test's thread
            self.error = error
        finally:
            self.ended.set()

    def until(self, condition: Callable[[Report], bool], seconds: float = WAIT_SECONDS_MAX) -> Report:
        """The first report seen that satisfies ``condition``."""
        deadline = time.monotonic() + seconds
        while True:
            over = self.ended.wait(0.02)
            report = read_report(self.state)
            if report is not None and condition(report):
                return report
            if over:
                raise AssertionError(f"the sidecar ended before: {self.error!r}, {self.said}") from self.error
            assert time.monotonic() < deadline, f"not within {seconds} s; said {self.said}; report {brief(report)}"

    def until_said(self, text: str, seconds: float = WAIT_SECONDS_MAX) -> str:
        """The first printed line that contains ``text``."""
        deadline = time.monotonic() + seconds
        while True:
            over = self.ended.wait(0.02)
            for line in list(self.said):
                if text in line:
                    return line
            assert not over, f"the sidecar ended before: {self.error!r}, {self.said}"
            assert time.monotonic() < deadline, f"not said within {seconds} s: {self.said}"

    def pace(self) -> float:
        """Seconds between commits under the current load of this machine, while cells are open."""
        before = self.batches(1)
        return max(0.5, (instant(self.batches(3)) - instant(before)) / 3)

    def batches(self, more: int = 1) -> Report:
        """The report after ``more`` further commits."""
        now = read_report(self.state)
        reached = (0 if now is None else now["validator"]["batches"]) + more
        return self.until(lambda report: report["validator"]["batches"] >= reached)


def read_report(state: Path) -> Report | None:
    """The state's report; None before the first."""
    path = state / "report.json"
    if not path.exists():
        return None
    report: Report = json.loads(path.read_text())
    return report


def instant(report: Report) -> float:
    """When a report was taken: the sidecar's clock, in seconds since the epoch."""
    return datetime.fromisoformat(report["time"]).timestamp()


def brief(report: Report | None) -> str:
    """Return the parts of a report that a failing test prints."""
    if report is None:
        return "none"
    shown = ("verdicts", "reasons", "contributions", "results", "inputs", "cells", "input_watermark", "waiting_for")
    return json.dumps({name: report[name] for name in shown}, indent=1)


@dataclass
class Pipeline:
    """The topics of one pipeline, writers to them, and sidecars on its states."""

    name: str
    servers: str
    folder: Path
    broker: EmbeddedBroker
    spark: SparkSession
    _producer: Producer = field(init=False)

    def __post_init__(self) -> None:
        self._producer = Producer({"bootstrap.servers": self.servers, "message.max.bytes": 16_000_000})

    @property
    def input(self) -> str:
        return f"{self.name}-in"

    @property
    def output(self) -> str:
        return f"{self.name}-out"

    @property
    def late(self) -> str:
        return f"{self.name}-late"

    def create(self, *, inputs: int = 1, outputs: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create the three topics; ``inputs`` and ``outputs`` are numbers of partitions."""
        self.broker.create_topics({self.input: inputs, self.output: outputs, self.late: 1}, config)

    def put(
        self,
        topic: str,
        *values: str | bytes | None,
        partition: int = 0,
        key: str | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        """Append records; they are in the log when this returns. Timestamp 0: the time of the call."""
        failures: list[str] = []

        def report(error: object, _: object) -> None:
            if error is not None:
                failures.append(str(error))

        for value in values:
            self._producer.produce(topic, value, key, partition, on_delivery=report, timestamp=timestamp_ms)
        assert self._producer.flush(30) == 0
        assert not failures, failures

    def clicks(self, *values: str | bytes | None, partition: int = 0) -> None:
        self.put(self.input, *values, partition=partition)

    def answers(self, *values: str | bytes | None, partition: int = 0) -> None:
        self.put(self.output, *values, partition=partition)

    def transactional(self) -> Producer:
        """A producer with a transactional id of its own, ready to begin."""
        options = {"bootstrap.servers": self.servers, "transactional.id": f"{self.name}-{next(_serial)}"}
        producer = Producer({**options, "transaction.timeout.ms": 120_000})
        producer.init_transactions(30)
        return producer

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.servers})

    def config(self, *settings: str, state: str = "state") -> Config:
        """Return the configuration; ``settings`` have `--set` syntax, ``path.to.key=value``."""
        text = _CONFIG.format(name=self.name, servers=self.servers, state=state)
        return loads(text, self.folder, settings, {})

    def state(self, state: str = "state") -> Path:
        return self.folder / state

    def once(self, *settings: str, state: str = "state", leave_open: bool = False, at_rest: bool = False) -> Run:
        """Run `validate --once` to its end."""
        said: list[str] = []
        config = self.config(*settings, state=state)
        sidecar = Sidecar(
            config, once=True, leave_open=leave_open, at_rest=at_rest, say=said.append, session=self.spark
        )
        status = sidecar.run()
        report = read_report(self.state(state))
        assert report is not None
        return Run(status, report, said)

    @contextmanager
    def live(self, *settings: str, state: str = "state") -> Iterator[Live]:
        """Run `validate`, and stop it with a clean shutdown at the end of the block."""
        said: list[str] = []
        sidecar = Sidecar(self.config(*settings, state=state), say=said.append, session=self.spark)
        live = Live(sidecar, self.state(state), said)
        thread = threading.Thread(target=live.run, name=f"sidecar-{self.name}")
        thread.start()
        try:
            yield live
        finally:
            sidecar.stop()
            thread.join(60)
        assert not thread.is_alive(), f"the sidecar does not stop: {said}"
        if live.error is not None:
            raise live.error

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        """Simulate retention: afterwards the log starts at ``before``."""
        from confluent_kafka import TopicPartition

        admin = self.admin()  # keep a reference: a client that is garbage-collected does not complete its requests
        for done in admin.delete_records([TopicPartition(topic, partition, before)]).values():
            done.result(30)

    def commit_group(self, group: str, topic: str, offset: int) -> None:
        """Commit ``offset`` of partition 0 of the topic for the engine's group."""
        from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
        admin, deadline = self.admin(), time.monotonic() + 30
        while True:
            [done] = admin.alter_consumer_group_offsets(asked).values()
            [error] = [place.error for place in done.result(30).topic_partitions]
            if error is None:
                return
            # The first commit on a broker may meet a coordinator that is not ready yet.
            assert time.monotonic() < deadline, error
            time.sleep(0.1)

    def delete_group(self, group: str) -> None:
        """Simulate the expiry of the group's offsets."""
        admin = self.admin()
        for done in admin.delete_consumer_groups([group]).values():
            done.result(30)

    def add_partitions(self, topic: str, total: int) -> None:
        """Grow the topic to ``total`` partitions, and wait until all have a leader."""
        from confluent_kafka.admin import NewPartitions

        admin = self.admin()
        for done in admin.create_partitions([NewPartitions(topic, total)]).values():
            done.result(30)
        self.broker._await_metadata(  # the broker's own wait: it has no public method for this
            lambda metadata: (
                len(metadata.topics[topic].partitions) == total
                and all(p.leader >= 0 for p in metadata.topics[topic].partitions.values())
            ),
            f"did not grow {topic}",
        )
        self.__post_init__()  # a producer knows only the partitions of its first metadata lookup


_serial = itertools.count(1)


@pytest.fixture(scope="session")
def spark() -> SparkSession:
    """The Spark session that all sidecars of the test run share."""
    return shared_session()


@pytest.fixture
def pipeline(broker: EmbeddedBroker, spark: SparkSession, tmp_path: Path) -> Pipeline:
    """A pipeline whose topics do not exist yet."""
    name = f"p{next(_serial)}-{uuid.uuid4().hex[:6]}"
    return Pipeline(name, broker.bootstrap_servers, tmp_path, broker, spark)
