"""A separate network for an engine's first worker: a network namespace behind the relay of ``streamproof faults
proxy``.

Needs root and Linux (`why_not_here`). The relay ends with this process, however it ends; an empty namespace can remain,
which the next demo or campaign removes. Its name contains this process's id and start time, so that a later process
with the same id is not mistaken for it.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any, Final

from faults.backends import relay, relay_namespace
from faults.backends.processes import status_of
from faults.errors import FaultRefused
from testbed.checkout import python_path, streamproof
from testbed.engines.settings import Node
from testbed.processes import OwnedProcess
from testbed.run_files import write_yaml
from testbed.stop import Stop

TARGET: Final = "node"
"""The name of the target for the fault runner."""
_PREFIX: Final = "streamproof-"
PROXY_READY: Final = "the proxy is ready"
"""Log line of `streamproof faults proxy` when it serves."""
_ANY_PROBE: Final = "127.0.0.1:1"


def why_not_here() -> str | None:
    """The reason why this host cannot create a separate network for a worker; None if it can."""
    return relay.why_not_here()


def network_of(process: int) -> IPv4Network:
    """A /30 network in the range for benchmarks (RFC 2544); processes that run at the same time rarely share one."""
    return IPv4Network(f"198.18.{process % 256}.{process // 256 % 64 * 4}/30")


class NodeRelay:
    """The relay of this process. ``folder`` is the state folder of the fault runs that use it."""

    def __init__(self, folder: Path, name: str = TARGET) -> None:
        """``name``: the target's name in the fault configurations of those runs."""
        self.folder = folder
        self._name = name
        self._network = network_of(os.getpid())
        self.node = Node(
            namespace=_own_name(),
            host=str(relay.outside(self._network)),
            address=str(relay.inside(self._network)),
        )
        self._proxy: OwnedProcess | None = None

    @property
    def process(self) -> OwnedProcess:
        """The relay's process. Available after the start."""
        assert self._proxy is not None
        return self._proxy

    def target(self, probe: str = _ANY_PROBE) -> dict[str, Any]:
        """The target for a fault configuration; ``probe`` is an address that accepts connections from inside."""
        return {
            "type": "namespace",
            "namespace": self.node.namespace,
            "device": "e0",
            "relay": str(self._network),
            "probe": probe,
        }

    def start(self, stop: Stop) -> OwnedProcess:
        """Start the relay, unless it is running; return its process when the network exists.

        Raises FaultRefused, KeyboardInterrupt.
        """
        if self._proxy is not None and self._proxy.is_running:
            return self._proxy
        self.end()
        (self.folder / "relay.log").unlink(missing_ok=True)
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
                raise FaultRefused(
                    f"The packet relay ended with status {self._proxy.returncode}: {self._proxy.last_lines(1)}"
                )
            stop.pause()
        return self._proxy

    def end(self) -> None:
        """End the relay and remove the namespace. The processes in it must have ended."""
        if self._proxy is not None:
            self._proxy.terminate()
            self._proxy = None
            relay_namespace.remove_if_empty(self.node.namespace)


def remove_abandoned() -> None:
    """Remove the namespaces of processes that no longer exist, if no process is in them."""
    for path in relay_namespace.FOLDER.glob(f"{_PREFIX}*"):
        pid, _, started = path.name.removeprefix(_PREFIX).partition("-")
        if pid.isdecimal() and not _lives(int(pid), started) and not relay_namespace.remove_if_stale(path.name):
            relay_namespace.remove_if_empty(path.name)


def _lives(pid: int, started: str) -> bool:
    """Whether the process ``pid`` exists and started at ``started``, since a process id can be reused. ``started`` may
    be unknown.
    """
    status = status_of(pid)
    return status is not None and started in ("", status.started)


def _own_name() -> str:
    own = status_of(os.getpid())
    assert own is not None
    return f"{_PREFIX}{own.pid}-{own.started}"
