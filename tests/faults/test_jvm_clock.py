"""The clock of a JVM with the clock agent: a program in the JVM writes the times that it reads."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faults.errors import FaultRefused, NotHealed
from testbed.engines import clock_agent
from testbed.engines.java_build import find_javac
from testbed.engines.settings import Clock
from testbed.processes import OwnedProcess
from tests.faults.stage import HEALERS, Stage, abandoned, heal, wait_until
from validator.stream.jars import find_java

# Reads the time of day in each possible way, and measures waits of 20 ms by the monotonic clock.
PRINTS_CLOCKS = """
import java.nio.file.*;
import java.time.*;
import java.util.Date;
import java.util.concurrent.locks.LockSupport;
import java.util.function.LongSupplier;

class Tells {
    public static void main(String[] told) throws Exception {
        Path shown = Path.of(told[0]), fresh = Path.of(told[0] + ".new");
        LongSupplier referred = System::currentTimeMillis;
        while (true) {
            long before = System.nanoTime();
            Thread.sleep(20);
            double slept = (System.nanoTime() - before) / 1e6;
            double parked = 0, blocked = 0;
            for (int i = 0; i < 3; i++) { // one may come back early for no reason
                long began = System.nanoTime();
                LockSupport.parkUntil(System.currentTimeMillis() + 20);
                parked = Math.max(parked, (System.nanoTime() - began) / 1e6);
                began = System.nanoTime();
                LockSupport.parkUntil(shown, System.currentTimeMillis() + 20);
                blocked = Math.max(blocked, (System.nanoTime() - began) / 1e6);
            }
            Files.writeString(fresh, String.join(" ", "" + System.currentTimeMillis(), "" + new Date().getTime(),
                "" + Instant.now().toEpochMilli(), "" + Clock.systemUTC().millis(), "" + referred.getAsLong(),
                "" + ZonedDateTime.now().toInstant().toEpochMilli(), "" + slept, "" + parked, "" + blocked));
            Files.move(fresh, shown, StandardCopyOption.ATOMIC_MOVE);
        }
    }
}
"""


class Program:
    """A JVM that writes the times that it reads; a target of the stage."""

    def __init__(self, stage: Stage, java: Path) -> None:
        self.clock_file, self._shown = stage.folder / "clocks" / "c", stage.folder / "shown"
        self.clock_file.parent.mkdir()
        self.clock_file.write_text("+0\n")
        source = stage.folder / "Tells.java"
        source.write_text(PRINTS_CLOCKS)
        agent = f"-javaagent:{clock_agent.jar()}={self.clock_file}"
        command = [java, agent, "-Xmx64m", "-XX:+UseSerialGC", source, self._shown]
        self.process = OwnedProcess(command, log=stage.folder / "tells.log", name="program", folder=stage.folder)
        (stage.folder / "c.pid").write_text(str(self.process.pid))
        stage.targets["c"] = {"type": "process", "pid_file": "c.pid", "clock_file": "clocks/c"}
        wait_until(self._shown.exists, "it writes the time")

    def off_by(self) -> list[float]:
        """Return the offset in seconds of each way of reading the time, from values written after this call."""
        before = self._shown.stat().st_mtime_ns
        wait_until(lambda: self._shown.stat().st_mtime_ns > before, "it writes the time again")
        *millis, slept_ms, parked_ms, blocked_ms = map(float, self._shown.read_text().split())
        assert 19 < slept_ms < 5000, "a wait for a duration does not change"
        assert 18 < parked_ms < 5000, "nor does a wait until an instant of that clock"
        assert 18 < blocked_ms < 5000, "nor does such a wait with a blocker object"
        return [each / 1000 - self._shown.stat().st_mtime_ns / 1e9 for each in millis]


@pytest.fixture
def java(request: pytest.FixtureRequest) -> Path:
    """The project's Java, or another installed one."""
    ours = find_java().executable
    if not hasattr(request, "param"):
        return ours
    others = {found.resolve() for found in ours.resolve().parents[2].glob("*/bin/java")} - {ours.resolve()}
    return max(others) if others else pytest.skip(f"there is no other Java beside {ours.resolve().parents[1]}")


@pytest.fixture
def program(stage: Stage, java: Path) -> Iterator[Program]:
    made = Program(stage, java)
    yield made
    made.process.kill()


def skew(offset: str) -> dict[str, Any]:
    return {"kind": "clock_skew", "target": "c", "parameters": {"offset": offset}}


@pytest.mark.full
@pytest.mark.parametrize(("offset", "seconds"), [("10m", 600), ("-1h", -3600)])
def test_every_java_clock_call_is_shifted_until_the_fault_is_healed(
    stage: Stage, program: Program, offset: str, seconds: float
) -> None:
    seen: list[list[float]] = []
    stage.during(skew(offset), lambda: seen.append(program.off_by()))
    assert seen == [[pytest.approx(seconds, abs=5)] * 6]
    assert program.off_by() == [pytest.approx(0, abs=5)] * 6
    assert program.process.is_running


