"""A chaos day that the demo plans from a file or for one fault: the targets that the demo offers, and its refusals."""

from __future__ import annotations

import os
import re
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from faults.backends import faketime
from faults.catalogue import KINDS
from faults.errors import FaultError, FaultRefused
from faults.targets import FolderTarget, LocalProcess
from testbed import disk, node
from testbed.broker import EmbeddedBroker
from testbed.demo.files import missing_after_seconds, real_settings, write_sidecar
from testbed.demo.options import DemoPlan
from testbed.demo.scenario import Scenario
from testbed.demo.scenario_run import ScenarioRun
from testbed.demo.targets import ROLES, RunContext, instance_names, link_names, state_folder
from testbed.engines.base import ReferenceEngine
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.registry import REGISTRY
from testbed.engines.settings import EngineSettings
from tests.unit.demo_scenarios import LEADER, PLACES, WITHOUT_DISK, WORKER, in_file, planned
from validator.config.load import load


@pytest.mark.parametrize("engine", REGISTRY)
def test_the_targets_are_the_instances_of_the_engine(engine: str, tmp_path: Path) -> None:
    made = REGISTRY[engine].make(
        real_settings(
            DemoPlan(engine=engine, guarantee="at_least_once", workload=REGISTRY[engine].workload), "127.0.0.1:1"
        ),
        tmp_path,
    )
    if engine != "storm":  # Storm's worker exists only while its Supervisor runs; its roles are compared below
        assert tuple(i.role for i in made.instances) == ROLES[engine]
    assert made._roles == ROLES[engine]
    assert len(set(instance_names(engine))) == len(ROLES[engine])


DELAY = {"kind": "namespace_delay", "target": "flink-worker-0-node", "for": "4s", "parameters": {"delay": "1s"}}


@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
def test_a_worker_has_its_own_network_only_if_a_fault_needs_it(tmp_path: Path) -> None:
    kill = {"kind": "process_kill", "target": "flink-worker-0", "for": "4s"}
    with_delay = planned("flink", faults=in_file(tmp_path, DELAY)).scenario
    without = planned("flink", faults=in_file(tmp_path, kill)).scenario
    assert with_delay is not None
    assert without is not None
    assert (with_delay.needs_node, without.needs_node) == (True, False)
    network = node.NodeRelay(tmp_path).target("127.0.0.1:7")
    config, timeline = with_delay.bound(RunContext(Path("run"), "127.0.0.1:9092", (), network))
    (target,) = timeline.steps[0].fault.targets.values()
    assert target == config.targets["flink-worker-0-node"]
    assert "flink-worker-0-node" not in without.bound(PLACES)[0].targets


@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
def test_links_and_a_network_exclude_each_other(tmp_path: Path) -> None:
    slow = {"kind": "net_delay", "target": "flink-link", "for": "4s", "parameters": {"delay": "1s"}}
    with pytest.raises(FaultRefused, match="faults of links do not affect"):
        planned("flink", faults=in_file(tmp_path, DELAY, slow))


def test_a_variable_in_the_file_is_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = in_file(tmp_path, {"kind": "process_kill", "target": "${WHICH}", "for": "${HOW_LONG}"})
    monkeypatch.setenv("WHICH", "reference-worker-1")
    with pytest.raises(FaultError, match=r"day.yaml, line 4: schedule.faults.0..for: .* HOW_LONG is not set"):
        planned(faults=file)
    monkeypatch.setenv("HOW_LONG", "7s")
    scenario = planned(faults=file).scenario
    assert scenario is not None
    (step,) = scenario.timeline.steps
    assert (step.fault.target_names, step.lasts_seconds) == ("reference-worker-1", 7)


def test_faults_of_a_group_are_counted_one_by_one(tmp_path: Path) -> None:
    kills = [{"kind": "process_kill", "target": f"flink-worker-{number}"} for number in (0, 1)]
    plan = planned("flink", faults=in_file(tmp_path, {"together": kills, "for": "4s"}))
    assert "(2 faults, seed 1)" in plan.faults


