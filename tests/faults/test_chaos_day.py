"""The demo's chaos day on a real broker. Sleeping processes replace the engine, and no sidecar runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from faults.journal import read
from testbed.demo.brokers import DemoBrokers
from testbed.demo.scenario import scenario_of
from testbed.demo.scenario_run import ScenarioRun
from testbed.demo.targets import state_folder
from testbed.engines.base import ProcessEngine
from testbed.stop import Stop
from tests.faults.stage import WITHIN_SECONDS, is_alive, wait_until


class Sleepers(ProcessEngine):
    """Two idle workers, which are ready when they run."""

    name = "reference"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, roles=["worker", "worker"])

    def _command(self, instance: int) -> list[str | Path]:
        return ["sleep", "600"]

    def _environment(self, instance: int) -> dict[str, str]:
        return {}

    def _is_ready(self, instance: int) -> bool:
        return self.instances[instance].alive


class Scene:
    """A chaos day in progress; ``said`` are its lines in order."""

    def __init__(self, folder: Path, stack: ExitStack, *faults: dict[str, Any]) -> None:
        self.folder, self.stop, self.said = folder, Stop(), list[str]()
        scenario = scenario_of(
            "reference", ("click",), 1, "day.yaml", {"seed": 5, "schedule": {"faults": list(faults)}}
        )
        self.scenario = ScenarioRun(scenario, folder, self.stop.event, self.said.append)
        self.brokers = DemoBrokers(folder, {}, links=self.scenario.links)
        self.broker = self.brokers.first
        stack.callback(self.broker.kill)
        self.brokers.start()
        self.broker.create_topics({"click": 1, "faults": 1})
        self.proxy = self.scenario.start_links(self.brokers)
        if self.proxy is not None:
            stack.callback(self.proxy.kill)
            self.scenario.await_links(self.proxy, self.stop, lambda: None)
        self.engine = stack.enter_context(Sleepers(folder / "engine"))
        self.engine.start()
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        stack.callback(self.scenario.end)
        self.running = self.scenario.start(pool, self.engine, self.brokers, [])

    def states_of_the_topic(self) -> list[tuple[str, str]]:
        """Return (name, state) of each record of the faults topic."""
        options = {"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "t", "enable.partition.eof": True}
        consumer, found = Consumer(options), list[tuple[str, str]]()
        consumer.assign([TopicPartition("faults", 0, 0)])
        deadline = time.monotonic() + WITHIN_SECONDS
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error():
                break
            if message is not None:
                record = json.loads(message.value() or b"")
                found.append((record["name"], record["state"]))
        consumer.close()
        return found


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.full
def test_faults_of_workers_links_and_broker_are_injected_in_turn_and_healed(tmp_path: Path, stack: ExitStack) -> None:
    worker = {"labels": {"role": "worker"}}
    scene = Scene(
        tmp_path, stack,
        {"kind": "process_kill", "target": worker, "for": "500ms"},
        {"kind": "net_delay", "target": "reference-link", "for": "3s", "parameters": {"delay": "300ms"}},
        {"kind": "broker_kill", "target": "broker"},
    )  # fmt: skip
    before = [instance.pid for instance in scene.engine.instances]
    wait_until(lambda: any("FAULT failure: process-kill" in line for line in scene.said), "the kill is active")
    alive = [pid is not None and is_alive(pid) for pid in before]
    assert sorted(alive) == [False, True]
    assert not any("again" in line for line in scene.said), "it came back before its time"
    # The engine's address leads through the link, even after the broker has advertised its listener.
    wait_until(lambda: any("FAULT failure: net-delay" in line for line in scene.said), "the delay is active")
    producer = Producer({"bootstrap.servers": scene.scenario.engine_servers, "acks": "all", "linger.ms": 0})
    started = time.monotonic()
    producer.produce("click", b"1")
    assert producer.flush(WITHIN_SECONDS) == 0
    assert time.monotonic() - started >= 0.3
    broker = scene.broker.process.pid
    scene.running.result(120)
    assert scene.broker.process.pid != broker
    assert all(instance.alive for instance in scene.engine.instances)
    assert sum(old != new.pid for old, new in zip(before, scene.engine.instances, strict=True)) == 1
    states = ["injected", "verified", "heal_started", "healed"]
    assert scene.states_of_the_topic() == [
        (name, state) for name in ("process-kill", "net-delay", "broker-kill") for state in states
    ]


@pytest.mark.full
def test_a_stopped_run_heals_its_fault(tmp_path: Path, stack: ExitStack) -> None:
    pause = {"kind": "process_pause", "target": "reference-worker-1", "for": "1h"}
    scene = Scene(tmp_path, stack, pause)
    assert scene.proxy is None, "no fault hits a link"
    wait_until(lambda: any("FAULT failure" in line for line in scene.said), "the pause is active")
    scene.scenario.end()
    (entry,) = read(state_folder(tmp_path)).values()
    assert entry.is_healed
    assert entry.fault.target_names == "reference-worker-1"
