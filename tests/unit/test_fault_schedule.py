"""The timeline that a seed gives, and what it never does."""

from __future__ import annotations

from itertools import count
from typing import Any, get_args

import pytest

from faults.catalogue import KINDS
from faults.config import FaultConfig, PlanName, parse
from faults.errors import FaultRefused
from faults.fault import Timeline
from faults.parameters import DelayParameters, NamespaceDelayParameters, PodParameters, PoisonParameters
from faults.runner import paced
from faults.schedule import timeline

KILL = {"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "10s"}


def worker(number: int, **more: Any) -> dict[str, Any]:
    return {
        "type": "process",
        "pid_file": f"{number}.pid",
        "start": ["sleep", "9"],
        "host": f"node-{number // 2}",
        "labels": {"role": "worker"},
        **more,
    }


WORKERS = {f"w{number}": worker(number, leader=number == 3, input=number == 0) for number in range(6)}
LINKS = {
    f"link{number}": {"type": "link", "listen": f"127.0.0.1:{19092 + number}", "upstream": "127.0.0.1:9092"}
    for number in range(2)
} | {
    f"topic{number}": {"type": "topic", "bootstrap_servers": "127.0.0.1:9092", "topic": f"in{number}"}
    for number in range(2)
}


def configured(schedule: dict[str, Any] | None = None, **more: Any) -> FaultConfig:
    return parse({"targets": WORKERS | LINKS, "schedule": schedule} | more)


def planned(config: FaultConfig, seed: int = 1) -> Timeline:
    numbers = count()
    return timeline(config, seed, lambda: str(next(numbers)))


def hit(target: dict[str, Any], kind: str = "process_kill", **more: Any) -> list[str]:
    made = planned(configured({"faults": [{"kind": kind, "target": target}]}, **more))
    return list(made.steps[0].fault.targets)


def test_one_seed_gives_one_timeline() -> None:
    config = configured({"control": "5s", "recovery": "5s", "repeat": 20, "faults": [KILL]})
    assert planned(config, 7) == planned(config, 7)
    targets = [step.fault.target_names for step in planned(config, 7).steps]
    assert targets != [step.fault.target_names for step in planned(config, 8).steps]
    assert len(set(targets)) > 1


def test_each_fault_of_each_cycle_has_its_control_and_recovery() -> None:
    made = planned(
        configured({"warm_up": "3s", "control": "5s", "recovery": "7s", "repeat": 2, "faults": [KILL, KILL]})
    )
    assert [step.wait_seconds for step in made.steps] == [8, 12, 12, 12]
    assert made.recovery_seconds == 7
    assert made.seconds == 3 + 4 * (5 + 10 + 7)


@pytest.mark.parametrize(("pick", "expected"), [("one", 1), (3, 3), ("50%", 3), ("1%", 1), ("51%", 4), ("all", 6)])
def test_pick_says_how_many(pick: str | int, expected: int) -> None:
    assert len(hit({"labels": {"role": "worker"}, "pick": pick})) == expected


def test_the_leader_is_the_one_that_the_file_declares() -> None:
    assert hit({"labels": {"role": "worker"}, "pick": "leader"}) == ["w3"]


def test_a_node_loss_takes_all_processes_of_the_host() -> None:
    assert hit({"name": "w4"}, "node_loss") == ["w4", "w5"]
    assert len(hit({"labels": {"role": "worker"}, "pick": 2}, "node_loss")) == 4


@pytest.mark.parametrize(
    ("kind", "target", "words"),
    [
        ("process_kill", {"pick": 6}, "would hit all replicas"),
        ("process_kill", {"pick": "100%"}, "would hit all replicas"),
        ("node_loss", {"pick": 3}, "would hit all replicas"),
        ("process_kill", {"pick": 7}, "more than the 6 targets"),
        ("node_loss", {"pick": 4}, "more than the 3 hosts"),
        ("process_kill", {"labels": {"role": "driver"}}, "no process target with role: driver"),
        ("process_kill", {"name": "link0"}, "no process target named link0"),
    ],
)
def test_more_than_was_asked_for_is_refused(kind: str, target: dict[str, Any], words: str) -> None:
    with pytest.raises(FaultRefused, match=words):
        hit(target, kind)


ON_TWO_HOSTS = {
    "w0": worker(0, host="a"),
    "w1": worker(1, host="b"),
    "b0": {"type": "broker", "address": "127.0.0.1:9092", "pid_file": "b0.pid", "supervised": True, "host": "a"},
    "s0": {"type": "sidecar", "state": "s", "supervised": True, "host": "b"},
}


def lost(seed: int, target: Any, targets: dict[str, Any]) -> list[str] | str:
    schedule = {"faults": [{"kind": "node_loss", "target": target}]}
    try:
        return list(planned(parse({"targets": targets, "schedule": schedule}), seed).steps[0].fault.targets)
    except FaultRefused as refused:
        return str(refused)


def test_a_lost_node_takes_no_only_replica_of_another_kind_with_it() -> None:
    said = [lost(seed, {"labels": {"role": "worker"}}, ON_TWO_HOSTS) for seed in range(20)]
    refusal = "node_loss: it would hit all replicas ({}); write pick: all, or a name, if you mean it."
    assert {str(line) for line in said} == {refusal.format("b0"), refusal.format("s0")}
    assert lost(0, {"pick": "all"}, ON_TWO_HOSTS) == refusal.format("b0"), "all are those that the selector matches"
    assert lost(0, "w0", ON_TWO_HOSTS) == ["w0", "b0"], "a name is the whole host"


def test_a_lost_node_may_take_one_of_several_replicas_of_another_kind() -> None:
    brokers = {
        f"b{host}": {**ON_TWO_HOSTS["b0"], "pid_file": f"b{host}.pid", "host": host, "labels": {"role": "broker"}}
        for host in "ab"
    }
    targets = {"w0": ON_TWO_HOSTS["w0"], "w1": ON_TWO_HOSTS["w1"], **brokers}
    assert {tuple(lost(seed, {"labels": {"role": "worker"}}, targets)) for seed in range(20)} == {
        ("w0", "ba"),
        ("w1", "bb"),
    }


@pytest.mark.parametrize(
    ("pods", "most", "words"),
    [
        (3, 2, "it would hit 3 targets, and limits.targets_at_once is 2"),
        ("all", 9, "only the cluster knows how many pods all are"),
        ("50%", 9, "only the cluster knows how many pods 50% are"),
        (2, 2, None),
        ("one", 1, None),
    ],
)
def test_pods_count_for_the_limit(pods: str | int, most: int, words: str | None) -> None:
    targets = {"workers": {"type": "pods", "namespace": "shop", "match": {"app": "worker"}}}
    schedule = {"faults": [{"kind": "pod_kill", "target": "workers", "parameters": {"pods": pods}}]}
    config = parse({"targets": targets, "schedule": schedule, "limits": {"targets_at_once": most}})
    if words is None:
        assert list(planned(config).steps[0].fault.targets) == ["workers"]
        return
    with pytest.raises(FaultRefused, match=words):
        planned(config)


def test_a_limit_holds_also_for_all() -> None:
    with pytest.raises(FaultRefused, match="targets_at_once is 2"):
        hit({"pick": "all"}, limits={"targets_at_once": 2})


def test_the_only_replica_is_hit_by_name_only() -> None:
    config = parse({"targets": {"w": worker(0)}, "schedule": {"faults": [{"kind": "process_kill"}]}})
    with pytest.raises(FaultRefused, match="all replicas"):
        planned(config)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"type": "process", "pid": 5}, "nothing could bring w back"),
        ({"type": "process", "pid_file": "w.pid"}, "nothing could bring w back"),
        ({"type": "process", "pid_file": "w.pid", "supervised": True}, "would come back before its time"),
    ],
)
def test_a_kill_that_could_not_be_healed_in_time_is_refused(target: dict[str, Any], words: str) -> None:
    fault = {"kind": "process_kill", "target": "w", "for": "5s"}
    with pytest.raises(FaultRefused, match=words):
        planned(parse({"targets": {"w": target}, "schedule": {"faults": [fault]}}))


