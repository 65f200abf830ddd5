"""A chaos day of a file or of one fault before it runs: what the demo gives to break, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from faults.catalogue import KINDS
from faults.errors import FaultError, FaultRefused
from faults.targets import LocalProcess
from testbed import node
from testbed.broker import EmbeddedBroker
from testbed.demo_day import Day
from testbed.demo_files import missing_after_seconds, real_settings, write_sidecar
from testbed.demo_options import DemoPlan, DemoRefused
from testbed.demo_targets import ROLES, Places, instance_names, link_names, state_folder
from testbed.engines.catalogue import CATALOGUE
from testbed.engines.kafka_streams import KafkaStreamsEngine
from tests.unit.demo_days import PLACES, in_file, planned
from validator.config.load import load


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
        (
            {"kind": "process_kill", "target": {"pick": 3}},
            {},
            "it hits 3 workers at once; 4 would do, of which one is left, and the demo has 3 of reference at most",
        ),
        ({"kind": "process_kill", "target": {"pick": "100%"}}, {}, "it would hit all replicas"),
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


WORKER = {"labels": {"role": "worker"}}


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
def test_a_group_that_hits_two_workers_leaves_a_third(
    engine: str, first: Any, second: Any, workers: int, tmp_path: Path
) -> None:
    pause, kill = {"kind": "process_pause", "target": first}, {"kind": "process_kill", "target": second}
    for seed in range(5):
        day = planned(engine, faults=in_file(tmp_path, {"together": [pause, kill], "for": "4s"}, seed=seed)).day
        assert day is not None
        assert day.workers == workers
        (step,) = day.timeline.steps
        assert len({name for _, fault in step.parts for name in fault.targets}) == 2


@pytest.mark.parametrize(("engine", "pick", "hit", "most"), [("flink", 2, 3, 3), ("storm", "one", 2, 1)])
def test_a_group_that_leaves_no_worker_is_refused_with_the_number_that_would_do(
    engine: str, pick: int | str, hit: int, most: int, tmp_path: Path
) -> None:
    pause = {"kind": "process_pause", "target": {**WORKER, "pick": pick}}
    group = {"together": [pause, {"kind": "process_kill", "target": WORKER}], "for": "4s"}
    with pytest.raises(
        FaultRefused, match=f"it hits {hit} workers at once; {hit + 1} would do, .* demo has {most} of {engine} at most"
    ):
        planned(engine, faults=in_file(tmp_path, group))
