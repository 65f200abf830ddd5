"""One sidecar per state folder: a kernel lock that is held as long as a process of the holder exists.

The lock is a `flock` on an open file description that the JVM inherits. The kernel releases it when both the Python
process and its JVM have ended, also after a SIGKILL. There is no timeout.

A mount with options that keep locks local to a host is refused. If a lock is lost nevertheless,
`StateTables.take_over` stops the older sidecar (docs/decisions/0011).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from validator.state.folder import LOCK, PASSING, StateRefused, take

REFUSED_OPTIONS: Final = frozenset(
    {"nolock", "local_lock=all", "local_lock=flock", "nobrl", "localflock", "localflocks"}
)
"""Mount options of NFS, SMB, Lustre, OCFS2 and GFS2 that keep locks local to a host."""
NETWORK_TYPES: Final = re.compile(r"nfs|cifs|smb|9p|virtiofs|ceph|lustre|gfs2|ocfs2|fuse\.")
_MOUNTS: Final = Path("/proc/self/mountinfo")


class StateLocked(Exception):
    """Another sidecar holds the state folder."""


@dataclass
class StateLock:
    """A held lock. Every child process that may write the state must inherit ``descriptor``."""

    descriptor: int

    def release(self) -> None:
        """Close the descriptor. The lock is free once the children that inherited it have ended as well."""
        os.close(self.descriptor)


def acquire(state: Path, *, wait: Callable[[], bool] | None = None) -> StateLock:
    """Lock ``state``, which is created and marked if absent. Raises `StateLocked`, `StateRefused`, and
    OSError if the disk is full or read-only.

    ``wait`` is called after each failed attempt and returns whether to retry: a JVM may outlive its killed driver for a
    moment.
    """
    take(state)
    _refuse_local_locks(state)
    descriptor = _open_lock_file(state / LOCK)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if wait is not None and wait():
                continue
            os.close(descriptor)
            raise StateLocked(
                f"another sidecar is running on the state {state}: stop it, or give this one a state.path of its own"
            ) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        return StateLock(descriptor)


@dataclass(frozen=True)
class Mount:
    """The mount of a folder: mount point, file system type and options."""

    point: str
    type: str
    options: frozenset[str]


def mount_of(folder: Path, mounts: str | None = None) -> Mount | None:
    """The mount of ``folder``; None if the system has no mountinfo. ``mounts``: the text of Linux's mountinfo."""
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None
    whole = Path(os.path.realpath(folder))
    found: Mount | None = None
    for line in mounts.splitlines():
        own, _, of_type = line.partition(" - ")
        fields, (kind, _, options) = own.split(" "), of_type.split(" ", 2)
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        # Of several mounts on one mount point, the last one is visible.
        if whole.is_relative_to(point) and (found is None or len(point) >= len(found.point)):
            found = Mount(point, kind, frozenset([*fields[5].split(","), *options.split(",")]))
    return found


def _refuse_local_locks(state: Path) -> None:
    mount = mount_of(state)
    for option in sorted(REFUSED_OPTIONS & mount.options) if mount is not None else ():
        assert mount is not None
        raise StateRefused(
            f"the state {state} is on {mount.point} ({mount.type}), which is mounted with {option}: another host would "
            "not see its lock; mount it without that option, or name a folder on another file system"
        )


def _open_lock_file(path: Path) -> int:
    """Open the lock file. A link or a file of another user is refused: writing through it could destroy other data."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        if error.errno in PASSING:
            raise
        raise StateRefused(
            f"{path} cannot be opened ({error.strerror}): remove it, or change its permissions"
        ) from None
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_uid != os.geteuid():
        os.close(descriptor)
        raise StateRefused(f"{path} was not created by a sidecar of this user: run the sidecar as the state's owner")
    return descriptor