@pytest.mark.parametrize("seed", range(50))
def test_random_faults_stay_within_their_budgets(seed: int) -> None:
    lasts = {"at_least": "2s", "at_most": "30s"}
    budget = {"length": "300s", "faults_at_most": 8, "down_at_most": "60s", "gap": {"at_least": "5s", "at_most": "20s"}}
    made = planned(configured({"warm_up": "10s", "random": budget, "faults": [{**KILL, "for": lasts}]}), seed)
    assert 1 <= len(made.steps) <= 8
    assert sum(step.lasts_seconds for step in made.steps) <= 60
    assert made.seconds <= 310
    assert all(5 <= step.wait_seconds <= 20 for step in made.steps[1:])
    assert all(2 <= step.lasts_seconds <= 30 for step in made.steps)
    assert made == planned(configured({"warm_up": "10s", "random": budget, "faults": [{**KILL, "for": lasts}]}), seed)


ONE = {"kind": "process_kill", "target": {"labels": {"role": "worker"}}}
SLOW = {"kind": "net_delay", "target": "link0", "parameters": {"delay": "1s"}}


def grouped(*together: dict[str, Any], **more: Any) -> Timeline:
    return planned(configured({"control": "5s", "faults": [{"together": list(together), "for": "30s"}]}, **more), 3)


