"""A chaos day on Storm. The worker is in the process group of its Supervisor, which restarts it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import Timeline
from faults.journal import Journal
from faults.targets import LocalProcess
from testbed.demo.files import real_settings
from testbed.demo.scenario import Scenario
from testbed.demo.supervisor import SupervisedProcess, Supervisor
from testbed.demo.targets import RunContext, instance_names, pid_file
from testbed.engines.storm import StormEngine
from tests.unit.demo_scenarios import PLACES, in_file, planned

STORM = {"engine": "storm"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunContext]:
    """A run in which a `sleep` stands in for each daemon, and for the worker in the Supervisor's group."""
    pids: dict[str, int] = {}
    with ExitStack() as stack:
        for name in reversed(instance_names("storm")):
            group = pids.get("storm-supervisor", 0) if name == "storm-worker-0" else 0
            process = stack.enter_context(subprocess.Popen(["sleep", "60"], process_group=group))
            stack.callback(process.kill)
            pids[name] = process.pid
            file = pid_file(tmp_path, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{process.pid}\n")
        yield RunContext(tmp_path, "127.0.0.1:9092", ())


def scenario_of(folder: Path, *faults: dict[str, Any], seed: int) -> Scenario:
    scenario = planned("storm", faults=in_file(folder, *faults, seed=seed)).scenario
    assert scenario is not None
    return scenario


def names(timeline: Timeline) -> list[str]:
    return [fault.target_names for step in timeline.steps for _, fault in step.parts]


@pytest.mark.parametrize("pick", [1, 2, "50%"])
def test_a_scenario_is_the_same_before_and_while_its_processes_run(
    tmp_path: Path, running: RunContext, pick: int | str
) -> None:
    pause = {"kind": "process_pause", "target": {"labels": STORM, "pick": pick}}
    for seed in range(20):
        scenario = scenario_of(tmp_path, pause, pause, seed=seed)
        config, timeline = scenario.bound(running)
        assert names(timeline) == names(scenario.timeline)
        assert not any({"storm-worker-0", "storm-supervisor"} <= set(step.fault.targets) for step in timeline.steps)
        assert all(config.targets[n] == target for s in timeline.steps for n, target in s.fault.targets.items())


def test_faults_of_a_worker_and_its_supervisor_are_refused_before_the_start(tmp_path: Path) -> None:
    both = [{"kind": "process_pause", "target": name} for name in ("storm-supervisor", "storm-worker-0")]
    with pytest.raises(FaultRefused, match=r"process_pause: storm-worker-0 .* twice in one group"):
        scenario_of(tmp_path, {"together": both, "for": "4s"}, seed=1)


@pytest.mark.parametrize("plan", ["pgval-crash", "streambench-node"])
def test_a_worker_of_storm_is_kept_down_with_its_supervisor(plan: str) -> None:
    scenario = planned("storm", plan=plan).scenario
    assert scenario is not None
    _, timeline = scenario.bound(PLACES)
    (step,) = timeline.steps
    (target,) = step.fault.targets.values()
    assert isinstance(target, LocalProcess)
    assert (step.fault.target_names, target.group) == ("storm-supervisor", True), "whose group the worker is in"
    assert step.lasts_seconds > 0


def test_a_restarted_worker_of_storm_must_report_ready_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_no_worker_is_reported_as_started_while_its_supervisor_is_down(tmp_path: Path) -> None:
    said: list[str] = []
    pids: dict[str, int | None] = {"storm-worker-0": 41, "storm-supervisor": 42}
    processes = [
        SupervisedProcess(name, partial(pids.get, name), lambda: None, lambda: True, pid_file(tmp_path, name))
        for name in pids
    ]
    pid_file(tmp_path, "x").parent.mkdir()
    supervisor = Supervisor(processes, tmp_path / "faults", said.append)
    supervisor.look()
    scenario = planned("storm", plan="pgval-crash").scenario
    assert scenario is not None
    (step,) = scenario.timeline.steps
    with Journal.locked(tmp_path / "faults") as journal:
        entry = journal.begin(step.fault, Facts())
        journal.record_state(entry, "injected")
        pids.update(dict.fromkeys(pids))
        supervisor.look()
        [waits] = said
        assert waits.startswith("storm-worker-0 has ended; storm-supervisor ")
        journal.record_state(entry, "heal_started")
        supervisor.look()
        [_, starts] = said
        assert "starts storm-supervisor" in starts
