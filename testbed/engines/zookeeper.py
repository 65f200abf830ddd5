"""The ZooKeeper of engines that need one. Each engine ships ZooKeeper's classes below a package of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROLE: Final = "zookeeper"
MAIN: Final = "org.apache.zookeeper.server.ZooKeeperServerMain"
"""The class to start, without the engine's package before it. Its argument is the file of `write_zookeeper`."""
HEAP_MB: Final = 128


def write_zookeeper(folder: Path, *, host: str, port: int) -> Path:
    """Write the configuration of a server with its data in ``folder``, and return the file."""
    (folder / "zookeeper").mkdir(parents=True, exist_ok=True)
    file = folder / "zookeeper.cfg"
    file.write_text(
        f"dataDir={folder / 'zookeeper'}\nclientPort={port}\nclientPortAddress={host}\n"
        "tickTime=500\nmaxClientCnxns=0\nadmin.enableServer=false\n",
        encoding="utf-8",
    )
    return file
