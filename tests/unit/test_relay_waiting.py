"""A packet relay that alters packets, or has more waiting packets than the limit. Sockets stand in for devices, which
need root.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from faults.backends import proxy, relay
from faults.backends.impairment import Impairment
from faults.backends.relay import Relay
from faults.targets import NamespaceTarget
from validator.cli.main import main

NODE = {"type": "namespace", "namespace": "node", "device": "e0", "relay": "198.18.7.0/30", "probe": "127.0.0.1:1"}
LATE = Impairment(ways=("to_upstream",), delay_seconds=60.0)


class Wired(Relay):
    """A relay between sockets instead of devices. Packets sent at ``near`` pass through it and arrive at ``far``."""

    def _make(self) -> None:
        self.near, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        outer, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        for end in (inner, outer, self.far):
            end.setblocking(False)
        self._ends = {"to_upstream": (inner.detach(), outer.fileno()), "to_client": (outer.detach(), -1)}

    async def stop(self) -> None:
        await super().stop()
        self.near.close()
        self.far.close()

    def send(self, count: int) -> None:
        for _ in range(count):
            self.near.send(b"x" * 40)
            self._read("to_upstream")


@pytest.fixture(autouse=True)
def two_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_WAITING_BYTES_MAX", 100)


PACKETS = [number.to_bytes(2) * 20 for number in range(40)]


def passed_on(impairment: Impairment) -> tuple[list[bytes], int]:
    """The packets that arrive until all waiting ones are released, and how many were altered."""

    async def all_of() -> tuple[list[bytes], int]:
        made = Wired(NamespaceTarget.model_validate(NODE))
        await made.start()
        made.impair(impairment)
        found: list[bytes] = []
        for packet in PACKETS:
            made.near.send(packet)
            made._read("to_upstream")
            with suppress(BlockingIOError):
                while True:
                    found.append(made.far.recv(100))
        altered = made.status().altered_packets
        made.impair(Impairment())
        assert made.status().altered_packets == 0
        with suppress(BlockingIOError):
            while True:
                found.append(made.far.recv(100))
        await made.stop()
        return found, altered

    return asyncio.run(all_of())


def test_a_corrupt_packet_differs_in_one_bit() -> None:
    found, altered = passed_on(Impairment(ways=("to_upstream",), corrupt_share=0.5))
    inverted = [
        (int.from_bytes(one) ^ int.from_bytes(sent)).bit_count() for one, sent in zip(found, PACKETS, strict=True)
    ]
    assert set(inverted) == {0, 1}
    assert sum(inverted) == altered


def test_a_duplicate_follows_its_packet() -> None:
    found, altered = passed_on(Impairment(ways=("to_upstream",), duplicated_share=0.5))
    assert list(dict.fromkeys(found)) == PACKETS
    assert 0 < altered == len(found) - len(PACKETS) < len(PACKETS)


def test_later_packets_overtake_those_that_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_WAITING_BYTES_MAX", 10_000)
    found, altered = passed_on(Impairment(ways=("to_upstream",), reordered_share=0.5, delay_seconds=60.0))
    assert sorted(found) == PACKETS != found
    assert found[: len(PACKETS) - altered] == [one for one in PACKETS if one in found[: len(PACKETS) - altered]]
    assert 0 < altered < len(PACKETS)


def test_packets_beyond_the_queue_are_counted_until_the_relay_ends() -> None:
    async def dropped() -> list[tuple[int, int]]:
        made = Wired(NamespaceTarget.model_validate(NODE))
        await made.start()
        seen = []
        for impairment in (LATE, Impairment(), LATE):
            made.impair(impairment)
            made.send(5)
            seen.append((made.status().dropped_packets, made.status().probe_bytes))
        await made.stop()
        return seen

    assert asyncio.run(dropped()) == [(3, 0), (3, 7), (6, 7)]


def test_the_last_line_of_the_proxy_has_the_number_of_dropped_packets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Flooded(Wired):
        async def start(self) -> None:
            await super().start()
            self.impair(LATE)
            self.send(5)
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(proxy, "Relay", Flooded)
    file = tmp_path / "faults.yaml"
    delay = {"kind": "namespace_delay", "target": "node", "parameters": {"delay": "1s"}}
    file.write_text(str({"targets": {"node": NODE}, "schedule": {"faults": [delay]}, "state": "s"}))
    assert main(["faults", "proxy", str(file)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1].startswith("node: 3 packets ")
