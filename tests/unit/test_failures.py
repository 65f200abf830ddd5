"""The reason for the end of a run is one sentence, whatever library its text comes from."""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkContext

from validator.stream.failures import known_sentence, while_it_retries

pytestmark = pytest.mark.unit

FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder that is locked."""
    (tmp_path / "lock").write_text("1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic.",
            "the brokers did not know a topic",
        ),
        (
            "java.nio.file.FileSystemException: /x: Too many open files",
            "the limit of open files",
        ),
        (
            "java.io.IOException: /mnt/x (Read-only file system)",
            "the file system of /mnt/x is read-only",
        ),
    ],
)
def test_a_foreign_error_becomes_one_sentence(state: Path, text: str, sentence: str) -> None:
    found = known_sentence(RuntimeError(FAILED + text), state) or ""
    assert found.startswith(sentence)
    assert "\n" not in found
    error = RuntimeError("An error occurred while calling o7542.getResult")
    error.__cause__ = RuntimeError(text)
    assert known_sentence(error, state) == found


def test_an_unknown_error_has_no_sentence(state: Path) -> None:
    error = ValueError("first\nsecond")
    assert known_sentence(error, state) is None


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("Generic error: No space left on device (os error 28)"),
    ],
)
def test_a_full_disk_is_reported_with_path_and_bytes(
    state: Path, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=1, f_frsize=4096, f_files=100, f_favail=50, f_blocks=9, f_bfree=1)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert re.fullmatch(
        rf".* {re.escape(str(state))} \([\d,]+ bytes .* 2 bytes\): .* start the sidecar again; .*",
        known_sentence(error, state) or "",
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/mnt/spark-local/x"),
        OSError(errno.EDQUOT, "Disk quota exceeded", "/mnt/spark-local/x"),
        RuntimeError(FAILED + "java.nio.file.FileSystemException: /mnt/spark-local/x: No space left on device"),
        RuntimeError(FAILED + "java.io.FileNotFoundException: /mnt/spark-local/x (No space left on device)"),
        RuntimeError("OSError: [Errno 28] No space left on device: '/mnt/spark-local/x'"),
    ],
)
def test_a_full_disk_other_than_that_of_the_state_is_named(state: Path, error: Exception) -> None:
    assert re.fullmatch(
        r".* /mnt/spark-local/x \([\d,]+ bytes .*\): .* spark\.local\.dir in spark\.options .*, and start .*",
        known_sentence(error, state) or "",
    )


@pytest.mark.parametrize("path", [None, "/mnt/spark-local/x", "of the state"])
@pytest.mark.parametrize("has_room", [False, True])
def test_the_message_of_a_retry_does_not_ask_for_a_restart(
    state: Path, path: str | None, has_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(
        f_bavail=2**30 if has_room else 1, f_frsize=4096, f_files=0, f_favail=0, f_blocks=9, f_bfree=1
    )
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    named = str(state / "facts") if path == "of the state" else path
    last = known_sentence(OSError(errno.ENOSPC, "No space left on device", named), state) or ""
    assert "start the sidecar again" in last
    meanwhile = while_it_retries(last)
    assert last.startswith(meanwhile)
    assert ": free some space" in meanwhile
    assert "start the sidecar again" not in meanwhile
    assert meanwhile[-1].isalnum() or meanwhile[-1] == ")"
    assert while_it_retries("a file system is read-only") == "a file system is read-only"


def test_a_file_of_the_state_and_a_disk_that_has_room_are_distinguished(state: Path) -> None:
    own = OSError(errno.ENOSPC, "No space left on device", str(state / "facts" / "x"))
    assert f"the state {state} (" in (known_sentence(own, state) or "")
    spark = RuntimeError("java.io.IOException: No space left on device")
    assert f"the state {state} has room (" in (known_sentence(spark, state) or "")
    locked = OSError(errno.EROFS, "Read-only file system", str(state / "facts"))
    assert f"the state {state} is read-only" in (known_sentence(locked, state) or "")


def test_a_closed_stdout_is_not_a_failure_of_the_jvm(state: Path) -> None:
    assert known_sentence(BrokenPipeError(errno.EPIPE, "Broken pipe"), state) is None


def test_a_deleted_state_explains_other_errors(state: Path) -> None:
    (state / "lock").unlink()
    found = known_sentence(ValueError("whatever"), state) or ""
    assert found.startswith(f"the lock file of the state folder {state} was deleted or renamed while")
    state.rmdir()
    found = known_sentence(OSError(errno.ENOENT, "No such file"), state) or ""
    assert found.startswith(
        f"the state folder {state} was deleted or renamed while the sidecar ran: unless it is restored"
    )


def test_a_killed_jvm_is_reported_with_its_signal(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jvm = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
    assert known_sentence(ValueError("whatever"), state) is None
    jvm.kill()
    assert "JVM ended (SIGKILL " in (known_sentence(ConnectionResetError("reset"), state) or "")
