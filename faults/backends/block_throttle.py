"""Control groups that slow what their processes read from and write to one disk: ``blkio.throttle`` of cgroup 1.

The kernel counts an I/O where it is submitted: reads, direct writes and what a process syncs are slowed at once. What
it only leaves in the page cache is written by the kernel's own threads, at full speed, unless it is synced before.
"""

from __future__ import annotations

import errno
import functools
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from faults.errors import FaultRefused

_LIMITS: Final = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
_PROCESSES: Final = "cgroup.procs"
_LETS_GO_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.01
# The file has no name, so that none is left whatever ends the probe.
_WRITE = """
import os, sys, time
if sys.argv[3]:
    with open(sys.argv[3], "w") as group:
        group.write(str(os.getpid()))
out = os.open(sys.argv[1], os.O_TMPFILE | os.O_WRONLY, 0o600)
started, left = time.monotonic(), int(sys.argv[2])
while left > 0:
    left -= os.write(out, os.urandom(min(left, 1 << 16)))
os.fsync(out)
print(time.monotonic() - started)
"""


@functools.cache
def why_not_here() -> str | None:
    """Why this host cannot slow the disk of a process; None where it can."""
    if sys.platform != "linux":
        return "only Linux has control groups"
    if os.geteuid() != 0:
        return "it makes a control group, which needs root"
    root = _root()
    if root is None:
        return "it needs blkio.throttle of cgroup 1, and this host has cgroup 2 only, whose io.max is not built"
    if not all((root / limit).exists() for limit in _LIMITS):
        return "its kernel has no blkio.throttle"
    return None


def _root() -> Path | None:
    """Where the controller ``blkio`` of cgroup 1 is mounted."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            return Path(place)
    return None


def disk_of(folder: Path) -> str:
    """The disk under ``folder`` as ``major:minor``; a partition's is that of its disk. Raises FaultRefused."""
    try:
        device = folder.stat().st_dev
    except OSError as error:
        raise FaultRefused(f"{folder}: cannot be looked at ({error.strerror}).") from error
    number = f"{os.major(device)}:{os.minor(device)}"
    shown = Path("/sys/dev/block", number)
    if not shown.exists():
        raise FaultRefused(f"{folder}: its file system is not on a disk of its own, so that none can be slowed.")
    if (shown / "partition").exists():
        return (shown.resolve().parent / "dev").read_text(encoding="utf-8").strip()
    return number


def group_of(pid: int) -> str:
    """The group of ``blkio`` in which a process is, as a path from its root; the root where the process is gone."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if "blkio" in controllers.split(","):
                return group
    return "/"


@dataclass(frozen=True)
class ThrottledGroup:
    """A control group of our own."""

    name: str

    @property
    def _folder(self) -> Path:
        root = _root()
        assert root is not None
        return root / self.name

    @property
    def exists(self) -> bool:
        """Whether it was made and is not removed."""
        return self._folder.exists()

    def make(self, disk: str, bytes_per_second: int) -> None:
        """Make it, with a limit on reads and one on writes. Raises FaultRefused."""
        try:
            self._folder.mkdir(exist_ok=True)
            for limit in _LIMITS:
                (self._folder / limit).write_text(f"{disk} {bytes_per_second}", encoding="ascii")
        except OSError as error:
            raise FaultRefused(f"{self._folder}: the kernel refused the limit ({error.strerror}).") from error

    def take(self, pid: int) -> None:
        """Move a process into it; what it starts from now on is in it, too. Nothing where the process is gone."""
        _move(pid, self._folder)

    def has(self, pid: int) -> bool:
        """Whether the process is in it."""
        return group_of(pid).rpartition("/")[2] == self.name

    def remove(self, disk: str, homes: dict[int, str], home: str) -> None:
        """Lift the limits, move each process to its group in ``homes``, others to ``home``, and remove the group.

        Nothing where there is none. Raises FaultRefused where processes do not leave it.
        """
        if not self.exists:
            return
        root = self._folder.parent
        deadline = time.monotonic() + _LETS_GO_SECONDS_MAX
        try:
            for limit in _LIMITS:
                (self._folder / limit).write_text(f"{disk} 0", encoding="ascii")
            while self.exists:
                for pid in map(int, (self._folder / _PROCESSES).read_text(encoding="ascii").split()):
                    place = root / homes.get(pid, home).lstrip("/")
                    _move(pid, place if place.exists() else root)
                try:
                    self._folder.rmdir()
                except OSError as error:
                    # One that was forked meanwhile, or that is just ending.
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_SECONDS)
        except FileNotFoundError:
            return  # another process heals, too
        except OSError as error:
            raise FaultRefused(f"{self._folder}: the group cannot be removed ({error.strerror}).") from error

    def write_seconds(self, folder: Path, size: int, timeout_seconds: float) -> float:
        """As :func:`write_seconds`, by a process in the group."""
        return _write(folder, size, str(self._folder / _PROCESSES), timeout_seconds)


def write_seconds(folder: Path, size: int, timeout_seconds: float) -> float:
    """Time to write and sync ``size`` bytes of a file without a name in ``folder``; ``timeout_seconds`` where longer.

    Raises FaultRefused where it cannot be written.
    """
    return _write(folder, size, "", timeout_seconds)


def _write(folder: Path, size: int, group: str, timeout_seconds: float) -> float:
    command = [sys.executable, "-I", "-S", "-c", _WRITE, str(folder), str(size), group]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complaint = writer.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        writer.kill()  # it ends when its I/O does, for which nobody should wait
        return timeout_seconds
    if writer.returncode:
        why = complaint.strip().rpartition("\n")[2] or "it was killed"
        raise FaultRefused(f"{folder}: no file can be written there as a probe ({why}).")
    return float(said)


def _move(pid: int, group: Path) -> None:
    with suppress(ProcessLookupError):
        (group / _PROCESSES).write_text(str(pid), encoding="ascii")
