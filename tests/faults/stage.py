"""Targets of the measured tests: processes that sleep, an echo server behind a link, and the proxy in front of it."""

from __future__ import annotations

import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from faults.config import FaultConfig, load
from faults.journal import Journal, read
from faults.runner import run
from faults.schedule import timeline
from testbed.ports import free_port
from validator.cli.main import main

WITHIN_SECONDS = 20.0
STREAMPROOF = [sys.executable, "-m", "validator.cli.main", "faults"]
ROOT = Path(__file__).parents[2]


def wait_until(holds: Callable[[], bool], what: str, seconds: float = WITHIN_SECONDS) -> None:
    """Wait until ``holds`` returns true; fail the test with ``what`` if it does not."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        pause.wait(0.01)


def state_of(pid: int) -> str:
    """Return the process's state as a letter of ps: T stopped, Z zombie; empty if there is no process."""
    answer = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], check=False, capture_output=True, text=True)
    return answer.stdout.strip()[:1]


def is_alive(pid: int) -> bool:
    return state_of(pid) not in ("", "Z")


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with suppress(OSError):
            while content := self.request.recv(65536):
                self.request.sendall(content)


class _EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = True


class Stage:
    """Targets in a folder, and the configuration file with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "faults.yaml"
        self.targets: dict[str, Any] = {"disk": {"type": "folder", "path": "."}, "here": {"type": "machine"}}
        self.link_port = 0
        self.listener: socket.socket
        self.proxies: list[subprocess.Popen[bytes]] = []
        self._started: list[subprocess.Popen[bytes]] = []

    def add_worker(self, name: str, **more: Any) -> None:
        """Start a process that sleeps, and add it as a target with its start command."""
        command = ["sleep", "600"]
        process = subprocess.Popen(command, start_new_session=True)
        self._started.append(process)
        (self.folder / f"{name}.pid").write_text(f"{process.pid}\n")
        self.targets[name] = {"type": "process", "pid_file": f"{name}.pid", "start": command, **more}

    def pid(self, name: str) -> int:
        return int((self.folder / f"{name}.pid").read_text())

    @contextmanager
    def link(self) -> Iterator[None]:
        """Run an echo server, and the proxy in front of it."""
        with _EchoServer(("127.0.0.1", 0), _Echo) as echo:
            threading.Thread(target=echo.serve_forever, daemon=True).start()
            try:
                with self.proxy(free_port(), f"127.0.0.1:{echo.server_address[1]}"):
                    yield
            finally:
                echo.shutdown()

    @contextmanager
    def proxy(self, port: int, upstream: str) -> Iterator[None]:
        """Serve a link from ``port`` to ``upstream`` with `streamproof faults proxy`."""
        self.link_port = port
        self.targets["link"] = {"type": "link", "listen": f"127.0.0.1:{port}", "upstream": upstream}
        self.write()
        process = subprocess.Popen([*STREAMPROOF, "proxy", self.file], cwd=ROOT, stdout=subprocess.PIPE)
        self.proxies.append(process)
        try:
            assert process.stdout is not None
            lines = [process.stdout.readline(), process.stdout.readline()]
            assert lines[1].startswith(b"the proxy is ready"), lines
            yield
        finally:
            process.terminate()
            assert process.wait(WITHIN_SECONDS) in (0, -signal.SIGKILL)

    def write(self, *faults: dict[str, Any], **more: Any) -> FaultConfig:
        """Write the file with these faults, one after the other."""
        content = {
            "state": "st",
            "targets": self.targets,
            "schedule": {"faults": list(faults) or [{"kind": "process_pause", "target": "w0"}]},
            **more,
            # Tests do not wait for survival after healing.
            "limits": {"survives": "0s", **more.get("limits", {})},
        }
        self.file.write_text(yaml.safe_dump(content))
        return load(self.file)

    def during(self, fault: dict[str, Any], look: Callable[[], None], **more: Any) -> None:
        """Run one fault in this process. Call ``look`` while its probe reports the fault as active."""
        config = self.write(fault, **more)
        looked = []

        def say(line: str) -> None:
            if line.startswith("failure:"):
                look()
                looked.append(line)

        run(config, timeline(config), say, threading.Event())
        assert len(looked) == 1
        assert self.unhealed() == []

    def unhealed(self) -> list[str]:
        """Return the names of the journal's unhealed faults. Waits for the process that holds the journal."""
        with Journal.locked(self.folder / "st", wait="wait") as journal:
            return [entry.fault.name for entry in journal.open_entries()]

    def states(self) -> list[str]:
        """Return the states that the journal's newest fault reached, in order."""
        with Journal.locked(self.folder / "st", wait="wait"):
            return self.seen()

    def seen(self) -> list[str]:
        """Return the same as `states`, while another process may be writing the journal."""
        newest = list(read(self.folder / "st").values())[-1]
        return sorted(newest.states, key=lambda state: newest.states[state])

    def clear(self) -> None:
        """End the processes that the stage or a healing started."""
        pids = {process.pid for process in self._started}
        pids |= {int(file.read_text()) for file in self.folder.glob("*.pid")}
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._started:
            process.wait()


