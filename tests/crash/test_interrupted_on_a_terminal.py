"""Ctrl-C and systemd's SIGTERM reach every process of a sidecar. It ends cleanly, with the verdict so far and
without a partial batch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from testbed.processes import OwnedProcess
from tests.crash import history
from tests.crash.sidecars import PROCESS_SECONDS_MAX, Sidecars, await_no_orphan, jvm_of, until
from tests.tiers import full

ROOT = Path(__file__).parents[2]
TRACES = ("Exception", "Traceback", "py4j", "ERROR", "Error", "\tat ")


def children_of(root: int) -> dict[int, str]:
    """Return process id -> command line of ``root`` and all its descendants, in any process group."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], check=True, capture_output=True, text=True)
    parents = {int(line.split()[0]): (int(line.split()[1]), line) for line in listed.stdout.splitlines()}
    found = {root}
    while more := {pid for pid, (parent, _) in parents.items() if parent in found} - found:
        found |= more
    return {pid: parents[pid][1] for pid in found if pid in parents}


def traces_in(sidecars: Sidecars) -> list[str]:
    """Return the log's lines with traces of code."""
    said = (sidecars.folder / "interrupted.log").read_text().splitlines()
    return [line for line in said if any(trace in line for trace in TRACES)]


def has_child(process: OwnedProcess, what: str) -> bool:
    return any(what in command for command in children_of(process.pid).values())


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        full(signal.SIGTERM, "the JVM starts"),
        full(signal.SIGTERM, "the first batch"),
        (signal.SIGTERM, "a report is there"),
        full(signal.SIGINT, "the first batch"),
    ],
)
def test_a_signal_to_all_processes_ends_the_sidecar_with_its_verdict(
    sidecars: Sidecars, number: signal.Signals, moment: str
) -> None:
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    process = sidecars.start("interrupted")
    reached = {
        "the JVM starts": lambda: has_child(process, "java"),
        "the first batch": lambda: has_child(process, "python_daemon"),
        "a report is there": (sidecars.state("interrupted") / "report.json").exists,
    }
    try:
        until(reached[moment], PROCESS_SECONDS_MAX, process.last_lines)
        members = children_of(process.pid)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        status = process.wait(60)
        await_no_orphan(process.pid)
        until(lambda: not any(map(is_alive, members)), 5.0, lambda: f"left: {members}")
    finally:
        process.kill()
    outcome = sidecars.report("interrupted")["outcome"] if moment == "a report is there" else "unknown"
    assert status == {"pass": 0, "fail": 1, "unknown": 3}[outcome]
    assert traces_in(sidecars) == []
    assert not (sidecars.state("interrupted") / "endpoint.json").exists()


@pytest.mark.full
@pytest.mark.timeout(120)
def test_spark_does_not_take_ctrl_c_from_the_sidecar() -> None:
    """PySpark's context sets a handler that raises KeyboardInterrupt. The session starts with that of the sidecar."""
    script = """
import pathlib, signal, sys
from pyspark import SparkContext
from pyspark.sql import SparkSession
from validator.stream import jars, session
def own(*_): pass
signal.signal(signal.SIGINT, own)
def began(_): sys.exit(0 if SparkContext._active_spark_context and signal.getsignal(signal.SIGINT) is own else 7)
SparkSession.Builder.getOrCreate = began
session.start("handler", "local[1]", jars.resolve(pathlib.Path(jars.__file__).with_name("jars.lock")), {})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=False, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.full
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "launch",
    [
        "ctrl_c(); reached.append(1)",
        "ctrl_c(); reached.append(1); raise RuntimeError",
        "ctrl_c(); reached.append(1); ctrl_c(); reached.append(2)",
    ],
    ids=["ends", "fails", "hangs"],
)
def test_a_first_ctrl_c_waits_for_the_launch_of_a_jvm_and_a_second_one_interrupts_it(
    launch: str, tmp_path: Path
) -> None:
    """A JVM whose launch is interrupted can run for ever, but a launch that hangs must end."""
    script = f"""
import os, pathlib, signal, sys
from pyspark import java_gateway
from validator.stream import session
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with SIGINT ignored
reached = []
def ctrl_c(): os.kill(os.getpid(), signal.SIGINT)
def launch(**_): {launch}
java_gateway.launch_gateway = launch
try:
    session._launched({{}}, (), (), pathlib.Path({str(tmp_path)!r}))
except KeyboardInterrupt:
    print(reached, signal.getsignal(signal.SIGINT) is signal.default_int_handler)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, check=False, capture_output=True, text=True, timeout=100
    )
    assert (done.stdout, done.stderr) == ("[1] True\n", "")


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    answer = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True)
    return answer.stdout.strip()[:1] not in ("", "Z")


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_or_a_closed_terminal_ends_the_sidecar_with_its_verdict(
    sidecars: Sidecars, number: signal.Signals
) -> None:
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    inherited = signal.signal(number, signal.SIG_DFL)  # tests under nohup ignore SIGHUP, and so would the sidecar
    try:
        process = sidecars.start("interrupted")
    finally:
        signal.signal(number, inherited)
    try:
        until((sidecars.state("interrupted") / "report.json").exists, PROCESS_SECONDS_MAX, process.last_lines)
        os.killpg(process.pid, number)  # a terminal signals the whole foreground group
        status = process.wait(60)
        await_no_orphan(process.pid)
    finally:
        process.kill()
    outcome = sidecars.report("interrupted")["outcome"]
    assert status == {"pass": 0, "fail": 1, "unknown": 3}[outcome]
    assert "Exception" not in (sidecars.folder / "interrupted.log").read_text()
    assert not (sidecars.state("interrupted") / "endpoint.json").exists()


@pytest.mark.full
@pytest.mark.timeout(600)
def test_a_killed_jvm_is_reported_in_one_sentence(sidecars: Sidecars) -> None:
    history.append(sidecars.servers, history.clicks(sidecars.name, range(2)))
    process = sidecars.start("interrupted")
    try:
        until((sidecars.state("interrupted") / "report.json").exists, PROCESS_SECONDS_MAX, process.last_lines)
        os.kill(jvm_of(process.pid), signal.SIGKILL)
        assert process.wait(60) == 3
        await_no_orphan(process.pid)
    finally:
        process.kill()
    *_, last = (sidecars.folder / "interrupted.log").read_text().splitlines()
    assert last.startswith("streamproof: the Spark JVM ended (SIGKILL ")
    assert traces_in(sidecars) == []
