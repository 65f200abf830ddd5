"""Fault of a folder: a large file. The probes ask the file system."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Final

from faults.errors import FaultRefused
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.parameters import DiskParameters
from faults.targets import FolderTarget

_CHUNK_BYTES: Final = 1 << 20
_PREFIX: Final = ".streamproof-fault-"
_NEARLY_FULL_BYTES: Final = 1 << 20
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


class DiskFull:
    """Writes a file until it has its size or the file system is full."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        assert isinstance(fault.parameters, DiskParameters)
        self.facts = facts
        self._state = state
        self._parameters = fault.parameters
        folders = {n: t.path for n, t in fault.targets.items() if isinstance(t, FolderTarget)}
        self._files = {name: folder / f"{_PREFIX}{fault.id}" for name, folder in folders.items()}

    def prepare(self) -> None:
        """Raise FaultRefused where the folder is not there, or too little would stay free: the reserve is broken, or
        nothing is left for our own journal.
        """
        for name, file in self._files.items():
            if not file.parent.is_dir():
                raise FaultRefused(f"{name}: {file.parent} is no folder; name one that exists.")
            left = max(shutil.disk_usage(file.parent).free - self._parameters.bytes, 0)
            if left < self._parameters.reserve:
                raise FaultRefused(
                    f"{name}: only {left} bytes of {file.parent} would stay free, and reserve is "
                    f"{self._parameters.reserve}; take fewer bytes or a smaller reserve."
                )
            if left < _NEARLY_FULL_BYTES and self._state.stat().st_dev == file.parent.stat().st_dev:
                raise FaultRefused(
                    f"{name}: the journal in {self._state} is on the file system that would fill up; put state on "
                    "another one, or leave a reserve."
                )

    def inject(self) -> None:
        """Write the files; a full file system is what was wanted."""
        chunk = bytes(_CHUNK_BYTES)
        for file in self._files.values():
            left = self._parameters.bytes
            try:
                with file.open("xb", buffering=0) as out:
                    while left > 0:
                        left -= out.write(chunk[:left])
                    os.fsync(out.fileno())
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise FaultRefused(f"{file}: cannot be written ({error.strerror}).") from error

    def maintain(self) -> None:
        """Nothing to do meanwhile."""

    def is_active(self) -> bool:
        """The blocks are taken, or nothing is left to take."""
        return all(
            file.exists()
            and (
                file.stat().st_blocks * 512 >= self._parameters.bytes
                or shutil.disk_usage(file.parent).free < _NEARLY_FULL_BYTES
                or _write_errno(file.parent) in _NO_SPACE  # a quota fills up without the file system
            )
            for file in self._files.values()
        )

    def heal(self) -> None:
        """Remove the files."""
        for_each(self._files.values(), lambda file: file.unlink(missing_ok=True))

    def is_healed(self) -> bool:
        """No file of ours is left, and a byte can be written."""
        return not any(file.exists() for file in self._files.values()) and all(
            _write_errno(file.parent) is None for file in self._files.values()
        )


def _write_errno(folder: Path) -> int | None:
    """The errno with which a byte cannot be written there; None where it can."""
    probe = folder / f"{_PREFIX}probe-{os.getpid()}"
    try:
        with probe.open("wb", buffering=0) as out:
            out.write(b"1")
            os.fsync(out.fileno())
    except OSError as error:
        return error.errno
    finally:
        probe.unlink(missing_ok=True)
    return None