def test_the_faults_of_a_group_start_at_their_offsets() -> None:
    made = grouped({**ONE, "after": "2s"}, SLOW, {**ONE, "after": "1500ms"})
    (step,) = made.steps
    assert [(after, fault.kind, fault.name) for after, fault in step.parts] == [
        (0, "net_delay", "net-delay"),
        (1.5, "process_kill", "process-kill"),
        (2, "process_kill", "process-kill-2"),
    ]
    assert (step.fault, step.seconds, made.seconds) == (step.parts[0][1], 32, 37)


def test_a_fault_of_a_group_may_end_before_the_others_or_after_them() -> None:
    slow = {**SLOW, "for": "40s"}
    (step,) = grouped(slow, {**ONE, "after": "2s", "for": "5s"}, {**ONE, "after": "1s"}).steps
    assert [(after, step.seconds_of(after, fault)) for after, fault in step.parts] == [(0, 40), (1, 31), (2, 5)]
    assert (step.lasts_seconds, step.seconds) == (30, 40)
    (step,) = planned(configured({"faults": [{"together": [slow, {**ONE, "for": "5s"}]}]})).steps
    assert step.seconds == 40


@pytest.mark.parametrize("seed", range(20))
def test_two_faults_of_a_group_do_not_hit_one_target(seed: int) -> None:
    faults = [{"together": [ONE, ONE, {**ONE, "target": {"labels": {"role": "worker"}, "pick": 3}}]}]
    (step,) = planned(configured({"faults": faults}), seed).steps
    hit = [name for _, fault in step.parts for name in fault.targets]
    assert len(hit) == len(set(hit)) == 5


