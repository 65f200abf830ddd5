"""Faults of a network namespace with a device that leads to this host. The test creates and removes it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from faults.backends import namespaces, packet_filter
from faults.backends.namespaces import Device
from faults.errors import FaultRefused
from faults.journal import read
from tests.faults.stage import HEALERS, WITHIN_SECONDS, Stage, abandoned, wait_until

# Link-local addresses of this test process, which lead nowhere else.
_HOST, _INSIDE = "169.254.213.1", "169.254.213.2"
_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()"

pytestmark = pytest.mark.skipif(
    namespaces.why_not_here() is not None, reason=f"network namespaces: {namespaces.why_not_here()}"
)
_SEND = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(bytes(100_000))"
needs_tbf = pytest.mark.skipif(namespaces.why_no_tbf() is not None, reason=str(namespaces.why_no_tbf()))
_DATAGRAMS = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(400):
    try:
        out.sendto(b"x", (sys.argv[1], int(sys.argv[2])))
    except PermissionError:  # the packet filter says so to the sender
        pass
"""
needs_loss = pytest.mark.skipif(packet_filter.why_no_loss() is not None, reason=str(packet_filter.why_no_loss()))
needs_peers = pytest.mark.skipif(namespaces.why_no_peers() is not None, reason=str(namespaces.why_no_peers()))
needs_netem = pytest.mark.skipif(namespaces.why_no_netem() is not None, reason=str(namespaces.why_no_netem()))


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def name(stage: Stage) -> Iterator[str]:
    """A namespace whose device e0 leads to a listener on this host."""
    made, device = f"sp{os.getpid()}", f"sp{os.getpid()}h"
    with ExitStack() as stack:
        ip("netns", "add", made)
        stack.callback(ip, "netns", "del", made)
        ip("link", "add", device, "type", "veth", "peer", "name", "e0", "netns", made)
        # The namespace's removal would remove the pair too, but later, and the next test creates one of the same name.
        stack.callback(ip, "link", "del", device)
        ip("addr", "add", f"{_HOST}/30", "dev", device)
        ip("link", "set", device, "up")
        ip("-n", made, "addr", "add", f"{_INSIDE}/30", "dev", "e0")
        ip("-n", made, "link", "set", "e0", "up")
        listener = stage.listener = stack.enter_context(socket.create_server((_HOST, 0), backlog=100))
        address = f"{_HOST}:{listener.getsockname()[1]}"
        stage.targets["node"] = {"type": "namespace", "namespace": made, "device": "e0", "probe": address}
        wait_until(lambda: connects(stage), "the namespace reaches us")
        yield made


def connects(stage: Stage) -> bool:
    """Return whether a process in the namespace can connect to the listener."""
    target = stage.targets["node"]
    inside = ["ip", "netns", "exec", target["namespace"], sys.executable, "-c", _CONNECT]
    return subprocess.run([*inside, *target["probe"].split(":")], check=False, capture_output=True).returncode == 0


def rule(name: str) -> str:
    """Return the packet filter's rule, or the queue's if the filter has none."""
    for command in (["iptables", "-S", "OUTPUT"], ["nft", "list", "ruleset"]):
        listed = shutil.which(command[0]) and subprocess.check_output(
            ["ip", "netns", "exec", name, *command], text=True
        )
        if listed and "streamproof-" in listed:
            return "DROP"
    shown = subprocess.check_output(["tc", "-n", name, "-j", "qdisc", "show", "dev", "e0"], text=True)
    return str(json.loads(shown)[0]["kind"])


def test_no_connection_leaves_a_partitioned_namespace(stage: Stage, name: str) -> None:
    before = rule(name)
    seen: list[tuple[str, bool]] = []
    stage.during({"kind": "namespace_partition", "target": "node"}, lambda: seen.append((rule(name), connects(stage))))
    assert seen == [("pfifo", False)]
    assert rule(name) == before
    assert connects(stage)


@pytest.mark.full
@pytest.mark.parametrize(
    ("direction", "reaches_us"),
    [("from", True), ("to", False), ("both", False)],
)
def test_a_partition_one_way_lets_the_other_pass(stage: Stage, name: str, direction: str, reaches_us: bool) -> None:
    """A connection fails in both cases. Whether a datagram from inside arrives shows the direction."""
    before, seen = outer_rule(), []
    fault = {"kind": "namespace_partition", "target": "node", "parameters": {"direction": direction}}
    stage.during(fault, lambda: seen.append((connects(stage), datagrams(stage) == 400)))
    assert seen == [(False, reaches_us)]
    assert outer_rule() == before
    assert connects(stage)
    assert datagrams(stage) == 400


