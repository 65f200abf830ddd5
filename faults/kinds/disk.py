"""Fault of a folder: a large file takes the space of its file system. The probes query the file system."""

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
    """Writes a file until it reaches its size or the file system is full."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        assert isinstance(fault.parameters, DiskParameters)
        self.facts = facts
        self._state = state
        self._parameters = fault.parameters
        folders = {n: t.path for n, t in fault.targets.items() if isinstance(t, FolderTarget)}
        self._files = {name: folder / f"{_PREFIX}{fault.id}" for name, folder in folders.items()}

    def prepare(self) -> None:
        """Raise FaultRefused if the folder does not exist, if less than the reserve would stay free, or if the file
        system of the journal would be full.
        """
        for name, file in self._files.items():
            if not file.parent.is_dir():
                raise FaultRefused(f"{name}: {file.parent} is not a folder; name one that exists.")
            left = max(shutil.disk_usage(file.parent).free - self._parameters.bytes, 0)
            if left < self._parameters.reserve:
                raise FaultRefused(
                    f"{name}: only {left} bytes of {file.parent} would stay free, and reserve is "
                    f"{self._parameters.reserve}; take fewer bytes or a smaller reserve."
                )
            if left < _NEARLY_FULL_BYTES and self._state.stat().st_dev == file.parent.stat().st_dev:
                raise FaultRefused(
                    f"{name}: the journal in {self._state} is on the file system that would fill up; put state on "
                    "another file system, or set a larger reserve."
                )

    def inject(self) -> None:
        """Write the files. A full file system or quota ends the writing and is not an error."""
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
        """Does nothing."""

    def is_active(self) -> bool:
        """Whether each file has all its blocks, or no space is left."""
        return all(
            file.exists()
            and (
                file.stat().st_blocks * 512 >= self._parameters.bytes
                or shutil.disk_usage(file.parent).free < _NEARLY_FULL_BYTES
                or _write_errno(file.parent) in _NO_SPACE  # a quota is full before the file system is
            )
            for file in self._files.values()
        )

    def heal(self) -> None:
        """Remove the files."""
        for_each(self._files.values(), lambda file: file.unlink(missing_ok=True))

    def is_healed(self) -> bool:
        """Whether the files are removed and a byte can be written."""
        return not any(file.exists() for file in self._files.values()) and all(
            _write_errno(file.parent) is None for file in self._files.values()
        )


def _write_errno(folder: Path) -> int | None:
    """The errno with which writing a byte in ``folder`` fails; None if it succeeds."""
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
