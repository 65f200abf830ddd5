"""``streamproof demo --faults``: the real fault runner on the demo's engine, and the faults in the report."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed import disk, node
from testbed.engines.registry import REGISTRY
from tests.e2e.test_demo import SECONDS_MAX, Demo, assert_no_process_left, assert_nothing_left, demo, until
from validator.stream.jars import PrerequisiteError

WORKER = {"labels": {"role": "worker"}}
WATCHDOG_SECONDS_MAX = 60.0
DISK = {"bytes": disk.SIZE_BYTES, "reserve": 0}


def scenario(folder: Path, *faults: dict[str, Any], control: str, recovery: str) -> tuple[str, str]:
    """Return the arguments for a scenario with these faults."""
    file = folder / "day.yaml"
    schedule = {"control": control, "recovery": recovery, "faults": list(faults)}
    file.write_text(yaml.safe_dump({"seed": 7, "schedule": schedule}))
    return "--faults", str(file)


def ended(folder: Path, *arguments: str, statuses: tuple[int, ...] = (0,)) -> Demo:
    """Run the demo with these arguments until it ends by itself with one of ``statuses``; assert that nothing is
    left."""
    with demo(folder / "demo", *arguments) as running:
        assert running.process.wait(SECONDS_MAX) in statuses, running.said()
        assert_nothing_left(running)
    return running


def line_of(name: str, running: Demo) -> str:
    """Return the report's text about the fault ``name``, in one line."""
    said = " ".join(running.said().split())
    found = re.search(rf"{name} \((.*?)(?= [\w-]+ \(\w+_\w+ on | Phases )", said[said.index(" Faults ") :])
    assert found is not None, said
    return found[1]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_two_faults_of_a_file_are_injected_healed_and_reported(tmp_path: Path) -> None:
    # Exactly once, so that neither fault may cause violations.
    kill = {"kind": "process_kill", "target": WORKER, "for": "1s", "name": "kill-a-worker"}
    pause = {"kind": "process_pause", "target": "reference-worker-0", "for": "2s", "name": "pause-a-worker"}
    arguments = scenario(tmp_path, kill, pause, control="4s", recovery="4s")
    running = ended(tmp_path, "--engine", "reference:exactly_once", *arguments)
    assert re.search(r"FAULT failure: kill-a-worker on reference-worker-\d is active, for 1s", running.said())
    assert re.search(r"the supervisor starts reference-worker-\d again", running.said())
    assert "healed: pause-a-worker on reference-worker-0 has ended" in running.said()
    killed, paused = line_of("kill-a-worker", running), line_of("pause-a-worker", running)
    assert re.match(r"process_kill on reference-worker-\d\), from .* healed .* no violation after it", killed)
    assert re.match(r"process_pause on reference-worker-0\), from .* healed .* no violation after it", paused)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_named_plan_is_injected_healed_and_reported(tmp_path: Path) -> None:
    # 95 s of control, 90 of failure and 90 of recovery.
    arguments = ("--engine", "reference:exactly_once", "--plan", "pgval-crash", "--faster", "15")
    running = ended(tmp_path, *arguments)
    assert re.search(r"FAULT failure: pgval-crash on reference-worker-\d is active, for 6s", running.said())
    assert re.search(r"healed: pgval-crash on reference-worker-\d has ended", running.said())
    told_line = line_of("pgval-crash", running)
    assert re.match(r"process_kill on reference-worker-\d\), from .* healed .* no violation after it", told_line)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