def test_a_worker_may_be_kept_down_although_it_is_supervised(tmp_path: Path) -> None:
    kill = {"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "4s"}
    scenario = planned("kafka_streams", faults=in_file(tmp_path, kill, seed=3)).scenario
    assert scenario is not None
    config, timeline = scenario.bound(PLACES)
    (target,) = timeline.steps[0].fault.targets.values()
    assert isinstance(target, LocalProcess)
    assert (target.supervised, target.start, target.group) == (True, (), True)
    assert timeline.steps[0].lasts_seconds == 4
    assert timeline.seed == 3
    assert config.state == state_folder(PLACES.folder)


def test_an_engine_uses_links_only_if_a_fault_needs_one(tmp_path: Path) -> None:
    delay = {"kind": "net_delay", "target": "kafka_streams-worker-0-link", "parameters": {"delay": "1s"}}
    led = planned("kafka_streams", faults=in_file(tmp_path, delay)).scenario
    assert led is not None
    assert (
        led.link_names == link_names("kafka_streams") == ("kafka_streams-worker-0-link", "kafka_streams-worker-1-link")
    )
    direct = planned("kafka_streams", plan="pgval-crash", faster=10.0)
    assert direct.scenario is not None
    assert direct.scenario.link_names == ()
    assert direct.seconds == 28  # 275 s, ten times faster


@pytest.mark.full
def test_each_instance_uses_its_own_link(tmp_path: Path) -> None:
    engine = KafkaStreamsEngine(real_settings(DemoPlan(engine="kafka_streams"), "127.0.0.1:1"), tmp_path)
    engine.own_servers = ("127.0.0.1:2", "127.0.0.1:3")
    for number, server in enumerate(engine.own_servers):
        engine._command(number)
        properties = (tmp_path / f"kafka_streams-{number}.properties").read_text()
        assert f"bootstrap.servers={server}\n" in properties


def test_a_broker_sends_the_clients_of_a_link_back_to_it(tmp_path: Path) -> None:
    broker = EmbeddedBroker(folder=tmp_path, links=("127.0.0.1:20001",))
    broker._folder, broker._ports, broker._link_ports = tmp_path, (20002, 20003), (20004,)
    lines = dict(line.split("=", 1) for line in broker._server_properties().splitlines())
    assert lines["listeners"].endswith(",LINK0://127.0.0.1:20004")
    assert lines["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20002,LINK0://127.0.0.1:20001"


def is_here(name: str) -> bool:
    """Whether this host supports that kind of fault on the demo with the reference engine."""
    kind = KINDS[name]
    if name == "disk_slow" and kind.why_not_here is None:
        return Path("/sys/dev/block", disk_number(tempfile.gettempdir())).exists()
    if name == "clock_skew":
        return faketime.installed() is not None
    own = {"namespace": node.why_not_here, "disk_full": disk.why_not_here}
    return kind.why_not_here is None and all(own[of]() is None for of in (name, kind.target) if of in own)


def disk_number(folder: str) -> str:
    device = Path(folder).stat().st_dev
    return f"{os.major(device)}:{os.minor(device)}"


HERE = set(filter(is_here, KINDS))
FITTING = {"process", "broker", "sidecar", "topic", "link", "namespace", "machine", "folder"}


def is_of_the_demo(kind: str, engine: str) -> bool:
    target = KINDS[kind].target
    return target in FITTING and not (target == "folder" and engine in WITHOUT_DISK)


@pytest.mark.parametrize("engine", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_the_catalogue_is_a_scenario_of_one_fault_or_refused(engine: str, kind: str) -> None:
    # The clock of a real engine's JVM is skewed without libfaketime.
    is_possible = kind in HERE or (kind == "clock_skew" and engine in REGISTRY)
    if not is_of_the_demo(kind, engine) or not is_possible:
        with pytest.raises(FaultRefused, match=kind) as refused:
            planned(engine, fault=kind)
        assert refused.value.exit_status == 2
        return
    plan = planned(engine, fault=kind, seconds=60)
    assert plan.scenario is not None
    (step,) = plan.scenario.timeline.steps
    assert (step.wait_seconds, step.lasts_seconds, plan.scenario.timeline.recovery_seconds) == (20, 10, 30)
    assert (step.fault.kind, len(step.fault.targets), plan.seconds) == (kind, 1, 60)
    assert plan.scenario.bound(places(plan.scenario))[0].targets.keys() >= step.fault.targets.keys()


def places(scenario: Scenario) -> RunContext:
    links = tuple((f"127.0.0.1:{2 * n + 2}", f"127.0.0.1:{2 * n + 3}") for n, _ in enumerate(scenario.link_names))
    network = node.NodeRelay(Path("run")).target() if scenario.needs_node else None
    return RunContext(
        Path("run"), "127.0.0.1:9092", links, network, "127.0.0.1:9093" if scenario.has_two_brokers else None
    )


@pytest.mark.parametrize(
    ("engine", "kind", "target"),
    [
        ("flink", "net_partition", "flink-link"),
        ("kafka_streams", "net_reset", "kafka_streams-worker-0-link"),
        ("flink", "broker_kill", "broker"),
        ("reference", "transaction_hang", "click"),
        ("spark", "restart_loop", "spark-driver"),
        ("storm", "process_kill", "storm-supervisor"),
        ("storm", "restart_loop", "storm-worker-0"),
        ("mutant", "process_pause", "mutant-worker-0"),
        ("flink", "sidecar_restart", "sidecar"),
        ("reference", "leader_move", "click"),
        ("flink", "broker_demote", "broker"),
    ],
)
def test_the_target_of_one_fault_fits_its_kind(engine: str, kind: str, target: str) -> None:
    scenario = planned(engine, fault=kind).scenario
    assert scenario is not None
    assert scenario.timeline.steps[0].fault.target_names == target


@pytest.mark.skipif(faketime.installed() is None, reason="libfaketime is not installed")
def test_workers_have_their_own_clocks_only_if_a_fault_shifts_one(tmp_path: Path) -> None:
    moved, killed = planned(fault="clock_skew").scenario, planned(fault="process_kill").scenario
    assert moved is not None
    assert killed is not None
    assert (moved.needs_clocks, killed.needs_clocks) == (True, False)
    engine = ReferenceEngine(EngineSettings(bootstrap_servers="127.0.0.1:1"), tmp_path)
    ScenarioRun(moved, tmp_path, threading.Event(), print).assign_links_and_clocks(engine)
    files = [Path(clock.environment["FAKETIME_TIMESTAMP_FILE"]) for clock in engine.clocks.values()]
    assert [file.read_text() for file in files] == ["+0\n", "+0\n"]
    (target,) = moved.bound(replace(places(moved), folder=tmp_path))[1].steps[0].fault.targets.values()
    assert isinstance(target, LocalProcess)
    assert target.clock_file in files


def test_the_clocks_of_a_real_engine_are_its_jvms(tmp_path: Path) -> None:
    moved = planned("storm", fault="clock_skew").scenario
    assert moved is not None
    engine = REGISTRY["storm"].make(real_settings(DemoPlan(engine="storm", guarantee="at_least_once"), "x:1"), tmp_path)
    ScenarioRun(moved, tmp_path, threading.Event(), print).assign_links_and_clocks(engine)
    agents = [clock.environment["JAVA_TOOL_OPTIONS"] for clock in engine.clocks.values()]
    assert all(re.fullmatch(r"-javaagent:.*/ClockAgent-[0-9a-f]+\.jar=.*", agent) for agent in agents)
    worker, supervisor = (
        moved.bound(replace(places(moved), folder=tmp_path))[0].targets[f"storm-{name}"]
        for name in ("worker-0", "supervisor")
    )
    assert isinstance(worker, LocalProcess)
    assert isinstance(supervisor, LocalProcess)
    assert worker.clock_file == supervisor.clock_file, "the Supervisor starts the worker with what it was started with"
    assert any(agent.endswith(f"={worker.clock_file}") for agent in agents)


@pytest.mark.parametrize(
    ("fault", "are_two"),
    [
        (LEADER, True),
        ({"kind": "broker_demote", "target": "broker"}, True),
        ({"kind": "broker_kill", "target": "broker-2"}, True),
        ({"kind": "broker_kill", "target": "broker"}, False),
        ({"kind": "process_kill", "target": "reference-worker-0"}, False),
    ],
)
def test_there_is_a_second_broker_only_if_a_fault_needs_it(
    fault: dict[str, Any], are_two: bool, tmp_path: Path
) -> None:
    scenario = planned(faults=in_file(tmp_path, fault)).scenario
    assert scenario is not None
    assert scenario.has_two_brokers is are_two
    config, _ = scenario.bound(places(scenario))
    assert ("broker-2" in config.targets) is are_two


@pytest.mark.skipif(disk.why_not_here() is not None, reason=f"disks of their own: {disk.why_not_here()}")
def test_an_engine_has_its_own_disk_only_if_a_fault_fills_it() -> None:
    full, killed = planned("flink", fault="disk_full").scenario, planned("flink", fault="process_kill").scenario
    assert full is not None
    assert killed is not None
    assert (full.disk_folder, killed.disk_folder) == (Path("engine/checkpoints"), None)
    (target,) = full.bound(places(full))[1].steps[0].fault.targets.values()
    assert isinstance(target, FolderTarget)
    assert target.path.parts[-2:] == ("engine", "checkpoints")


@pytest.mark.parametrize("seconds", [24, 45, 59, 60, 90])
def test_a_control_phase_holds_two_rates_after_its_warm_up(seconds: int, tmp_path: Path) -> None:
    config = load(write_sidecar("127.0.0.1:1", planned("spark", fault="kill", seconds=seconds), tmp_path))
    measures = config.measures
    assert seconds / 2 * 1e6 - measures.warm_up_us >= 2 * measures.moving_rate_us + 1


def test_the_sidecar_waits_as_long_as_the_longest_fault(tmp_path: Path) -> None:
    pause = {"kind": "process_pause", "target": {"labels": {"role": "worker"}}, "for": "20s"}
    plan = planned(faults=in_file(tmp_path, pause))
    assert missing_after_seconds(plan) == missing_after_seconds(DemoPlan()) + 20
    config = load(write_sidecar("127.0.0.1:1", plan, tmp_path))
    assert config.timing.missing_after_us == 30_000_000
    # Spark starts its next batch once its clock has returned to the time before the skew.
    skew = {"kind": "clock_skew", "target": "spark-driver", "for": "20s", "parameters": {"offset": "-2m"}}
    jumps, before = planned("spark", faults=in_file(tmp_path, skew)), DemoPlan(engine="spark", guarantee="exactly_once")
    assert missing_after_seconds(jumps) == missing_after_seconds(before) + 20 + 120
    assert config.measures.moving_rate_us * 2 <= 9_000_000


@pytest.mark.parametrize(
    ("engine", "first", "second", "workers"),
    [
        ("reference", WORKER, WORKER, 3),
        ("flink", WORKER, WORKER, 3),
        ("flink", "flink-worker-0", WORKER, 3),
        ("flink", "flink-worker-2", WORKER, 3),
        ("flink", "flink-worker-0", "flink-worker-1", 2),
        ("flink", "flink-jobmanager", WORKER, 2),
        ("flink", {"pick": "leader"}, WORKER, 2),
    ],
)
def test_a_group_that_affects_two_workers_leaves_a_third(
    engine: str, first: Any, second: Any, workers: int, tmp_path: Path
) -> None:
    pause, kill = {"kind": "process_pause", "target": first}, {"kind": "process_kill", "target": second}
    for seed in range(5):
        scenario = planned(
            engine, faults=in_file(tmp_path, {"together": [pause, kill], "for": "4s"}, seed=seed)
        ).scenario
        assert scenario is not None
        assert scenario.workers == workers
        (step,) = scenario.timeline.steps
        assert len({name for _, fault in step.parts for name in fault.targets}) == 2
