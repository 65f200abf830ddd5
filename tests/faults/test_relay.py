"""A namespace behind the proxy's packet relay: packets are late or lost during a fault, and normal after it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from faults.backends import namespaces, relay
from faults.errors import FaultRefused
from tests.faults.relay_stage import CUT, DELAY, DEVICE, HOST, connect_seconds, node, served
from tests.faults.stage import HEALERS, ROOT, STREAMPROOF, WITHIN_SECONDS, Runner, Stage, abandoned

_LOSS = {"kind": "namespace_loss", "target": "node", "parameters": {"percent": 50}}
_DATAGRAMS = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(400):
    out.sendto(str(number).encode(), (sys.argv[1], int(sys.argv[2])))
"""

pytestmark = pytest.mark.skipif(relay.why_not_here() is not None, reason=f"packet relays: {relay.why_not_here()}")


@pytest.fixture
def name(stage: Stage) -> Iterator[str]:
    """A namespace that the proxy creates, with a route to a listener of the test."""
    made = f"sprelay{os.getpid()}"
    stage.targets["node"] = node(made)
    with served(stage), socket.create_server((HOST, 0), backlog=100) as listener:
        stage.targets["node"]["probe"] = f"{HOST}:{listener.getsockname()[1]}"
        yield made
    assert not Path("/run/netns", made).exists()


def datagrams(stage: Stage) -> list[int]:
    """Return which of 400 datagrams sent from inside arrive, in the order of their arrival."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((HOST, 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        inside = ["ip", "netns", "exec", stage.targets["node"]["namespace"], sys.executable, "-c", _DATAGRAMS]
        subprocess.run([*inside, HOST, str(receiver.getsockname()[1])], check=True, timeout=WITHIN_SECONDS)
        receiver.settimeout(1.0)
        found = []
        with suppress(TimeoutError):
            while True:
                found.append(int(receiver.recv(64)))
        return found


def test_packets_are_delayed_only_while_the_fault_is_active(stage: Stage, name: str) -> None:
    times = [connect_seconds(stage)]
    stage.during(DELAY, lambda: times.append(connect_seconds(stage)))
    times.append(connect_seconds(stage))
    before, meanwhile, after = times
    assert meanwhile >= 0.3
    assert max(before, after) < 0.15


@pytest.mark.full
def test_a_delay_keeps_the_order_and_jitter_lets_packets_overtake(stage: Stage, name: str) -> None:
    arrived: list[list[int]] = []
    stage.during(DELAY, lambda: arrived.append(datagrams(stage)))
    jitter = {**DELAY, "parameters": {"delay": "300ms", "jitter": "100ms"}}
    stage.during(jitter, lambda: arrived.append(datagrams(stage)))
    late, shaken = arrived
    assert late == list(range(400))
    assert sorted(shaken) == late != shaken


@pytest.mark.full
def test_the_share_of_lost_packets_is_about_the_configured_one(stage: Stage, name: str) -> None:
    arrived = [len(datagrams(stage))]
    stage.during(_LOSS, lambda: arrived.append(len(datagrams(stage))))
    arrived.append(len(datagrams(stage)))
    before, meanwhile, after = arrived
    assert before == after == 400
    assert 120 <= meanwhile <= 280


def altered(effect: str, **parameters: object) -> dict[str, object]:
    return {"kind": f"namespace_{effect}", "target": "node", "parameters": {"percent": 50, **parameters}}


@pytest.mark.full
def test_packets_arrive_twice_only_while_they_are_duplicated(stage: Stage, name: str) -> None:
    arrived: list[list[int]] = []
    stage.during(altered("duplicate"), lambda: arrived.append(datagrams(stage)))
    arrived.append(datagrams(stage))
    meanwhile, after = arrived
    assert sorted(set(meanwhile)) == after == list(range(400))
    assert 520 <= len(meanwhile) <= 680


@pytest.mark.full
def test_packets_overtake_those_that_are_held_back(stage: Stage, name: str) -> None:
    arrived: list[list[int]] = []
    stage.during(altered("reorder", hold="200ms"), lambda: arrived.append(datagrams(stage)))
    arrived.append(datagrams(stage))
    meanwhile, after = arrived
    assert sorted(meanwhile) == after == list(range(400))
    assert meanwhile != after


@pytest.mark.full
def test_corrupt_packets_are_dropped_and_a_stream_stays_whole(stage: Stage, name: str) -> None:
    """The kernel, which checks TCP's checksum, counts the corrupt packets."""
    content = os.urandom(3 << 20)
    seen: list[object] = []

    def meanwhile() -> None:
        before = checksum_errors()
        seen.extend((len(datagrams(stage)), streamed(stage, content) == content, checksum_errors() > before))

    stage.during(altered("corrupt", percent=20), meanwhile)
    datagrams_seen, *rest = seen
    assert rest == [True, True]
    assert isinstance(datagrams_seen, int)
    assert 260 <= datagrams_seen <= 380
    assert len(datagrams(stage)) == 400


