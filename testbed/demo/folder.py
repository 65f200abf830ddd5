"""The demo's temporary folder. The demo removes it at the end; the next demo removes the folder of a killed one.

The owner holds a lock on a file in it, which the kernel releases when the owner dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final, Self

from testbed import node

PREFIX: Final = "streamproof-demo-"
_OWNER_FILE: Final = "owner.lock"
_UNLOCKED_SECONDS_MAX: Final = 60.0
"""A folder without a lock file is kept up to this age: another demo may still be creating it."""
_REMOVAL_ATTEMPTS: Final = 50
_REMOVAL_PAUSE_SECONDS: Final = 0.1


class DemoFolder:
    """A context manager; ``path`` is the folder."""

    def __init__(self) -> None:
        self.path: Path = Path()
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Remove the folders of killed demos, then create and lock this one."""
        remove_abandoned()
        node.remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._descriptor = os.open(self.path / _OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        return self

    def __exit__(self, *how: object) -> None:
        """Remove the folder. It takes several attempts, because killed processes may still be writing."""
        del how
        for _ in range(_REMOVAL_ATTEMPTS):
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                break
            time.sleep(_REMOVAL_PAUSE_SECONDS)
        os.close(self._descriptor)


def remove_abandoned() -> None:
    """Remove the folders of demos whose process has ended."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        # Another demo may remove the same one, and other users' folders cannot be opened.
        with contextlib.suppress(OSError):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    try:
        descriptor = os.open(folder / _OWNER_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > _UNLOCKED_SECONDS_MAX
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
