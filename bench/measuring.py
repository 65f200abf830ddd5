"""Memory and CPU of processes, sampled from /proc during a run."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Usage:
    """Largest and last resident size (bytes) and CPU seconds of one process."""

    name: str
    resident_max: int = 0
    resident_last: int = 0
    cpu_seconds: float = 0.0
    samples: list[int] = field(default_factory=list)


def children_of(pid: int) -> list[int]:
    """Process ids of all descendants."""
    found = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").glob("*/children"))
    except OSError:  # the process has ended since its parent was read
        return []
    for task in tasks:
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return [*found, *[below for child in found for below in children_of(child)]]


def pss_of(pid: int) -> int:
    """Resident memory of a process in bytes, in which a page that n processes share counts as 1/n; 0 after its end."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:")), 0)


def tree_pss_of(pid: int) -> int:
    """The sum of `pss_of` over a process and its descendants."""
    return sum(map(pss_of, (pid, *children_of(pid))))


class Sampler:
    """A context manager that samples a process and its descendants until the `with` block ends."""

    def __init__(self, pid: int, every_seconds: float = 0.5) -> None:
        self._pid = pid
        self._every = every_seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.usage: dict[str, Usage] = {}
        self.together_max = 0
        """Largest total of `pss_of` over all processes in one sample, in bytes."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every):
            pids = (self._pid, *children_of(self._pid))
            for pid in pids:
                self._sample(pid)
            self.together_max = max(self.together_max, sum(map(pss_of, pids)))

    def _sample(self, pid: int) -> None:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError):
            return
        program = stat[stat.index("(") + 1 : stat.rindex(")")]
        fields = stat[stat.rindex(")") + 2 :].split()
        usage = self.usage.setdefault(f"{program}-{pid}", Usage(program))
        usage.resident_last = resident
        usage.resident_max = max(usage.resident_max, resident)
        usage.cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS
        usage.samples.append(resident)

    def busiest(self, program: str) -> Usage:
        """The process named ``program`` that used the most CPU."""
        mine = [usage for usage in self.usage.values() if usage.name == program]
        return max(mine, key=lambda usage: usage.cpu_seconds, default=Usage(program))

    def of(self, pid: int) -> Usage:
        """The sampled process ``pid``."""
        return next((usage for name, usage in self.usage.items() if name.endswith(f"-{pid}")), Usage("none"))

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of all processes together."""
        return sum(usage.cpu_seconds for usage in self.usage.values())

    @property
    def resident_max(self) -> int:
        """The sum of the largest resident sizes of all processes, in bytes."""
        return sum(usage.resident_max for usage in self.usage.values())
