"""libfaketime, by which the clock of a process is moved: where it is loaded, and where it is installed (Linux)."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from faults.backends import processes

LIBRARY: Final = "libfaketime"
_PLACES: Final = ("/usr/lib", "/usr/lib64", "/usr/local/lib")
"""Where Debian (below the machine's name), Fedora and a build from source put it."""


def why_not_here() -> str | None:
    """Why no process seems to have it; None where one has it loaded, or could.

    A process may be started with one that is elsewhere, so that this is to tell, and no reason to refuse.
    """
    if installed() is not None or any(_has_loaded(int(folder.name)) for folder in Path("/proc").glob("[0-9]*")):
        return None
    return (
        f"{LIBRARY} is not installed, and no process here has loaded it; the clock of a JVM is moved all the same, by "
        "an agent (docs/faults.md)"
    )


def installed() -> Path | None:
    """The file of it for processes with threads; None where it is in none of the usual places."""
    name = f"faketime/{LIBRARY}MT.so.1"
    return next((path for place in _PLACES for glob in (name, f"*/{name}") for path in Path(place).glob(glob)), None)


def _has_loaded(pid: int) -> bool:
    try:
        return processes.mapped(pid, LIBRARY) is not None
    except PermissionError:  # another user's
        return False
