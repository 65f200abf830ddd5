"""The clock of a process with libfaketime, as the process itself writes it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from faults.backends import faketime
from faults.errors import FaultRefused
from tests.faults.stage import HEALERS, Stage, abandoned, wait_until

LIBRARY = os.environ.get("STREAMPROOF_TEST_FAKETIME") or str(faketime.installed() or "")
_PRINTS_CLOCK = """
import os, select, sys, time
while True:
    with open(sys.argv[1] + ".new", "w") as out:
        out.write(str(time.time()))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
    select.select([], [], [], 0.02)  # time.sleep fails under libfaketime 0.9.10
"""

needs_library = pytest.mark.skipif(not LIBRARY, reason="libfaketime is not installed")


class Clock:
    """A process that writes its time; a target of the stage."""

    def __init__(self, stage: Stage, **variables: str) -> None:
        self._shown = stage.folder / "shown"
        file = stage.folder / "clock"
        file.write_text("+0\n")
        environment = {"FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1", "DONT_FAKE_MONOTONIC": "1"}
        command = [sys.executable, "-I", "-S", "-c", _PRINTS_CLOCK, str(self._shown)]
        self.process = subprocess.Popen(command, env=os.environ | environment | variables, start_new_session=True)
        (stage.folder / "c.pid").write_text(str(self.process.pid))
        stage.targets["c"] = {"type": "process", "pid_file": "c.pid", "clock_file": "clock"}
        wait_until(self._shown.exists, "it tells the time")

    def offset_seconds(self) -> float:
        """Return the clock's offset, from a time that the process writes after this call."""
        before = self._shown.stat().st_mtime_ns
        wait_until(lambda: self._shown.stat().st_mtime_ns > before, "it tells the time again")
        return float(self._shown.read_text()) - self._shown.stat().st_mtime_ns / 1e9


@needs_library
@pytest.mark.parametrize(("offset", "seconds"), [("10m", 600), ("-1h", -3600)])
def test_a_process_sees_a_shifted_time_until_the_fault_is_healed(stage: Stage, offset: str, seconds: float) -> None:
    clock = Clock(stage, LD_PRELOAD=LIBRARY)
    seen: list[float] = []
    fault = {"kind": "clock_skew", "target": "c", "parameters": {"offset": offset}}
    stage.during(fault, lambda: seen.append(clock.offset_seconds()))
    assert seen == [pytest.approx(seconds, abs=10)]
    assert clock.offset_seconds() == pytest.approx(0, abs=10)
    assert clock.process.poll() is None
    clock.process.kill()
    clock.process.wait()


@pytest.mark.full
@needs_library
@pytest.mark.parametrize("healer", HEALERS)
def test_the_clock_fault_of_a_killed_runner_is_healed(stage: Stage, healer: str) -> None:
    clock = Clock(stage, LD_PRELOAD=LIBRARY)
    fault = {"kind": "clock_skew", "target": "c", "parameters": {"offset": "10m"}}
    abandoned(stage, fault, healer, lambda: clock.offset_seconds() > 500)
    assert clock.offset_seconds() == pytest.approx(0, abs=10)
    clock.process.kill()
    clock.process.wait()


def test_a_process_without_the_library_is_refused_with_its_start_command(stage: Stage) -> None:
    clock = Clock(stage)
    fault = {"kind": "clock_skew", "target": "c", "parameters": {"offset": "10m"}}
    with pytest.raises(FaultRefused, match=r"c: .*LD_PRELOAD=.*TIMESTAMP_FILE=.*/clock .*=1.* agent"):
        stage.during(fault, lambda: None)
    del stage.targets["c"]["clock_file"]
    with pytest.raises(FaultRefused, match="c: set clock_file"):
        stage.during(fault, lambda: None)
    assert (stage.folder / "clock").read_text() == "+0\n"
    clock.process.kill()
    clock.process.wait()


def test_a_clock_report_of_an_earlier_jvm_with_the_same_id_is_ignored(stage: Stage) -> None:
    clock = Clock(stage)
    left = stage.folder / f"clock.{clock.process.pid}"
    left.write_text("1700000000000\n")
    os.utime(left, (1_700_000_000, 1_700_000_000))
    with pytest.raises(FaultRefused, match=r"c: .* start it with LD_PRELOAD="):
        stage.during({"kind": "clock_skew", "target": "c", "parameters": {"offset": "10m"}}, lambda: None)
    clock.process.kill()
    clock.process.wait()


@pytest.mark.parametrize("variable", ["FAKETIME", "FAKETIME_START_AFTER_SECONDS"])
def test_a_clock_that_does_not_follow_its_file_is_refused(stage: Stage, variable: str) -> None:
    clock = Clock(stage, **{variable: "+0"})
    fault = {"kind": "clock_skew", "target": "c", "parameters": {"offset": "10m"}}
    with pytest.raises(FaultRefused, match=f"c: .* {variable}; "):
        stage.during(fault, lambda: None)
    clock.process.kill()
    clock.process.wait()
