"""Control groups that slow the reads and writes of their processes on one disk: ``blkio.throttle`` of cgroup 1.

The kernel charges an I/O to the process that submits it: reads, direct writes and syncs are slowed at once. Pages that
a process does not sync are written by the kernel's threads at full speed.
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
_RELEASE_SECONDS_MAX: Final = 5.0
_POLL_SECONDS: Final = 0.01
# The file has no name, so that no file remains, however the probe ends.
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
    """Why this host cannot slow the disk for a process; None if it can."""
    if sys.platform != "linux":
        return "only Linux has control groups"
    if os.geteuid() != 0:
        return "the fault creates a control group, which needs root"
    root = _root()
    if root is None:
        return "blkio of cgroup 1 is not mounted on this host, and cgroup 2 is not supported"
    if not all((root / limit).exists() for limit in _LIMITS):
        return "the kernel of this host has no blkio.throttle"
    return None


def _root() -> Path | None:
    """Mount point of the ``blkio`` controller of cgroup 1; None if it is not mounted."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "blkio" in options.split(","):
            return Path(place)
    return None


def disk_of(folder: Path) -> str:
    """The disk under ``folder`` as ``major:minor``; for a partition, the disk that contains it. Raises FaultRefused."""
    try:
        device = folder.stat().st_dev
    except OSError as error:
        raise FaultRefused(f"{folder}: cannot be read ({error.strerror}).") from error
    number = f"{os.major(device)}:{os.minor(device)}"
    shown = Path("/sys/dev/block", number)
    if not shown.exists():
        raise FaultRefused(f"{folder}: its file system is not on a block device, so it cannot be slowed.")
    if (shown / "partition").exists():
        return (shown.resolve().parent / "dev").read_text(encoding="utf-8").strip()
    return number


def group_of(pid: int) -> str:
    """The ``blkio`` group of a process, as a path from the root group; the root group if the process does not exist."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if "blkio" in controllers.split(","):
                return group
    return "/"


@dataclass(frozen=True)
class ThrottledGroup:
    """A control group that a fault creates."""

    name: str

    @property
    def _folder(self) -> Path:
        root = _root()
        assert root is not None
        return root / self.name

    @property
    def exists(self) -> bool:
        """Whether the group exists."""
        return self._folder.exists()

    def make(self, disk: str, bytes_per_second: int) -> None:
        """Create the group, with one limit for reads and one for writes. Raises FaultRefused."""
        try:
            self._folder.mkdir(exist_ok=True)
            for limit in _LIMITS:
                (self._folder / limit).write_text(f"{disk} {bytes_per_second}", encoding="ascii")
        except OSError as error:
            raise FaultRefused(f"{self._folder}: the kernel refused the limit ({error.strerror}).") from error

    def take(self, pid: int) -> None:
        """Move a process into the group; later children inherit it. Does nothing if the process does not exist."""
        _move(pid, self._folder)

    def has(self, pid: int) -> bool:
        """Whether the process is in the group."""
        return group_of(pid).rpartition("/")[2] == self.name

    def remove(self, disk: str, homes: dict[int, str], home: str) -> None:
        """Remove the limits, move each process to its group in ``homes``, others to ``home``, and remove the group.

        Does nothing if the group does not exist. Raises FaultRefused if it cannot be removed.
        """
        if not self.exists:
            return
        root = self._folder.parent
        deadline = time.monotonic() + _RELEASE_SECONDS_MAX
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
                    # A process was forked meanwhile, or is ending.
                    if error.errno != errno.EBUSY or time.monotonic() > deadline:
                        raise
                    time.sleep(_POLL_SECONDS)
        except FileNotFoundError:
            return  # another process has removed the group
        except OSError as error:
            raise FaultRefused(f"{self._folder}: the group cannot be removed ({error.strerror}).") from error

    def write_seconds(self, folder: Path, size: int, timeout_seconds: float) -> float:
        """As :func:`write_seconds`, by a process in the group."""
        return _write(folder, size, str(self._folder / _PROCESSES), timeout_seconds)


def write_seconds(folder: Path, size: int, timeout_seconds: float) -> float:
    """Seconds to write and sync ``size`` bytes to a file without a name in ``folder``, at most ``timeout_seconds``.

    Raises FaultRefused if the file cannot be written.
    """
    return _write(folder, size, "", timeout_seconds)


def _write(folder: Path, size: int, group: str, timeout_seconds: float) -> float:
    command = [sys.executable, "-I", "-S", "-c", _WRITE, str(folder), str(size), group]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said, complaint = writer.communicate(timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        writer.kill()  # not waited for: it ends only when its I/O ends
        return timeout_seconds
    if writer.returncode:
        why = complaint.strip().rpartition("\n")[2] or "the writing process was killed"
        raise FaultRefused(f"{folder}: the probe cannot write a file there ({why}).")
    return float(said)


def _move(pid: int, group: Path) -> None:
    with suppress(ProcessLookupError):
        (group / _PROCESSES).write_text(str(pid), encoding="ascii")
