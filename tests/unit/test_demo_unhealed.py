"""The demo if a fault of its day is not healed; `sleep` stands in for a worker."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from faults.config import FaultConfig
from faults.errors import NotHealed
from faults.fault import Timeline
from testbed.demo.scenario import Scenario
from testbed.demo.scenario_run import ScenarioRun
from testbed.demo.supervisor import SupervisedProcess, Supervisor
from testbed.demo.targets import RunContext, pid_file, state_folder
from testbed.engines.base import EngineError
from testbed.processes import OwnedProcess
from tests.unit.demo_scenarios import in_file, planned

WORKER = "reference-worker-0"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"], process_group=0) as running:
        yield running
        running.kill()


def unhealed(
    folder: Path, process: subprocess.Popen[bytes], restart: Callable[[], object], healed_within: str
) -> NotHealed:
    """The failure at the end of a day on which the supervisor's ``restart`` does not restart a killed worker."""
    schedule = {"faults": [{"kind": "process_kill", "target": WORKER}]}
    scenario = planned(faults=in_file(folder, schedule=schedule, limits={"healed_within": healed_within})).scenario
    assert scenario is not None
    chaos = ScenarioRun(scenario, folder, threading.Event(), lambda _: None)
    chaos._context = RunContext(folder, "127.0.0.1:1", ())

    def pid() -> int | None:
        return process.pid if process.poll() is None else None

    supervised = SupervisedProcess(WORKER, pid, restart, lambda: True, pid_file(folder, WORKER))
    chaos._supervisor = Supervisor([supervised], state_folder(folder), lambda _: None)
    chaos._supervisor.start()
    try:
        with ThreadPoolExecutor(1) as pool, pytest.raises(NotHealed) as failed:
            pool.submit(chaos._run).result()
    finally:
        chaos._supervisor.stop()
    return failed.value


@pytest.fixture(autouse=True)
def without_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = Scenario.bound

    def without_topic(scenario: Scenario, places: RunContext) -> tuple[FaultConfig, Timeline]:
        config, timeline = bound(scenario, places)
        return config.model_copy(update={"kafka": None}), timeline

    monkeypatch.setattr(Scenario, "bound", without_topic)


def test_a_failed_supervisor_is_not_waited_for(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    def restart() -> None:
        raise EngineError("no such engine")

    began = time.monotonic()
    said = str(unhealed(tmp_path, process, restart, "60s"))
    assert time.monotonic() - began < 30
    assert re.search("supervisor, .* has failed", said)


def test_an_ended_proxy_is_not_waited_for(tmp_path: Path) -> None:
    scenario = planned(faults=in_file(tmp_path, {"kind": "process_kill", "target": WORKER})).scenario
    assert scenario is not None
    chaos = ScenarioRun(scenario, tmp_path, threading.Event(), lambda _: None)
    with OwnedProcess(["sleep", "600"], log=tmp_path / "proxy.log", name="proxy of the links") as proxy:
        chaos._proxy = proxy
        chaos._check_healer()
    with pytest.raises(NotHealed, match=r"proxy of .* has ended"):
        chaos._check_healer()


def test_a_healing_that_failed_names_no_file_that_the_demo_removes(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    said = str(unhealed(tmp_path, process, lambda: None, "300ms"))
    assert "0.3 s" in said
    assert "faults heal" not in said
