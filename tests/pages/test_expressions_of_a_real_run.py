"""Every expression of panels, annotations, rules and alerts, in a real Prometheus that scraped a real sidecar. In
the run, everything goes wrong: an engine without results under a fault, late results, duplicates, restarts, deleted
inputs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
import requests
from confluent_kafka import Consumer, TopicPartition

from dashboards.alerts import alerts
from dashboards.grafana_rules import inline_recordings
from dashboards.live import all_expressions, check
from dashboards.settings import Settings
from faults.fault import State, record
from testbed.ports import free_port
from testbed.processes import OwnedProcess
from tests.integration.sidecar_fixtures import WINDOW_SECONDS, Live, Pipeline, answer, click
from tests.pages.prometheus_tools import series, start_prometheus, tool, until
from validator.measure.canary_rounds import RIGHT

SETTINGS = Settings()
ALERT = "alert "
IN_PASSING = (ALERT, ": annotation ")
"""Expressions with series only during an event. They are queried over the whole run, like a dashboard's annotations."""
STAYS_EMPTY = {
    "alert StreamproofSidecarBehind": (
        " > 300",
        "it takes five minutes of lag; without its limit it has series here, and promtool holds the limit",
    ),
    "alert StreamproofSidecarTwice": (" > 1", "it takes two sidecars of one name, which promtool has"),
    "alert StreamproofCoverageWrong": (" > 0", "it takes a sidecar that loses records, which the unit tests plant"),
    "alert StreamproofInputUnconsumed": (" > 0", "it takes an engine with a consumer group, which promtool has"),
}
"""Expression that this run cannot satisfy -> its limit, and why."""
MEASURES = (
    "measures.control_least=2s",
    "measures.moving_rate=2s",
    "measures.band_ratio=0.6",
    # Long enough for a batch of a busy machine between healing and recovery.
    "measures.stable_for=8s",
)
STAGE_SECONDS = 180.0
SCRAPE = "200ms"
"""Short enough to catch values that last less than a second, such as the age of a batch."""
EXPIRY_SECONDS = 170
"""Queries end this long after the last scrape: they include Prometheus's answers without new samples."""


