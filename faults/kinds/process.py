"""Faults of processes: kill, pause, restart loop, node loss. The probes read the state of the processes."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Container
from contextlib import suppress
from pathlib import Path
from typing import Final

from faults.backends import processes
from faults.errors import FaultRefused
from faults.facts import Facts, KnownProcess
from faults.fault import Fault
from faults.kinds.base import ProbeThrottle, ended_early, for_each
from faults.parameters import RestartLoopParameters
from faults.targets import LocalProcess

_DIES_SECONDS: Final = 1.0
_STAYS_SECONDS: Final = 0.2
"""A process that ends this soon after it resumed is not healed. `faults.resumed` reports one that ends later."""


class OnProcesses:
    """Base of the process faults. Each kind defines `inject`, `heal` and the probes."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        self.facts = facts
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, LocalProcess)}
        self._state = state

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused if one does not run, or if two targets are the same process."""
        found = [known for name, target in self._targets.items() for known in processes.members(name, target)]
        owner: dict[int, str] = {}
        for known in found:
            other = owner.setdefault(known.pid, known.target)
            if other != known.target:
                raise FaultRefused(f"{other} and {known.target} both include process {known.pid}; hit only one.")
        self.facts = Facts(processes=tuple(found))

    def maintain(self) -> None:
        """Does nothing."""

    def is_active(self) -> bool:
        """Whether the processes are in the state that the fault causes."""
        raise NotImplementedError

    def is_healed(self) -> bool:
        """Whether the processes are as before the fault."""
        raise NotImplementedError

    def _send(self, number: signal.Signals) -> None:
        for process in self.facts.processes:
            processes.send(process, number)


class Pause(OnProcesses):
    """SIGSTOP and SIGCONT."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        self._name = fault.name
        self._throttle = ProbeThrottle()
        self._going: set[int] = set()
        self._ended: dict[str, int] = {}
        """Target -> id of its process that has ended since the pause began."""
        self._back_since: float | None = None

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused also if one is stopped already: healing would end another pause."""
        super().prepare()
        for known in self.facts.processes:
            if processes.is_stopped(known):
                raise FaultRefused(
                    f"{known.target}: process {known.pid} is stopped already, maybe by another run; resume it first."
                )

    def maintain(self) -> None:
        """Check, at a limited rate, that the processes are stopped. A process that has ended is ignored.

        Raises NotVerified if a process runs in two consecutive checks.
        """
        if not self._throttle.is_due():
            return
        going = {known.pid for known in self.facts.processes if _is_running(known)}
        for known in self.facts.processes:
            # A killed process runs for a moment before it ends. One that runs in two checks has been resumed.
            if known.pid in going & self._going:
                raise ended_early(f"{self._name} on {known.target}", f"another process resumed process {known.pid}")
        self._going = going

    def inject(self) -> None:
        """Stop the processes."""
        self._send(signal.SIGSTOP)

    def is_active(self) -> bool:
        """Whether all processes are stopped."""
        return all(processes.is_stopped(process) for process in self.facts.processes)

    def heal(self) -> None:
        """Resume the processes. Raises FaultRefused for those that the runner may not signal."""
        for_each(self.facts.processes, lambda process: processes.send(process, signal.SIGCONT))

    def is_healed(self) -> bool:
        """Whether the processes have run for ``_STAYS_SECONDS``. If a process has ended, its target must run again:
        its supervisor or the operator has to start it."""
        self._ended = {known.target: known.pid for known in self.facts.processes if not processes.is_alive(known)}
        is_back = not any(processes.is_stopped(known) for known in self.facts.processes) and all(
            processes.is_ready(self._targets[name]) for name in self._ended
        )
        now = time.monotonic()
        if not is_back:
            self._back_since = None
            return False
        self._back_since = self._back_since or now
        return now - self._back_since >= _STAYS_SECONDS

    def probe_detail(self) -> str:
        """Which processes ended, so that the fault was more than a pause; empty if none did."""
        return ", ".join(self._ending_clause(name, pid) for name, pid in self._ended.items())

    def ended_by_itself(self, hit_too: Container[int]) -> list[str]:
        """A sentence for each target whose process ended since it was paused, except the process ids ``hit_too``."""
        return [
            f"{self._name} on {name}: {self._ending_clause(name, pid)}, so the run did not measure a pause."
            for name, pid in self._ended.items()
            if pid not in hit_too
        ]

    def _ending_clause(self, name: str, pid: int) -> str:
        place = "another one runs in its place" if processes.is_ready(self._targets[name]) else "none runs in its place"
        return f"process {pid} of {name} ended after it was paused, and {place}"


def _is_running(known: KnownProcess) -> bool:
    status = processes.status_of(known.pid)
    return status is not None and status.started == known.started and not status.is_stopped


class Kill(OnProcesses):
    """SIGKILL. A node loss is a kill of all processes of a host."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def prepare(self) -> None:
        """Find the processes. Raises FaultRefused also if a start command does not exist."""
        super().prepare()
        for name, target in self._targets.items():
            if target.start and not processes.is_command(target):
                raise FaultRefused(
                    f"{name}: its start command {target.start[0]} does not exist, so nothing could restart the target; "
                    "fix the command."
                )

    def inject(self) -> None:
        """Kill the processes."""
        self._send(signal.SIGKILL)

    def is_active(self) -> bool:
        """Whether none of the processes exists."""
        return not any(processes.is_alive(process) for process in self.facts.processes)

    def heal(self) -> None:
        """Start the targets that do not run and have a start command; supervisors start others. Raises FaultRefused."""

        def start(name: str) -> None:
            target = self._targets[name]
            # Once per target: a command that exits at once is reported as a failure instead of being repeated forever.
            if target.start and name not in self._started and processes.leader_of(target) is None:
                self._started[name] = processes.start(name, target, self._state / "logs" / f"{name}.log")

        for_each(self._targets, start)

    def is_healed(self) -> bool:
        """Whether all targets run and are ready."""
        return all(processes.is_ready(target) for target in self._targets.values())


class Restart(Kill):
    """SIGTERM, on which the process shuts down. The fault is healed when a new process runs."""

    def inject(self) -> None:
        """Send SIGTERM to the processes."""
        self._send(signal.SIGTERM)


class RestartLoop(Kill):
    """Kills its targets each time that they run again."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, RestartLoopParameters)
        self._interval_seconds = fault.parameters.interval
        self._next_kill = 0.0

    def inject(self) -> None:
        """Kill for the first time."""
        super().inject()
        self._next_kill = time.monotonic() + self._interval_seconds

    def maintain(self) -> None:
        """Start the targets that have a start command, and kill the running ones when the interval is over."""
        # A process that has not written its id yet is not found, but its command still runs.
        self._started = {name: child for name, child in self._started.items() if child.poll() is None}
        self.heal()
        if time.monotonic() < self._next_kill:
            return
        self._next_kill = time.monotonic() + self._interval_seconds
        for name, target in self._targets.items():
            if processes.leader_of(target) is not None:
                with suppress(FaultRefused):  # it has ended since the check above
                    for process in processes.members(name, target):
                        processes.send(process, signal.SIGKILL)
                # If healing is next, it must not find the dying process and take it for a running one.
                if (child := self._started.pop(name, None)) is not None:
                    with suppress(subprocess.TimeoutExpired):
                        child.wait(_DIES_SECONDS)
