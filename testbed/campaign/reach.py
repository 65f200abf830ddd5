"""How long a connection to the broker takes, by second: as from the worker whose network a fault changes, where there
is one (PGVal's pinger; its study of packet faults has a limit of 10 s, too).
"""

from __future__ import annotations

import socket
import time
from typing import Final

from faults.backends.namespaces import connect_seconds
from testbed.engines.settings import Node

PART: Final = "reach"
"""The part of the engine's counters that has these."""
CONNECT: Final = "connect-seconds"
UNREACHABLE: Final = "unreachable"
CONNECT_SECONDS_MAX: Final = 10.0


class Reach:
    """Connects to an address each time that it is called. The result has the form of an engine's counters."""

    def __init__(self, address: str, node: Node | None) -> None:
        """``address``: host:port, as the engine uses it. ``node``: the network in which the worker is."""
        self._address = address
        self._node = node

    def __call__(self) -> dict[str, dict[str, float]]:
        """The seconds until the connection was accepted, or that it was not within the limit."""
        if self._node is None:
            seconds = _connect_seconds(self._address)
        else:
            seconds = connect_seconds(self._node.namespace, self._address, CONNECT_SECONDS_MAX)
        return {PART: {UNREACHABLE: 1.0} if seconds is None else {CONNECT: seconds, UNREACHABLE: 0.0}}


def _connect_seconds(address: str) -> float | None:
    host, _, port = address.rpartition(":")
    began = time.monotonic()
    try:
        with socket.create_connection((host, int(port)), CONNECT_SECONDS_MAX):
            return time.monotonic() - began
    except OSError:
        return None
