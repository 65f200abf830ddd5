"""Fault windows on a real faults topic, read with the sidecar's reader, also while the broker is the target."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from faults.errors import FaultConfigError
from faults.journal import Journal
from faults.runner import run
from faults.schedule import timeline
from faults.topic import FaultsTopicWriter, publish_missing
from testbed.broker import EmbeddedBroker
from tests.faults.stage import ROOT, STREAMPROOF, WITHIN_SECONDS, Stage, state_of, wait_until
from validator.config.examples import EXAMPLES
from validator.config.load import load
from validator.model.snapshot import FaultWindow
from validator.stream.fault_records import FaultRecords
from validator.stream.faults_topic import FaultsTopicReader
from validator.stream.sources import reading_of


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that the tests of this file may stop."""
    with EmbeddedBroker(folder=tmp_path_factory.mktemp("broker")) as running:
        yield running


def read_back(tmp_path: Path, broker: EmbeddedBroker, topic: str) -> FaultWindow:
    """Return the topic's only window, once it is complete."""
    (window,) = windows_of(tmp_path, broker, topic, 1)
    return window


def windows_of(tmp_path: Path, broker: EmbeddedBroker, topic: str, count: int) -> tuple[FaultWindow, ...]:
    """Return ``count`` windows, once all are complete."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(EXAMPLES["clickstream"])
    config = load(file, [f"kafka.bootstrap_servers={broker.bootstrap_servers}", f"faults.topic={topic}"])
    records = FaultRecords()
    # The test process acts as the worker.
    reader, reading = FaultsTopicReader(config, print), replace(reading_of(config), memory_bytes=None)

    def are_whole() -> bool:
        records.add(reader.poll(reading))
        return len(records.windows()) == count and all(w.healed_us is not None for w in records.windows())

    wait_until(are_whole, "the windows are on the topic")
    assert reader.undecodable == 0
    return records.windows()


def run_one(stage: Stage, fault: dict[str, Any], kafka: dict[str, Any], say: Callable[[str], None]) -> None:
    config = stage.write(fault, kafka=kafka)
    run(config, timeline(config), say, Event())


def test_a_window_has_its_four_instants(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    own_broker.create_topics({topic: 1})
    stage.add_worker("w0")
    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic}
    run_one(stage, {"kind": "process_pause", "target": "w0", "name": "halt", "for": "50ms"}, kafka, lambda _: None)
    window = read_back(tmp_path, own_broker, topic)
    assert (window.name, window.kind, window.target) == ("halt", "process_pause", "w0")
    assert window.injected_us is not None
    assert window.verified_us is not None
    assert window.heal_started_us is not None
    assert window.healed_us is not None
    assert window.injected_us < window.verified_us < window.heal_started_us < window.healed_us
    assert window.heal_started_us - window.verified_us >= 50_000
    with Journal.locked(stage.folder / "st") as journal:
        (entry,) = journal.entries.values()
        assert entry.is_published
        assert round(entry.states["healed"].timestamp() * 1e6) == window.healed_us


@pytest.mark.full
def test_each_fault_of_a_group_has_a_window_of_its_own(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    own_broker.create_topics({topic: 1})
    stage.add_worker("w0")
    stage.add_worker("w1")
    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic}
    later = {"kind": "process_kill", "target": "w1", "after": "100ms"}
    run_one(stage, {"together": [{"kind": "process_pause", "target": "w0"}, later]}, kafka, lambda _: None)
    pause, kill = sorted(windows_of(tmp_path, own_broker, topic, 2), key=lambda window: window.injected_us or 0)
    assert [(w.name, w.target) for w in (pause, kill)] == [("process-pause", "w0"), ("process-kill", "w1")]
    assert None not in (pause.verified_us, pause.heal_started_us, kill.verified_us, kill.heal_started_us)
    assert (kill.injected_us or 0) - (pause.injected_us or 0) >= 100_000
    assert (kill.heal_started_us or 0) < (pause.heal_started_us or 0)
    with Journal.locked(stage.folder / "st") as journal:
        assert [entry.is_published for entry in journal.entries.values()] == [True, True]


@pytest.mark.full
def test_the_window_of_a_paused_broker_is_published_when_it_answers(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    own_broker.create_topics({topic: 1})
    pid = own_broker.process.pid
    stage.targets["broker"] = {"type": "process", "pid": pid, "labels": {"role": "broker"}}
    states: list[str] = []

    def say(line: str) -> None:
        if line.startswith("failure:"):
            states.append(state_of(pid))

    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic}
    run_one(stage, {"kind": "process_pause", "target": "broker", "for": "200ms"}, kafka, say)
    assert states == ["T"]
    window = read_back(tmp_path, own_broker, topic)
    assert window.target == "broker"
    assert window.verified_us is not None
    assert window.heal_started_us is not None
    assert window.heal_started_us - window.verified_us >= 200_000


@pytest.mark.full
def test_an_absent_topic_is_refused_before_any_change(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str]
) -> None:
    stage.add_worker("w0")
    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic_names("nowhere")}
    with pytest.raises(FaultConfigError, match="leave kafka: out"):
        run_one(stage, {"kind": "process_pause", "target": "w0"}, kafka, lambda _: None)
    with Journal.locked(stage.folder / "st") as journal:
        assert journal.entries == {}


@pytest.mark.full
def test_heal_publishes_unpublished_windows(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    own_broker.create_topics({topic: 1})
    stage.add_worker("w0")
    config = stage.write({"kind": "process_pause", "target": "w0"})
    run(config, timeline(config), lambda _: None, Event())  # without a faults topic
    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic}
    later = stage.write({"kind": "process_pause", "target": "w0"}, kafka=kafka)
    assert later.kafka is not None
    with Journal.locked(stage.folder / "st") as journal:
        publish_missing(FaultsTopicWriter(later.kafka), journal)
        (entry,) = journal.entries.values()
    window = read_back(tmp_path, own_broker, topic)
    assert entry.is_published
    assert (window.id, window.healed_us) == (entry.fault.id, round(entry.states["healed"].timestamp() * 1e6))


@pytest.mark.full
def test_the_watchdog_publishes_the_window_of_a_killed_runner(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    own_broker.create_topics({topic: 1})
    stage.add_worker("w0")
    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic}
    stage.write({"kind": "process_pause", "target": "w0", "for": "600s"}, kafka=kafka)
    runner = subprocess.Popen([*STREAMPROOF, "run", stage.file], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert runner.stdout is not None
    assert any("failure:" in line for line in runner.stdout)
    runner.kill()
    runner.wait(WITHIN_SECONDS)
    window = read_back(tmp_path, own_broker, topic)
    assert window.verified_us is not None
    assert window.heal_started_us is not None
    assert window.verified_us < window.heal_started_us
    assert state_of(stage.pid("w0")) != "T"


# The last test of this file: the restarted broker is not a child of the fixture's process.
@pytest.mark.full
def test_a_killed_broker_is_started_again_and_its_window_published(
    stage: Stage, own_broker: EmbeddedBroker, topic_names: Callable[[str], str], tmp_path: Path
) -> None:
    topic = topic_names("faults")
    own_broker.create_topics({topic: 1})
    pid = own_broker.process.pid
    (stage.folder / "broker.pid").write_text(str(pid))
    command = subprocess.check_output(["ps", "-ww", "-o", "args=", "-p", str(pid)], text=True).split()
    stage.targets["broker"] = {
        "type": "process",
        "pid_file": "broker.pid",
        "start": command,
        "ready": own_broker.bootstrap_servers,
        "folder": str(own_broker.folder),
    }
    kafka = {"bootstrap_servers": own_broker.bootstrap_servers, "topic": topic}
    run_one(stage, {"kind": "process_kill", "target": "broker"}, kafka, lambda _: None)
    assert stage.pid("broker") != pid
    window = read_back(tmp_path, own_broker, topic)
    assert (window.kind, window.target) == ("process_kill", "broker")
    assert window.heal_started_us is not None
    assert window.healed_us is not None
    assert window.healed_us > window.heal_started_us
