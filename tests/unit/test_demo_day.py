"""A chaos day before it runs: what the demo gives to break, what it refuses, and whom its supervisor keeps down."""

from __future__ import annotations

import subprocess
import sys
import threading
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from faults.catalogue import KINDS
from faults.config import PlanName
from faults.errors import FaultError, FaultRefused, NotHealed
from faults.facts import Facts
from faults.fault import Fault
from faults.journal import Journal
from faults.parameters import DelayParameters, NamespaceDelayParameters
from faults.targets import LocalProcess
from testbed import demo_engine, node
from testbed.broker import EmbeddedBroker
from testbed.demo_chaos import ChaosDay
from testbed.demo_day import Day
from testbed.demo_files import missing_after_seconds, real_settings, topics, write_sidecar
from testbed.demo_memory import taken_by
from testbed.demo_options import DemoPlan, DemoRefused, plan_of
from testbed.demo_supervisor import Charge, Supervisor
from testbed.demo_targets import ROLES, Places, instance_names, link_names, node_name, pid_file, state_folder
from testbed.engines.catalogue import CATALOGUE
from testbed.engines.kafka_streams import KafkaStreamsEngine
from testbed.engines.storm import StormEngine
from validator.config.load import load

PLACES = Places(Path("run"), "127.0.0.1:9092", ())


def planned(engine: str = "reference", **given: Any) -> DemoPlan:
    unsaid = dict.fromkeys(("fault", "faults", "plan", "faster", "seconds", "workload"))
    return plan_of(Namespace(**{**unsaid, "engine": engine, "seed": 1, "open": False, **given}))


def in_file(folder: Path, *faults: dict[str, Any], **more: Any) -> str:
    file = folder / "day.yaml"
    file.write_text(yaml.safe_dump({"schedule": {"control": "9s", "recovery": "6s", "faults": list(faults)}, **more}))
    return str(file)


@pytest.mark.parametrize("engine", CATALOGUE)
def test_the_targets_are_the_instances_of_the_engine(engine: str, tmp_path: Path) -> None:
    made = CATALOGUE[engine].make(
        real_settings(DemoPlan(engine=engine, guarantee="at_least_once"), "127.0.0.1:1"), tmp_path
    )
    if engine != "storm":  # whose worker is found only while its Supervisor runs; the roles are what counts
        assert tuple(i.role for i in made.instances) == ROLES[engine]
    assert made._roles == ROLES[engine]
    assert len(set(instance_names(engine))) == len(ROLES[engine])


DELAY = {"kind": "namespace_delay", "target": "flink-worker-0-node", "for": "4s", "parameters": {"delay": "1s"}}


@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
def test_a_worker_has_a_network_of_its_own_only_where_a_fault_hits_it(tmp_path: Path) -> None:
    kill = {"kind": "process_kill", "target": "flink-worker-0", "for": "4s"}
    with_delay = planned("flink", faults=in_file(tmp_path, DELAY)).day
    without = planned("flink", faults=in_file(tmp_path, kill)).day
    assert with_delay is not None
    assert without is not None
    assert (with_delay.needs_node, without.needs_node) == (True, False)
    network = node.NodeRelay(tmp_path).target("127.0.0.1:7")
    config, timeline = with_delay.bound(Places(Path("run"), "127.0.0.1:9092", (), network))
    (target,) = timeline.steps[0].fault.targets.values()
    assert target == config.targets["flink-worker-0-node"]
    assert "flink-worker-0-node" not in without.bound(PLACES)[0].targets


@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
def test_links_and_a_network_are_not_for_one_day(tmp_path: Path) -> None:
    slow = {"kind": "net_delay", "target": "flink-link", "for": "4s", "parameters": {"delay": "1s"}}
    with pytest.raises(FaultRefused, match="reaches the broker past the links"):
        planned("flink", faults=in_file(tmp_path, DELAY, slow))


