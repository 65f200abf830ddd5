"""Named network namespaces of Linux (``ip netns``): queueing rules of devices by ``tc``, connections from inside."""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from faults.errors import FaultRefused

HANDLE: Final = "5350:"
"""Handle of a fault's queueing rule, which identifies it."""
_CONNECT = """
import socket, sys, time
started = time.monotonic()
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
except TimeoutError:
    sys.exit(2)
except OSError:
    sys.exit(1)
print(time.monotonic() - started)
"""


_NO_ANSWER: Final = 2
"""Exit status of `_CONNECT` after a timeout."""


@functools.cache
def why_not_here() -> str | None:
    """Why this host cannot shape the traffic of a namespace; None if it can."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    if os.geteuid() != 0:
        return "faults of a network namespace need root"
    lacking = [program for program in ("ip", "tc", "unshare") if shutil.which(program) is None]
    return f"required programs are not installed: {' and '.join(lacking)}" if lacking else _tried("pfifo", "limit", "0")


@functools.cache
def why_no_netem() -> str | None:
    """Why this host cannot delay packets; None if it can."""
    return why_not_here() or _tried("netem", "delay", "1ms")


@functools.cache
def why_no_tbf() -> str | None:
    """Why this host cannot limit the bandwidth of a namespace; None if it can."""
    return why_not_here() or _tried("tbf", "rate", "1mbit", "burst", "10kb", "latency", "50ms")


def _tried(*rule: str) -> str | None:
    """Why the kernel refuses a rule in a temporary namespace; None if it accepts it."""
    trial = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", *rule]
    ran = subprocess.run(trial, check=False, capture_output=True, text=True)
    return f"the kernel does not support {rule[0]} ({first_line(ran.stderr)})" if ran.returncode else None


@functools.cache
def why_no_peers() -> str | None:
    """Why this host cannot drop the packets of some peers only; None if it can."""
    # All commands run in one temporary namespace, since each depends on the one before it.
    commands = [shlex.join(["tc", *command]) for command in _cut_peers("lo", ("127.0.0.1:9",), "dst")]
    trial = ["unshare", "--net", "sh", "-ec", "\n".join(commands)]
    ran = subprocess.run(trial, check=False, capture_output=True, text=True)
    return f"the kernel cannot filter packets by peer ({first_line(ran.stderr)})" if ran.returncode else None


@dataclass(frozen=True)
class Device:
    """A device whose outgoing packets a rule shapes. ``namespace`` None is the namespace of this process."""

    namespace: str | None
    device: str


def other_end(namespace: str, device: str) -> Device:
    """The peer of the namespace's device: packets that leave by it enter the namespace. Raises FaultRefused."""
    inner = _shown(["ip", "-n", namespace, "-j", "link", "show", "dev", device])
    links = _shown(["ip", "-j", "link", "show"])  # this also assigns an id to each namespace that a link leads to
    ids = [known.get("id") for known in _shown(["ip", "-j", "netns", "list"]) if known["name"] == namespace]
    mine = inner[0] if inner else {}
    for link in links:
        # Indexes are unique only within a namespace. Without the id, an unrelated pair of devices could match.
        if (
            link["ifindex"] == mine.get("link_index")
            and link.get("link_index") == mine.get("ifindex")
            and link.get("link_netnsid", -1) in ids
        ):
            return Device(None, str(link["ifname"]))
    raise FaultRefused(
        f"namespace {namespace}: the other end of {device} is not a veth device in the runner's namespace, so "
        "incoming packets cannot be dropped; use direction: to."
    )


def _shown(command: list[str]) -> list[dict[str, Any]]:
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(ran.stdout or "[]")
    return found


def root_rule(place: Device) -> dict[str, Any]:
    """The root queueing rule of a device, with its counters. Raises FaultRefused if the device does not exist."""
    found = json.loads(_tc(place, "-s", "-j", "qdisc", "show", "dev", place.device, "root") or "[]")
    return next((rule for rule in found if rule.get("root")), {})


def add_rule(place: Device, *rule: str) -> None:
    """Add the fault's rule for all packets that leave by the device. Raises FaultRefused."""
    _tc(place, "qdisc", "add", "dev", place.device, "root", "handle", HANDLE, *rule)


