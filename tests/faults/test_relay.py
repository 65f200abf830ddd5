"""A namespace behind our packet relay, which the proxy makes: packets late or lost, and all as before after it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from faults.backends import namespaces, relay
from faults.errors import FaultRefused, NotVerified
from tests.faults.stage import HEALERS, ROOT, STREAMPROOF, WITHIN_SECONDS, Runner, Stage, abandoned, wait_until

# For benchmarks of networks (RFC 2544), so that it is nobody's; by our process id, so that two runs have two of them.
_NETWORK = f"198.18.{os.getpid() % 256}.{os.getpid() // 256 % 64 * 4}/30"
_HOST = str(relay.outside(IPv4Network(_NETWORK)))
_DEVICE = f"sp{int(IPv4Address(_HOST)):08x}"
_DELAY = {"kind": "namespace_delay", "target": "node", "parameters": {"delay": "300ms"}}
_LOSS = {"kind": "namespace_loss", "target": "node", "parameters": {"percent": 50}}
_CUT = {"kind": "namespace_partition", "target": "node"}
_DATAGRAMS = """
import socket, sys
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(400):
    out.sendto(str(number).encode(), (sys.argv[1], int(sys.argv[2])))
"""

pytestmark = pytest.mark.skipif(relay.why_not_here() is not None, reason=f"packet relays: {relay.why_not_here()}")


@pytest.fixture
def name(stage: Stage) -> Iterator[str]:
    """A namespace that the proxy makes, and a listener of ours that it reaches."""
    made = f"sprelay{os.getpid()}"
    stage.targets["node"] = {
        "type": "namespace", "namespace": made, "device": "e0", "relay": _NETWORK, "probe": "127.0.0.1:1",
    }  # fmt: skip
    with served(stage), socket.create_server((_HOST, 0), backlog=100) as listener:
        stage.targets["node"]["probe"] = f"{_HOST}:{listener.getsockname()[1]}"
        yield made
    assert not Path("/run/netns", made).exists()


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


def datagrams(stage: Stage) -> list[int]:
    """Which of 400 datagrams that are sent from inside have arrived, in the order of their arrival."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((_HOST, 0))
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        inside = ["ip", "netns", "exec", stage.targets["node"]["namespace"], sys.executable, "-c", _DATAGRAMS]
        subprocess.run([*inside, _HOST, str(receiver.getsockname()[1])], check=True, timeout=WITHIN_SECONDS)
        receiver.settimeout(1.0)
        found = []
        with suppress(TimeoutError):
            while True:
                found.append(int(receiver.recv(64)))
        return found


def connect_seconds(stage: Stage) -> float:
    taken = namespaces.connect_seconds(
        stage.targets["node"]["namespace"], stage.targets["node"]["probe"], WITHIN_SECONDS
    )
    assert taken is not None
    return taken


def test_packets_leave_late_while_the_delay_is_in_and_at_once_after_it(stage: Stage, name: str) -> None:
    times = [connect_seconds(stage)]
    stage.during(_DELAY, lambda: times.append(connect_seconds(stage)))
    times.append(connect_seconds(stage))
    before, meanwhile, after = times
    assert meanwhile >= 0.3
    assert max(before, after) < 0.15


def test_a_delay_keeps_the_order_and_jitter_lets_packets_overtake(stage: Stage, name: str) -> None:
    arrived: list[list[int]] = []
    stage.during(_DELAY, lambda: arrived.append(datagrams(stage)))
    jitter = {**_DELAY, "parameters": {"delay": "300ms", "jitter": "100ms"}}
    stage.during(jitter, lambda: arrived.append(datagrams(stage)))
    late, shaken = arrived
    assert late == list(range(400))
    assert sorted(shaken) == late != shaken


def test_about_as_many_packets_are_lost_as_asked_for(stage: Stage, name: str) -> None:
    arrived = [len(datagrams(stage))]
    stage.during(_LOSS, lambda: arrived.append(len(datagrams(stage))))
    arrived.append(len(datagrams(stage)))
    before, meanwhile, after = arrived
    assert before == after == 400
    assert 120 <= meanwhile <= 280


