"""One sidecar per state folder: a kernel lock that lives as long as any process of the holder does.

The lock is a `flock` on an open file description that the JVM inherits: it is free again only when the Python process
*and* its JVM are gone, at once after a SIGKILL, and never by a clock.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from validator.state.folder import LOCK, StateRefused, take


class StateLocked(Exception):
    """Another sidecar holds the state folder."""


@dataclass
class StateLock:
    """A held lock; ``descriptor`` must be passed on to every child that may write the state."""

    descriptor: int

    def release(self) -> None:
        """Let go; the lock is free when the children that inherited the descriptor are gone too."""
        os.close(self.descriptor)


def acquire(state: Path, *, wait: Callable[[], bool] | None = None) -> StateLock:
    """Lock ``state`` (made and marked if absent) or raise `StateLocked`, or `StateRefused` where it is no state.

    ``wait`` is asked after each refusal whether to try again: a JVM outlives its killed driver by a moment.
    """
    take(state)
    descriptor = _opened(state / LOCK)
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


def _opened(path: Path) -> int:
    """The lock file, which nobody else may have put there: a write through a link would destroy what it leads to."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise StateRefused(
            f"{path} cannot be opened ({error.strerror}): remove it, or change its permissions"
        ) from None
    seen = os.fstat(descriptor)
    if not stat.S_ISREG(seen.st_mode) or seen.st_nlink != 1 or seen.st_uid != os.geteuid():
        os.close(descriptor)
        raise StateRefused(f"{path} is not a file that this user's sidecar made: run it as the state's owner")
    return descriptor
