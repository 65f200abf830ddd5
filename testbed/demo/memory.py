"""The memory of the demo: the proportional set size (PSS) of all its processes, sampled once a second, and the peak.

PSS divides a shared page among its processes, so the sum is the memory that the machine provides. If the kernel has no
PSS, the resident size is used, which counts a shared page in each process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from testbed.periodic import PeriodicSampler

_PROC: Final = Path("/proc")
_EVERY_SECONDS: Final = 1.0


@dataclass(frozen=True)
class MemoryUsage:
    """The memory of all processes of a tree at one time. ``pss`` is false if one of them has only a resident size."""

    bytes: int
    processes: int
    pss: bool


class MemoryPeak(PeriodicSampler):
    """A context manager that samples in a thread. ``peak`` is the largest sample; None without /proc."""

    def __init__(self) -> None:
        super().__init__("memory", _EVERY_SECONDS)
        self.peak: MemoryUsage | None = None

    def __enter__(self) -> Self:
        """Start sampling."""
        return super().__enter__() if _PROC.is_dir() else self

    def line(self) -> str:
        """Return one line of text about the peak."""
        if self.peak is None:
            return "The memory use is not known: this system has no /proc."
        kind = "" if self.peak.pss else " (resident sizes: shared pages are counted more than once)"
        return f"Memory: at most {self.peak.bytes / 2**30:.1f} GiB in {self.peak.processes} processes{kind}."

    def _sample(self) -> None:
        taken = memory_usage_of(os.getpid())
        if self.peak is None or taken.bytes > self.peak.bytes:
            self.peak = taken


def tree_of(root: int) -> set[int]:
    """Return the process ids of ``root`` and its descendants."""
    parents: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            parents[int(folder.name)] = int(stat[1])
    tree, newest = {root}, {root}
    while newest:
        newest = {pid for pid, parent in parents.items() if parent in newest} - tree
        tree |= newest
    return tree


def memory_usage_of(root: int) -> MemoryUsage:
    """Return the memory of the process ``root`` and its descendants."""
    found = [size for pid in tree_of(root) if (size := _size(pid)) is not None]
    return MemoryUsage(sum(size for size, _ in found), len(found), all(is_pss for _, is_pss in found))


def _size(pid: int) -> tuple[int, bool] | None:
    """Return bytes, and whether they are PSS; None if the process has ended; a zombie counts as ended."""
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        with suppress(OSError):
            for line in (_PROC / str(pid) / name).read_text(encoding="utf-8").splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) * 1024, field == "Pss:"
    return None