def cut(place: Device, peers: Sequence[str], side: Literal["src", "dst"]) -> None:
    """Drop packets that leave by the device: all, or those with one of ``peers`` at ``side``. Raises FaultRefused."""
    # A queue of length 0 drops every packet.
    if not peers:
        add_rule(place, "pfifo", "limit", "0")
        return
    for command in _cut_peers(place.device, peers, side):
        _tc(place, *command)


def _cut_peers(device: str, peers: Sequence[str], side: str) -> Iterator[tuple[str, ...]]:
    on = ("dev", device)
    # htb passes packets that match no filter without shaping them.
    yield ("qdisc", "add", *on, "root", "handle", HANDLE, "htb")
    yield ("class", "add", *on, "parent", HANDLE, "classid", f"{HANDLE}1", "htb", "rate", "1mbit")
    yield ("qdisc", "add", *on, "parent", f"{HANDLE}1", "pfifo", "limit", "0")
    for peer in peers:
        host, _, port = peer.rpartition(":")
        address = ("match", "ip", side, f"{host}/32", "match", "ip", f"{side[0]}port", port, "0xffff")
        yield ("filter", "add", *on, "parent", HANDLE, "protocol", "ip", "u32", *address, "flowid", f"{HANDLE}1")


def remove_rule(place: Device) -> None:
    """Remove the fault's rule, if the device has it; the default rule replaces it. Raises FaultRefused."""
    if root_rule(place).get("handle") == HANDLE:
        _tc(place, "qdisc", "del", "dev", place.device, "root")


def connect_seconds(namespace: str, address: str, timeout_seconds: float) -> float | None:
    """Seconds to connect to ``address`` from inside the namespace; None if that fails or times out."""
    ran = _connect(namespace, address, timeout_seconds)
    return None if ran.returncode else float(ran.stdout)


def is_without_answer(namespace: str, address: str, seconds: float) -> bool:
    """Whether a connection from inside the namespace is neither accepted nor refused within ``seconds``."""
    return _connect(namespace, address, seconds).returncode == _NO_ANSWER


def _connect(namespace: str, address: str, timeout_seconds: float) -> subprocess.CompletedProcess[str]:
    host, _, port = address.rpartition(":")
    inside = ["ip", "netns", "exec", namespace, sys.executable, "-I", "-S", "-c", _CONNECT]
    return subprocess.run([*inside, host, port, str(timeout_seconds)], check=False, capture_output=True, text=True)


_SEND = """
import socket, sys, time
size, left = 1200, int(sys.argv[2])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    started = time.monotonic()
    while left > 0:
        left -= out.sendto(bytes(size), (sys.argv[1], 9))
print(time.monotonic() - started)
"""
"""Sends datagrams to the discard port. The small buffer makes it wait until the device has taken nearly all of them."""


def send_seconds(namespace: str, address: str, size: int, timeout_seconds: float) -> float:
    """Seconds until ``size`` bytes for the host of ``address`` have left the namespace, at most ``timeout_seconds``.

    Raises FaultRefused if no datagram can be sent.
    """
    host = address.rpartition(":")[0]
    inside = ["ip", "netns", "exec", namespace, sys.executable, "-I", "-S", "-c", _SEND, host, str(size)]
    try:
        ran = subprocess.run(inside, check=False, capture_output=True, text=True, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return timeout_seconds
    if ran.returncode:
        raise FaultRefused(f"namespace {namespace}: no datagram can be sent ({first_line(ran.stderr)}).")
    return float(ran.stdout)


def _tc(place: Device, *arguments: str) -> str:
    inside = () if place.namespace is None else ("-n", place.namespace)
    ran = subprocess.run(["tc", *inside, *arguments], check=False, capture_output=True, text=True)
    if ran.returncode:
        where = "" if place.namespace is None else f"namespace {place.namespace}: "
        raise FaultRefused(f"{where}tc failed ({first_line(ran.stderr)}).")
    return ran.stdout


def first_line(text: str) -> str:
    """The first line of a program's output that is not empty, without a trailing period."""
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "no reason given")
