"""The clock that a JVM sees which was started with our agent (docs/faults.md): the agent writes it beside the file that
says by how much it is off. So it is measured in the very process that is hit.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from faults.backends import processes

FRESH_SECONDS: Final = 2.0
"""The agent writes ten times a second; one that has not for so long tells nothing, stopped or stalled as it may be."""


def has_reported(clock_file: Path, pid: int) -> bool:
    """Whether that process has the agent: it has written what it sees. A JVM that was killed leaves its file, which a
    later process with its id has not written."""
    seen = processes.see(pid)
    try:
        return seen is not None and not processes.started_after(_told_by(clock_file, pid), seen)
    except FileNotFoundError:
        return False


def offset_seconds(clock_file: Path, pid: int) -> float | None:
    """By how much the clock that the process sees is off; None where it tells nothing now."""
    try:
        with _told_by(clock_file, pid).open("rb") as file:
            written, content = os.fstat(file.fileno()).st_mtime, file.read()
    except FileNotFoundError:
        return None
    if not content or time.time() - written > FRESH_SECONDS:
        return None
    return int(content) / 1000 - written


def _told_by(clock_file: Path, pid: int) -> Path:
    return clock_file.with_name(f"{clock_file.name}.{pid}")