@pytest.mark.full
@needs_peers
@pytest.mark.parametrize(
    "direction",
    ["to", "from", "both"],
)
def test_a_partial_partition_blocks_its_peers_only(stage: Stage, name: str, direction: str) -> None:
    with socket.create_server((_HOST, 0), backlog=100) as other:
        peer = f"{_HOST}:{other.getsockname()[1]}"
        probe = stage.targets["node"]["probe"]
        seen: list[tuple[bool, bool]] = []

        def look() -> None:
            times = [namespaces.connect_seconds(name, address, 1.0) for address in (peer, probe)]
            seen.append((times[0] is None, times[1] is None))

        parameters = {"direction": direction, "peers": [peer]}
        stage.during({"kind": "namespace_partition", "target": "node", "parameters": parameters}, look)
        look()
        assert seen == [(True, False), (False, False)]


@pytest.mark.full
def test_a_peer_that_accepts_no_connection_before_the_fault_is_refused(stage: Stage, name: str) -> None:
    before = rule(name)
    fault = {"kind": "namespace_partition", "target": "node", "parameters": {"peers": [f"{_HOST}:1"]}}
    with pytest.raises(FaultRefused, match=f"peer {_HOST}:1 |with peers cannot"):
        stage.during(fault, lambda: None)
    assert rule(name) == before


@pytest.mark.full
def test_a_device_without_an_end_on_this_host_is_refused(stage: Stage, name: str) -> None:
    stage.targets["node"] |= {"device": "lo"}
    with pytest.raises(FaultRefused, match="lo is not a veth"):
        stage.during(
            {"kind": "namespace_partition", "target": "node", "parameters": {"direction": "from"}}, lambda: None
        )


@pytest.mark.full
def test_a_stranger_with_the_same_interface_numbers_is_not_the_other_end(stage: Stage, name: str) -> None:
    """The device leads to a second namespace. A veth pair between this host and a third namespace has the same
    interface numbers."""
    inside, outside = 77001, 77002
    second, third = f"{name}b", f"{name}c"
    with ExitStack() as stack:
        for made in (second, third):
            ip("netns", "add", made)
            stack.callback(ip, "netns", "del", made)
        ends = ("peer", "name", "x1", "index", str(outside), "netns", second)
        ip("-n", name, "link", "add", "x0", "index", str(inside), "type", "veth", *ends)
        ends = ("peer", "name", "x0", "index", str(inside), "netns", third)
        ip("link", "add", f"{name}d", "index", str(outside), "type", "veth", *ends)
        stack.callback(ip, "link", "del", f"{name}d")
        assert namespaces.other_end(third, "x0") == Device(None, f"{name}d")
        with pytest.raises(FaultRefused, match=f"namespace {name}: .* x0 is not a veth"):
            namespaces.other_end(name, "x0")


def outer_rule() -> str:
    device = f"sp{os.getpid()}h"
    return str(json.loads(subprocess.check_output(["tc", "-j", "qdisc", "show", "dev", device], text=True))[0]["kind"])


_PEERS: dict[str, Any] = {"peers": []}  # the test fills in the only peer
LOST_BY = "netem" if namespaces.why_no_netem() is None else "DROP"
NEEDS = {"DROP": [needs_loss], "netem": [needs_netem], "tbf": [needs_tbf], "htb": [needs_peers]}
LEFT = [
    pytest.param(kind, parameters, ours, marks=[*NEEDS.get(ours, []), *marks], id=name)
    for name, kind, parameters, ours, marks in [
        ("partition", "namespace_partition", {}, "pfifo", []),
        ("partition-both", "namespace_partition", {"direction": "both"}, "pfifo", []),
        ("partition-peers", "namespace_partition", {"direction": "from", **_PEERS}, "htb", []),
        ("partition-from", "namespace_partition", {"direction": "from"}, "pfifo", []),
        ("partition-to-peers", "namespace_partition", _PEERS, "htb", []),
        ("partition-both-peers", "namespace_partition", {"direction": "both", **_PEERS}, "htb", []),
        ("bandwidth", "namespace_bandwidth", {"bytes_per_second": "50KB"}, "tbf", []),
        ("delay", "namespace_delay", {"delay": "500ms"}, "netem", []),
        ("loss", "namespace_loss", {"percent": 50}, LOST_BY, []),
    ]
]
"""Kind, parameters, and the queueing discipline or rule that it installs."""


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize(("kind", "parameters", "ours"), LEFT)
def test_the_namespace_of_a_killed_runner_is_healed(
    stage: Stage, name: str, kind: str, parameters: dict[str, Any], ours: str, healer: str
) -> None:
    def rules() -> tuple[str, str]:
        return rule(name), outer_rule()

    before, direction = rules(), parameters.get("direction", "to")
    meanwhile = (before[0] if direction == "from" else ours, before[1] if direction == "to" else ours)
    if "peers" in parameters:
        parameters = parameters | {"peers": [stage.targets["node"]["probe"]]}
    fault = {"kind": kind, "target": "node", "parameters": parameters}
    abandoned(stage, fault, healer, lambda: rules() == meanwhile)
    assert rules() == before
    assert connects(stage)


