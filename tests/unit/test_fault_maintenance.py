"""A restarted proxy has lost a fault's settings: the fault ends then, and its end is published."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from faults import runner
from faults.backends import namespaces
from faults.backends.impairment import Impairment, LinkStatus
from faults.backends.proxy import ProxyControl
from faults.config import KafkaSection, parse
from faults.errors import NotVerified, Unreachable
from faults.facts import Facts
from faults.fault import Fault, Timeline
from faults.journal import Journal
from faults.kinds import base
from faults.kinds.base import Injection
from faults.kinds.registry import injection
from faults.schedule import timeline

TARGETS: dict[str, dict[str, Any]] = {
    "link": {"type": "link", "listen": "127.0.0.1:19092", "upstream": "127.0.0.1:9092"},
    "node": {"type": "namespace", "namespace": "n", "device": "e0", "relay": "198.18.7.0/30", "probe": "127.0.0.1:1"},
    "kernel": {"type": "namespace", "namespace": "n", "device": "e0", "probe": "127.0.0.1:1"},
}
DELAY = {"delay": "500ms"}
FAULTS: list[dict[str, Any]] = [
    {"kind": "net_delay", "target": "link", "parameters": DELAY},
    {"kind": "net_partition", "target": "link"},
    {"kind": "namespace_delay", "target": "node", "parameters": DELAY},
    {"kind": "namespace_loss", "target": "node", "parameters": {"percent": 50}},
]


class Proxy:
    """Stands in for a running proxy. ``impairments``: those of its links, or None if it does not run."""

    def __init__(self) -> None:
        self.impairments: dict[str, Impairment] | None = {}
        self.is_lost = False
        self.asked = 0

    def status(self) -> dict[str, LinkStatus]:
        self.asked += 1
        if self.impairments is None:
            raise Unreachable("no proxy answers")
        rest: dict[str, Any] = {"listen": "", "upstream": "", "probe_port": 0, "probe_bytes": 0, "connections": 0}
        return {
            name: LinkStatus(impairment=now, is_lost=self.is_lost, **rest) for name, now in self.impairments.items()
        }


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Proxy:
    made = Proxy()
    monkeypatch.setattr(ProxyControl, "status", made.status)
    monkeypatch.setattr(base, "PROBE_INTERVAL_SECONDS", 0.0)
    return made


def planned(folder: Path, spec: dict[str, Any], lasts: str = "1s") -> tuple[Any, Timeline]:
    faults = {"faults": [{**spec, "for": lasts, "name": "slow"}]}
    config = parse({"seed": 3, "state": str(folder), "targets": TARGETS, "schedule": faults})
    return config, timeline(config)


def fault(folder: Path, spec: dict[str, Any]) -> Fault:
    return planned(folder, spec)[1].steps[0].fault


@pytest.mark.parametrize("spec", FAULTS, ids=lambda spec: str(spec["kind"]))
def test_a_fault_that_the_proxy_lost_is_no_longer_active(tmp_path: Path, proxy: Proxy, spec: dict[str, Any]) -> None:
    injected: Any = injection(fault(tmp_path, spec), tmp_path)
    name = str(spec["target"])
    proxy.impairments = {name: injected.impairment}
    injected.maintain()
    proxy.impairments = None
    with pytest.raises(NotVerified, match=f"^slow on {name}: .*proxy does not answer"):
        injected.maintain()
    for lost in ({name: Impairment()}, {}):
        proxy.impairments = lost
        with pytest.raises(NotVerified, match=f"^slow on {name}: .*proxy was"):
            injected.maintain()


def test_a_kernel_rule_needs_no_proxy(tmp_path: Path, proxy: Proxy) -> None:
    injection(fault(tmp_path, {**FAULTS[2], "target": "kernel"}), tmp_path).maintain()
    assert proxy.asked == 0


def test_a_kernel_rule_ends_with_the_device_of_its_relay(
    tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule: dict[str, Any] = {"handle": namespaces.HANDLE}
    monkeypatch.setattr(namespaces, "root_rule", lambda _: rule)
    proxy.impairments = {"node": Impairment()}
    injected = injection(fault(tmp_path, {"kind": "namespace_partition", "target": "node"}), tmp_path)
    injected.maintain()
    rule["handle"] = "0:"
    with pytest.raises(NotVerified, match="proxy was restarted"):
        injected.maintain()
    proxy.impairments = None
    with pytest.raises(NotVerified, match="proxy does not answer"):
        injected.maintain()


def test_a_relay_without_its_device_is_not_a_slow_relay(tmp_path: Path, proxy: Proxy) -> None:
    injected: Any = injection(fault(tmp_path, FAULTS[2]), tmp_path)
    proxy.impairments, proxy.is_lost = {"node": injected.impairment}, True
    with pytest.raises(NotVerified, match="device was deleted"):
        injected.maintain()


def test_the_proxy_is_polled(tmp_path: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "PROBE_INTERVAL_SECONDS", 60.0)
    injected: Any = injection(fault(tmp_path, FAULTS[0]), tmp_path)
    proxy.impairments = {"link": injected.impairment}
    for _ in range(10):
        injected.maintain()
    assert proxy.asked == 1


class LostAtOnce:
    """An injection that becomes active and has ended by its first maintenance."""

    def __init__(self) -> None:
        self.facts = Facts()
        self.is_heal_called = False

    def prepare(self) -> None:
        """Nothing to find."""

    def inject(self) -> None:
        """Nothing to break."""

    def maintain(self) -> None:
        raise NotVerified("slow on link: the fault ended early.")

    def is_active(self) -> bool:
        return True

    def heal(self) -> None:
        self.is_heal_called = True

    def is_healed(self) -> bool:
        return self.is_heal_called


def test_the_window_of_a_lost_fault_ends_and_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost: Injection = LostAtOnce()
    calls: list[str] = []

    class Topic:
        def __init__(self, _: object) -> None: ...
        def check(self) -> None: ...
        def publish(self, _: object, *states: str) -> None:
            calls.extend(states)

        def flush(self) -> None:
            calls.append("flushed")

    monkeypatch.setattr(runner, "injection", lambda *_: lost)
    monkeypatch.setattr(runner, "FaultsTopicWriter", Topic)
    config, one_fault = planned(tmp_path, FAULTS[0], "60s")
    config = config.model_copy(update={"kafka": KafkaSection(bootstrap_servers="127.0.0.1:1", topic="faults")})
    began = time.monotonic()
    with pytest.raises(NotVerified, match="ended early"):
        runner.run(config, one_fault, lambda _: None, threading.Event())
    assert time.monotonic() - began < 30
    assert calls == ["injected", "verified", "heal_started", "healed", "flushed"]
    with Journal.locked(tmp_path) as journal:
        assert journal.open_entries() == []
        assert all(entry.is_published for entry in journal.entries.values())


class WithoutProxy(LostAtOnce):
    """An injection whose proxy stops before verification. The proxy runs again when the healing is retried."""

    def __init__(self) -> None:
        super().__init__()
        self.heals = 0

    def is_active(self) -> bool:
        raise Unreachable("no proxy answers.")

    def heal(self) -> None:
        self.heals += 1
        if self.heals < 3:
            raise Unreachable("no proxy answers.")
        super().heal()


def test_a_fault_of_an_unserved_link_is_healed_by_the_next_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unserved: Injection = WithoutProxy()
    monkeypatch.setattr(runner, "injection", lambda *_: unserved)
    said: list[str] = []
    with pytest.raises(NotVerified, match="no proxy answers"):
        runner.run(*planned(tmp_path, FAULTS[0], "60s"), said.append, threading.Event())
    assert [line.partition(":")[0] for line in said] == ["over", "waiting, 60 s at most", "healed"]
    with Journal.locked(tmp_path) as journal:
        (entry,) = journal.entries.values()
    assert list(entry.states) == ["injected", "heal_started", "healed"]
