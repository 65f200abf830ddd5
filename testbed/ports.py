"""Free ports for servers that the testbed and tests start."""

import random
import socket

__all__ = ["free_port", "free_ports", "is_free"]

# Below the ephemeral ranges of Linux and macOS, because the kernel can assign an ephemeral port to any outgoing
# connection: between the choice of the port and the start of its server, or while a broker is down between kill() and
# restart().
_PORTS = range(15000, 32000)


def free_port() -> int:
    """A port of 127.0.0.1 on which no process listens now, and which no outgoing connection can take later."""
    return free_ports(1)[0]


def free_ports(count: int) -> tuple[int, ...]:
    """``count`` different free ports."""
    draw = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = draw.choice(_PORTS)
        if port not in found and is_free(port):
            found.append(port)
    return tuple(found)


def is_free(port: int) -> bool:
    """Whether no process listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