@pytest.mark.full
def test_a_device_with_a_rule_of_its_own_is_refused_and_keeps_it(stage: Stage, name: str) -> None:
    subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "e0", "root", "pfifo", "limit", "7"], check=True)
    with pytest.raises(FaultRefused, match=r"e0 has .* pfifo already"):
        stage.during({"kind": "namespace_partition", "target": "node"}, lambda: None)
    assert rule(name) == "pfifo"
    assert read(stage.folder / "st") == {}


def test_a_namespace_that_does_not_exist_is_refused(stage: Stage, name: str) -> None:
    stage.targets["node"]["namespace"] = "nowhere"
    with pytest.raises(FaultRefused, match="namespace nowhere: tc failed"):
        stage.during({"kind": "namespace_partition", "target": "node"}, lambda: None)


@pytest.mark.full
@needs_tbf
def test_a_slow_namespace_limits_the_bytes_that_leave_it(stage: Stage, name: str) -> None:
    taken: list[float] = []

    def send_through() -> float:
        """Return the seconds in which this end receives 100 KB from a process inside."""
        target = stage.targets["node"]
        sender = subprocess.Popen(
            ["ip", "netns", "exec", target["namespace"], sys.executable, "-c", _SEND, *target["probe"].split(":")]
        )
        try:
            stage.listener.settimeout(WITHIN_SECONDS)
            got, started = 0, 0.0
            while got < 100_000:
                connection, _ = stage.listener.accept()  # connections of the probes send nothing
                with connection:
                    started, got = time.monotonic(), 0
                    while content := connection.recv(65536):
                        got += len(content)
            return time.monotonic() - started
        finally:
            assert sender.wait(WITHIN_SECONDS) == 0

    fault = {"kind": "namespace_bandwidth", "target": "node", "parameters": {"bytes_per_second": "50KB"}}
    stage.during(fault, lambda: taken.append(send_through()))
    taken.append(send_through())
    limited, free = taken
    assert limited >= 1.2, "100 KB less a burst of 10 KB at 50 KB/s are 1.8 s"
    assert free < limited / 2


@pytest.mark.full
@needs_netem
def test_packets_leave_a_delayed_namespace_later(stage: Stage, name: str) -> None:
    times: list[float | None] = []
    address = stage.targets["node"]["probe"]
    fault = {"kind": "namespace_delay", "target": "node", "parameters": {"delay": "300ms"}}
    stage.during(fault, lambda: times.append(namespaces.connect_seconds(name, address, WITHIN_SECONDS)))
    assert times[0] is not None
    assert times[0] >= 0.3


@pytest.mark.full
@needs_loss
def test_packets_that_leave_are_lost(stage: Stage, name: str) -> None:
    """With netem or the packet filter. About half of many datagrams arrive; before and after, all arrive."""
    arrived = [datagrams(stage)]
    fault = {"kind": "namespace_loss", "target": "node", "parameters": {"percent": 50}}
    stage.during(fault, lambda: arrived.append(datagrams(stage)))
    arrived.append(datagrams(stage))
    before, meanwhile, after = arrived
    assert before == after == 400
    assert 120 <= meanwhile <= 280
    assert connects(stage)


def datagrams(stage: Stage) -> int:
    """Return how many of 400 datagrams sent from inside arrive."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((_HOST, 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        inside = ["ip", "netns", "exec", stage.targets["node"]["namespace"], sys.executable, "-c", _DATAGRAMS]
        subprocess.run([*inside, _HOST, str(receiver.getsockname()[1])], check=True, timeout=WITHIN_SECONDS)
        receiver.setblocking(False)
        count = 0
        with suppress(BlockingIOError):
            while receiver.recv(64):
                count += 1
        return count


@pytest.mark.full
@pytest.mark.skipif(namespaces.why_no_netem() is None, reason="this kernel has netem")
def test_a_delay_without_netem_and_relay_is_refused_with_the_reason(stage: Stage, name: str) -> None:
    with pytest.raises(FaultRefused, match=r"netem.*relay"):
        stage.during({"kind": "namespace_delay", "target": "node", "parameters": {"delay": "1s"}}, lambda: None)
