"""A chaos day while it runs: the processes that the demo's supervisor keeps down or restarts, and its last messages."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from faults.errors import NotHealed
from faults.facts import Facts
from faults.fault import Fault
from faults.journal import Journal
from testbed.demo.memory import memory_usage_of
from testbed.demo.scenario_run import ScenarioRun
from testbed.demo.supervisor import SupervisedProcess, Supervisor
from testbed.demo.targets import pid_file
from tests.unit.demo_scenarios import in_file, planned


@pytest.mark.parametrize(("kind", "kept"), [("process_kill", True), ("restart_loop", False)])
def test_a_process_kept_down_by_a_fault_is_started_when_healing_begins(
    tmp_path: Path, kind: str, *, kept: bool
) -> None:
    restarted: list[str] = []
    pids: list[int | None] = [41]
    file = pid_file(tmp_path, "w")
    process = SupervisedProcess("w", lambda: pids[0], lambda: restarted.append("w"), lambda: True, file)
    supervisor = Supervisor([process], tmp_path / "st", lambda _: None)
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
        journal.record_state(entry, "injected")
        pids[0] = None
        supervisor.look()
        assert not file.exists()
        assert restarted == ([] if kept else ["w"])
        journal.record_state(entry, "heal_started")
        supervisor.look()
        assert restarted[-1:] == ["w"]


def test_a_restarted_process_is_recorded_only_when_it_is_ready(tmp_path: Path) -> None:
    ready: list[bool] = []
    file = pid_file(tmp_path, "w")
    file.parent.mkdir()
    supervisor = Supervisor(
        [SupervisedProcess("w", lambda: 41, lambda: None, lambda: bool(ready), file)], tmp_path, lambda _: None
    )
    supervisor.look()
    assert not file.exists()
    assert not supervisor.all_ready
    ready.append(True)
    supervisor.look()
    assert file.read_text() == "41\n"
    assert supervisor.all_ready


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_includes_all_descendants() -> None:
    code = "import subprocess, sys; b = bytearray(40 << 20); b[::4096] = b'1' * len(b[::4096]);"
    inner = code + "print('up', flush=True); sys.stdin.read()"
    outer = code + f"subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"up\n"
        taken = memory_usage_of(child.pid)
    assert taken.processes == 2
    assert 80 << 20 <= taken.bytes < 200 << 20


@pytest.mark.parametrize("has_failed_before", [False, True])
def test_a_failed_healing_after_an_interruption_is_reported_once(tmp_path: Path, has_failed_before: bool) -> None:
    scenario = planned(
        faults=in_file(tmp_path, {"kind": "process_kill", "target": "reference-worker-0", "for": "4s"})
    ).scenario
    assert scenario is not None
    stop, said = threading.Event(), list[str]()
    chaos = ScenarioRun(scenario, tmp_path, stop, said.append)

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
    assert said[-1].endswith(" error: kill on w0 is not healed: no probe showed it.")
    assert said[:-1] == ([] if has_failed_before else ["healing what is broken"])
