"""The output of a JVM is read line by line, without its noise."""

from __future__ import annotations

import queue
import subprocess

import pytest

from validator.stream import jvm_output
from validator.stream.jvm_output import JvmOutput, without_noise

NOISE = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    "NOTE: Picked up JDK_JAVA_OPTIONS: -Xss4m",
    "Picked up JAVA_TOOL_OPTIONS: -javaagent:clock.jar=file",
    "Picked up _JAVA_OPTIONS: -Dsecret=1",
    "A VM warning: Sharing is only supported for boot loader classes because bootstrap classpath has been appended",
)
ERRORS = (
    "Error: Could not create the Java Virtual Machine.",
    "# There is insufficient memory for the Java Runtime Environment to continue.",
    "OpenJDK 64-Bit Server VM warning: INFO: os::commit_memory(0x0, 16384, 0) failed; error='Not enough space'",
    "WARNING: Using incubator modules: another",
    "01:02:03 ERROR Inbox: Ignoring error",
)


def read(output: JvmOutput, *command: str) -> list[str]:
    """The lines that the reader of ``output`` gets from a command."""
    lines: queue.Queue[str] = queue.Queue()
    output.read_by(lines.put)
    with output.sink() as sink:
        subprocess.run(command, check=True, stdout=sink, stderr=sink)
    output.drain()
    return list(lines.queue)


def test_errors_reach_the_reader_and_noise_does_not() -> None:
    output = JvmOutput()
    given = [line for pair in zip(NOISE, ERRORS, strict=True) for line in pair]
    assert read(output, "printf", r"%s\n", *given) == list(ERRORS)
    assert output.last_lines() == "; ".join(line.strip("# ") for line in ERRORS)
    assert without_noise("\n".join(given)) == output.last_lines()


def test_both_streams_are_read_whatever_their_bytes() -> None:
    output = JvmOutput()
    assert read(output, "sh", "-c", "echo one; printf 'two \\377' >&2") == ["one", "two \ufffd"]


def test_the_default_reader_writes_to_stderr_and_escapes_what_a_terminal_obeys(
    capfd: pytest.CaptureFixture[str],
) -> None:
    output = JvmOutput()
    with output.sink() as sink:
        subprocess.run(["printf", r"a\033[2J\n"], check=True, stdout=sink)
    output.drain()
    assert capfd.readouterr() == ("", "a\\x1b[2J\n")


def test_old_lines_are_not_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    output = JvmOutput()
    assert read(output, "echo", "an error") == ["an error"]
    now = jvm_output.time.monotonic()
    monkeypatch.setattr(jvm_output.time, "monotonic", lambda: now + 60)
    assert output.last_lines() == ""