def test_a_variable_in_the_file_is_taken_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = in_file(tmp_path, {"kind": "process_kill", "target": "${WHICH}", "for": "${HOW_LONG}"})
    monkeypatch.setenv("WHICH", "reference-worker-1")
    with pytest.raises(FaultError, match=r"day.yaml: the environment has no HOW_LONG, which \$\{HOW_LONG\} refers to"):
        planned(faults=file)
    monkeypatch.setenv("HOW_LONG", "7s")
    day = planned(faults=file).day
    assert day is not None
    (step,) = day.timeline.steps
    assert (step.fault.target_names, step.lasts_seconds) == ("reference-worker-1", 7)


def test_a_worker_may_be_kept_down_although_it_is_supervised(tmp_path: Path) -> None:
    kill = {"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "4s"}
    day = planned("kafka_streams", faults=in_file(tmp_path, kill, seed=3)).day
    assert day is not None
    config, timeline = day.bound(PLACES)
    (target,) = timeline.steps[0].fault.targets.values()
    assert isinstance(target, LocalProcess)
    assert (target.supervised, target.start, target.group) == (True, (), True)
    assert timeline.steps[0].lasts_seconds == 4
    assert timeline.seed == 3
    assert config.state == state_folder(PLACES.folder)


def test_an_engine_is_led_through_links_only_where_one_is_hit(tmp_path: Path) -> None:
    delay = {"kind": "net_delay", "target": "kafka_streams-worker-0-link", "parameters": {"delay": "1s"}}
    led = planned("kafka_streams", faults=in_file(tmp_path, delay)).day
    assert led is not None
    assert (
        led.link_names == link_names("kafka_streams") == ("kafka_streams-worker-0-link", "kafka_streams-worker-1-link")
    )
    direct = planned("kafka_streams", plan="pgval-crash", faster=10.0)
    assert direct.day is not None
    assert direct.day.link_names == ()
    assert direct.seconds == 28  # 275 s, ten times faster


DELAYS = ("pgval-delay-below-timeout", "pgval-delay-above-timeout")


@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
@pytest.mark.parametrize("name", DELAYS)
@pytest.mark.parametrize("engine", ROLES)
def test_a_delay_of_pgval_is_of_the_packets_of_one_worker(engine: str, name: str) -> None:
    plan = planned(engine, plan=name)
    assert plan.day is not None
    (step,) = plan.day.timeline.steps
    assert (step.fault.kind, step.fault.target_names) == ("namespace_delay", node_name(engine))
    assert (plan.day.needs_node, plan.day.link_names) == (True, ())


def test_without_root_a_delay_of_pgval_is_of_a_workers_own_link_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "why_not_here", lambda: "this needs root")
    day = planned("kafka_streams", plan=DELAYS[0]).day
    assert day is not None
    assert day.timeline.steps[0].fault.target_names in link_names("kafka_streams")
    for engine in ("reference", "flink", "spark", "storm"):
        with pytest.raises(FaultRefused, match=rf"one worker of {engine}, and this host cannot \(this needs root\)"):
            planned(engine, plan=DELAYS[0])


def test_the_delays_of_pgval_are_below_and_above_the_timeout_of_the_day() -> None:
    parameters = {}
    for engine in ("kafka_streams", "flink", "storm") if node.why_not_here() is None else ("kafka_streams",):
        for name in DELAYS:
            plan = planned(engine, plan=name)
            assert plan.day is not None
            given = plan.day.timeline.steps[0].fault.parameters
            assert isinstance(given, DelayParameters | NamespaceDelayParameters)
            parameters[name] = given.delay
            times = real_settings(plan, "127.0.0.1:1").timeouts
            assert (times.session_timeout_seconds, times.heartbeat_interval_seconds) == (3, 1)
        assert parameters[DELAYS[0]] < times.session_timeout_seconds < parameters[DELAYS[1]]
    assert real_settings(planned("flink", plan="pgval-crash"), "127.0.0.1:1").timeouts.session_timeout_seconds == 6