def test_what_waits_arrives_when_the_delay_is_healed(stage: Stage, name: str) -> None:
    """A datagram under a long delay comes with the healing, long before it was due."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((_HOST, 0))
        receiver.settimeout(WITHIN_SECONDS)
        inside = ["ip", "netns", "exec", name, sys.executable, "-c", _DATAGRAMS, *map(str, receiver.getsockname())]
        long = {**_DELAY, "parameters": {"delay": "4s"}}

        def send() -> None:
            subprocess.run(inside, check=True, timeout=WITHIN_SECONDS)

        stage.during(long, send)
        assert receiver.recv(8) == b"0"


def test_a_partition_by_the_kernel_works_on_a_relay_as_well(stage: Stage, name: str) -> None:
    seen: list[float | None] = []
    address = stage.targets["node"]["probe"]
    stage.during(_CUT, lambda: seen.append(namespaces.connect_seconds(name, address, 1.0)))
    assert seen == [None]
    assert connect_seconds(stage) < 0.15


@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize("fault", [_DELAY, pytest.param(_LOSS, marks=pytest.mark.extended)], ids=["delay", "loss"])
def test_the_relay_of_a_killed_runner_is_healed(stage: Stage, name: str, fault: dict[str, object], healer: str) -> None:
    def is_in() -> bool:
        return connect_seconds(stage) >= 0.3 if fault is _DELAY else len(datagrams(stage)) < 300

    abandoned(stage, fault, healer, is_in)
    assert connect_seconds(stage) < 0.15
    assert len(datagrams(stage)) == 400


def test_without_a_proxy_the_fault_is_refused(stage: Stage) -> None:
    stage.targets["node"] = {
        "type": "namespace", "namespace": "spnone", "device": "e0", "relay": _NETWORK, "probe": "127.0.0.1:1",
    }  # fmt: skip
    with pytest.raises(FaultRefused, match="no proxy answers"):
        stage.during(_DELAY, lambda: None)


def test_a_second_relay_of_the_same_network_is_refused(stage: Stage, name: str) -> None:
    mine = dict(stage.targets["node"])
    stage.targets["node"]["namespace"] = "spother"
    stage.write(state="other")
    ran = subprocess.run([*STREAMPROOF, "proxy", stage.file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "another relay has the network" in ran.stderr
    assert not Path("/run/netns/spother").exists()
    stage.targets["node"] = mine
    assert connect_seconds(stage) < 0.15


def test_a_killed_proxy_leaves_a_namespace_that_the_next_one_takes(stage: Stage) -> None:
    """The devices go with the process; only the empty namespace stays."""
    made, device = f"spkilled{os.getpid()}", Path("/sys/class/net", _DEVICE)
    stage.targets["node"] = {
        "type": "namespace", "namespace": made, "device": "e0", "relay": _NETWORK, "probe": "127.0.0.1:1",
    }  # fmt: skip
    try:
        with served(stage) as proxy:
            assert device.exists()
            proxy.kill()
            proxy.wait(WITHIN_SECONDS)
            wait_until(lambda: not device.exists(), "the device is gone")
            with served(stage):
                assert device.exists()
    finally:
        subprocess.run(["ip", "netns", "del", made], check=True)


def test_a_fault_whose_relay_was_started_again_ends_there(stage: Stage) -> None:
    made = f"spagain{os.getpid()}"
    stage.targets["node"] = {
        "type": "namespace", "namespace": made, "device": "e0", "relay": _NETWORK, "probe": "127.0.0.1:1",
    }  # fmt: skip
    device = Path("/sys/class/net", _DEVICE)
    try:
        with ExitStack() as proxies:
            proxy = proxies.enter_context(served(stage))
            listener = proxies.enter_context(socket.create_server((_HOST, 0), backlog=100))
            stage.targets["node"]["probe"] = f"{_HOST}:{listener.getsockname()[1]}"

            def look() -> None:
                proxy.kill()
                proxy.wait(WITHIN_SECONDS)
                wait_until(lambda: not device.exists(), "the device is gone")
                proxies.enter_context(served(stage))

            with pytest.raises(NotVerified, match="namespace-delay on node: it was gone before its time"):
                stage.during({**_DELAY, "for": "60s"}, look)
            assert stage.states() == ["injected", "verified", "heal_started", "healed"]
            assert connect_seconds(stage) < 0.15
    finally:
        subprocess.run(["ip", "netns", "del", made], check=True)


@pytest.mark.parametrize("fault", [_DELAY, _CUT], ids=["delay", "cut"])
def test_a_run_whose_relay_was_killed_says_so_and_ends_with_the_next_one(
    stage: Stage, fault: dict[str, object]
) -> None:
    """Also where the kernel does it, whose rule goes with the device."""
    made = f"sprun{os.getpid()}"
    stage.targets["node"] = {
        "type": "namespace", "namespace": made, "device": "e0", "relay": _NETWORK, "probe": "127.0.0.1:1",
    }  # fmt: skip
    try:
        with ExitStack() as proxies:
            proxy = proxies.enter_context(served(stage))
            listener = proxies.enter_context(socket.create_server((_HOST, 0), backlog=100))
            stage.targets["node"]["probe"] = f"{_HOST}:{listener.getsockname()[1]}"
            stage.write({**fault, "for": "60s"})
            runner = Runner(stage)
            try:
                proxy.kill()
                assert "since no proxy answers any more and nothing passes" in runner.hear("over: ")
                runner.hear("waiting, 60 s at most: ")
                proxies.enter_context(served(stage))
                runner.hear("healed: ")
                assert runner.process.wait(WITHIN_SECONDS) == 3
            finally:
                runner.stop()
            assert stage.states() == ["injected", "verified", "heal_started", "healed"]
            assert connect_seconds(stage) < 0.15
    finally:
        subprocess.run(["ip", "netns", "del", made], check=True)


def test_a_run_whose_relay_lost_its_device_says_so(stage: Stage, name: str) -> None:
    stage.write({**_DELAY, "for": "60s"}, limits={"healed_within": "200ms"})
    runner = Runner(stage)
    try:
        subprocess.run(["ip", "link", "del", _DEVICE], check=True)
        assert "since the relay's device was deleted and nothing passes" in runner.hear("over: ")
        assert "start the proxy again" in runner.hear("waiting, ")
        assert runner.process.wait(WITHIN_SECONDS) == 3
    finally:
        runner.stop()
    assert stage.unhealed() == ["namespace-delay"]


def test_a_network_that_this_host_knows_is_refused(stage: Stage) -> None:
    stage.targets["node"] = {
        "type": "namespace", "namespace": "sptaken", "device": "e0", "relay": "127.0.0.0/30", "probe": "127.0.0.1:1",
    }  # fmt: skip
    stage.write()
    ran = subprocess.run([*STREAMPROOF, "proxy", stage.file], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "this host has a route to 127.0.0.0/8 already" in ran.stderr
    assert not Path("/run/netns/sptaken").exists()
