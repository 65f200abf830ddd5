"""A Kafka client for the generator that keeps its records and acknowledges each at once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from generator import config, run, sender


class Sent(NamedTuple):
    """One record."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes


class Acknowledged(NamedTuple):
    """The delivery report of a record."""

    record: Sent
    at: int

    def value(self) -> bytes:
        return self.record.value

    def offset(self) -> int:
        return self.at


class Client:
    """A client that keeps its records. Each stream of a producer has one."""

    def __init__(self, _options: dict[str, Any]) -> None:
        self.records: list[Sent] = []

    def produce(self, topic: str, value: bytes, key: bytes | None, partition: int, report: Callable[..., Any]) -> None:
        record = Sent(topic, partition, key, value)
        self.records.append(record)
        report(None, Acknowledged(record, len(self.records) - 1))

    def poll(self, _seconds: float) -> int:
        return 0

    def flush(self, _seconds: float) -> int:
        return 0

    def __len__(self) -> int:
        return 0


def sent(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], partitions: int = 3) -> list[list[Sent]]:
    """The records of a whole run of the generator in this process: those of each client, in the order of its sends."""
    clients: list[Client] = []

    def opened(options: dict[str, Any]) -> Client:
        clients.append(Client(options))
        return clients[-1]

    monkeypatch.setattr(sender, "Producer", opened)
    monkeypatch.setattr(run, "_partitions", lambda config, topic: partitions)
    run.generate(config.parse({"kafka": {"bootstrap_servers": "b:1"}, "creation_timestamp": "event_time", **settings}))
    return [client.records for client in clients]


def digest(clients: list[list[Sent]]) -> str:
    """A hash of the records of all clients. Producers in threads may open their clients in any order."""
    each = sorted(hashlib.sha256(repr([tuple(one) for one in records]).encode()).hexdigest() for records in clients)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]
