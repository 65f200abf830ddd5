"""A namespace behind the relay of `streamproof faults proxy`, for the relay tests."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any, Final

from faults.backends import namespaces, relay
from tests.faults.stage import ROOT, STREAMPROOF, WITHIN_SECONDS, Stage, wait_until

# This range is reserved for network benchmarks (RFC 2544), so no host uses it. The process id keeps two test runs
# apart.
NETWORK: Final = f"198.18.{os.getpid() % 256}.{os.getpid() // 256 % 64 * 4}/30"
HOST: Final = str(relay.outside(IPv4Network(NETWORK)))
DEVICE: Final = f"sp{int(IPv4Address(HOST)):08x}"
DELAY: Final = {"kind": "namespace_delay", "target": "node", "parameters": {"delay": "300ms"}}
CUT: Final = {"kind": "namespace_partition", "target": "node"}


def node(name: str) -> dict[str, Any]:
    """Return the target ``node`` of a stage: a namespace that the proxy creates."""
    return {"type": "namespace", "namespace": name, "device": "e0", "relay": NETWORK, "probe": "127.0.0.1:1"}


@contextmanager
def served(stage: Stage) -> Iterator[subprocess.Popen[bytes]]:
    stage.write()
    process = subprocess.Popen([*STREAMPROOF, "proxy", stage.file], cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        assert lines[1].startswith(b"the proxy is ready"), lines
        yield process
    finally:
        process.terminate()
        assert process.wait(WITHIN_SECONDS) in (0, -signal.SIGKILL)


def connect_seconds(stage: Stage) -> float:
    taken = namespaces.connect_seconds(
        stage.targets["node"]["namespace"], stage.targets["node"]["probe"], WITHIN_SECONDS
    )
    assert taken is not None
    return taken


def kill(proxy: subprocess.Popen[bytes]) -> None:
    """Kill the proxy, and wait until the kernel has removed its devices."""
    assert Path("/sys/class/net", DEVICE).exists()
    proxy.kill()
    proxy.wait(WITHIN_SECONDS)
    wait_until(lambda: not Path("/sys/class/net", DEVICE).exists(), "the device is gone")
