"""The containers in which this process runs or whose network it shares, according to /proc of Linux.

A host name does not identify a container: it can be chosen (``--hostname``) or be the host's (``--network host``).
Three other facts do. Docker and Podman mount files over ``/etc/hosts`` and similar, from a folder that is named after
the container's id. The control group contains the id, unless it is hidden (``--cgroupns private``). The root folder is
an overlay whose upper layer belongs to the container.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LAID_OVER: Final = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")
"""``--network container:OTHER`` mounts the files of OTHER. If OTHER ends, both containers lose the network."""
_FOLDER: Final = re.compile(r"containers/([0-9a-f]{64})/")
_GROUP: Final = re.compile(r"(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")


@dataclass(frozen=True)
class OwnContainers:
    """Ids of the containers, and the upper layer of the root folder if that is an overlay."""

    ids: frozenset[str]
    layer: str | None

    def has(self, container_id: str, layer: str | None) -> bool:
        """Whether the container is one of them."""
        return container_id in self.ids or (layer is not None and layer == self.layer)


def own_containers(process: Path = Path("/proc/self")) -> OwnContainers:
    """The containers of this process; none if it runs on the host, or if there is no ``/proc``."""
    mounts = [line.split(" ") for line in _lines(process / "mountinfo")]
    # Fields (proc(5)): id, parent, device, root within the file system, mount point, ..., "-", type, source, options.
    ids = {found[1] for mount in mounts if mount[4] in _LAID_OVER and (found := _FOLDER.search(mount[3]))}
    ids |= {id_ for line in _lines(process / "cgroup") for id_ in _GROUP.findall(line)}
    layers = [
        option.removeprefix("upperdir=")
        for mount in mounts
        if mount[4] == "/" and mount[mount.index("-") + 1] == "overlay"
        for option in mount[-1].split(",")
        if option.startswith("upperdir=")
    ]
    return OwnContainers(frozenset(ids), layers[-1] if layers else None)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