def checksum_errors() -> int:
    """TCP segments with a wrong checksum that this host has received."""
    lines = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines() if line.startswith("Tcp:")]
    return int(dict(zip(*lines, strict=True))["InCsumErrors"])


def streamed(stage: Stage, content: bytes) -> bytes:
    """Send ``content`` from inside through one connection; return what arrives."""
    program = "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])));"
    program += "s.sendall(sys.stdin.buffer.read()); s.close()"
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(WITHIN_SECONDS)
        address = map(str, listener.getsockname())
        inside = ["ip", "netns", "exec", stage.targets["node"]["namespace"], sys.executable, "-c", program, *address]
        with subprocess.Popen(inside, stdin=subprocess.PIPE) as sender:
            assert sender.stdin is not None
            sender.stdin.write(content)
            sender.stdin.close()
            taken, _ = listener.accept()
            with taken:
                taken.settimeout(WITHIN_SECONDS)
                return b"".join(iter(lambda: taken.recv(1 << 16), b""))


@pytest.mark.full
def test_waiting_packets_arrive_when_the_delay_is_healed(stage: Stage, name: str) -> None:
    """The healing releases a datagram long before its delay is over."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((HOST, 0))
        receiver.settimeout(WITHIN_SECONDS)
        inside = ["ip", "netns", "exec", name, sys.executable, "-c", _DATAGRAMS, *map(str, receiver.getsockname())]
        long = {**DELAY, "parameters": {"delay": "4s"}}

        def send() -> None:
            subprocess.run(inside, check=True, timeout=WITHIN_SECONDS)

        stage.during(long, send)
        assert receiver.recv(8) == b"0"


@pytest.mark.full
def test_the_kernel_can_partition_a_relay(stage: Stage, name: str) -> None:
    seen: list[float | None] = []
    address = stage.targets["node"]["probe"]
    stage.during(CUT, lambda: seen.append(namespaces.connect_seconds(name, address, 1.0)))
    assert seen == [None]
    assert connect_seconds(stage) < 0.15


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("fault", [DELAY, _LOSS], ids=["delay", "loss"])
def test_the_relay_of_a_killed_runner_is_healed(stage: Stage, name: str, fault: dict[str, object], healer: str) -> None:
    def is_in() -> bool:
        return connect_seconds(stage) >= 0.3 if fault is DELAY else len(datagrams(stage)) < 300

    abandoned(stage, fault, healer, is_in)
    assert connect_seconds(stage) < 0.15
    assert len(datagrams(stage)) == 400


def test_without_a_proxy_the_fault_is_refused(stage: Stage) -> None:
    stage.targets["node"] = node("spnone")
    with pytest.raises(FaultRefused, match="no proxy answers"):
        stage.during(DELAY, lambda: None)


@pytest.mark.full
def test_a_second_relay_of_the_same_network_is_refused(stage: Stage, name: str) -> None:
    mine = dict(stage.targets["node"])
    stage.targets["node"]["namespace"] = "spother"
    stage.write(state="other")
    ran = subprocess.run([*STREAMPROOF, "proxy", stage.file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "another relay" in ran.stderr
    assert not Path("/run/netns/spother").exists()
    stage.targets["node"] = mine
    assert connect_seconds(stage) < 0.15


@pytest.mark.full
def test_a_run_whose_relay_lost_its_device_reports_it(stage: Stage, name: str) -> None:
    stage.write({**DELAY, "for": "60s"}, limits={"healed_within": "200ms"})
    runner = Runner(stage)
    try:
        subprocess.run(["ip", "link", "del", DEVICE], check=True)
        assert "device was deleted" in runner.hear("over: ")
        assert "start the proxy again" in runner.hear("waiting, ")
        assert runner.process.wait(WITHIN_SECONDS) == 3
    finally:
        runner.stop()
    assert stage.unhealed() == ["namespace-delay"]


@pytest.mark.full
def test_a_network_with_a_route_on_this_host_is_refused(stage: Stage) -> None:
    stage.targets["node"] = {**node("sptaken"), "relay": "127.0.0.0/30"}
    stage.write()
    ran = subprocess.run([*STREAMPROOF, "proxy", stage.file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "route to 127.0.0.0/8" in ran.stderr
    assert not Path("/run/netns/sptaken").exists()
