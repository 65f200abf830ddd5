"""Faults of a link: delay, partition, bandwidth, reset. The probes send bytes through the link and time their echo."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Final

from faults.backends.impairment import WAYS, Impairment, LinkStatus, Way
from faults.backends.proxy import ProxyControl
from faults.errors import FaultRefused, Unreachable
from faults.facts import Facts
from faults.fault import Fault
from faults.kinds.base import for_each
from faults.kinds.impairment_watch import ImpairmentWatch
from faults.parameters import BandwidthParameters, DelayParameters, Direction, PartitionParameters
from faults.targets import LinkTarget

_SILENCE_SECONDS: Final = 0.5
"""An echo that takes longer than this, on a link that answered before, is held back."""
_ECHO_SECONDS_MAX: Final = 5.0
_SLACK_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 0.5
"""A probe of the bandwidth is as long as the link would carry in this time."""
_MEASURED_SHARE: Final = 0.9
_PING: Final = b"streamproof\n"


def _ways(direction: Direction) -> tuple[Way, ...]:
    return WAYS if direction == "both" else (direction,)


def round_trip_seconds(port: int, content: bytes, timeout_seconds: float) -> float | None:
    """Time for ``content`` to come back from a port of this machine; None where it did not within the time.

    Raises ConnectionError where the connection is reset or ended.
    """
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        try:
            connection.sendall(content)
            left = len(content)
            while left:
                got = connection.recv(min(left, 65536))
                if not got:
                    raise ConnectionResetError("the link ended the connection")
                left -= len(got)
        except TimeoutError:
            return None
    return time.monotonic() - started


class _OnLinks:
    """Shared by all: the impairment on, the impairment off, and the link as before."""

    impairment = Impairment()

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        self.facts = facts
        self._links = {n: t for n, t in fault.targets.items() if isinstance(t, LinkTarget)}
        self._proxy = ProxyControl(state)
        self._watch = ImpairmentWatch(fault.name, self._proxy)

    def prepare(self) -> None:
        """Time an echo on each link as it is. Raises FaultRefused where the proxy does not serve it unimpaired."""
        served = self._proxy.status()
        times: dict[str, float] = {}
        for name, target in self._links.items():
            status = served.get(name)
            if status is None or (status.listen, status.upstream) != (target.listen, target.upstream):
                raise FaultRefused(f"{name}: the running proxy does not serve this link; restart it with this file.")
            if status.impairment != Impairment():
                raise FaultRefused(f"{name}: the link is impaired already; run `streamproof faults heal CONFIG` first.")
            echo = round_trip_seconds(status.probe_port, _PING, _ECHO_SECONDS_MAX)
            if echo is None:
                raise FaultRefused(f"{name}: the proxy echoes nothing; restart it.")
            times[name] = echo
        self.facts = Facts(round_trip_seconds=times)

    def inject(self) -> None:
        """Impair the links."""
        for name in self._links:
            self._proxy.impair(name, self.impairment)

    def maintain(self) -> None:
        """Nothing to do meanwhile. Raises NotVerified where the proxy does it no more."""
        self._watch.check(self._links, lambda _, served: served.impairment == self.impairment)

    def is_active(self) -> bool:
        """Every link shows it."""
        try:
            return all(self._shows(self._status(name)) for name in self._links)
        except ConnectionError:
            return False  # The proxy has just died, which the next look tells, or somebody else ended the connection.

    def heal(self) -> None:
        """Take the impairment off. Raises Unreachable where no proxy answers."""
        for_each(self._links, lambda name: self._proxy.impair(name, Impairment()))

    def is_healed(self) -> bool:
        """Every link echoes about as fast as before. Raises Unreachable where no proxy answers."""
        for name in self._links:
            status = self._status(name)
            before = self.facts.round_trip_seconds.get(name, 0.0)
            try:
                echo = round_trip_seconds(status.probe_port, self._gone_probe(), _ECHO_SECONDS_MAX)
            except ConnectionError:
                return False
            if status.impairment != Impairment() or echo is None or echo > 2 * before + self._allowed_seconds():
                return False
        return True

    def _status(self, name: str) -> LinkStatus:
        status = self._proxy.status().get(name)
        if status is None:
            raise Unreachable(f"{name}: the proxy serves it no more; restart it with the file of the run.")
        return status

    def _shows(self, status: LinkStatus) -> bool:
        raise NotImplementedError

    def _gone_probe(self) -> bytes:
        return _PING

    def _allowed_seconds(self) -> float:
        return _SLACK_SECONDS


class Delay(_OnLinks):
    """An echo takes as long as the delay makes it, at least."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        parameters = fault.parameters
        assert isinstance(parameters, DelayParameters)
        self.impairment = Impairment(
            ways=_ways(parameters.direction), delay_seconds=parameters.delay, jitter_seconds=parameters.jitter
        )
        self._least_seconds = (parameters.delay - parameters.jitter) * len(self.impairment.ways)
        self._most_seconds = (parameters.delay + parameters.jitter) * len(self.impairment.ways)

    def _shows(self, status: LinkStatus) -> bool:
        echo = round_trip_seconds(status.probe_port, _PING, self._most_seconds + _ECHO_SECONDS_MAX)
        return echo is not None and echo >= self._least_seconds * _MEASURED_SHARE

    def _allowed_seconds(self) -> float:
        return min(_SLACK_SECONDS, self._least_seconds / 2)


class Partition(_OnLinks):
    """No echo comes back; one way, the bytes arrive at the other end or they do not."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, PartitionParameters)
        self.impairment = Impairment(ways=_ways(fault.parameters.direction), is_blocked=True)

    def _shows(self, status: LinkStatus) -> bool:
        echo = round_trip_seconds(status.probe_port, _PING, _SILENCE_SECONDS)
        now = next((s for s in self._proxy.status().values() if s.listen == status.listen), None)
        if now is None:
            return False  # The proxy was started again with another file, which the next look tells.
        has_arrived = now.probe_bytes > status.probe_bytes
        return echo is None and has_arrived is ("to_upstream" not in self.impairment.ways)


class Bandwidth(_OnLinks):
    """A probe takes as long as the rate makes it, at least."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, BandwidthParameters)
        rate = fault.parameters.bytes_per_second
        self.impairment = Impairment(ways=_ways(fault.parameters.direction), bytes_per_second=rate)
        self._probe = os.urandom(int(rate * _PROBE_SECONDS))

    def _shows(self, status: LinkStatus) -> bool:
        echo = round_trip_seconds(status.probe_port, self._probe, _ECHO_SECONDS_MAX + 4 * _PROBE_SECONDS)
        # With other traffic on the link it takes longer, or gives up: limited it is, in either case.
        return echo is None or echo >= _PROBE_SECONDS * _MEASURED_SHARE

    def _gone_probe(self) -> bytes:
        return self._probe

    def _allowed_seconds(self) -> float:
        return _PROBE_SECONDS / 2


class Reset(_OnLinks):
    """A new connection is reset."""

    impairment = Impairment(is_reset=True)

    def _shows(self, status: LinkStatus) -> bool:
        try:
            round_trip_seconds(status.probe_port, _PING, _ECHO_SECONDS_MAX)
        except ConnectionRefusedError:
            raise  # That is a proxy that has died.
        except ConnectionError:
            return True
        return False
