"""The namespace of a relay: marked by the relay that creates it, and removed if it is found marked and empty.

The mark is an alias of the namespace's loopback device. It outlives a killed relay and is deleted with the namespace,
so that a namespace that another program creates with the same name is not removed.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from faults.backends import namespaces

FOLDER: Final = Path("/run/netns")
"""The folder in which `ip netns` keeps the names."""
_LOOPBACK: Final = "lo"
_MARK: Final = "made by streamproof faults proxy"


def take(name: str) -> None:
    """Create and mark the namespace, if it does not exist. Raises OSError."""
    if not (FOLDER / name).exists():
        ip("netns", "add", name)
        ip("-n", name, "link", "set", _LOOPBACK, "alias", _MARK)


def remove_if_ours(name: str) -> bool:
    """Remove the namespace if a relay created it and it is empty. Returns whether it was removed."""
    return remove_if_empty(name, mark=_MARK)


def remove_if_empty(name: str, mark: str | None = None) -> bool:
    """Remove the namespace unless it contains a process or a device that is up, or lacks ``mark``.

    A later relay could not reach processes in a namespace without a name. A device that is up belongs to another relay.
    Returns whether the namespace was removed.
    """
    with suppress(OSError):
        links: list[dict[str, Any]] = json.loads(ip("-n", name, "-j", "link", "show"))
        (loopback,) = (link for link in links if link["ifname"] == _LOOPBACK)
        is_used = any("UP" in link["flags"] for link in links if link is not loopback)
        if is_used or mark not in (None, loopback.get("ifalias")) or ip("netns", "pids", name).strip():
            return False
        ip("netns", "del", name)
        return True
    return False


def remove_if_stale(name: str) -> bool:
    """Remove a name without a namespace. Returns whether it was removed.

    The name is an empty file over which the namespace is mounted. If the process that creates it has its own mount
    namespace (the demo, where a disk is filled), the other processes see only the empty file.
    """
    path = FOLDER / name
    with suppress(OSError):
        if path.is_file() and path.stat().st_dev == FOLDER.stat().st_dev:
            path.unlink()
            return True
    return False


def ip(*arguments: str) -> str:
    """Output of the program `ip`. Raises OSError if it fails."""
    ran = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if ran.returncode:
        raise OSError(0, f"ip {' '.join(arguments)}: {namespaces.first_line(ran.stderr)}")
    return ran.stdout