@pytest.mark.parametrize(
    ("engine", "plan", "faster"),
    # Expectation: below the timeout, a delayed worker is slow; above it, the worker is replaced. Exactly once holds.
    [
        ("reference:exactly_once", "pgval-delay-below-timeout", "10"),
        ("flink:exactly_once", "pgval-delay-above-timeout", "6"),
    ],
)
def test_the_packets_of_one_worker_are_delayed_by_a_named_plan(
    tmp_path: Path, engine: str, plan: str, faster: str
) -> None:
    name, _, _ = engine.partition(":")
    if name in REGISTRY:
        skip_without(name)
    running = ended(tmp_path, "--engine", engine, "--plan", plan, "--faster", faster)
    assert f"FAULT failure: {plan} on {name}-worker-0-node is active" in running.said()
    assert f"healed: {plan} on {name}-worker-0-node has ended" in running.said()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_one_fault_of_the_catalogue_needs_no_file(tmp_path: Path) -> None:
    arguments = ("--engine", "reference:exactly_once", "--fault", "net_partition", "--seconds", "18")
    running = ended(tmp_path, *arguments)
    assert "FAULT failure: net-partition on reference-link is active, for 3s" in running.said()
    assert "no violation after it" in line_of("net-partition", running)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_leaders_move_to_a_second_broker_and_back(tmp_path: Path) -> None:
    arguments = ("--engine", "reference:exactly_once", "--fault", "leader_move", "--seconds", "15")
    running = ended(tmp_path, *arguments)
    assert "a second broker is at 127.0.0.1:" in running.said()
    assert "FAULT failure: leader-move on click is active" in running.said()
    assert "healed: leader-move on click has ended" in running.said()
    assert "no violation after it" in line_of("leader-move", running)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_each_of_two_brokers_is_killed_and_started_again(tmp_path: Path) -> None:
    kills = [{"kind": "broker_kill", "target": name, "name": f"kill-{name}"} for name in ("broker-2", "broker")]
    running = ended(
        tmp_path, "--engine", "reference:exactly_once", *scenario(tmp_path, *kills, control="6s", recovery="10s")
    )
    for name in ("broker-2", "broker"):
        assert f"the supervisor starts {name} again" in running.said()
        assert f"healed: kill-{name} on {name} has ended" in running.said()


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.skipif(disk.why_not_here() is not None, reason=f"disks of their own: {disk.why_not_here()}")
def test_a_full_disk_stops_the_results_of_flink_until_it_is_healed(tmp_path: Path) -> None:
    skip_without("flink")
    running = ended(tmp_path, "--engine", "flink", "--fault", "disk_full", "--seconds", "36")
    assert "FAULT failure: disk-full on flink-disk is active, for 6s" in running.said()
    told_line = line_of("disk-full", running)
    assert "no violation after it" in told_line
    stopped = re.search(r"stopped the output for ([\d.]+) s", told_line)
    # Without a checkpoint, Flink commits no transaction.
    assert stopped is not None, told_line
    assert float(stopped[1]) > 4
    assert not mounted_disks()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.skipif(disk.why_not_here() is not None, reason=f"disks of their own: {disk.why_not_here()}")
def test_a_demo_that_is_killed_during_a_full_disk_leaves_no_mount(tmp_path: Path) -> None:
    skip_without("kafka_streams")
    full = {"kind": "disk_full", "target": "kafka_streams-disk", "for": "10m", "parameters": DISK}
    arguments = ("--engine", "kafka_streams", *scenario(tmp_path, full, control="2s", recovery="2s"))
    with demo(tmp_path / "demo", *arguments) as running:
        running.await_line("FAULT failure: disk-full on kafka_streams-disk is active")
        assert not mounted_disks(), "nobody but the demo sees it"
        assert running.end(signal.SIGKILL) == -signal.SIGKILL
        # The watchdog heals, then waits a while for the broker, which is no longer running.
        until(lambda: not running.others(), WATCHDOG_SECONDS_MAX, running.others)
        assert_no_process_left(running)
        assert not list(running.folder.rglob(".streamproof-fault-*"))
    assert not mounted_disks()


