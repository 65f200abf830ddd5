"""A packet relay and its proxy with more waiting packets than the limit. Sockets stand in for devices, which need
root.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
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
