"""Pressure on the machine and full folders, measured with the system's counters."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from faults.errors import FaultRefused
from faults.journal import read
from tests.faults.stage import Stage

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="the probe reads /proc, which only Linux has")


def usage_of(stage: Stage) -> list[tuple[int, float]]:
    """Return (resident kibibytes, percent of a processor) of each load process, from ps."""
    (entry,) = read(stage.folder / "st").values()
    pids = ",".join(str(process.pid) for process in entry.facts.processes)
    answer = subprocess.run(["ps", "-o", "rss=,pcpu=", "-p", pids], check=False, capture_output=True, text=True)
    return [(int(line.split()[0]), float(line.split()[1])) for line in answer.stdout.splitlines()]


@pytest.mark.full
@linux_only
def test_processors_are_kept_busy(stage: Stage) -> None:
    during: list[tuple[int, float]] = []
    fault = {"kind": "cpu_pressure", "target": "here", "parameters": {"workers": 2}}
    stage.during(fault, lambda: during.extend(usage_of(stage)))
    assert len(during) == 2
    assert all(percent > 5 for _, percent in during)
    assert usage_of(stage) == []


@linux_only
def test_memory_is_held_until_the_fault_is_healed(stage: Stage) -> None:
    during: list[tuple[int, float]] = []
    fault = {"kind": "memory_pressure", "target": "here", "parameters": {"bytes": "64MiB"}}
    stage.during(fault, lambda: during.extend(usage_of(stage)))
    ((kibibytes, _),) = during
    assert kibibytes >= 64 * 1024
    assert usage_of(stage) == []


@linux_only
def test_more_memory_than_is_available_is_refused(stage: Stage) -> None:
    fault = {"kind": "memory_pressure", "target": "here", "parameters": {"bytes": "9999GiB"}}
    with pytest.raises(FaultRefused, match="take fewer"):
        stage.during(fault, lambda: None)


@pytest.mark.full
def test_a_folder_is_filled_until_the_fault_is_healed(stage: Stage) -> None:
    sizes: list[int] = []

    def look() -> None:
        sizes.extend(file.stat().st_blocks * 512 for file in stage.folder.glob(".streamproof-fault-*"))

    stage.during({"kind": "disk_full", "target": "disk", "parameters": {"bytes": "8MiB", "reserve": "1MiB"}}, look)
    assert len(sizes) == 1
    assert sizes[0] >= 8 << 20
    assert list(stage.folder.glob(".streamproof-fault-*")) == []


def test_a_disk_that_would_fill_up_below_its_reserve_is_refused(stage: Stage) -> None:
    free = shutil.disk_usage(stage.folder).free
    fault = {"kind": "disk_full", "target": "disk", "parameters": {"bytes": "1MiB", "reserve": free + (1 << 30)}}
    with pytest.raises(FaultRefused, match="reserve is"):
        stage.during(fault, lambda: None)
    assert list(stage.folder.glob(".streamproof-fault-*")) == []
