"""A network of its own for an engine's first worker: a namespace behind the relay of ``streamproof faults proxy``.

Needs root and Linux (`why_not_here`). The relay ends with us, however we end; what then stays is an empty namespace,
which the next one removes.
"""

from __future__ import annotations

import os
import subprocess
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from faults.backends import relay
from faults.errors import FaultRefused
from testbed.demo_sidecar import python_path, streamproof
from testbed.demo_stop import Stop
from testbed.engines.settings import Node
from testbed.processes import OwnedProcess
from testbed.run_files import write_yaml

TARGET: Final = "node"
"""The name of the fault runner's target."""
_PREFIX: Final = "streamproof-"
PROXY_READY: Final = "the proxy is ready"
"""What `streamproof faults proxy` says when it serves."""
_ANY_PROBE: Final = "127.0.0.1:1"
_NAMESPACES: Final = Path("/run/netns")


def why_not_here() -> str | None:
    """Why this host cannot give a worker a network of its own; None where it can."""
    return relay.why_not_here()


def network_of(process: int) -> IPv4Network:
    """Four addresses of those that are for benchmarks (RFC 2544); processes that live at one time rarely share them."""
    return IPv4Network(f"198.18.{process % 256}.{process // 256 % 64 * 4}/30")


class NodeRelay:
    """The relay of this process. ``folder`` is the state folder of the faults that are to use it."""

    def __init__(self, folder: Path, name: str = TARGET) -> None:
        """``name``: that of its target in the fault configurations of its runs."""
        self.folder = folder
        self._name = name
        self._network = network_of(os.getpid())
        self.node = Node(
            namespace=f"{_PREFIX}{os.getpid()}",
            host=str(relay.outside(self._network)),
            address=str(relay.inside(self._network)),
        )
        self._proxy: OwnedProcess | None = None

    @property
    def process(self) -> OwnedProcess:
        """The relay's, once it was started."""
        assert self._proxy is not None
        return self._proxy

    def target(self, probe: str = _ANY_PROBE) -> dict[str, Any]:
        """The node as a fault configuration has it; ``probe`` takes connections from inside."""
        return {
            "type": "namespace",
            "namespace": self.node.namespace,
            "device": "e0",
            "relay": str(self._network),
            "probe": probe,
        }

    def start(self, stop: Stop) -> OwnedProcess:
        """Start the relay, or take the one that runs; return its process when the network is there.

        Raises FaultRefused, KeyboardInterrupt.
        """
        if self._proxy is not None and self._proxy.is_running:
            return self._proxy
        self.end()
        (self.folder / "relay.log").unlink(missing_ok=True)
        remove_abandoned()
        self.folder.mkdir(parents=True, exist_ok=True)
        fault = {"kind": "namespace_delay", "target": self._name, "parameters": {"delay": "1s"}}
        file = write_yaml(
            self.folder / "relay.yaml",
            {"state": str(self.folder), "targets": {self._name: self.target()}, "schedule": {"faults": [fault]}},
        )
        self._proxy = OwnedProcess(
            streamproof("faults", "proxy", file), log=self.folder / "relay.log", name="packet relay",
            environment=python_path(), folder=self.folder,
        )  # fmt: skip
        while PROXY_READY not in self._proxy.last_lines():
            if not self._proxy.is_running:
                raise FaultRefused(f"The packet relay ended with {self._proxy.returncode}: {self._proxy.last_lines(1)}")
            stop.pause()
        return self._proxy

    def end(self) -> None:
        """End the relay and remove the namespace. The processes in it have ended."""
        if self._proxy is not None:
            self._proxy.terminate()
            self._proxy = None
            _remove(self.node.namespace)


def remove_abandoned() -> None:
    """Remove the namespaces of processes that do not live any more."""
    for path in _NAMESPACES.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX)
        if owner.isdecimal() and not Path("/proc", owner).exists():
            _remove(path.name)


def _remove(namespace: str) -> None:
    """Where it is still there."""
    subprocess.run(["ip", "netns", "del", namespace], check=False, capture_output=True)