def test_each_instance_is_led_to_its_own_link(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("fault", "more", "sentence"),
    [
        ({"kind": "process_kill"}, {"targets": {}}, "targets: the demo gives its own; leave it out"),
        ({"kind": "container_kill", "target": "web"}, {}, "container_kill needs a target of type container"),
        ({"kind": "process_kill", "target": "web"}, {}, "the demo with reference has no target web; use one of refer"),
        ({"kind": "process_kill", "target": {"pick": 3}}, {}, "it would hit all replicas"),
        ({"kind": "clock_jump"}, {}, "clock_jump is not built"),
        ({"kind": "clock_skew", "parameters": {"offset": "1m"}}, {}, "the demo starts none so; take another kind"),
    ],
)
def test_what_the_demo_cannot_give_is_refused(
    tmp_path: Path, fault: dict[str, Any], more: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FaultError, match=sentence) as refused:
        planned(faults=in_file(tmp_path, fault, **more))
    assert refused.value.exit_status == 2


HERE = {
    name
    for name, kind in KINDS.items()
    if kind.why_not_here is None and (kind.target != "namespace" or node.why_not_here() is None)
}
NOT_OF_THE_DEMO = {"clock_skew", "broker_demote", "leader_move"}
FITTING = {"process", "broker", "sidecar", "topic", "link", "namespace", "machine"}


@pytest.mark.parametrize("engine", ROLES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_the_catalogue_is_a_day_of_one_fault_or_refused_in_one_sentence(engine: str, kind: str) -> None:
    if KINDS[kind].target not in FITTING or kind in NOT_OF_THE_DEMO or kind not in HERE:
        with pytest.raises(FaultRefused, match=kind) as refused:
            planned(engine, fault=kind)
        assert refused.value.exit_status == 2
        return
    plan = planned(engine, fault=kind, seconds=60)
    assert plan.day is not None
    (step,) = plan.day.timeline.steps
    assert (step.wait_seconds, step.lasts_seconds, plan.day.timeline.recovery_seconds) == (20, 10, 30)
    assert (step.fault.kind, len(step.fault.targets), plan.seconds) == (kind, 1, 60)
    assert plan.day.bound(places(plan.day))[0].targets.keys() >= step.fault.targets.keys()


def places(day: Day) -> Places:
    links = tuple((f"127.0.0.1:{2 * n + 2}", f"127.0.0.1:{2 * n + 3}") for n, _ in enumerate(day.link_names))
    network = node.NodeRelay(Path("run")).target() if day.needs_node else None
    return Places(Path("run"), "127.0.0.1:9092", links, network)


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
    ],
)
def test_the_target_of_one_fault_is_what_fits_its_kind(engine: str, kind: str, target: str) -> None:
    day = planned(engine, fault=kind).day
    assert day is not None
    assert day.timeline.steps[0].fault.target_names == target


def test_what_is_no_fault_of_the_demo_is_told_where_faults_are() -> None:
    with pytest.raises(FaultRefused, match=r"use kill, pause, none or a kind that `streamproof faults list` shows, .*"
                       r"--faults FILE and --plan NAME have several\."):  # fmt: skip
        planned(fault="earthquake")
    with pytest.raises(FaultRefused, match="--fault net_loss is not built: a link is a proxy of bytes"):
        planned(fault="net_loss")
    with pytest.raises(DemoRefused, match="--seconds 3 is too short"):
        planned(fault="net_delay", seconds=3)


TOO_MANY = {"vogel-kill-4"}
"""Plans for more workers than the demo has."""
SEVERAL = {"vogel-kill-2", "vogel-kill-4", "vogel-crash-2"}
"""Plans for more than one."""


