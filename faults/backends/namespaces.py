"""Named network namespaces of Linux (``ip netns``): rules of a device by ``tc``, connections from inside."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from typing import Any, Final

from faults.errors import FaultRefused

HANDLE: Final = "5350:"
"""Of our queueing rule, by which it is known from others."""
_CONNECT = """
import socket, sys, time
started = time.monotonic()
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
except OSError:
    sys.exit(1)
print(time.monotonic() - started)
"""


@functools.cache
def why_not_here() -> str | None:
    """Why this host cannot shape the traffic of a namespace; None where it can."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    if os.geteuid() != 0:
        return "it changes a network namespace, which needs root"
    lacking = [program for program in ("ip", "tc", "unshare") if shutil.which(program) is None]
    return f"it needs {' and '.join(lacking)}, which are not installed" if lacking else _tried("pfifo", "limit", "0")


@functools.cache
def why_no_netem() -> str | None:
    """Why this host cannot delay packets; None where it can."""
    return why_not_here() or _tried("netem", "delay", "1ms")


@functools.cache
def why_no_tbf() -> str | None:
    """Why this host cannot limit a namespace's bandwidth; None where it can."""
    return why_not_here() or _tried("tbf", "rate", "1mbit", "burst", "10kb", "latency", "50ms")


def _tried(*rule: str) -> str | None:
    """Why the kernel does not take a rule, tried in a namespace that ends with the trial."""
    trial = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", *rule]
    ran = subprocess.run(trial, check=False, capture_output=True, text=True)
    return f"the kernel takes no {rule[0]} ({first_line(ran.stderr)})" if ran.returncode else None


def root_rule(namespace: str, device: str) -> dict[str, Any]:
    """The queueing rule of a device, with its counters. Raises FaultRefused where there is no such device."""
    found = json.loads(_tc(namespace, "-s", "-j", "qdisc", "show", "dev", device, "root") or "[]")
    return next((rule for rule in found if rule.get("root")), {})


def add_rule(namespace: str, device: str, *rule: str) -> None:
    """Put our rule on all that leaves the namespace by the device. Raises FaultRefused."""
    _tc(namespace, "qdisc", "add", "dev", device, "root", "handle", HANDLE, *rule)


def remove_rule(namespace: str, device: str) -> None:
    """Take our rule off, where it is; the device gets its default one. Raises FaultRefused."""
    if root_rule(namespace, device).get("handle") == HANDLE:
        _tc(namespace, "qdisc", "del", "dev", device, "root")


def connect_seconds(namespace: str, address: str, timeout_seconds: float) -> float | None:
    """Time to connect to ``address`` from inside; None where it cannot within the time."""
    host, _, port = address.rpartition(":")
    inside = ["ip", "netns", "exec", namespace, sys.executable, "-I", "-S", "-c", _CONNECT]
    ran = subprocess.run([*inside, host, port, str(timeout_seconds)], check=False, capture_output=True, text=True)
    return None if ran.returncode else float(ran.stdout)


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
"""Datagrams to the discard port: the sender waits until the device has taken all but the last few."""


def send_seconds(namespace: str, address: str, size: int, timeout_seconds: float) -> float:
    """Time for ``size`` bytes to leave for the host of ``address``; ``timeout_seconds`` where it is longer."""
    host = address.rpartition(":")[0]
    inside = ["ip", "netns", "exec", namespace, sys.executable, "-I", "-S", "-c", _SEND, host, str(size)]
    try:
        ran = subprocess.run(inside, check=False, capture_output=True, text=True, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return timeout_seconds
    if ran.returncode:
        raise FaultRefused(f"namespace {namespace}: no datagram can be sent ({first_line(ran.stderr)}).")
    return float(ran.stdout)


def _tc(namespace: str, *arguments: str) -> str:
    ran = subprocess.run(["tc", "-n", namespace, *arguments], check=False, capture_output=True, text=True)
    if ran.returncode:
        raise FaultRefused(f"namespace {namespace}: tc refused ({first_line(ran.stderr)}).")
    return ran.stdout


def first_line(text: str) -> str:
    """What a program said, in one line."""
    return next((line.strip().rstrip(".") for line in text.splitlines() if line.strip()), "without a word")
