"""Faults of processes, seen with ps while they are active and after they are healed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from faults.backends.processes import status_from_ps, status_of
from faults.errors import FaultRefused, NotHealed, NotVerified
from faults.facts import Facts
from faults.kinds.registry import injection
from faults.runner import run
from faults.schedule import timeline
from testbed.ports import free_port
from tests.faults.stage import WITHIN_SECONDS, Stage, is_alive, state_of, wait_until


def test_a_killed_process_is_dead_until_it_is_started_again(stage: Stage) -> None:
    stage.add_worker("w0")
    first = stage.pid("w0")
    stage.during({"kind": "process_kill", "target": "w0", "for": "100ms"}, lambda: _are_dead(first))
    assert is_alive(stage.pid("w0"))
    assert stage.pid("w0") != first
    assert stage.states() == ["injected", "verified", "heal_started", "healed"]


def _are_dead(*pids: int) -> None:
    assert [pid for pid in pids if is_alive(pid)] == []


def test_a_kill_is_healed_when_the_process_accepts_connections(stage: Stage) -> None:
    port = free_port()
    serve = f"import http.server; http.server.HTTPServer(('127.0.0.1', {port}), None).serve_forever()"
    stage.add_worker("w0", start=[sys.executable, "-c", serve], ready=f"127.0.0.1:{port}")
    stage.during({"kind": "process_kill", "target": "w0"}, lambda: None)
    socket.create_connection(("127.0.0.1", port), 1).close()


def test_a_paused_process_is_stopped_until_the_fault_is_healed(stage: Stage) -> None:
    stage.add_worker("w0")
    pid = stage.pid("w0")

    def look() -> None:
        assert state_of(pid) == "T"

    stage.during({"kind": "process_pause", "target": "w0", "for": "50ms"}, look)
    assert is_alive(pid)
    assert state_of(pid) != "T"


def test_a_process_that_is_already_stopped_is_refused(stage: Stage) -> None:
    stage.add_worker("w0")
    os.kill(stage.pid("w0"), signal.SIGSTOP)
    wait_until(lambda: state_of(stage.pid("w0")) == "T", "w0 is stopped")
    with pytest.raises(FaultRefused, match=r"w0: process \d+ is stopped already"):
        _run(stage, {"kind": "process_pause", "target": "w0"})
    assert state_of(stage.pid("w0")) == "T"


def test_a_pause_that_was_ended_by_another_process_is_over(stage: Stage) -> None:
    stage.add_worker("w0")
    config = stage.write({"kind": "process_pause", "target": "w0", "for": "60s"})

    def say(line: str) -> None:
        if line.startswith("failure:"):
            os.kill(stage.pid("w0"), signal.SIGCONT)

    with pytest.raises(NotVerified, match=r"on w0: .* resumed process \d+"):
        run(config, timeline(config), say, threading.Event())
    assert stage.unhealed() == []


@pytest.mark.parametrize("when", ["during", "after"])
def test_a_process_that_ends_because_of_its_pause_is_not_healed(stage: Stage, when: str) -> None:
    """A worker that lost its session may end: its supervisor ends it during the pause, or it ends on SIGCONT."""
    ends = "signal.signal(signal.SIGCONT, lambda *_: sys.exit())" if when == "after" else "pass"
    code = f"import signal, sys; {ends}; print(flush=True); signal.pause()"
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()
    stage.targets["w0"] = {"type": "process", "pid": worker.pid}
    config = stage.write({"kind": "process_pause", "target": "w0", "for": "50ms"}, limits={"healed_within": "1s"})
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("failure:") and when == "during":
            worker.kill()
            worker.wait()

    message = rf"process-pause on w0 .*\(process {worker.pid} of w0 .* none runs"
    try:
        with pytest.raises(NotHealed, match=message) as raised:
            run(config, timeline(config), say, threading.Event())
        assert raised.value.exit_status == 3
        assert not [line for line in said if line.startswith("healed")]
        assert len(stage.unhealed()) == 1
    finally:
        worker.kill()
        worker.communicate()


def test_a_paused_process_that_is_replaced_is_reported(stage: Stage) -> None:
    stage.add_worker("w0")
    first, said = stage.pid("w0"), list[str]()
    config = stage.write({"kind": "process_pause", "target": "w0"})

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("failure:"):
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: not is_alive(first), "it has ended")
            stage.add_worker("w0")

    with pytest.raises(NotVerified, match=f"process-pause on w0: process {first} .* another one runs") as raised:
        run(config, timeline(config), say, threading.Event())
    assert raised.value.exit_status == 3
    assert re.match(f"healed: process-pause on w0 .*; process {first} .* another one runs", said[-1])
    assert stage.unhealed() == []


def test_a_process_that_ends_after_its_pause_was_healed_is_reported(stage: Stage) -> None:
    """The process learns later that its session is lost. The run goes on, and its result reports the end."""
    stage.add_worker("w0")
    first, said = stage.pid("w0"), list[str]()
    config = stage.write({"kind": "process_pause", "target": "w0"}, limits={"survives": f"{WITHIN_SECONDS:g}s"})

    def say(line: str) -> None:
        said.append(line)
        if line.startswith("healed:"):
            os.kill(first, signal.SIGTERM)

    with pytest.raises(NotVerified, match=rf"process-pause on w0: process {first} .* \d\.\d s after"):
        run(config, timeline(config), say, threading.Event())
    assert [line.split(":")[0] for line in said] == ["failure", "healed", "over"]
    assert stage.unhealed() == []


def test_a_kill_by_a_later_fault_is_not_an_end_because_of_the_pause(stage: Stage) -> None:
    stage.add_worker("w0")
    faults = [{"kind": kind, "target": "w0"} for kind in ("process_pause", "process_kill")]
    config = stage.write(*faults, limits={"survives": "200ms"})
    run(config, timeline(config), lambda _: None, threading.Event())
    assert stage.unhealed() == []


def test_a_group_is_paused_as_a_whole(stage: Stage) -> None:
    shell = subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert shell.stdout is not None
        child = int(shell.stdout.readline())
        stage.targets["group"] = {"type": "process", "pid": shell.pid, "group": True}

        def look() -> None:
            assert (state_of(shell.pid), state_of(child)) == ("T", "T")

        stage.during({"kind": "process_pause", "target": "group"}, look)
        assert "T" not in (state_of(shell.pid), state_of(child))
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


def test_a_restart_loop_kills_the_restarted_process(stage: Stage) -> None:
    stage.add_worker("w0")
    killed: list[int] = []
    real = os.kill

    def note(pid: int, number: int) -> None:
        if number == signal.SIGKILL:
            killed.append(pid)
        real(pid, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faults.backends.processes.os.kill", note)
        fault = {"kind": "restart_loop", "target": "w0", "for": "1s", "parameters": {"interval": "100ms"}}
        stage.during(fault, lambda: None)
    assert len(set(killed)) >= 3
    _are_dead(*killed)
    assert is_alive(stage.pid("w0"))


def test_a_loop_that_ends_with_a_kill_starts_the_process_again(stage: Stage) -> None:
    stage.add_worker("w0")
    spec = {"kind": "restart_loop", "target": "w0", "for": "1s", "parameters": {"interval": "50ms"}}
    fault = timeline(stage.write(spec)).steps[0].fault
    loop = injection(fault, stage.folder / "st")
    loop.prepare()
    loop.inject()
    wait_until(loop.is_active, "it is killed")
    first = stage.pid("w0")

    def killed_again() -> bool:
        loop.maintain()
        return stage.pid("w0") != first and not is_alive(stage.pid("w0"))

    wait_until(killed_again, "the last call of maintain has killed it")
    loop.heal()
    wait_until(loop.is_healed, "it is back")


def test_a_lost_node_kills_all_its_processes(stage: Stage) -> None:
    for name, host in (("w0", "a"), ("w1", "a"), ("w2", "b")):
        stage.add_worker(name, host=host)
    lost = [stage.pid("w0"), stage.pid("w1")]

    def look() -> None:
        _are_dead(*lost)
        assert is_alive(stage.pid("w2"))

    stage.during({"kind": "node_loss", "target": "w1"}, look)
    assert is_alive(stage.pid("w0"))
    assert is_alive(stage.pid("w1"))


def test_a_supervised_process_is_waited_for(stage: Stage) -> None:
    pid_file = stage.folder / "s.pid"
    supervisor = subprocess.Popen(
        ["/bin/sh", "-c", f"while :; do sleep 600 & echo $! >{pid_file}; wait $!; done"],
        start_new_session=True,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "", "the supervisor starts it")
        first = stage.pid("s")
        stage.targets["s"] = {"type": "process", "pid_file": "s.pid", "supervised": True}
        stage.during({"kind": "process_kill", "target": "s"}, lambda: _are_dead(first))
        assert stage.pid("s") != first
        assert is_alive(stage.pid("s"))
    finally:
        os.killpg(supervisor.pid, signal.SIGKILL)
        supervisor.wait()


def test_a_process_that_does_not_return_is_reported_and_blocks_the_next_fault(stage: Stage) -> None:
    # Without a readiness address, a process that has not exited yet would count as running again.
    stage.add_worker("w0", start=["false"], ready="127.0.0.1:1")
    with pytest.raises(NotHealed, match="process-kill on w0 "):
        _run(stage, {"kind": "process_kill", "target": "w0"}, limits={"healed_within": "300ms"})
    assert stage.unhealed() == ["process-kill"]
    with pytest.raises(FaultRefused, match="`streamproof faults heal CONFIG` first"):
        _run(stage, {"kind": "disk_full", "target": "disk", "parameters": {"bytes": 1}})


def test_a_process_that_cannot_be_started_does_not_prevent_starting_the_others(stage: Stage) -> None:
    stage.add_worker("w0", pid_file="run/w0.pid", labels={"role": "worker"})
    stage.add_worker("w1", labels={"role": "worker"})
    folder, first = stage.folder / "run", stage.pid("w1")
    folder.mkdir()
    (stage.folder / "w0.pid").rename(folder / "w0.pid")

    def look() -> None:
        shutil.rmtree(folder)
        folder.touch()

    fault = {"kind": "process_kill", "target": {"labels": {"role": "worker"}, "pick": "all"}}
    with pytest.raises(NotHealed, match=r"process-kill on w0,w1 .*run/w0\.pid"):
        stage.during(fault, look, limits={"targets_at_once": 2})
    wait_until(lambda: stage.pid("w1") != first and is_alive(stage.pid("w1")), "the other one is back")


def test_a_fault_that_no_probe_shows_is_healed_and_ends_the_run(stage: Stage) -> None:
    stage.add_worker("w0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("faults.backends.processes.is_stopped", lambda _: False)
        with pytest.raises(NotVerified, match="no probe detected the fault"):
            _run(stage, {"kind": "process_pause", "target": "w0"}, limits={"verified_within": "100ms"})
    assert state_of(stage.pid("w0")) != "T"
    assert stage.states() == ["injected", "heal_started", "healed"]


def test_a_process_that_does_not_run_is_refused_before_any_change(stage: Stage) -> None:
    stage.add_worker("w0")
    (stage.folder / "gone.pid").write_text("999999999")
    stage.targets["gone"] = {**stage.targets["w0"], "pid_file": "gone.pid"}
    faults = [{"kind": "process_kill", "target": name} for name in ("w0", "gone")]
    first = stage.pid("w0")
    with pytest.raises(FaultRefused, match=r"gone: .* does not run"):
        _run(stage, *faults)
    assert is_alive(first)
    (stage.folder / "gone.pid").unlink()


def test_a_process_that_ended_during_the_run_ends_it_as_not_verified(stage: Stage) -> None:
    for name in ("w0", "w1"):
        stage.add_worker(name)
    config = stage.write(*({"kind": "process_pause", "target": name} for name in ("w0", "w1")))

    def say(line: str) -> None:
        if line.startswith("failure:"):
            os.kill(stage.pid("w1"), signal.SIGKILL)
            wait_until(lambda: not is_alive(stage.pid("w1")), "w1 has ended")

    with pytest.raises(NotVerified, match=r"w1: .* does not run; .* run ended"):
        run(config, timeline(config), say, threading.Event())
    assert state_of(stage.pid("w0")) == "S"
    assert stage.unhealed() == []


def test_the_runner_itself_is_refused_as_a_target(stage: Stage) -> None:
    stage.targets["me"] = {"type": "process", "pid": os.getpid()}
    with pytest.raises(FaultRefused, match="fault runner itself"):
        _run(stage, {"kind": "process_pause", "target": "me"})


def _run(stage: Stage, *faults: dict[str, object], **more: object) -> None:
    config = stage.write(*faults, **more)
    run(config, timeline(config), lambda _: None, threading.Event())


def test_ps_and_proc_report_the_same_process(stage: Stage) -> None:
    stage.add_worker("w0")
    pid = stage.pid("w0")
    by_ps, by_us = status_from_ps(pid), status_of(pid)
    assert by_ps is not None
    assert by_us is not None
    assert (by_ps.pid, by_ps.group, by_ps.is_stopped) == (by_us.pid, by_us.group, by_us.is_stopped) == (pid, pid, False)
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "it stops")
    stopped = status_from_ps(pid)
    assert stopped is not None
    assert stopped.is_stopped
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "it dies")
    assert status_from_ps(pid) is None
    assert status_of(pid) is None


def test_another_process_with_the_same_id_is_not_touched(stage: Stage) -> None:
    stage.add_worker("w0")
    config = stage.write({"kind": "process_pause", "target": "w0"})
    fault = timeline(config).steps[0].fault
    pause = injection(fault, Path(config.state))
    pause.prepare()
    (known,) = pause.facts.processes
    pause.facts = Facts(processes=(known.model_copy(update={"started": "long ago"}),))
    pause.inject()
    assert not pause.is_active()
    assert state_of(stage.pid("w0")) != "T"


def test_a_file_that_is_older_than_the_process_with_its_id_is_refused(stage: Stage) -> None:
    stage.add_worker("w0")
    file = stage.folder / "w0.pid"
    written = file.stat().st_mtime
    os.utime(file, (written - 60, written - 60))  # as after a reboot: another process has the id now
    with pytest.raises(FaultRefused, match=r"w0: process \d+ started after .*w0\.pid "):
        _run(stage, {"kind": "process_pause", "target": "w0"})
    assert state_of(stage.pid("w0")) != "T"
    os.utime(file, (written + 60, written + 60))
    _run(stage, {"kind": "process_pause", "target": "w0"})


@pytest.mark.skipif(sys.platform != "linux", reason="the start is read from /proc")
def test_a_file_with_the_start_of_its_process_is_accepted_after_a_clock_step(stage: Stage) -> None:
    stage.add_worker("w0")
    file, pid = stage.folder / "w0.pid", stage.pid("w0")
    written, seen = file.stat().st_mtime, status_of(pid)
    assert seen is not None
    file.write_text(f"{pid} {seen.started}\n")
    os.utime(file, (written - 3600, written - 3600))  # as after the clock was set forward
    _run(stage, {"kind": "process_pause", "target": "w0"})
    file.write_text(f"{pid} {int(seen.started) - 1}\n")
    with pytest.raises(FaultRefused, match=rf"w0: process {pid} .*w0\.pid, .* another start"):
        _run(stage, {"kind": "process_pause", "target": "w0"})
    file.write_text(f"{pid}\n")


def test_two_files_that_name_one_process_are_refused(stage: Stage) -> None:
    stage.add_worker("w0")
    (stage.folder / "again.pid").write_text(str(stage.pid("w0")))
    stage.targets["again"] = {"type": "process", "pid_file": "again.pid"}
    with pytest.raises(FaultRefused, match=r"again and w0 .* process \d+"):
        _run(stage, {"kind": "process_pause", "target": {"pick": "all"}})
    assert state_of(stage.pid("w0")) != "T"
