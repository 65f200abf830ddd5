"""Owned processes end with their group, and with the process that owns them, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from testbed.processes import OwnedProcess, ProcessStartError
from tests.process_end import await_end, needs_pidfd

# A leader with a second process in its group. It prints both process ids, then waits.
FAMILY = "sleep 600 & echo $$ $!; wait"


def first_line_of(log: Path) -> str:
    """Wait for the first line of a growing file."""
    with subprocess.Popen(["tail", "-n", "+1", "-f", log], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        line = tail.stdout.readline().strip()
        tail.kill()
    return line


@needs_pidfd
@pytest.mark.parametrize("end", ["terminate", "kill"])
def test_terminate_and_kill_end_the_whole_process_group(tmp_path: Path, end: str) -> None:
    process = OwnedProcess(["bash", "-c", FAMILY], log=tmp_path / "log")
    leader, member = map(int, first_line_of(process.log).split())
    assert leader == process.pid == os.getpgid(member)
    status = process.terminate() if end == "terminate" else process.kill()
    assert status == -(signal.SIGTERM if end == "terminate" else signal.SIGKILL)
    assert await_end(member)
    assert process.terminate() == status, "ending what has ended is no error"


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"
    process = OwnedProcess([sys.executable, "-c", program], log=tmp_path / "log")
    assert first_line_of(process.log) == "deaf"
    assert process.terminate(grace_seconds=0.2) == -signal.SIGKILL


def test_a_paused_process_ends(tmp_path: Path) -> None:
    process = OwnedProcess(["sleep", "600"], log=tmp_path / "log")
    process.send_signal(signal.SIGSTOP)
    assert process.terminate() == -signal.SIGTERM


def test_a_process_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    started: list[OwnedProcess] = []
    thread = threading.Thread(target=lambda: started.append(OwnedProcess(["sleep", "600"], log=tmp_path / "log")))
    thread.start()
    thread.join()
    with started[0] as process, pytest.raises(TimeoutError):
        process.wait(0.3)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the constructor raises")
def test_a_missing_program_is_named_in_the_log(tmp_path: Path) -> None:
    # The kernel ties the child to its parent before exec, so the child reports the failure, as in a shell.
    with OwnedProcess(["no-such-program"], log=tmp_path / "log") as process:
        assert process.wait(10) == 127
        assert "no-such-program: " in process.last_lines()


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProcessStartError, match="no-such-folder"):
        OwnedProcess(["true"], log=tmp_path / "log", folder=tmp_path / "no-such-folder")


@needs_pidfd
def test_no_process_survives_the_sigkill_of_its_parent(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from testbed.processes import OwnedProcess\n"
        f"process = OwnedProcess(['bash', '-c', {FAMILY!r}], log=pathlib.Path(sys.argv[1]))\n"
        "sys.stdin.read()\n"
    )
    log = tmp_path / "log"
    log.touch()
    with subprocess.Popen([sys.executable, "-c", program, log], stdin=subprocess.PIPE) as parent:
        leader, member = map(int, first_line_of(log).split())
        parent.kill()
    assert await_end(leader), "the leader lives"
    assert await_end(member), "a further member of the group lives"
