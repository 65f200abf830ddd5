"""Faults of a link: delay, partition, bandwidth, reset. The probes send bytes through the link and time the echo."""

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
"""An echo that takes longer than this counts as held back. Before the fault, the link echoed."""
_ECHO_SECONDS_MAX: Final = 5.0
_SLACK_SECONDS: Final = 0.1
_PROBE_SECONDS: Final = 0.5
"""The bandwidth probe has as many bytes as the limit passes in this time."""
_MEASURED_SHARE: Final = 0.9
_PING: Final = b"streamproof\n"


def _ways(direction: Direction) -> tuple[Way, ...]:
    return WAYS if direction == "both" else (direction,)


def round_trip_seconds(port: int, content: bytes, timeout_seconds: float) -> float | None:
    """Seconds until a port of this machine has echoed ``content``; None if a send or receive exceeds the timeout.

    Raises ConnectionError if the connection is refused, reset or closed.
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
    """Base of the link faults: adds and removes the impairment, and probes that the link is as before."""

    impairment = Impairment()

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        self.facts = facts
        self._links = {n: t for n, t in fault.targets.items() if isinstance(t, LinkTarget)}
        self._proxy = ProxyControl(state)
        self._watch = ImpairmentWatch(fault.name, self._proxy)

    def prepare(self) -> None:
        """Time an echo on each link. Raises FaultRefused if the proxy does not serve the link, or has impaired it."""
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
                raise FaultRefused(f"{name}: the proxy does not echo the probe's bytes; restart the proxy.")
            times[name] = echo
        self.facts = Facts(round_trip_seconds=times)

    def inject(self) -> None:
        """Impair the links."""
        for name in self._links:
            self._proxy.impair(name, self.impairment)

    def maintain(self) -> None:
        """Check that the proxy still applies the impairment. Raises NotVerified if it does not."""
        self._watch.check(self._links, lambda _, served: served.impairment == self.impairment)

    def is_active(self) -> bool:
        """Whether the probe of each link shows the impairment."""
        try:
            return all(self._shows(self._status(name)) for name in self._links)
        except ConnectionError:
            return False  # The proxy has just ended, which the next probe reports, or the connection was closed.

    def heal(self) -> None:
        """Remove the impairment. Raises Unreachable if no proxy answers."""
        for_each(self._links, lambda name: self._proxy.impair(name, Impairment()))

    def is_healed(self) -> bool:
        """Whether no link is impaired and echoes take about as long as before. Raises Unreachable without a proxy."""
        for name in self._links:
            status = self._status(name)
            before = self.facts.round_trip_seconds.get(name, 0.0)
            try:
                echo = round_trip_seconds(status.probe_port, self._healed_probe(), _ECHO_SECONDS_MAX)
            except ConnectionError:
                return False
            if status.impairment != Impairment() or echo is None or echo > 2 * before + self._allowed_seconds():
                return False
        return True

    def _status(self, name: str) -> LinkStatus:
        status = self._proxy.status().get(name)
        if status is None:
            raise Unreachable(f"{name}: the proxy no longer serves this link; restart it with the file of the run.")
        return status

    def _shows(self, status: LinkStatus) -> bool:
        raise NotImplementedError

    def _healed_probe(self) -> bytes:
        return _PING

    def _allowed_seconds(self) -> float:
        return _SLACK_SECONDS


class Delay(_OnLinks):
    """Delays bytes. Verified when an echo takes about the least possible delay or longer."""

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
    """Holds bytes back. Verified when no echo returns. Probe bytes arrive if ``to_upstream`` is open, else none."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, PartitionParameters)
        self.impairment = Impairment(ways=_ways(fault.parameters.direction), is_blocked=True)

    def _shows(self, status: LinkStatus) -> bool:
        echo = round_trip_seconds(status.probe_port, _PING, _SILENCE_SECONDS)
        now = next((s for s in self._proxy.status().values() if s.listen == status.listen), None)
        if now is None:
            return False  # The proxy was restarted with another file, which the next probe reports.
        has_arrived = now.probe_bytes > status.probe_bytes
        return echo is None and has_arrived is ("to_upstream" not in self.impairment.ways)


class Bandwidth(_OnLinks):
    """Limits the rate. Verified when the probe takes about as long as the limit implies, or longer."""

    def __init__(self, fault: Fault, facts: Facts, state: Path) -> None:
        super().__init__(fault, facts, state)
        assert isinstance(fault.parameters, BandwidthParameters)
        rate = fault.parameters.bytes_per_second
        self.impairment = Impairment(ways=_ways(fault.parameters.direction), bytes_per_second=rate)
        self._probe = os.urandom(int(rate * _PROBE_SECONDS))

    def _shows(self, status: LinkStatus) -> bool:
        echo = round_trip_seconds(status.probe_port, self._probe, _ECHO_SECONDS_MAX + 4 * _PROBE_SECONDS)
        # Other traffic on the link delays the probe or lets it time out. The link is limited in both cases.
        return echo is None or echo >= _PROBE_SECONDS * _MEASURED_SHARE

    def _healed_probe(self) -> bytes:
        return self._probe

    def _allowed_seconds(self) -> float:
        return _PROBE_SECONDS / 2


class Reset(_OnLinks):
    """Resets connections. Verified when a new connection is reset."""

    impairment = Impairment(is_reset=True)

    def _shows(self, status: LinkStatus) -> bool:
        try:
            round_trip_seconds(status.probe_port, _PING, _ECHO_SECONDS_MAX)
        except ConnectionRefusedError:
            raise  # The proxy has ended.
        except ConnectionError:
            return True
        return False
