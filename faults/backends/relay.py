"""A packet relay: the only path between a network namespace and this host leads through this process.

The relay has two TUN devices, one in the namespace and one outside. It reads the packets that the kernel sends to one
device and writes them to the other. An impairment delays, drops, corrupts, duplicates or reorders packets. It works
below TCP: heartbeats, acknowledgements and data of every protocol are hit alike. netem does the same, but many kernels
lack it. Needs root.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import functools
import heapq
import json
import os
import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from itertools import count
from pathlib import Path
from typing import Final

from faults.backends import namespaces, relay_namespace
from faults.backends.impairment import Impairment, LinkStatus, Way
from faults.backends.relay_namespace import ip
from faults.targets import NamespaceTarget

_TUN: Final = Path("/dev/net/tun")
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_WITHOUT_HEADER: Final = 0x0001 | 0x1000
_PACKET_BYTES_MAX: Final = 65_000
"""The devices' MTU. For this process, a large packet costs as little as a small one."""
_PACKETS_AT_ONCE: Final = 64
"""Packets that are read from one device before the other one has its turn."""
_WAITING_BYTES_MAX: Final = 64 << 20
"""Limit of waiting bytes in each direction. More are dropped, as netem does at its limit; TCP retransmits them."""
_QUEUE_PACKETS: Final = "10000"
_ROUTE_BITS_LEAST: Final = 8


@functools.cache
def why_not_here() -> str | None:
    """Why this host cannot relay the packets of a namespace; None if it can."""
    why_not = namespaces.why_not_here()
    if why_not is not None:
        return why_not
    try:
        os.close(_device("sptrial%d"))
    except OSError as error:
        return f"{_TUN} cannot be used to create a TUN device ({error.strerror})"
    return None


def outside(network: IPv4Network) -> IPv4Address:
    """The address of this host towards the namespace: the first one of its network."""
    return network[1]


def inside(network: IPv4Network) -> IPv4Address:
    """The address of the namespace: the second one of its network."""
    return network[2]