@pytest.mark.parametrize(
    ("together", "more", "words"),
    [
        (
            [{**ONE, "target": {"pick": 3}}] * 2,
            {},
            r"process_kill: it would hit all replicas \(w0, w1, w2, w3, w4, w5\)",
        ),
        ([{**ONE, "target": {"pick": "50%"}}] * 3, {}, "pick: 50% is more than the 0 targets .* no other fault"),
        (
            [SLOW, {**SLOW, "kind": "net_reset", "parameters": {}}],
            {},
            "net_reset: link0 would be hit twice in one group",
        ),
        (
            [{**ONE, "target": "w1"}, {**ONE, "kind": "node_loss", "target": "w0"}],
            {},
            "node_loss: w1 would be hit twice",
        ),
        (
            [{**ONE, "target": {"pick": "leader"}}, ONE],
            {"targets": {"w0": worker(0), "w1": worker(1, leader=True)}},
            r"process_kill: it would hit all replicas \(w0, w1\)",
        ),
        ([SLOW, ONE], {"limits": {"targets_at_once": 1}}, "net_delay and process_kill: it would hit 2 targets"),
    ],
)
def test_the_blast_radius_holds_for_a_whole_group(
    together: list[dict[str, Any]], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(FaultRefused, match=words):
        grouped(*together, **more)


def test_all_replicas_may_be_hit_by_a_group_that_names_each() -> None:
    (step,) = grouped(*({**ONE, "target": f"w{number}"} for number in range(6))).steps
    assert [fault.target_names for _, fault in step.parts] == ["w0", "w1", "w2", "w3", "w4", "w5"]


def test_two_faults_may_press_on_one_machine() -> None:
    memory = {"kind": "memory_pressure", "target": "here", "parameters": {"bytes": "1MiB"}}
    targets = WORKERS | LINKS | {"here": {"type": "machine"}}
    (step,) = grouped({"kind": "cpu_pressure", "target": "here"}, memory, targets=targets).steps
    assert len(step.parts) == 2


def test_the_last_of_a_group_must_be_over_before_the_broker_ends_its_transaction() -> None:
    hang = {"kind": "transaction_hang", "target": "clicks", "parameters": {"timeout": "31s"}}
    clicks = {"clicks": {"type": "topic", "bootstrap_servers": "127.0.0.1:9092", "topic": "click"}}
    grouped(hang, SLOW, targets=WORKERS | LINKS | clicks)
    with pytest.raises(FaultRefused, match="transaction_hang: the broker ends a transaction after timeout, 31 s"):
        grouped(hang, {**SLOW, "after": "1s"}, targets=WORKERS | LINKS | clicks)
    grouped({**hang, "for": "30s"}, {**SLOW, "after": "1s"}, targets=WORKERS | LINKS | clicks)


@pytest.mark.parametrize("seed", range(20))
def test_random_groups_stay_within_the_budget(seed: int) -> None:
    lasts = {"at_least": "2s", "at_most": "20s"}
    group = {"together": [{**ONE, "for": "25s"}, {**SLOW, "after": "10s"}], "for": lasts}
    budget = {"length": "300s", "faults_at_most": 8, "down_at_most": "60s", "gap": {"at_least": "5s", "at_most": "20s"}}
    made = planned(configured({"random": budget, "faults": [group]}), seed)
    assert 1 <= len(made.steps) <= 5
    assert sum(step.seconds for step in made.steps) <= 60


def of_plan(name: str, **more: Any) -> Timeline:
    return planned(configured(plan={"name": name, **more}))


@pytest.mark.parametrize(("name", "delay"), [("pgval-delay-below-timeout", 0.5), ("pgval-delay-above-timeout", 5.0)])
def test_pgvals_delays(name: str, delay: float) -> None:
    made = of_plan(name, faster=10)
    (step,) = made.steps
    assert (step.wait_seconds, step.lasts_seconds, made.recovery_seconds) == (9.5, 9.0, 9.0)
    assert isinstance(step.fault.parameters, DelayParameters)
    assert step.fault.parameters.delay == delay  # against the timeout, which is not shortened
    assert len(step.fault.targets) == 1


@pytest.mark.parametrize(
    ("name", "faults", "targets", "first", "lasts", "seconds"),
    [
        ("pgval-crash", 1, 1, 95, 90, 275),
        ("ospbench-worker", 1, 1, 540, 0, 960),
        ("ospbench-master", 1, 1, 720, 0, 1020),
        ("vogel-kill-1", 10, 1, 300, 0, 3300),
        ("vogel-kill-2", 10, 2, 300, 0, 3300),
        ("vogel-kill-4", 10, 4, 300, 0, 3300),
        ("vogel-crash-2", 5, 2, 300, 300, 3300),
        ("checkmate", 1, 1, 48, 0, 90),
        ("checkmate-cyclic", 1, 1, 48, 0, 90),
        ("ospbench-poison", 1, 1, 720, 0, 1020),
    ],
)
def test_the_kills_of_the_literature(
    name: str, faults: int, targets: int, first: float, lasts: float, seconds: float
) -> None:
    made = of_plan(name)
    assert len(made.steps) == faults
    assert {len(step.fault.targets) for step in made.steps} == {targets}
    assert made.steps[0].wait_seconds == first
    assert {step.lasts_seconds for step in made.steps} == {lasts}
    assert made.seconds == seconds


class Clock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def starts_of(made: Timeline, took: list[float]) -> list[float]:
    """When the faults start, where injecting and healing them takes so many seconds."""
    clock, starts = Clock(), []
    for (step, wait_seconds), extra in zip(paced(made, clock), [*took, 0.0], strict=False):
        clock.now += wait_seconds
        starts.append(clock.now - 1000)
        clock.now += step.seconds + extra
    return starts


def test_the_kills_of_vogel_come_every_five_minutes_however_long_healing_takes() -> None:
    assert starts_of(of_plan("vogel-kill-2"), [20.0] * 9) == [300 * number for number in range(1, 11)]
    assert starts_of(of_plan("vogel-crash-2"), [40.0] * 4) == [300 + 600 * number for number in range(5)]


def test_a_healing_that_is_longer_than_the_period_puts_the_next_fault_off_and_no_other() -> None:
    starts = starts_of(of_plan("vogel-kill-1"), [310.0, *[20.0] * 8])
    assert starts == [300, 610, *(610 + 300 * number for number in range(1, 9))]


def test_other_recoveries_start_when_the_fault_is_gone() -> None:
    config = configured({"control": "5s", "recovery": "5s", "repeat": 3, "faults": [KILL]})
    assert starts_of(planned(config), [20.0] * 2) == [5, 5 + 10 + 20 + 10, 2 * (10 + 20 + 10) + 5]


def test_streambench_kills_a_node_half_way() -> None:
    (step,) = of_plan("streambench-node", failure_free="10m").steps
    assert (step.fault.kind, step.wait_seconds, step.lasts_seconds) == ("node_loss", 300, 300)
    with pytest.raises(FaultRefused, match="failure_free"):
        of_plan("streambench-node")


def test_streambench_kills_no_node_that_takes_input() -> None:
    config = configured(plan={"name": "streambench-node", "failure_free": "10m"})
    lost = {tuple(planned(config, seed).steps[0].fault.targets) for seed in range(30)}
    assert lost == {("w2", "w3"), ("w4", "w5")}, "w0 takes the input, and w1 is on its host"
    unmarked = {name: {**target, "input": False} for name, target in WORKERS.items()}
    with pytest.raises(FaultRefused, match="input: false needs to know what takes the input; mark those targets"):
        planned(configured(plan={"name": "streambench-node", "failure_free": "10m"}, targets=unmarked))
    all_take = {name: {**target, "input": True} for name, target in WORKERS.items()}
    with pytest.raises(FaultRefused, match="no process target with input: false"):
        planned(configured(plan={"name": "streambench-node", "failure_free": "10m"}, targets=all_take))


@pytest.mark.parametrize(("takes", "names"), [(True, {"w0"}), (False, {"w1", "w2", "w3", "w4", "w5"})])
def test_a_selector_takes_the_targets_with_input_or_the_others(takes: bool, names: set[str]) -> None:
    config = configured({"faults": [{"kind": "process_kill", "target": {"input": takes}}]})
    assert {planned(config, seed).steps[0].fault.target_names for seed in range(60)} == names


def test_a_host_with_input_on_another_of_its_processes_takes_input() -> None:
    fed = {"fed": worker(9, host="node-2", labels={"role": "reader"}, input=True)}
    schedule = {"faults": [{"kind": "node_loss", "target": {"labels": {"role": "worker"}, "input": False}}]}
    config = configured(schedule, targets=WORKERS | fed)
    assert {planned(config, seed).steps[0].fault.target_names for seed in range(20)} == {"w2,w3"}


PODS = {"workers": {"type": "pods", "namespace": "shop", "match": {"app": "worker"}}}


@pytest.mark.parametrize(
    ("name", "kind", "pods"),
    [
        ("vogel-kill-4", "pod_kill", 4),
        ("vogel-crash-2", "pod_failure", 2),
        ("pgval-crash", "pod_failure", "one"),
        ("pgval-delay-above-timeout", "pod_net_delay", "one"),
        ("ospbench-worker", "pod_kill", "one"),
        ("checkmate", "pod_kill", "one"),
    ],
)
def test_a_named_plan_on_pods(name: str, kind: str, pods: int | str) -> None:
    local = of_plan(name, **({} if "delay" not in name else {"target": {"name": "link0"}}))
    made = planned(configured(plan={"name": name, "type": "pods", "target": {"name": "workers"}}, targets=PODS))
    assert {step.fault.kind for step in made.steps} == {kind}
    parameters = made.steps[0].fault.parameters
    assert isinstance(parameters, PodParameters)
    assert parameters.pods == pods
    assert [(s.wait_seconds, s.lasts_seconds) for s in made.steps] == [
        (s.wait_seconds, s.lasts_seconds) for s in local.steps
    ]


def test_a_named_plan_on_containers() -> None:
    boxes = {f"c{n}": {"type": "container", "container": f"c{n}"} for n in range(3)}
    made = planned(configured(plan={"name": "vogel-kill-2", "type": "container"}, targets=boxes))
    assert {(step.fault.kind, len(step.fault.targets)) for step in made.steps} == {("container_kill", 2)}


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"name": "vogel-kill-2"}, "vogel-kill-2: say which pods, as in target: {name: workers}"),
        ({"name": "ospbench-master", "target": {"name": "workers"}}, "ospbench-master: no pod is known to lead"),
        ({"name": "ospbench-poison", "target": {"name": "workers"}}, "there is no kind for type: pods; use process"),
        ({"name": "streambench-node", "failure_free": "5m"}, "there is no kind for type: pods; use process"),
    ],
)
def test_a_named_plan_that_pods_do_not_have_is_refused(plan: dict[str, Any], words: str) -> None:
    with pytest.raises(FaultRefused, match=words):
        planned(configured(plan={**plan, "type": "pods"}, targets=PODS))


