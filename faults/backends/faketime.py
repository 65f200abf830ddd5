"""libfaketime, which moves the clock of a process: where it is installed, and whether a process uses it (Linux)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from faults.backends import processes

LIBRARY: Final = "libfaketime"
_PLACES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
"""Folders of Debian (in a folder named after the architecture), of Fedora, and of a build from source."""


def why_not_here() -> str | None:
    """Why no process seems to use the library; None if one has loaded it, or if it is installed.

    Informative only, not a reason to refuse a fault: a process may load the library from another folder.
    """
    if installed() is not None or any(_has_loaded(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")):
        return None
    return (
        f"{LIBRARY} is not installed, and no process here has loaded it; without it, only the clock of a JVM with our "
        "agent can be moved (docs/faults.md)"
    )


def installed() -> Path | None:
    """The library for processes with threads; None if it is in none of the usual folders."""
    name = f"faketime/{LIBRARY}MT.so.1"
    return next((path for place in _PLACES for glob in (name, f"*/{name}") for path in Path(place).glob(glob)), None)


def _has_loaded(pid: int) -> bool:
    try:
        return processes.mapped(pid, LIBRARY) is not None
    except PermissionError:  # the process of another user
        return False
