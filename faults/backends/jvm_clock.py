"""The clock of a JVM with this project's agent (docs/faults.md).

The agent writes the time that the JVM sees to a file next to the offset file, so that the target itself is measured.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from faults.backends import processes

FRESH_SECONDS: Final = 2.0
"""The agent writes ten times per second. An older file is ignored, since its JVM may be stopped or stalled."""


def has_reported(clock_file: Path, pid: int) -> bool:
    """Whether the agent of this process has written its file. A file of an earlier process with the same id does
    not count."""
    seen = processes.status_of(pid)
    try:
        return seen is not None and not processes.started_after(_report_of(clock_file, pid), seen)
    except FileNotFoundError:
        return False


def offset_seconds(clock_file: Path, pid: int) -> float | None:
    """Seconds by which the clock of the process is off; None if the agent has not written within ``FRESH_SECONDS``."""
    try:
        with _report_of(clock_file, pid).open("rb") as file:
            written, content = os.fstat(file.fileno()).st_mtime, file.read()
    except FileNotFoundError:
        return None
    if not content or time.time() - written > FRESH_SECONDS:
        return None
    return int(content) / 1000 - written


def _report_of(clock_file: Path, pid: int) -> Path:
    return clock_file.with_name(f"{clock_file.name}.{pid}")
