"""``streamproof demo``: it reports the violations of the kill, and leaves nothing behind however it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from testbed.checkout import python_path, streamproof
from testbed.demo.folder import PREFIX

SECONDS_MAX: Final = 400.0
LEFT_SECONDS_MAX: Final = 10.0
STOP_SECONDS_MAX: Final = 30.0


class Demo:
    """One demo as a process. Everything that it starts has ``folder`` in its environment as a mark."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.output = folder.parent / f"{folder.name}.log"
        with self.output.open("wb") as log:
            self.process = subprocess.Popen(
                [str(part) for part in streamproof("demo", *arguments)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **python_path(), "TMPDIR": str(folder)},
                start_new_session=True,
            )

    def said(self) -> str:
        return self.output.read_text(errors="replace")

    def await_line(self, text: str) -> None:
        until(lambda: text in self.said() or self.process.poll() is not None, SECONDS_MAX, self.said)
        assert text in self.said(), self.said()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS_MAX)

    def others(self) -> list[str]:
        """Return the command lines of this demo's live processes, without the demo itself."""
        return [command for pid, command in marked(str(self.folder)) if pid != self.process.pid]

    def folders(self) -> list[Path]:
        return list(self.folder.glob(PREFIX + "*"))

    def ports(self) -> list[int]:
        return [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", self.said())]


def marked(mark: str) -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes().decode(errors="replace")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if mark in environment and command:
            yield int(entry.name), command


def until(holds: Callable[[], bool], seconds: float, complaint: Callable[[], object]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, complaint()
        time.sleep(0.05)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    folder.mkdir(exist_ok=True)
    running = Demo(folder, *arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def assert_no_process_left(ended: Demo) -> None:
    until(lambda: not ended.others(), LEFT_SECONDS_MAX, ended.others)
    # The kernel clears a killed process's environment before it closes its sockets.
    until(lambda: not any(map(listens, ended.ports())), LEFT_SECONDS_MAX, ended.ports)


def assert_nothing_left(ended: Demo) -> None:
    assert_no_process_left(ended)
    assert list(ended.folder.iterdir()) == []


@pytest.mark.timeout(600)
def test_the_demo_reports_the_violations_of_its_kill(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", "--seconds", "20", "--seed", "7") as running:
        assert running.process.wait(SECONDS_MAX) == 1, running.said()
        said = " ".join(running.said().split())
        assert said.startswith("streamproof ")
        assert "seed 7" in running.said().splitlines()[0]
        assert "Pipeline demo breaks its exactly-once guarantee." in said
        assert not re.search("incubator|Picked up", said), "the noise of a JVM"
        assert re.search(r"[1-9][\d,]* duplicates: [^.]*\. All after fault kill-the-engine on", said)
        assert re.search(r"at_least_once +pass", said)
        assert "The coverage sums balance." in said
        memory = re.search(r"Memory: at most ([\d.]+) GiB in (\d+) processes\.$", said)
        assert memory is not None, said
        # The demo itself, the broker, the sidecar with its JVM, and the load or the engine.
        assert 0.5 < float(memory[1]) < 8
        assert int(memory[2]) >= 5
        assert_nothing_left(running)


@pytest.mark.full
@pytest.mark.timeout(600)
def test_the_demo_judges_a_stage_of_a_chain(tmp_path: Path) -> None:
    options = ("--workload", "traffic_lanes", "--engine", "reference:exactly_once", "--seconds", "20")
    with demo(tmp_path / "demo", *options) as running:
        assert running.process.wait(SECONDS_MAX) == 0, running.said()
        said = " ".join(running.said().split())
        assert re.search(r"earlier stages have made [1-9][\d,]* events of it", said)
        assert "Nothing was lost, counted again or invented: the guarantee held in this run." in said
        assert "The coverage sums balance." in said
        assert_nothing_left(running)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("hears_hangups")
@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("starting a Kafka broker", signal.SIGINT),
        ("the broker is at", signal.SIGTERM),
        ("status page", signal.SIGHUP),
        ("FAULT", signal.SIGINT),
        ("the load has ended", signal.SIGINT),
    ],
)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path, line: str, number: signal.Signals) -> None:
    with demo(tmp_path / "demo", "--seconds", "10") as running:
        running.await_line(line)
        assert running.end(number) == 130, running.said()
        assert "Traceback" not in running.said()
        if line in ("FAULT", "the load has ended"):
            report = running.said().partition("interrupted: this is the report of the last batch")[2]
            assert "guarantee       whole run" in report
        assert_nothing_left(running)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_killed_demo_leaves_no_process_and_the_next_one_removes_its_folder(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", "--seconds", "10") as first:
        first.await_line("FAULT")
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
        assert_no_process_left(first)
        assert len(first.folders()) == 1
    with demo(tmp_path / "demo", "--seconds", "10") as second:
        second.await_line("starting a Kafka broker")
        assert second.end(signal.SIGINT) == 130
        assert_nothing_left(second)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_jvms_of_the_demo_unpack_into_its_folder(tmp_path: Path) -> None:
    with demo(tmp_path / "demo", "--seconds", "10") as running:
        running.await_line("the broker is at")
        until(lambda: len(javas(running)) >= 2, SECONDS_MAX, running.said)
        for command in javas(running):
            assert f"-Djava.io.tmpdir={tmp_path}" in command, command


def javas(running: Demo) -> list[str]:
    """Return the command lines of the JVMs, including the options from their environment."""
    found = []
    for pid, command in marked(str(running.folder)):
        if "java" in command.split()[0]:
            environment = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
            options = [entry for entry in environment.split("\0") if entry.startswith("JAVA_TOOL_OPTIONS=")]
            found.append(" ".join([command, *options]))
    return found


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--engine", "flink:at_most_once"), "--engine flink:at_most_once is not supported; use one of exactly_once,"),
        (("--engine", "nothing"), "--engine nothing is not a demo engine"),
        (("--engine", "reference:perhaps"), "--engine reference:perhaps is not a guarantee"),
        (("--engine", "mutant:drop=2"), "the rate of drop must be above 0 and at most 1"),
        (("--fault", "earthquake"), "--fault earthquake is not a demo fault; use kill, pause, none or a kind that"),
        (("--seconds", "3"), "--seconds 3 is too short"),
    ],
)
def test_the_demo_refuses_with_one_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    with demo(tmp_path / "demo", *arguments) as refused:
        assert refused.process.wait(60) == 2
        assert sentence in refused.said()
        assert len(refused.said().splitlines()) == 1
        assert_nothing_left(refused)