@pytest.mark.parametrize(
    ("engine", "refused"),
    [
        ("reference", {*TOO_MANY, "ospbench-master"}),  # none of its workers leads
        ("kafka_streams", {*TOO_MANY, "ospbench-master"}),
        ("flink", TOO_MANY),
        ("spark", SEVERAL),
        ("storm", SEVERAL),
    ],
)
def test_each_named_plan_is_planned_or_refused(engine: str, refused: set[str]) -> None:
    found = set()
    for name in get_args(PlanName):
        try:
            day = planned(engine, plan=name).day
        except FaultRefused:
            found.add(name)
        else:
            assert day is not None
            assert {step.fault.plan for step in day.timeline.steps} == {name}
    assert found == refused


@pytest.mark.parametrize("plan", ["vogel-kill-2", "vogel-crash-2"])
@pytest.mark.parametrize("engine", ["reference", "kafka_streams", "flink"])
def test_a_plan_that_hits_two_workers_leaves_a_third(engine: str, plan: str, tmp_path: Path) -> None:
    asked = planned(engine, plan=plan)
    assert asked.day is not None
    assert asked.day.instance_names[:3] == tuple(f"{engine}-worker-{number}" for number in range(3))
    for step in asked.day.timeline.steps:
        assert len(step.fault.targets) == 2
        assert set(step.fault.targets) < set(asked.day.instance_names[:3])
    config, _ = asked.day.bound(PLACES)
    assert set(asked.day.instance_names) <= set(config.targets)
    assert topics(asked) == {"click": 3, "output": 3, "lateOutput": 1, "faults": 1}, "one partition for each of them"
    made = demo_engine.make(asked, "127.0.0.1:1", tmp_path) if engine == "reference" else None
    assert made is None or len(made.instances) == 3
    if engine in CATALOGUE:
        assert real_settings(asked, "127.0.0.1:1").parallelism == 3


def test_a_plan_that_hits_one_worker_has_two_of_them() -> None:
    asked = planned("flink", plan="vogel-kill-1")
    assert asked.day is not None
    assert asked.day.instance_names == instance_names("flink")
    assert topics(asked)["click"] == 2


@pytest.mark.parametrize(("engine", "most"), [("flink", 3), ("storm", 1), ("spark", 1), ("mutant", 1)])
def test_a_plan_that_hits_more_workers_than_there_are_is_refused_in_one_sentence(engine: str, most: int) -> None:
    with pytest.raises(
        FaultRefused, match=f"--plan vogel-kill-4 hits 4 workers at once, and the demo has {most} of {engine}"
    ):
        planned(engine, plan="vogel-kill-4")


@pytest.mark.parametrize("plan", ["pgval-crash", "streambench-node"])
def test_a_worker_of_storm_is_kept_down_with_its_supervisor(plan: str) -> None:
    day = planned("storm", plan=plan).day
    assert day is not None
    _, timeline = day.bound(PLACES)
    (step,) = timeline.steps
    (target,) = step.fault.targets.values()
    assert isinstance(target, LocalProcess)
    assert (step.fault.target_names, target.group) == ("storm-supervisor", True), "whose group the worker is in"
    assert step.lasts_seconds > 0


def test_a_worker_of_storm_that_ended_by_any_hand_must_say_anew_that_it_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = StormEngine(real_settings(planned("storm:at_least_once", plan="vogel-kill-1"), "127.0.0.1:1"), tmp_path)
    monkeypatch.setattr(engine, "_submitter", object())
    monkeypatch.setattr(engine, "_worker", lambda: worker)
    log = tmp_path / "storm-0.log"
    log.write_text("spout ready\n")
    worker: int | None = 41
    engine.restart(0)
    assert engine._is_ready(0)
    worker = None
    engine.restart(0)
    worker = 42
    assert not engine._is_ready(0)
    log.write_text("spout ready\nspout ready\n")
    assert engine._is_ready(0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"plan": "pgval-crash", "fault": "kill"}, "--fault does not go with --faults or --plan"),
        ({"plan": "pgval-crash", "seconds": 30}, "--seconds does not go with --faults or --plan"),
        ({"plan": "pgval-crash", "faults": "day.yaml"}, "--plan and --faster do not go with --faults"),
        ({"faster": 2.0}, "--faster shortens a plan"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DemoRefused, match=sentence):
        planned(**given)


