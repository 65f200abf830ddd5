"""One sidecar per state folder: a kernel lock that lives as long as any process of the holder does.

The lock is a `flock` on an open file description that the JVM inherits: it is free again only when the Python process
*and* its JVM are gone, at once after a SIGKILL, and never by a clock.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


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
    """Lock ``state`` (made if absent) or raise `StateLocked`.

    ``wait`` is asked after each refusal whether to try again: a JVM outlives its killed driver by a moment.
    """
    state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state / "lock", os.O_RDWR | os.O_CREAT, 0o644)
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
