"""Memory and CPU of processes, sampled from /proc during a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.demo.memory import memory_usage_of, tree_of
from testbed.periodic import PeriodicSampler

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Usage:
    """Largest resident size (bytes) and CPU seconds of one process."""

    name: str
    resident_max: int = 0
    cpu_seconds: float = 0.0


class Sampler(PeriodicSampler):
    """A context manager that samples a process and its descendants until the `with` block ends."""

    def __init__(self, pid: int, every_seconds: float = 0.5) -> None:
        super().__init__("usage", every_seconds)
        self._pid = pid
        self.usage: dict[str, Usage] = {}
        self.together_max = 0
        """Largest `memory_usage_of` in one sample, in bytes."""

    def _sample(self) -> None:
        for pid in tree_of(self._pid):
            self._sample_of(pid)
        self.together_max = max(self.together_max, memory_usage_of(self._pid).bytes)

    def _sample_of(self, pid: int) -> None:
        try:
            program, cpu_seconds = _program_of(pid)
            resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
        except (OSError, IndexError):
            return
        usage = self.usage.setdefault(f"{program}-{pid}", Usage(program))
        usage.resident_max = max(usage.resident_max, resident)
        usage.cpu_seconds = cpu_seconds

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


def cpu_seconds_of(pid: int) -> float:
    """CPU seconds so far of a process and its descendants. Raises OSError if one of them ends meanwhile."""
    return sum(_program_of(one)[1] for one in tree_of(pid))


def _program_of(pid: int) -> tuple[str, float]:
    """The name and the CPU seconds of a process. Raises OSError."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return stat[stat.index("(") + 1 : stat.rindex(")")], (int(fields[11]) + int(fields[12])) / _TICKS
