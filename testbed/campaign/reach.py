"""How long a connection to the broker takes, by second: as from the worker whose network a fault changes, where there
is one (PGVal's pinger; its study of packet faults has a limit of 10 s, too).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from typing import Final, Self

from testbed.campaign.counters import Row
from testbed.engines.settings import Node

PART: Final = "reach"
"""The part of the engine's counters that has these."""
CONNECT: Final = "connect-seconds"
UNREACHABLE: Final = "unreachable"
CONNECT_SECONDS_MAX: Final = 10.0
_PINGER: Final = """
import signal, socket, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
for _ in iter(sys.stdin.readline, ""):
    started = time.monotonic()
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3])).close()
        print(time.monotonic() - started, flush=True)
    except OSError:
        print(flush=True)
"""
"""Connects for each line that it reads, until its input is closed, also by the death of its parent. A process for each
connection would cost a fortieth of a core."""


def during(counted: Sequence[Row], start_us: int, end_us: int) -> tuple[float | None, float | None, float | None]:
    """p50 and p99 of the seconds until the connections between two instants were accepted, and the share of those that
    were not; None: there were none."""
    of = [(name, value) for at_us, part, name, value in counted if part == PART and start_us <= at_us < end_us]
    seconds = sorted(value for name, value in of if name == CONNECT)
    failed = [value for name, value in of if name == UNREACHABLE]
    share = sum(failed) / len(failed) if failed else None
    if not seconds:
        return None, None, share
    return median(seconds), seconds[-(-99 * len(seconds) // 100) - 1], share


class Reach:
    """A context manager that connects to an address each time that it is called, from a process of its own. The result
    has the form of an engine's counters."""

    def __init__(self, address: str, node: Node | None) -> None:
        """``address``: host:port, as the engine uses it. ``node``: the network in which the worker is."""
        host, _, port = address.rpartition(":")
        inside = [] if node is None else node.entry
        self._command = [
            *inside, sys.executable, "-I", "-S", "-c", _PINGER, host, port, str(CONNECT_SECONDS_MAX),
        ]  # fmt: skip
        self._pinger: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int | None:
        """The process that connects; None before the first call."""
        return None if self._pinger is None else self._pinger.pid

    def __call__(self) -> dict[str, dict[str, float]]:
        """The seconds until the connection was accepted, or that it was not within the limit. Raises OSError if there
        is no process that connects."""
        if self._pinger is None or self._pinger.poll() is not None:
            self._end()
            pipe = subprocess.PIPE
            self._pinger = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
            )  # fmt: skip
        assert self._pinger.stdin is not None
        assert self._pinger.stdout is not None
        self._pinger.stdin.write("\n")
        self._pinger.stdin.flush()
        if not (line := self._pinger.stdout.readline()):
            raise OSError("the process that connects to the broker has ended")
        seconds = line.strip()
        return {PART: {CONNECT: float(seconds), UNREACHABLE: 0.0} if seconds else {UNREACHABLE: 1.0}}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        if self._pinger is not None:
            self._pinger.kill()
            self._pinger.communicate()
            self._pinger = None