class Runner:
    """`streamproof faults run` on a stage's file. The constructor returns when it has printed ``until``."""

    def __init__(self, stage: Stage, until: str = "failure:") -> None:
        self.process = subprocess.Popen(
            [*STREAMPROOF, "run", stage.file], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.said: list[str] = []
        self.hear(until)

    def hear(self, until: str) -> str:
        """Wait for a line that contains ``until``, and return it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if until in line:
                return line
        raise AssertionError(f"it never said {until!r}: {self.said}")

    def watchdog(self) -> int:
        found = subprocess.check_output(["ps", "-A", "-o", "pid=,ppid=,args="], text=True).splitlines()
        rows = [line.split(maxsplit=2) for line in found]
        (pid,) = [int(r[0]) for r in rows if int(r[1]) == self.process.pid and "faults.watch" in r[2]]
        return pid

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(WITHIN_SECONDS)

    def stop(self) -> str:
        """Stop it with SIGTERM; return its remaining output."""
        self.process.terminate()
        return self.process.communicate(timeout=WITHIN_SECONDS)[0]


KILLED = ("watchdog", pytest.param("heal", marks=pytest.mark.full))
"""What heals after a killed runner: its watchdog, or ``faults heal`` if the watchdog was killed too."""
HEALERS = (*KILLED, "stopped")
"""The same, and a runner that is stopped by SIGTERM, which heals its own faults."""


def abandoned(stage: Stage, fault: dict[str, Any], healer: str, is_in: Callable[[], bool]) -> None:
    """End a runner while its fault is active (``is_in``). Return when ``healer`` has healed it; all states must be
    reached."""
    stage.write({**fault, "for": "600s"})
    if healer == "stopped":
        _stopped(stage, is_in)
    else:
        _killed(stage, healer, is_in)
    wait_until(lambda: stage.unhealed() == [], f"the {healer} has healed")
    assert stage.states() == ["injected", "verified", "heal_started", "healed"]


def _killed(stage: Stage, healer: str, is_in: Callable[[], bool]) -> None:
    runner = Runner(stage)
    try:
        assert is_in()
        if healer == "heal":
            os.kill(runner.watchdog(), signal.SIGKILL)
        runner.kill()
    finally:
        runner.stop()
    if healer == "heal":
        assert len(stage.unhealed()) == 1
        heal(stage)


def _stopped(stage: Stage, is_in: Callable[[], bool]) -> None:
    """Run the command in this process, which is much faster than a new one, and send SIGTERM to it."""

    def stop() -> bool:
        try:
            wait_until(lambda: any("verified" in e.states for e in read(stage.folder / "st").values()), "it is active")
            return is_in()
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, lambda *_: None)  # must not end the tests if the command has ended
    try:
        with ThreadPoolExecutor(1) as beside:
            was_in = beside.submit(stop)
            status = main(["faults", "run", str(stage.file)])
        assert was_in.result()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert status == 130
    assert stage.unhealed() == []


def heal(stage: Stage) -> None:
    """Run `streamproof faults heal`, which must succeed."""
    command = [*STREAMPROOF, "heal", stage.file]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=3 * WITHIN_SECONDS, check=False)
    assert ran.returncode == 0, ran.stderr


def echo_seconds(port: int, content: bytes = b"ping", timeout_seconds: float = 5.0) -> float:
    """Return the echo time of ``content``. Raises TimeoutError or ConnectionError if it does not return."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout_seconds) as connection:
        connection.sendall(content)
        got = 0
        while got < len(content):
            received = connection.recv(65536)
            if not received:
                raise ConnectionResetError("ended")
            got += len(received)
    return time.monotonic() - started
