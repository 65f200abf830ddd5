"""A disk that is slow for one process, by that process's own measurement."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from faults.backends import block_throttle
from faults.errors import FaultRefused
from faults.journal import read
from faults.runner import run
from faults.schedule import timeline
from tests.faults.stage import HEALERS, ROOT, Stage, abandoned, wait_until

SIZE = 300_000
# Writes and syncs in a loop, and reports the duration of each pass.
_WRITES = """
import os, sys, time
while True:
    started = time.monotonic()
    with open(sys.argv[1] + ".data", "wb", buffering=0) as out:
        out.write(os.urandom(300_000))
        os.fsync(out.fileno())
    with open(sys.argv[1] + ".new", "w") as out:
        out.write(str(time.monotonic() - started))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.1)
"""
FAULT: dict[str, Any] = {"kind": "disk_slow", "target": "data", "parameters": {"bytes_per_second": "400KB"}}


def why_not(folder: Path) -> str | None:
    reason = block_throttle.why_not_here()
    if reason is None:
        try:
            block_throttle.disk_of(folder)
        except FaultRefused as error:
            reason = str(error)
    return reason


class Writer:
    """A process that writes into a folder; a target of the stage."""

    def __init__(self, stage: Stage) -> None:
        self._times_file, self._folder = stage.folder / "took", stage.folder
        self.process = self._start()
        stage.targets["data"] = {"type": "folder", "path": ".", "pid_file": "writer.pid"}
        wait_until(self._times_file.exists, "it has written")

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", _WRITES, str(self._times_file)]
        process = subprocess.Popen(command, start_new_session=True)
        (self._folder / "writer.pid").write_text(str(process.pid))
        return process

    def start_again(self) -> None:
        """Start it again like a supervisor: a new process outside the ended one's control group."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def seconds(self) -> float:
        """Return the duration of a write that begins after this call."""
        for _ in range(2):  # the current pass may have begun before
            before = self._times_file.stat().st_mtime_ns
            wait_until(lambda before=before: self._times_file.stat().st_mtime_ns > before, "it has written again")  # type: ignore[misc]
        return float(self._times_file.read_text())


@pytest.fixture
def writer(stage: Stage) -> Iterator[Writer]:
    reason = why_not(stage.folder)
    if reason is not None:
        pytest.skip(f"disk_slow: {reason}")
    others = groups()  # another run's, for example a demo's
    made = Writer(stage)
    yield made
    made.process.kill()
    made.process.wait()
    assert groups() <= others
    assert list(stage.folder.glob(".streamproof-fault-*")) == []


def groups() -> set[str]:
    """Return the existing control groups of this project."""
    lines = Path("/proc/mounts").read_text().splitlines()
    (root,) = [line.split()[1] for line in lines if line.split()[2] == "cgroup" and "blkio" in line.split()[3]]
    return {group.name for group in Path(root).glob("streamproof-*")}


@pytest.mark.full
def test_the_writes_of_one_process_are_slow_until_it_is_healed(stage: Stage, writer: Writer) -> None:
    seen: list[tuple[float, float]] = []
    home = block_throttle.group_of(writer.process.pid)

    def look() -> None:
        seen.append((writer.seconds(), block_throttle.write_seconds(stage.folder, SIZE, 5.0)))

    stage.during(FAULT, look)
    ((slowed, beside),) = seen
    assert slowed >= 0.4, "300 KB less the first slice at 400 KB/s are 0.65 s"
    assert beside < slowed, "another process on the same disk is not limited"
    assert writer.seconds() < 0.4
    assert block_throttle.group_of(writer.process.pid) == home


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_disk_of_a_killed_runner_is_fast_again(stage: Stage, writer: Writer, healer: str) -> None:
    abandoned(stage, FAULT, healer, lambda: writer.seconds() >= 0.4)
    assert writer.seconds() < 0.4


@pytest.mark.full
def test_a_disk_fault_is_healed_after_its_process_ended(stage: Stage, writer: Writer) -> None:
    def end() -> None:
        writer.process.kill()
        writer.process.wait()

    stage.during(FAULT, end)


@pytest.mark.full
def test_a_process_that_is_started_again_is_slow_too(stage: Stage, writer: Writer) -> None:
    config = stage.write({**FAULT, "for": "600s"})
    is_in, stop, ended = threading.Event(), threading.Event(), threading.Event()

    def say(line: str) -> None:
        if line.startswith("failure:"):
            is_in.set()

    def break_it() -> None:
        try:
            run(config, timeline(config), say, stop)
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(break_it)
        try:
            wait_until(lambda: is_in.is_set() or ended.is_set(), "the disk is slow")
            writer.start_again()
            wait_until(lambda: writer.seconds() >= 0.4, "the new process is slow")
        finally:
            stop.set()
        running.result()
    assert stage.unhealed() == []
    assert writer.seconds() < 0.4
    assert block_throttle.group_of(writer.process.pid) == block_throttle.group_of(os.getpid())


def test_a_folder_whose_process_is_not_named_is_refused(stage: Stage, writer: Writer) -> None:
    del stage.targets["data"]["pid_file"]
    with pytest.raises(FaultRefused, match="data: set pid_file"):
        stage.during(FAULT, lambda: None)
    assert read(stage.folder / "st") == {}


def test_a_folder_on_no_disk_is_refused(stage: Stage, writer: Writer) -> None:
    stage.targets["data"]["path"] = "/proc"
    with pytest.raises(FaultRefused, match=r"/proc: .* block device"):
        stage.during(FAULT, lambda: None)


@pytest.mark.skipif(block_throttle.why_not_here() is None, reason="this host can")
def test_an_unfit_host_gives_the_reason(stage: Stage) -> None:
    stage.targets["data"] = {"type": "folder", "path": ".", "pid_file": "writer.pid"}
    with pytest.raises(FaultRefused, match="disk_slow cannot be done"):
        stage.during(FAULT, lambda: None)


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, to become another user")
def test_without_root_it_is_refused_with_the_reason() -> None:
    asked = "from faults.backends.block_throttle import why_not_here as why; import os; os.setuid(65534); print(why())"
    said = subprocess.check_output([sys.executable, "-c", asked], cwd=ROOT, text=True)
    assert "needs root" in said