def test_the_sidecar_waits_as_long_as_the_longest_fault(tmp_path: Path) -> None:
    pause = {"kind": "process_pause", "target": {"labels": {"role": "worker"}}, "for": "20s"}
    plan = planned(faults=in_file(tmp_path, pause))
    assert missing_after_seconds(plan) == missing_after_seconds(DemoPlan()) + 20
    config = load(write_sidecar("127.0.0.1:1", plan, tmp_path))
    assert config.timing.missing_after == 30_000_000
    assert config.measures.moving_rate * 2 <= 9_000_000


@pytest.mark.parametrize(("kind", "kept"), [("process_kill", True), ("restart_loop", False)])
def test_what_a_fault_keeps_down_comes_back_when_healing_begins(tmp_path: Path, kind: str, *, kept: bool) -> None:
    restarted: list[str] = []
    pids: list[int | None] = [41]
    file = pid_file(tmp_path, "w")
    charge = Charge("w", lambda: pids[0], lambda: restarted.append("w"), lambda: True, file)
    supervisor = Supervisor([charge], tmp_path / "st", lambda _: None)
    file.parent.mkdir()
    supervisor.look()
    assert file.read_text() == "41\n"
    target = {"type": "process", "pid_file": str(file), "supervised": True}
    parameters = {"interval": "1s"} if kind == "restart_loop" else {}
    fault = {
        "id": "1",
        "name": "f",
        "kind": kind,
        "targets": {"w": target},
        "parameters": parameters,
        "plan": "",
        "seed": 0,
    }
    with Journal.locked(tmp_path / "st") as journal:
        entry = journal.begin(Fault.model_validate(fault), Facts())
        journal.reach(entry, "injected")
        pids[0] = None
        supervisor.look()
        assert not file.exists()
        assert restarted == ([] if kept else ["w"])
        journal.reach(entry, "heal_started")
        supervisor.look()
        assert restarted[-1:] == ["w"]


def test_a_process_is_written_down_again_only_when_it_does_its_part(tmp_path: Path) -> None:
    ready: list[bool] = []
    file = pid_file(tmp_path, "w")
    file.parent.mkdir()
    supervisor = Supervisor(
        [Charge("w", lambda: 41, lambda: None, lambda: bool(ready), file)], tmp_path, lambda _: None
    )
    supervisor.look()
    assert not file.exists()
    assert not supervisor.all_ready
    ready.append(True)
    supervisor.look()
    assert file.read_text() == "41\n"
    assert supervisor.all_ready


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_is_that_of_all_that_descend() -> None:
    code = "import subprocess, sys; b = bytearray(40 << 20); b[::4096] = b'1' * len(b[::4096]);"
    inner = code + "print('up', flush=True); sys.stdin.read()"
    outer = code + f"subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        taken = taken_by(child.pid)
    assert taken.processes == 2
    assert 80 << 20 <= taken.bytes < 200 << 20


@pytest.mark.parametrize("has_failed_before", [False, True])
def test_a_healing_that_failed_after_an_interruption_is_said_once(tmp_path: Path, has_failed_before: bool) -> None:
    day = planned(faults=in_file(tmp_path, {"kind": "process_kill", "target": "reference-worker-0", "for": "4s"})).day
    assert day is not None
    stop, said = threading.Event(), list[str]()
    chaos = ChaosDay(day, tmp_path, stop, said.append)

    def run() -> None:
        stop.wait()
        raise NotHealed("kill on w0 is not healed: no probe showed it.")

    with ThreadPoolExecutor(1) as pool:
        chaos._running = pool.submit(run)
        if has_failed_before:
            stop.set()
            wait([chaos._running])
        chaos.end()
        chaos.end()
    assert said[-1] == "the faults ended with an error: kill on w0 is not healed: no probe showed it."
    assert said[:-1] == ([] if has_failed_before else ["healing what is broken"])
