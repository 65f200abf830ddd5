"""How much memory the demo takes: the proportional set size of all its processes, once a second, and the peak.

A page that several processes share is divided among them (PSS), so that the sum is what the machine gives. Where the
kernel does not tell it, the resident size is taken, which counts shared pages again.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

_PROC: Final = Path("/proc")
_EVERY_SECONDS: Final = 1.0


@dataclass(frozen=True)
class MemoryUsage:
    """What all processes of a tree took at one time; ``pss`` is false where one of them told its resident size only."""

    bytes: int
    processes: int
    pss: bool


class MemoryPeak:
    """A context manager: a thread looks meanwhile; ``peak`` is the most that it saw, None without /proc."""

    def __init__(self) -> None:
        self.peak: MemoryUsage | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="memory", daemon=True)

    def __enter__(self) -> Self:
        """Look from now on."""
        if _PROC.is_dir():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Look no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def line(self) -> str:
        """One line for a person."""
        if self.peak is None:
            return "How much memory it took is not known: this system has no /proc."
        kind = "" if self.peak.pss else " (resident sizes: shared pages are counted more than once)"
        return f"Memory: at most {self.peak.bytes / 2**30:.1f} GiB in {self.peak.processes} processes{kind}."

    def _watch(self) -> None:
        while not self._ended.wait(_EVERY_SECONDS):
            taken = memory_usage_of(os.getpid())
            if self.peak is None or taken.bytes > self.peak.bytes:
                self.peak = taken


def memory_usage_of(root: int) -> MemoryUsage:
    """The process ``root`` and all that descend from it, now."""
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[1])
    tree, newest = {root}, {root}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest} - tree
        tree |= newest
    found = [size for pid in tree if (size := _size(pid)) is not None]
    return MemoryUsage(sum(size for size, _ in found), len(found), all(is_pss for _, is_pss in found))


def _size(pid: int) -> tuple[int, bool] | None:
    """Bytes, and whether they are PSS; None where the process is gone, or dead and not reaped."""
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        with suppress(OSError):
            for line in (_PROC / str(pid) / name).read_text(encoding="utf-8").splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) * 1024, field == "Pss:"
    return None