class Canary:
    """The canary's topics, through which the test makes it blind, adds false alarms, and stops its results."""

    def __init__(self, pipeline: Pipeline, prometheus: OwnedProcess, url: str) -> None:
        self.input, self.output = f"{pipeline.name}-ci", f"{pipeline.name}-co"
        self._pipeline = pipeline
        self._prometheus = prometheus
        self._url = url

    @property
    def setting(self) -> str:
        topics = {"input": self.input, "output": self.output}
        return f"canary={json.dumps({**topics, 'every': '1s', 'found_within': '6s'})}"

    def create(self) -> None:
        self._pipeline.broker.create_topics({self.input: 1, self.output: 1})

    def _until_alerted(self, cause: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        [expression] = [
            inline_recordings(one.expression) for one in alerts(SETTINGS) if one.labels.get("cause") == cause
        ]

        def alerted() -> bool:
            meanwhile()
            return bool(series(self._url, expression))

        until(alerted, self._prometheus, seconds=STAGE_SECONDS, what=f"an alert on the canary: {cause}")

    def accuse(self) -> None:
        """Repeat correct results of the canary, which a sidecar never does."""
        reader = Consumer({"bootstrap.servers": self._pipeline.servers, "group.id": self.output})
        reader.assign([TopicPartition(self.output, 0, 0)])
        again: set[bytes] = set()

        def copy() -> None:
            read = {message.value() for message in reader.consume(500, 0.2) if message.error() is None}
            right = {value for value in read if value and f"/{RIGHT}" in json.loads(value)["key"]}
            self._pipeline.put(self.output, *(right - again))
            again.update(right)

        try:
            self._until_alerted("false_alarm", copy)
        finally:
            reader.close()

    def blind(self) -> None:
        """Hold back the canary's results behind an open transaction."""
        held = self._pipeline.transactional()
        held.begin_transaction()
        held.produce(self.output, b"held", partition=0)
        assert held.flush(30) == 0
        self._until_alerted("missed")
        held.abort_transaction(30)

    def silence(self) -> None:
        """Delete the canary's output topic until the alert fires."""
        admin = self._pipeline.admin()  # a client that is garbage-collected does not answer
        for done in admin.delete_topics([self.output]).values():
            done.result(30)
        self._until_alerted("silent")
        self._pipeline.broker.create_topics({self.output: 1})


class Load:
    """One click per tick, each in its own window, which the next click closes.

    While ``silent`` is set, the engine sends the oldest owed result now and then, and the rest later.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load")
        self.silent = threading.Event()

    def _run(self) -> None:
        clicked = found = 0
        while not self._over.wait(0.25):
            self._pipeline.clicks(click(clicked, clicked * WINDOW_SECONDS))
            clicked += 1
            # A result comes after the click that closes its window. An earlier result has no measured latency.
            due = clicked - 1 if not self.silent.is_set() else found + (clicked % 6 == 0)
            self._pipeline.answers(*(answer([n], n) for n in range(found, due)))
            found = due

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def publish(pipeline: Pipeline, topic: str, state: State, fault: str = "1", expects: tuple[str, ...] = ()) -> None:
    now = datetime.now(UTC)
    published = record(fault, f"kill-worker-{fault}", "process_kill", "w-0", state, now, expects=expects)
    pipeline.put(topic, published, key=fault)


def ever(url: str, expression: str, since: float) -> bool:
    """Return whether ``expression`` had series at any instant between ``since`` and ``EXPIRY_SECONDS`` after now."""
    asked = {"query": expression, "start": since, "end": time.time() + EXPIRY_SECONDS, "step": 0.2}
    found = requests.get(f"{url}/api/v1/query_range", params={k: str(v) for k, v in asked.items()}, timeout=60).json()
    assert found["status"] == "success", found
    return bool(found["data"]["result"])


def empty_panels(url: str) -> set[tuple[str, str]]:
    """Return panels and recording rules without series now."""
    checked = check(url, SETTINGS)
    return {(one.where, one.expression) for one in checked if not one.series and not is_passing(one.where)}


def is_passing(where: str) -> bool:
    return any(kind in where for kind in IN_PASSING)


def until_none_is_empty(url: str, prometheus: OwnedProcess) -> None:
    """Wait until every panel and recording rule has series; fail with the names of those without."""
    left: set[tuple[str, str]] = set()

    def none_is_left() -> bool:
        left.clear()
        left.update(empty_panels(url))
        return not left

    try:
        until(none_is_left, prometheus, seconds=STAGE_SECONDS)
    except AssertionError as late:
        raise AssertionError(f"without series: {sorted(left)}") from late


@pytest.mark.full
@pytest.mark.timeout(900)
def test_every_expression_has_series_in_a_run_that_breaks(pipeline: Pipeline) -> None:
    tool("prometheus")  # skips before anything is started
    faults, port, since = f"{pipeline.name}-faults", free_port(), time.time()
    target = {"job_name": "streamproof", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    content = {"global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE}, "scrape_configs": [target]}
    process, url = start_prometheus(pipeline.folder, content)
    canary = Canary(pipeline, process, url)
    settings = (f"faults.topic={faults}", f"metrics.port={port}", canary.setting, *MEASURES)

    def seen(expression: str) -> Callable[[], bool]:
        return lambda: bool(series(url, expression))

    with process:
        until(lambda: bool(series(url, "vector(1)")), process)
        # If none of its topics exists, a sidecar has no batch, however fast it is.
        with pipeline.live(*settings, state="no-topics"):
            no_batch = "streamproof_last_batch_timestamp_seconds"
            until(seen(f"{no_batch} != {no_batch}"), process, seconds=STAGE_SECONDS, what="a sidecar without a batch")
        pipeline.create()
        pipeline.broker.create_topics({faults: 1})
        canary.create()
        # Until this transaction ends, the output is not read through.
        held = pipeline.transactional()
        held.begin_transaction()
        held.produce(pipeline.output, answer([0], 0), partition=0)
        held.flush(30)
        with pipeline.live(*settings) as live:
            unread = f'streamproof_read_lag_seconds{{topic="{pipeline.output}"}}'
            until(seen(f"{unread} != {unread}"), process, seconds=STAGE_SECONDS, what="an output that is held back")
            held.abort_transaction(30)
            with Load(pipeline) as load:
                break_it(pipeline, live, load, faults)
                until_none_is_empty(url, process)
            publish(pipeline, faults, "injected", "2", ("duplicate",))
            muted = 'streamproof_fault_expects{class="duplicate"} == 1'
            until(seen(muted), process, seconds=STAGE_SECONDS, what="a fault that mutes a class")
            publish(pipeline, faults, "healed", "2", ("duplicate",))
            canary.accuse()
            canary.blind()
            canary.silence()
        # Three more starts. Before the last one, unread inputs expire.
        for start in range(3):
            if start == 2:
                pipeline.clicks(*(click(f"gone-{n}", 0) for n in range(5)))
                pipeline.delete_records(pipeline.input, -1)
            with pipeline.live(*settings):
                newest = f"changes(streamproof_start_timestamp_seconds[10m]) == {start + 2}"
                until(seen(newest), process, seconds=STAGE_SECONDS, what=f"start {start + 3}")
                if start == 2:
                    lost = "streamproof_coverage_complete == 0"
                    until(seen(lost), process, seconds=STAGE_SECONDS, what="inputs that nobody can read any more")
        until(seen("absent(streamproof_build_info)"), process, seconds=STAGE_SECONDS, what="silence")

        passing = [(where, asked) for where, asked in all_expressions(SETTINGS) if is_passing(where)]
        empty = [(where, asked) for where, asked in passing if not ever(url, asked, since)]
        assert {where for where, _ in empty} == set(STAYS_EMPTY), empty
        for where, asked in empty:
            limit, _ = STAYS_EMPTY[where]
            assert limit in asked
            assert ever(url, asked.replace(limit, " >= 0"), since)


def break_it(pipeline: Pipeline, live: Live, load: Load, faults: str) -> None:
    """Inject a fault during which the engine sends no results, so they arrive after they were reported missing; then
    send duplicates."""
    live.until(lambda report: report["contributions"]["processed"] > 20)
    publish(pipeline, faults, "injected")
    load.silent.set()
    live.until(lambda report: report["violations"]["confirmed"]["missing"] > 0)
    publish(pipeline, faults, "healed")
    load.silent.clear()
    pipeline.answers(*(answer([n], n) for n in range(10)))
    live.until(lambda report: report["violations"]["confirmed"]["duplicate"] >= 10)
    live.until(lambda report: report["violations"]["retracted"]["missing"] > 0)
    live.until(lambda report: report["faults"][0]["recovered"] is True)
