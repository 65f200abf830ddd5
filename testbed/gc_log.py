"""The log of a JVM's garbage collector: the option that writes it, and its reading while the JVM runs.

The heap is known at collections only. Between them it holds what the last one left, and garbage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PAUSE: Final = re.compile(rb"GC\(\d+\) Pause .*?\d+M->(\d+)M\(\d+M\) ([\d.]+)ms$")
_MEGABYTE: Final = 1 << 20


def option(folder: Path) -> str:
    """The JVM's option. The file has the process id in its name, so that a restarted JVM writes another one."""
    return f"-Xlog:gc:file={folder}/gc-%p.log::filecount=0"


@dataclass(frozen=True)
class Collections:
    """The collections since the last reading. ``heap_bytes``: what the newest one of all left; None: none so far."""

    heap_bytes: int | None = None
    count: int = 0
    seconds: float = 0.0


class GcLogs:
    """Reads the logs in some folders, from where it stopped."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = tuple(folders)
        self._read: dict[int, tuple[Path, int]] = {}
        self._heap: dict[int, int] = {}

    def of(self, pid: int) -> Collections | None:
        """The collections of a process since the last call; None if it writes no log."""
        if pid not in self._read:
            paths = [path for folder in self._folders if (path := folder / f"gc-{pid}.log").exists()]
            if not paths:
                return None
            self._read[pid] = (paths[0], 0)
        path, start = self._read[pid]
        try:
            with path.open("rb") as file:
                file.seek(start)
                text = file.read()
        except OSError:
            return None  # the run's folder is removed
        whole = text[: text.rfind(b"\n") + 1]
        self._read[pid] = (path, start + len(whole))
        pauses = [(int(found[1]), float(found[2])) for line in whole.splitlines() if (found := _PAUSE.search(line))]
        if pauses:
            self._heap[pid] = pauses[-1][0] * _MEGABYTE
        return Collections(self._heap.get(pid), len(pauses), sum(ms for _, ms in pauses) / 1000)
