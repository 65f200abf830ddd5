"""The named plans on the demo: their targets on each engine, the number of workers they need, and the refused ones."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from faults.config import PlanName
from faults.errors import FaultRefused
from faults.parameters import DelayParameters, NamespaceDelayParameters
from testbed import node
from testbed.demo import engine as demo_engine
from testbed.demo.files import real_settings, topics
from testbed.demo.options import DemoPlan, epilogue
from testbed.demo.targets import ROLES, instance_names, link_names, node_name
from testbed.engines.registry import REGISTRY
from tests.unit.demo_scenarios import PLACES, planned

DELAYS = ("pgval-delay-below-timeout", "pgval-delay-above-timeout")


@pytest.mark.skipif(node.why_not_here() is not None, reason=f"networks of their own: {node.why_not_here()}")
@pytest.mark.parametrize("name", DELAYS)
@pytest.mark.parametrize("engine", ROLES)
def test_pgvals_delay_affects_the_packets_of_one_worker(engine: str, name: str) -> None:
    plan = planned(engine, plan=name)
    assert plan.scenario is not None
    (step,) = plan.scenario.timeline.steps
    assert (step.fault.kind, step.fault.target_names) == ("namespace_delay", node_name(engine))
    assert (plan.scenario.needs_node, plan.scenario.link_names) == (True, ())


def test_without_root_pgvals_delay_affects_a_workers_own_link_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "why_not_here", lambda: "this needs root")
    scenario = planned("kafka_streams", plan=DELAYS[0]).scenario
    assert scenario is not None
    assert scenario.timeline.steps[0].fault.target_names in link_names("kafka_streams")
    for engine in ("reference", "flink", "spark", "storm"):
        with pytest.raises(FaultRefused, match=rf"worker of {engine}, .*\(this needs root\)"):
            planned(engine, plan=DELAYS[0])


def test_the_delays_of_pgval_are_below_and_above_the_timeout_of_the_scenario() -> None:
    parameters = {}
    for engine in ("kafka_streams", "flink", "storm") if node.why_not_here() is None else ("kafka_streams",):
        for name in DELAYS:
            plan = planned(engine, plan=name)
            assert plan.scenario is not None
            given = plan.scenario.timeline.steps[0].fault.parameters
            assert isinstance(given, DelayParameters | NamespaceDelayParameters)
            parameters[name] = given.delay
            times = real_settings(plan, "127.0.0.1:1").timeouts
            assert (times.session_timeout_seconds, times.heartbeat_interval_seconds) == (3, 1)
        assert parameters[DELAYS[0]] < times.session_timeout_seconds < parameters[DELAYS[1]]
    assert real_settings(planned("flink", plan="pgval-crash"), "127.0.0.1:1").timeouts.session_timeout_seconds == 6


SEVERAL = {"vogel-kill-2", "vogel-kill-4", "vogel-crash-2"}
"""Plans that need more than one worker."""


@pytest.mark.parametrize(
    ("engine", "refused"),
    [
        ("reference", {"ospbench-master"}),  # none of its workers is a leader
        ("kafka_streams", {"ospbench-master"}),
        ("flink", set()),
        ("spark", SEVERAL),
        ("storm", SEVERAL),
    ],
)
def test_each_named_plan_is_accepted_or_refused(engine: str, refused: set[str]) -> None:
    found = set()
    for name in get_args(PlanName):
        try:
            scenario = planned(engine, plan=name).scenario
        except FaultRefused:
            found.add(name)
        else:
            assert scenario is not None
            assert {step.fault.plan for step in scenario.timeline.steps} == {name}
    assert found == refused


@pytest.mark.parametrize(("plan", "hit"), [("vogel-kill-2", 2), ("vogel-crash-2", 2), ("vogel-kill-4", 4)])
@pytest.mark.parametrize("engine", ["reference", "kafka_streams", "flink"])
def test_a_plan_that_affects_several_workers_leaves_another(engine: str, plan: str, hit: int, tmp_path: Path) -> None:
    asked, workers = planned(engine, plan=plan), hit + 1
    assert asked.scenario is not None
    assert asked.scenario.instance_names[:workers] == tuple(f"{engine}-worker-{n}" for n in range(workers))
    for step in asked.scenario.timeline.steps:
        assert len(step.fault.targets) == hit
        assert set(step.fault.targets) < set(asked.scenario.instance_names[:workers])
    config, _ = asked.scenario.bound(PLACES)
    assert set(asked.scenario.instance_names) <= set(config.targets)
    expected = {"click": workers, "output": workers, "lateOutput": 1, "faults": 1}
    assert topics(asked) == expected, "one partition for each of them"
    made = demo_engine.make(asked, "127.0.0.1:1", tmp_path) if engine == "reference" else None
    assert made is None or len(made.instances) == workers
    if engine in REGISTRY:
        assert real_settings(asked, "127.0.0.1:1").parallelism == workers


def test_a_plan_that_affects_one_worker_runs_two() -> None:
    asked = planned("flink", plan="vogel-kill-1")
    assert asked.scenario is not None
    assert asked.scenario.instance_names == instance_names("flink")
    assert topics(asked)["click"] == 2


@pytest.mark.parametrize(("engine", "most"), [("storm", 1), ("spark", 1), ("mutant", 1)])
def test_a_plan_that_affects_too_many_workers_is_refused_in_one_sentence(engine: str, most: int) -> None:
    with pytest.raises(FaultRefused, match=f"--plan vogel-kill-4 .* 4 workers .* {most} of {engine}"):
        planned(engine, plan="vogel-kill-4")


@pytest.mark.parametrize(("outcome", "is_said"), [("fail", True), ("pass", False)])
def test_commands_of_the_report_do_not_name_the_state_of_the_demo(outcome: str, *, is_said: bool) -> None:
    said = "\n".join(epilogue(DemoPlan(), {"outcome": outcome, "contributions": {"pending": 0}}))
    assert ("STATE" in said) is is_said
