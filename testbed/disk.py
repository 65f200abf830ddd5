"""A small file system of its own for what an engine keeps on disk, so that it can be filled up: a tmpfs.

Needs root and Linux (`why_not_here`). It is mounted in a mount namespace of this process and of those that it starts,
so that nobody else sees it and the kernel takes it away with the last of them, however they end.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from faults.errors import FaultRefused

SIZE_BYTES: Final = 128 << 20
"""Many times what an engine of the demo keeps, and little of a machine's memory."""
_NEW_MOUNT_NAMESPACE: Final = 0x00020000
_SOURCE: Final = "streamproof-demo"


@functools.cache
def why_not_here() -> str | None:
    """Why this host cannot mount a file system of our own; None where it can."""
    if sys.platform != "linux":
        return "only Linux has mount namespaces"
    if os.geteuid() != 0:
        return "it mounts a file system of its own, which needs root"
    trial = _run("unshare", "--mount", *_mount(Path(tempfile.gettempdir())))
    return None if trial is None else f"it cannot mount a file system of its own ({trial})"


def enter_own_mounts() -> None:
    """Give this thread, and all threads and processes that come from it, mounts of their own. Raises FaultRefused.

    Called before anything is started. What the host unmounts meanwhile is unmounted here, too.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNT_NAMESPACE) != 0:
        raise FaultRefused(f"No mounts of its own could be had ({os.strerror(ctypes.get_errno())}).")
    _check("mount", "--make-rslave", "/")


def mount(folder: Path) -> None:
    """Make ``folder`` a file system of `SIZE_BYTES`. Raises FaultRefused."""
    folder.mkdir(parents=True, exist_ok=True)
    _check(*_mount(folder))


def unmount(folder: Path) -> None:
    """Take it away, also from under processes that are just ending."""
    _run("umount", "--lazy", str(folder))


def _mount(folder: Path) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES},mode=0700", _SOURCE, str(folder)]


def _check(*command: str) -> None:
    if (why_not := _run(*command)) is not None:
        raise FaultRefused(f"{' '.join(command)} failed: {why_not}.")


def _run(*command: str) -> str | None:
    """None where it did what it should, else why not."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"status {done.returncode}"
