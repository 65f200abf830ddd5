"""Fault of a folder: a control group slows its disk for the process that works there.

The probe writes and syncs a file in the folder. During the fault, the probe's process is a member of the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from faults.backends import block_throttle, processes
from faults.backends.block_throttle import ThrottledGroup
from faults.errors import FaultRefused
from faults.facts import Facts, KnownProcess
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import DiskSlowParameters
from faults.targets import FolderTarget, ProcessTarget

_PROBE_SECONDS: Final = 0.5
"""The probe writes as many bytes as the limit passes in this time."""
_MEASURED_SHARE: Final = 0.7
"""A slow write takes at least this share of that time. The kernel passes the first slice, 0.1 s, at once."""
_WELL_SHARE: Final = 0.5
_WRITE_SECONDS_MAX: Final = 5.0


class DiskSlow:
    """Limits the bytes per second that the process of each target, and its children, read and write."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:  # noqa: ARG002 - one signature for all
        assert isinstance(fault.parameters, DiskSlowParameters)
        self.facts = facts
        self._rate = fault.parameters.bytes_per_second
        self._targets = {n: t for n, t in fault.targets.items() if isinstance(t, FolderTarget)}
        self._groups = {
            name: ThrottledGroup(f"streamproof-{fault.id}-{number}") for number, name in enumerate(self._targets)
        }

    def prepare(self) -> None:
        """Find the processes and time a write. Raises FaultRefused also if the write is slow without the limit."""
        found: list[KnownProcess] = []
        for name, target in self._targets.items():
            block_throttle.disk_of(target.path)
            found += processes.members(name, _process_in(name, target))
            if not self._is_fast(target):
                raise FaultRefused(
                    f"{name}: the limit would hardly slow {target.path}: a synced write of {self._probe_bytes} bytes "
                    "takes nearly as long without the limit; set a lower bytes_per_second."
                )
        self._know(found)

    def inject(self) -> None:
        """Create the groups, and move the processes into them."""
        for name, target in self._targets.items():
            self._groups[name].make(block_throttle.disk_of(target.path), self._rate)
        self._move_into_groups(self.facts.processes)

    def maintain(self) -> None:
        """Move a process that has replaced the target's process into the group. Children are in the group already."""
        for name, target in self._targets.items():
            process = _process_in(name, target)
            leader = processes.leader_of(process)
            if leader is None or self._groups[name].has(leader.pid):
                continue
            with suppress(FaultRefused, FileNotFoundError):  # it is ending, or its id is not in the file yet
                found = processes.members(name, process)
                self._know(found)
                self._move_into_groups(found)

    def _know(self, found: Sequence[KnownProcess]) -> None:
        """Add the processes to the facts, each with the control group to which healing returns it."""
        homes = {known.pid: block_throttle.group_of(known.pid) for known in found}
        self.facts = Facts(
            processes=(*self.facts.processes, *found), control_groups={**self.facts.control_groups, **homes}
        )

    def _move_into_groups(self, found: Iterable[KnownProcess]) -> None:
        for known in found:
            if processes.is_alive(known):
                self._groups[known.target].take(known.pid)

    def is_active(self) -> bool:
        """Whether all processes are in their groups, and a write by a member of each group is slow."""
        inside = all(self._groups[known.target].has(known.pid) for known in self.facts.processes)
        return inside and all(
            self._groups[name].write_seconds(target.path, self._probe_bytes, _WRITE_SECONDS_MAX)
            >= _PROBE_SECONDS * _MEASURED_SHARE
            for name, target in self._targets.items()
        )

    def heal(self) -> None:
        """Remove the limits, move the processes back, and remove the groups. Raises FaultRefused."""

        def remove(name: str) -> None:
            own = [known.pid for known in self.facts.processes if known.target == name]
            homes = self.facts.control_groups
            home = homes.get(own[0], "/") if own else "/"
            self._groups[name].remove(block_throttle.disk_of(self._targets[name].path), homes, home)

        for_each(self._targets, remove)

    def is_healed(self) -> bool:
        """Whether the groups are removed and a write is fast again."""
        left = any(group.exists for group in self._groups.values())
        return not left and all(self._is_fast(target) for target in self._targets.values())

    @property
    def _probe_bytes(self) -> int:
        return round(self._rate * _PROBE_SECONDS)

    def _is_fast(self, target: FolderTarget) -> bool:
        seconds = block_throttle.write_seconds(target.path, self._probe_bytes, _WRITE_SECONDS_MAX)
        return seconds < _PROBE_SECONDS * _WELL_SHARE


def _process_in(name: str, target: FolderTarget) -> ProcessTarget:
    """The process that works in the folder of a target. Raises FaultRefused if the target has no pid_file."""
    if target.pid_file is None:
        raise FaultRefused(f"{name}: set pid_file to the file with the id of the process that works in this folder.")
    return ProcessTarget(type="process", pid_file=target.pid_file, group=target.group)
