"""Faults of the machine: pressure on processor and memory. The probes read the usage of the load processes."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from faults.backends import processes
from faults.errors import FaultRefused
from faults.facts import Facts, KnownProcess
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import CpuParameters, MemoryParameters

_BUSY_SECONDS: Final = 0.1
"""Processor time after which a worker counts as busy. Its start takes less."""
_AVAILABLE_SHARE_MAX: Final = 0.8
"""Above this share of the available memory, the kernel's OOM killer could end unrelated processes."""

# Both scripts end when their standard input is closed, so that they do not outlive a killed runner.
_BURN = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
while True: sum(range(10_000))
"""
_HOLD = """
import sys
held = bytearray(int(sys.argv[1]))
for at in range(0, len(held), 4096): held[at] = 1
sys.stdin.buffer.read()
"""


class _Pressing:
    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        self.facts = facts
        self._children: list[subprocess.Popen[bytes]] = []

    def _start(self, script: str, *arguments: str) -> None:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", script, *arguments], stdin=subprocess.PIPE, start_new_session=True
        )
        self._children.append(child)
        status = processes.status_of(child.pid)
        if status is not None:
            known = KnownProcess(target="machine", pid=child.pid, started=status.started)
            self.facts = Facts(processes=(*self.facts.processes, known))

    def maintain(self) -> None:
        """Does nothing."""

    def heal(self) -> None:
        """Kill the load processes."""
        for_each(self.facts.processes, lambda process: processes.send(process, signal.SIGKILL))
        for child in self._children:
            child.kill()
            child.wait()

    def is_healed(self) -> bool:
        """Whether no load process exists."""
        return not any(processes.is_alive(process) for process in self.facts.processes)


class CpuPressure(_Pressing):
    """Processes that keep processors busy."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, CpuParameters)
        self._workers = fault.parameters.workers

    def prepare(self) -> None:
        """Does nothing."""

    def inject(self) -> None:
        """Start the workers."""
        for _ in range(self._workers):
            self._start(_BURN)

    def is_active(self) -> bool:
        """Whether each worker runs and has used the processor."""
        used = [processes.cpu_seconds(p.pid) for p in self.facts.processes if processes.is_alive(p)]
        return len(used) == self._workers and min(used) >= _BUSY_SECONDS


class MemoryPressure(_Pressing):
    """A process that holds memory."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, MemoryParameters)
        self._bytes = fault.parameters.bytes

    def prepare(self) -> None:
        """Raise FaultRefused if the fault would take more than 80 % of the available memory."""
        available = _available_bytes()
        if self._bytes > available * _AVAILABLE_SHARE_MAX:
            raise FaultRefused(
                f"memory_pressure: {self._bytes} bytes are too many, since {available} are available and a fifth of "
                "them must stay free; take fewer."
            )

    def inject(self) -> None:
        """Start the process."""
        self._start(_HOLD, str(self._bytes))

    def is_active(self) -> bool:
        """Whether the process holds the bytes in resident memory."""
        return any(processes.resident_bytes(process.pid) >= self._bytes for process in self.facts.processes)


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0