@pytest.mark.full
@pytest.mark.parametrize("java", ["beside"], indirect=True)
@pytest.mark.parametrize(("offset", "seconds"), [("10m", 600), ("-1h", -3600)])
def test_every_clock_call_is_shifted_in_another_java(
    stage: Stage, program: Program, offset: str, seconds: float
) -> None:
    """From Java 21 on, one form of ``parkUntil`` calls the other."""
    seen: list[list[float]] = []
    stage.during(skew(offset), lambda: seen.append(program.off_by()))
    assert seen == [[pytest.approx(seconds, abs=5)] * 6]


@pytest.mark.full
@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_file_may_have_any_name(variable: str, tmp_path: Path) -> None:
    file = tmp_path / "a clock's =file"
    file.write_text("-3600\n")
    source = tmp_path / "Says.java"
    source.write_text(
        "class Says { public static void main(String[] a) { System.out.print(System.currentTimeMillis()); } }"
    )
    options = Clock(clock_agent.jar(), file).environment["JAVA_TOOL_OPTIONS"]
    # The Spark engine's driver moves the agent's option from JAVA_TOOL_OPTIONS to JDK_JAVA_OPTIONS.
    environment = os.environ | {
        variable: options if variable == "JAVA_TOOL_OPTIONS" else shlex.join(shlex.split(options))
    }
    said = subprocess.check_output([find_java().executable, source], env=environment, text=True)
    assert int(said) / 1000 == pytest.approx(time.time() - 3600, abs=30)


@pytest.mark.full
def test_the_clock_report_of_a_program_that_ends_at_once_is_removed(tmp_path: Path) -> None:
    """Spark's launcher may end at once. The agent's thread would then print an error, as it cannot remove the file."""
    file = tmp_path / "clock"
    file.write_text("+0\n")
    source = tmp_path / "Ends.java"
    source.write_text(
        """
        class Ends {
            public static void main(String[] told) throws Exception {
                var files = Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files");
                files.setAccessible(true);
                System.out.print(files.get(null));
            }
        }
        """
    )
    subprocess.run([find_javac(), "-d", tmp_path, source], check=True)
    opened = ["--add-opens", "java.base/java.io=ALL-UNNAMED"]
    command = [find_java().executable, f"-javaagent:{clock_agent.jar()}={file}", *opened, "-cp", tmp_path, "Ends"]
    said = subprocess.check_output(command, text=True)
    assert re.fullmatch(rf"\[{re.escape(str(file))}\.\d+\]", said), said


@pytest.mark.parametrize("rest", ["", "="])
def test_the_agent_without_its_file_prints_its_usage(rest: str) -> None:
    command = [str(find_java().executable), f"-javaagent:{clock_agent.jar()}{rest}", "-version"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    assert ran.returncode != 0
    assert "-javaagent:JAR=FILE" in ran.stderr


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_clock_fault_of_a_killed_runner_is_healed(stage: Stage, program: Program, healer: str) -> None:
    abandoned(stage, skew("10m"), healer, lambda: program.off_by()[0] > 500)
    assert program.off_by() == [pytest.approx(0, abs=5)] * 6


@pytest.mark.full
def test_a_jvm_that_was_killed_has_no_shifted_clock(stage: Stage, program: Program) -> None:
    stage.during(skew("10m"), program.process.kill)
    assert stage.unhealed() == []


@pytest.mark.full
@pytest.mark.parametrize("is_left", [False, True])
def test_without_its_folder_only_a_live_jvm_has_a_shifted_clock(
    stage: Stage, program: Program, *, is_left: bool
) -> None:
    def lose() -> None:
        if not is_left:
            program.process.kill()
        program.clock_file.parent.rename(stage.folder / "gone")

    if is_left:
        with pytest.raises(NotHealed, match="clock-skew on c "):
            stage.during(skew("10m"), lose, limits={"healed_within": "2s"})
        (stage.folder / "gone").rename(program.clock_file.parent)
        heal(stage)
        assert program.off_by()[0] == pytest.approx(0, abs=5)
    else:
        stage.during(skew("10m"), lose)


@pytest.mark.full
def test_a_jvm_of_another_user_can_read_the_clock_file(stage: Stage, program: Program) -> None:
    before = os.umask(0o077)
    try:
        stage.during(skew("10m"), lambda: None)
    finally:
        os.umask(before)
    assert program.clock_file.stat().st_mode & 0o444 == 0o444


@pytest.mark.full
def test_a_jvm_that_does_not_report_its_clock_is_refused(stage: Stage, program: Program) -> None:
    report_file = Path(f"{program.clock_file}.{program.process.pid}")
    wait_until(report_file.exists, "the agent reports")
    program.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: time.time() - report_file.stat().st_mtime > 2, "no new report for two seconds")
    with pytest.raises(FaultRefused, match=rf"c: process {program.process.pid} .*clock for .*stop"):
        stage.during(skew("10m"), lambda: None)
    program.process.send_signal(signal.SIGCONT)
    wait_until(lambda: time.time() - report_file.stat().st_mtime < 1, "it reports again")
    stage.during(skew("10m"), lambda: None)
