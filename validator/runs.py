"""Runs of `validate --once` for the Python API: each in a process of its own, or several in one with one Spark."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple

STOP_SECONDS: Final = 45.0
"""A sidecar stops within 30 s of SIGTERM."""
NO_MESSAGE: Final = "it wrote no message"


class TimedOut(Exception):
    """The run did not end in time. The text is the last line that it wrote."""


class Outcome(NamedTuple):
    """The exit status of a run and its last line."""

    status: int
    message: str


@dataclass(frozen=True)
class Run:
    """One run. ``session``: the settings of Spark; runs with other settings need another session."""

    config: Path
    assignments: Sequence[str]
    at_rest: bool
    leave_open: bool
    session: str
    timeout_seconds: float | None


def in_own_process(run: Run) -> Outcome:
    """Do one run in a process of its own. Raises TimedOut."""
    command = [
        sys.executable,
        "-m",
        "validator.cli.private_arguments",
        "validate",
        str(run.config),
        "--once",
        "--quiet",
    ]
    command += ["--at-rest"] if run.at_rest else []
    command += ["--leave-open"] if run.leave_open else []
    private = json.dumps([part for one in run.assignments for part in ("--set", one)])  # a setting may be a password
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe, text=True) as process:
        try:
            _, message = process.communicate(private, timeout=run.timeout_seconds)
        except subprocess.TimeoutExpired as expired:
            written = (expired.stderr or b"").decode(errors="replace")
            raise TimedOut(_last_line(written)) from None
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.communicate(timeout=STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()
    return Outcome(process.returncode, _last_line(message))


class KeptProcess:
    """Does runs in one process, until a run fails, takes too long, or needs other settings of Spark."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors: IO[bytes] | None = None
        self._session = ""

    def __call__(self, run: Run) -> Outcome:
        """Do one run. Raises TimedOut."""
        if run.session != self._session or (self._process is not None and self._process.poll() is not None):
            self.close()
        process = self._process or self._started(run)
        assert process.stdin is not None
        asked = {
            "config": str(run.config.absolute()),
            "assignments": list(run.assignments),
            "environment": dict(os.environ),
            "at_rest": run.at_rest,
            "leave_open": run.leave_open,
        }
        try:
            print(json.dumps(asked), file=process.stdin, flush=True)
            answer = self._answer(process, run.timeout_seconds)
        except BrokenPipeError:
            answer = None
        except BaseException:
            self.close()
            raise
        if answer is None:
            message = self._last_error()
            self.close()
            return Outcome(process.returncode, message)
        found = json.loads(answer)
        if found["failed"]:
            # What ended the run may also have ended the JVM.
            self.close()
        return Outcome(found["status"], found["message"])

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for stream in (process.stdin, process.stdout, self._errors):
            if stream is not None:
                stream.close()

    def _started(self, run: Run) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-m", "validator.cli.serve_runs"], stdin=pipe, stdout=pipe, stderr=self._errors, text=True
        )
        self._session = run.session
        return self._process

    def _answer(self, process: subprocess.Popen[str], timeout_seconds: float | None) -> str | None:
        """The next answer; None if the process has ended. Raises TimedOut."""
        assert process.stdout is not None
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            # The process writes whole lines, one for each request.
            if not selector.select(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise TimedOut(self._last_error())
        line = process.stdout.readline()
        return line or None

    def _last_error(self) -> str:
        assert self._errors is not None
        self._errors.seek(0)
        return _last_line(self._errors.read().decode(errors="replace"))


def _last_line(message: str) -> str:
    lines = message.strip().splitlines()
    return lines[-1] if lines else NO_MESSAGE
