"""The fault plans from the literature."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from faults.catalogue import KINDS
from faults.config import PlanName
from faults.errors import FaultRefused
from faults.parameters import DelayParameters, NamespaceDelayParameters, PodParameters, PoisonParameters
from tests.unit.fault_schedules import WORKERS, configured, of_plan, planned


@pytest.mark.parametrize(("name", "delay"), [("pgval-delay-below-timeout", 0.5), ("pgval-delay-above-timeout", 5.0)])
def test_a_plan_has_pgvals_delays(name: str, delay: float) -> None:
    made = of_plan(name, faster=10)
    (step,) = made.steps
    assert (step.wait_seconds, step.lasts_seconds, made.recovery_seconds) == (9.5, 9.0, 9.0)
    assert isinstance(step.fault.parameters, DelayParameters)
    assert step.fault.parameters.delay == delay  # compared with the timeout, which is not shortened
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
def test_plans_have_the_kills_of_the_literature(
    name: str, faults: int, targets: int, first: float, lasts: float, seconds: float
) -> None:
    made = of_plan(name)
    assert len(made.steps) == faults
    assert {len(step.fault.targets) for step in made.steps} == {targets}
    assert made.steps[0].wait_seconds == first
    assert {step.lasts_seconds for step in made.steps} == {lasts}
    assert made.seconds == seconds


def test_streambench_kills_a_node_half_way() -> None:
    (step,) = of_plan("streambench-node", failure_free="10m").steps
    assert (step.fault.kind, step.wait_seconds, step.lasts_seconds) == ("node_loss", 300, 300)
    with pytest.raises(FaultRefused, match="failure_free"):
        of_plan("streambench-node")


def test_streambench_kills_no_node_with_input() -> None:
    config = configured(plan={"name": "streambench-node", "failure_free": "10m"})
    lost = {tuple(planned(config, seed).steps[0].fault.targets) for seed in range(30)}
    assert lost == {("w2", "w3"), ("w4", "w5")}, "w0 takes the input, and w1 is on its host"
    unmarked = {name: {**target, "input": False} for name, target in WORKERS.items()}
    with pytest.raises(FaultRefused, match=r"input: false .* set input: true "):
        planned(configured(plan={"name": "streambench-node", "failure_free": "10m"}, targets=unmarked))
    all_take = {name: {**target, "input": True} for name, target in WORKERS.items()}
    with pytest.raises(FaultRefused, match="process target with input"):
        planned(configured(plan={"name": "streambench-node", "failure_free": "10m"}, targets=all_take))


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
        ({"name": "vogel-kill-2"}, "vogel-kill-2: .* target: {name: workers}"),
        ({"name": "ospbench-master", "target": {"name": "workers"}}, "ospbench-master: no pod "),
        ({"name": "ospbench-poison", "target": {"name": "workers"}}, "type: pods; use process"),
        ({"name": "streambench-node", "failure_free": "5m"}, "type: pods; use process"),
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
    with pytest.raises(FaultRefused, match=r"type: namespace; .*process.*container.*pods"):
        planned(configured(plan={"name": "pgval-crash", "type": "namespace"}, targets=networks))


def test_the_poison_of_a_plan_is_one_event() -> None:
    (step,) = of_plan("ospbench-poison").steps
    assert isinstance(step.fault.parameters, PoisonParameters)
    assert (step.fault.kind, step.fault.parameters.at_most) == ("poison", 1)


@pytest.mark.parametrize("name", get_args(PlanName))
def test_every_named_plan_can_be_planned(name: str) -> None:
    assert of_plan(name, failure_free="10m").plan == name
