"""A small separate file system (tmpfs) for an engine's files, so that a fault can fill it.

Needs root and Linux (`why_not_here`). It is mounted in a mount namespace of this process and its children. Other
processes do not see it, and the kernel removes it with the last of them, however they end.
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
"""Much larger than the files of an engine in the demo, and a small part of a machine's memory."""
_NEW_MOUNT_NAMESPACE: Final = 0x00020000
_SOURCE: Final = "streamproof-demo"


@functools.cache
def why_not_here() -> str | None:
    """The reason why this host cannot mount a separate file system; None if it can."""
    if sys.platform != "linux":
        return "only Linux has mount namespaces"
    if os.geteuid() != 0:
        return "mounting a separate file system requires root"
    trial = _run("unshare", "--mount", *_mount(Path(tempfile.gettempdir())))
    return None if trial is None else f"mounting a separate file system fails ({trial})"


def enter_own_mounts() -> None:
    """Move this thread, and the threads and processes that it starts, into a new mount namespace. Raises FaultRefused.

    Must be called before anything is started. Mounts that the host removes later are also removed in the namespace.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_MOUNT_NAMESPACE) != 0:
        raise FaultRefused(f"The mount namespace could not be created ({os.strerror(ctypes.get_errno())}).")
    _check("mount", "--make-rslave", "/")


def mount(folder: Path) -> None:
    """Mount a file system of `SIZE_BYTES` at ``folder``. Raises FaultRefused."""
    folder.mkdir(parents=True, exist_ok=True)
    _check(*_mount(folder))


def unmount(folder: Path) -> None:
    """Unmount it, even while processes that use it are still ending."""
    _run("umount", "--lazy", str(folder))


def _mount(folder: Path) -> list[str]:
    return ["mount", "-t", "tmpfs", "-o", f"size={SIZE_BYTES},mode=0700", _SOURCE, str(folder)]


def _check(*command: str) -> None:
    if (why_not := _run(*command)) is not None:
        raise FaultRefused(f"{' '.join(command)} failed: {why_not}.")


def _run(*command: str) -> str | None:
    """None on success, else the reason of the failure."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    return None if done.returncode == 0 else " ".join(done.stderr.split()) or f"status {done.returncode}"