def mounted_disks() -> list[str]:
    """Return the mounts of demos that processes outside the demo can see."""
    return [line for line in Path("/proc/mounts").read_text().splitlines() if line.startswith("streamproof-demo ")]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_plan_that_kills_two_workers_leaves_one_of_three(tmp_path: Path) -> None:
    # Ten kills, each 300 s after the start of the previous one.
    arguments = ("--engine", "reference:exactly_once", "--plan", "vogel-kill-2", "--faster", "30")
    running = ended(tmp_path, *arguments)
    assert re.search(r"FAULT failure: vogel-kill-2-10 on reference-worker-\d,reference-worker-\d", running.said())


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_demo_that_is_interrupted_during_a_fault_heals_it_and_leaves_nothing(tmp_path: Path) -> None:
    partition = {"kind": "net_partition", "target": "reference-link", "for": "10m"}
    with demo(tmp_path / "demo", *scenario(tmp_path, partition, control="2s", recovery="2s")) as running:
        running.await_line("FAULT failure: net-partition on reference-link is active")
        assert running.end(signal.SIGINT) == 130, running.said()
        assert "healed: net-partition on reference-link has ended" in running.said()
        assert_nothing_left(running)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_killed_broker_is_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    kill = {"kind": "broker_kill", "target": "broker"}
    arguments = scenario(tmp_path, kill, control="6s", recovery="10s")
    running = ended(tmp_path, "--engine", "reference:exactly_once", *arguments)
    assert "the supervisor starts broker again" in running.said()
    assert "no violation after it" in line_of("broker-kill", running)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_kafka_streams_survives_a_killed_worker_and_then_a_slow_link(tmp_path: Path) -> None:
    skip_without("kafka_streams")
    kill = {"kind": "process_kill", "target": WORKER, "for": "3s"}
    delay = {
        "kind": "net_delay",
        "target": "kafka_streams-worker-0-link",
        "for": "8s",
        "parameters": {"delay": "500ms"},
    }
    arguments = scenario(tmp_path, kill, delay, control="10s", recovery="20s")
    running = ended(tmp_path, "--engine", "kafka_streams", *arguments)
    assert "no violation after it" in line_of("process-kill", running)
    assert "no violation after it" in line_of("net-delay", running)
    slow = re.search(r"failure \(net-delay\).*?from window close at most ([\d.]+) s", " ".join(running.said().split()))
    assert slow is not None, running.said()
    # Worker 0 produces and commits its results through the slow link.
    assert float(slow[1]) > 0.5


@pytest.mark.full
@pytest.mark.timeout(900)
def test_spark_pauses_for_as_long_as_its_clock_steps_back(tmp_path: Path) -> None:
    """Expectation: Spark waits for the time of day of its next batch, and loses nothing."""
    skew = {"kind": "clock_skew", "target": "spark-driver", "for": "10s", "parameters": {"offset": "30s"}}
    running = ended(tmp_path, "--engine", "spark", *scenario(tmp_path, skew, control="15s", recovery="40s"))
    told_line = line_of("clock-skew", running)
    assert "no violation after it" in told_line
    stopped = re.search(r"stopped the output for ([\d.]+) s", told_line)
    assert stopped is not None, told_line
    assert 15 < float(stopped[1]) < 60, told_line


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("engine", "fault"), [*((engine, "kill") for engine in REGISTRY), ("flink", "pause"), ("kafka_streams", "none")]
)
def test_every_engine_and_every_fault_of_the_demo(tmp_path: Path, engine: str, fault: str) -> None:
    skip_without(engine)
    # Without a kill there are no violations. After a kill, these engines repeat the results since their last commit.
    statuses = (0, 1) if fault == "kill" and engine in ("spark", "spark_dstreams", "storm") else (0,)
    running = ended(tmp_path, "--engine", engine, "--fault", fault, "--seconds", "24", statuses=statuses)
    said = " ".join(running.said().split())
    assert re.search(r"at_least_once +pass", said), said
    assert ("process_" in said) is (fault != "none")


def skip_without(engine: str) -> None:
    try:
        REGISTRY[engine].require()
    except PrerequisiteError as error:
        pytest.skip(str(error))
