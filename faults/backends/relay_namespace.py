"""The namespace of a relay: marked by the relay that makes it, and removed by whoever finds it marked and empty.

The mark is in the namespace (an alias of its loopback device), so that it goes with it: it outlives a relay that is
killed, and one that somebody makes anew under the same name is not taken for ours.
"""

from __future__ import annotations

import json
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from faults.backends import namespaces

FOLDER: Final = Path("/run/netns")
"""Where `ip netns` keeps the names."""
_LOOPBACK: Final = "lo"
_MARK: Final = "made by streamproof faults proxy"


def take(name: str) -> None:
    """Make the namespace where it is not there. Raises OSError."""
    if not (FOLDER / name).exists():
        ip("netns", "add", name)
        ip("-n", name, "link", "set", _LOOPBACK, "alias", _MARK)


def remove_if_ours(name: str) -> bool:
    """Remove it, if a relay made it and it is empty; whether that was so."""
    return remove_if_empty(name, mark=_MARK)


def remove_if_empty(name: str, mark: str | None = None) -> bool:
    """Remove it, unless a process or a device that is up is in it, or it lacks ``mark``; whether it was removed.

    Processes would be left in one without a name, which no later relay could reach; a device is that of another relay.
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


def remove_if_gone(name: str) -> bool:
    """Remove a name that stands for nothing here; whether it was one.

    Whoever makes a namespace in mounts of its own (the demo, where a disk is filled) leaves others an empty file:
    the namespace is mounted over it there alone, and goes with those mounts.
    """
    path = FOLDER / name
    with suppress(OSError):
        if path.is_file() and path.stat().st_dev == FOLDER.stat().st_dev:
            path.unlink()
            return True
    return False


def ip(*arguments: str) -> str:
    """What the program `ip` says. Raises OSError where it refuses."""
    ran = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if ran.returncode:
        raise OSError(0, f"ip {' '.join(arguments)}: {namespaces.first_line(ran.stderr)}")
    return ran.stdout