@pytest.mark.skipif(KINDS["namespace_delay"].why_not_here is not None, reason="needs netem or a relay")
def test_a_delay_of_pgval_on_a_namespace_is_of_all_its_packets() -> None:
    networks = {
        f"n{number}": {"type": "namespace", "namespace": f"n{number}", "device": "e0", "probe": "10.0.0.1:1"}
        for number in range(2)
    }
    plan = {"name": "pgval-delay-above-timeout", "type": "namespace"}
    (step,) = planned(configured(plan=plan, targets=networks)).steps
    assert step.fault.kind == "namespace_delay"
    assert isinstance(step.fault.parameters, NamespaceDelayParameters)
    assert (step.fault.parameters.delay, len(step.fault.targets), step.lasts_seconds) == (5, 1, 90)
    with pytest.raises(FaultRefused, match="there is no kind for type: namespace; use process or container or pods"):
        planned(configured(plan={"name": "pgval-crash", "type": "namespace"}, targets=networks))


def test_the_poison_of_a_plan_is_one_event() -> None:
    (step,) = of_plan("ospbench-poison").steps
    assert isinstance(step.fault.parameters, PoisonParameters)
    assert (step.fault.kind, step.fault.parameters.at_most) == ("poison", 1)


@pytest.mark.parametrize("name", get_args(PlanName))
def test_every_named_plan_can_be_planned(name: str) -> None:
    assert of_plan(name, failure_free="10m").plan == name