class Relay:
    """The namespace of a target, created if it does not exist, and its only device. Served like a `Link`."""

    def __init__(self, target: NamespaceTarget) -> None:
        assert target.relay is not None
        self._target = target
        self._network = target.relay
        self._outer = f"sp{int(outside(self._network)):08x}"
        self.listen, self.upstream = str(inside(self._network)), str(outside(self._network))
        self.impairment = Impairment()
        self._random = random.Random()
        self._ends: dict[Way, tuple[int, int]] = {}
        """Way -> descriptor of the device that is read, descriptor of the one that is written."""
        self._waiting: dict[Way, list[tuple[float, int, bytes]]] = {"to_upstream": [], "to_client": []}
        """A heap for each way: due time, sequence number, packet."""
        self._waiting_bytes: dict[Way, int] = {"to_upstream": 0, "to_client": 0}
        self._places = count()
        self._timers: dict[Way, asyncio.TimerHandle] = {}
        self._has_namespace = False
        self._passed = self._lost = self._altered = self._dropped = 0
        self._is_lost_for_good = False

    async def start(self) -> None:
        """Create the devices and relay packets. Raises OSError if an address or a device is in use, or `ip` fails."""
        try:
            self._make()
        except BaseException:
            await self.stop()
            raise
        loop = asyncio.get_running_loop()
        for way, (source, _) in self._ends.items():
            loop.add_reader(source, self._read, way)

    def _make(self) -> None:
        name, device = self._target.namespace, self._target.device
        if Path("/sys/class/net", self._outer).exists():
            raise OSError(0, f"device {self._outer} exists already: another relay has the network {self._network}")
        _check_free(self._network)
        relay_namespace.take(name)
        self._has_namespace = True
        outer, inner = _device(self._outer), -1
        try:
            inner = _device(f"{self._outer}i")
            self._ends = {"to_upstream": (inner, outer), "to_client": (outer, inner)}
        finally:
            if inner < 0:
                os.close(outer)
        length = self._network.prefixlen
        ip("link", "set", f"{self._outer}i", "netns", name, "name", device)
        ip("addr", "add", f"{outside(self._network)}/{length}", "dev", self._outer)
        ip("link", "set", self._outer, "mtu", str(_PACKET_BYTES_MAX), "txqueuelen", _QUEUE_PACKETS, "up")
        ip("-n", name, "addr", "add", f"{inside(self._network)}/{length}", "dev", device)
        ip("-n", name, "link", "set", device, "mtu", str(_PACKET_BYTES_MAX), "txqueuelen", _QUEUE_PACKETS, "up")
        ip("-n", name, "link", "set", "lo", "up")

    async def stop(self) -> None:
        """Delete the devices. Delete the namespace too if this relay or an earlier one created it and it is empty.

        Processes that remain in the namespace have no network until its next relay starts.
        """
        loop = asyncio.get_running_loop()
        for timer in self._timers.values():
            timer.cancel()
        for source, _ in self._ends.values():
            loop.remove_reader(source)
            os.close(source)
        self._ends = {}
        if self._has_namespace:
            relay_namespace.remove_if_ours(self._target.namespace)

    def impair(self, impairment: Impairment) -> None:
        """Replace the impairment. Waiting packets are passed on at once, in the order of their due times.

        Raises ValueError if the device was deleted.
        """
        if self._is_lost_for_good:
            raise ValueError(f"the device of {self._target.namespace} was deleted; start the proxy again")
        self.impairment, self._lost, self._altered = impairment, 0, 0
        for way, waiting in self._waiting.items():
            for _, _, packet in sorted(waiting):
                self._pass_on(way, packet)
            waiting.clear()
            self._waiting_bytes[way] = 0

    def status(self) -> LinkStatus:
        """The present status. ``probe_bytes`` is the number of packets that have passed."""
        return LinkStatus(
            listen=self.listen, upstream=self.upstream, probe_port=0, probe_bytes=self._passed, connections=0,
            lost_packets=self._lost, altered_packets=self._altered, dropped_packets=self._dropped,
            is_lost=self._is_lost_for_good, impairment=self.impairment,
        )  # fmt: skip

    def _read(self, way: Way) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            packets = list(_packets(self._ends[way][0]))
        except OSError:
            # The device was deleted. With the readers still registered, the event loop would spin.
            for source, _ in self._ends.values():
                loop.remove_reader(source)
            self._is_lost_for_good = True
            return
        for packet in packets:
            if way not in self.impairment.ways:
                self._pass_on(way, packet)
            elif self._is_lost():
                self._lost += 1
            elif self._waits(way):
                self._keep(way, packet, now)
            else:
                for one in self._altered_by_chance(packet):
                    self._pass_on(way, one)

    def _is_lost(self) -> bool:
        current = self.impairment
        return current.is_blocked or (current.lost_share > 0 and self._random.random() < current.lost_share)

    def _waits(self, way: Way) -> bool:
        if self.impairment.reordered_share:
            return self._is_drawn(self.impairment.reordered_share)
        return bool(self.impairment.delay_seconds or self._waiting[way])

    def _is_drawn(self, share: float) -> bool:
        """Whether a packet is of the share that is altered; then it is counted."""
        is_drawn = share > 0 and self._random.random() < share
        self._altered += is_drawn
        return is_drawn

    def _altered_by_chance(self, packet: bytes) -> tuple[bytes, ...]:
        one = self._corrupt(packet) if self._is_drawn(self.impairment.corrupt_share) else packet
        return (one, one) if self._is_drawn(self.impairment.duplicated_share) else (one,)

    def _corrupt(self, packet: bytes) -> bytes:
        """Invert one bit, which the checksum of IP, TCP or UDP always shows: the kernel then drops the packet."""
        place = self._random.randrange(8 * len(packet))
        changed = bytearray(packet)
        changed[place // 8] ^= 1 << place % 8
        return bytes(changed)

    def _keep(self, way: Way, packet: bytes, now: float) -> None:
        waiting = self._waiting[way]
        if self._waiting_bytes[way] + len(packet) > _WAITING_BYTES_MAX:
            self._dropped += 1
            return
        self._waiting_bytes[way] += len(packet)
        share = self._random.uniform(-1, 1) if self.impairment.jitter_seconds else 0.0
        due = now + self.impairment.delay_seconds + share * self.impairment.jitter_seconds
        heapq.heappush(waiting, (due, next(self._places), packet))
        if waiting[0][2] is packet:
            self._look_again(way)

    def _look_again(self, way: Way) -> None:
        if (timer := self._timers.get(way)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[way] = loop.call_at(self._waiting[way][0][0], self._release, way)

    def _release(self, way: Way) -> None:
        waiting, now = self._waiting[way], asyncio.get_running_loop().time()
        while waiting and waiting[0][0] <= now:
            packet = heapq.heappop(waiting)[2]
            self._waiting_bytes[way] -= len(packet)
            self._pass_on(way, packet)
        if waiting:
            self._look_again(way)

    def _pass_on(self, way: Way, packet: bytes) -> None:
        # A device that is full or down drops the packet.
        with suppress(OSError):
            os.write(self._ends[way][1], packet)
            self._passed += 1


def _device(name: str) -> int:
    """Descriptor of a new TUN device, which the kernel deletes when the descriptor is closed. Raises OSError."""
    descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN_WITHOUT_HEADER))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _packets(descriptor: int) -> Iterator[bytes]:
    for _ in range(_PACKETS_AT_ONCE):
        try:
            packet = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return  # no packet is left
        except OSError as error:
            if error.errno == errno.EIO:
                return  # the device is down
            raise
        if not packet:
            return
        yield packet


def _check_free(network: IPv4Network) -> None:
    """Raise OSError if this host already has an address or a route in ``network``."""
    routes = json.loads(ip("-j", "-4", "route", "show", "table", "all") or "[]")
    for route in routes:
        destination = str(route.get("dst", "default"))
        known = IPv4Network("0.0.0.0/0" if destination == "default" else destination, strict=False)
        # Short prefixes are ignored: a default route may also be written as two halves.
        if known.prefixlen >= _ROUTE_BITS_LEAST and known.overlaps(network):
            raise OSError(0, f"this host has a route to {destination} already; name a network other than {network}")
