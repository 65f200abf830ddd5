"""A process of the engine that ends although no fault ends it makes its run fail, and the table has the reason."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.campaign import formats, journal, one_run, scheduled
from testbed.campaign.cell import Cell
from testbed.campaign.engine_watch import EngineWatch
from testbed.campaign.fault import RunFault
from testbed.campaign.journal import CampaignJournal, Heading
from testbed.campaign.matrix import Run
from testbed.campaign.one_run import OneRun
from testbed.campaign.plan import LEADER, FaultName
from testbed.campaign.scheduled import ScheduledFaults
from testbed.campaign.table import table
from testbed.engines.base import ProcessEngine
from testbed.engines.flink import FlinkEngine
from testbed.engines.real import RealEngineSettings
from testbed.stop import Stop
from tests.unit.campaign_results import plan

pytestmark = pytest.mark.timeout(120)
RUN = Run(Cell("reference", "sst", "exactly_once", "crash"), 1, 7)


class Sleepers(ProcessEngine):
    """Real processes that do nothing."""

    name = "sleepers"

    def _command(self, instance: int) -> list[str | Path]:
        return ["sh", "-c", "echo working; exec sleep 600"]

    def _environment(self, instance: int) -> dict[str, str]:
        return {}

    def _is_ready(self, instance: int) -> bool:
        return "working" in self._log_since_start(instance)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Sleepers]:
    with Sleepers(tmp_path / "engine", roles=["worker", "worker", "supervisor"]) as engine:
        engine.start()
        engine.ready()
        yield engine


def kill(engine: ProcessEngine, instance: int) -> int:
    pid = engine.process(instance).pid
    os.kill(pid, signal.SIGKILL)
    engine.process(instance).wait(60)
    return pid


def test_a_death_is_noticed_unless_a_fault_may_cause_it(engine: Sleepers) -> None:
    strict, lenient = EngineWatch(engine, "control"), EngineWatch(engine, "failure", but=[0])
    assert (strict.death(), lenient.death()) == (None, None)
    pid = kill(engine, 0)
    assert lenient.death() is None
    sentence = f"The worker sleepers-0 (process {pid}) ended with status -9 in the control phase, and no fault "
    assert strict.death() == f"{sentence}of the campaign ended it:\nworking"
    engine.restart(0)
    assert (strict.death() or "").startswith("The worker sleepers-0 "), "a worker that was replaced has died, too"
    assert EngineWatch(engine, "recovery").death() is None
    kill(engine, 1)
    assert (lenient.death() or "").startswith("The worker sleepers-1 ")


@pytest.mark.parametrize(
    ("fault", "meanwhile", "later"),
    [
        ("none", set(), set()),
        ("crash", {0, 2}, {0}),
        ("crash_leader", {0}, {0}),
        ("delay_above_timeout", {0}, {0}),
        ("pause_below_timeout", {0}, {0}),
    ],
)
def test_only_the_worker_of_the_fault_and_its_supervisor_may_end(
    engine: Sleepers, tmp_path: Path, fault: FaultName, meanwhile: set[int], later: set[int]
) -> None:
    def of(engine: ProcessEngine) -> RunFault:
        run = replace(RUN, cell=replace(RUN.cell, fault=fault))
        return RunFault(
            run, engine, lasts_seconds=1, timeout_seconds=1, bootstrap_servers="127.0.0.1:1", topic="faults",
            stop=threading.Event(), say=lambda _: None,
        )  # fmt: skip

    assert (of(engine).may_end, of(engine).may_end_later) == (meanwhile, later)
    unsupervised: Any = SimpleNamespace(instances=engine.instances[:2])
    assert (of(unsupervised).may_end, of(unsupervised).may_end_later) == (meanwhile - {2}, set())
    if fault == LEADER:
        with FlinkEngine(RealEngineSettings(bootstrap_servers="127.0.0.1:1", parallelism=2), tmp_path) as led:
            assert (of(led).may_end, of(led).may_end_later) == ({led.jobmanager}, set())


@pytest.mark.parametrize(("fault", "is_noticed"), [("kill", True), ("poison", False)])
def test_a_job_that_fails_on_poison_may_end_in_a_schedule_with_poison_only(
    engine: Sleepers, tmp_path: Path, fault: FaultName, *, is_noticed: bool
) -> None:
    schedules = {
        "kill": {"kind": "process_kill", "target": {"labels": {"role": "worker"}}, "for": "5s"},
        "poison": {"kind": "poison", "target": "click", "for": "5s", "parameters": {"at_most": 1}},
    }
    campaign = plan(engines=["kafka_streams"], faults=[fault], poison="fail",
                    schedules={name: {"schedule": {"faults": [one]}} for name, one in schedules.items()})  # fmt: skip
    cell = Cell("kafka_streams", "sst", "at_least_once", fault)
    faults = scheduled.scenario(cell, campaign, 7)
    [(_, one)] = faults.timeline.steps[0].parts
    watch = ScheduledFaults(faults, tmp_path, Stop(), print, threading.Event()).watch(engine, campaign.poison)
    hit = [number for number, name in enumerate(faults.instance_names) if name in one.targets]
    for number in hit:
        kill(engine, number)
    assert watch.death() is None
    kill(engine, next(number for number in (0, 1) if number not in hit))
    assert (watch.death() is not None) is is_noticed


def test_a_worker_that_dies_in_the_control_phase_fails_its_run_with_the_reason_in_the_table(
    engine: Sleepers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the engine's processes and the load's is left out."""
    lives: Any = SimpleNamespace(is_running=True, name="sidecar", kill=lambda: None, pid=None)
    broker: Any = SimpleNamespace(
        bootstrap_servers="127.0.0.1:1", process=lives, create_topics=lambda _: None, folder=tmp_path
    )
    monkeypatch.setattr(one_run, "DemoSidecar", lambda _: SimpleNamespace(process=lives, report=dict, url=str))
    monkeypatch.setattr(one_run, "TopicEnd", lambda *_: lambda: 1)
    monkeypatch.setattr(one_run, "ReferenceEngine", lambda *_, **__: engine)
    monkeypatch.setattr(one_run, "load_until_stopped", lambda *_: ["sleep", "600"])
    campaign = plan(engines=["reference"], guarantees=["exactly_once"], faults=["crash"], repetitions=1,
                    phases={"warm_up": "1s", "control": "10m"})  # fmt: skip

    def do(run: Run) -> Any:
        killer = threading.Timer(0.5, kill, (engine, 1))
        killer.start()
        return OneRun(run, campaign, [broker], tmp_path / "run", Stop(), lambda _: None).do()[0]

    with CampaignJournal(tmp_path, campaign).open(resumes=False) as kept:
        kept.begin(Heading("a machine", "0"))
        journal.work(kept, tmp_path, [RUN], do, lambda *_: None)
        failures = kept.failures
    [failure] = failures
    worker = f"The worker sleepers-1 (process {engine.process(1).pid}) ended with status -9 in the control phase"
    assert failure.reason == f"RunFailed: {worker}, and no fault of the campaign ended it:\nworking"
    assert [one.alive for one in engine.instances] == [False] * 3, "the run ends its processes"
    built = table([RUN], {}, left_out=(), failures=failures, headings=(), settings={})
    assert "no fault of the campaign ended it" in formats.markdown(built)
    assert built.rows[0].failed == 1
