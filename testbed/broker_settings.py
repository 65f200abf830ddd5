"""The ``server.properties`` of an embedded broker, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_ID = 1
"""The node id of a broker that is also the controller."""
_LOOPBACK = "127.0.0.1"
PAIR = 2
"""Brokers of a cluster in which faults move leaders. A larger one has PGVal's settings: all replicas but one in sync,
and placed leaders."""


@dataclass(frozen=True)
class Listeners:
    """The broker's listeners: two ports of 127.0.0.1, and one more for each of the hosts and links."""

    port: int
    controller_port: int
    """Port of the controller, if the broker is also the controller."""
    hosts: tuple[str, ...] = ()
    """``host:port`` for each further address of this machine."""
    links: tuple[tuple[str, int], ...] = ()
    """For each link: (address of the proxy, port of the broker behind it)."""

    @property
    def own(self) -> str:
        """``host:port`` for clients that are on no link."""
        return f"PLAINTEXT://{_LOOPBACK}:{self.port}"


def server_properties(listeners: Listeners, data: Path, *, replicas: int) -> dict[str, str]:
    """Settings of a broker that is also the controller of its cluster; ``replicas`` is the replication factor of every
    topic.
    """
    # With two brokers the death of one must not end all writes.
    min_in_sync = max(1, replicas - 1) if replicas > PAIR else 1
    return {
        "process.roles": "broker,controller",
        "node.id": str(FIRST_ID),
        "listeners": f"{listeners.own},CONTROLLER://{_LOOPBACK}:{listeners.controller_port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{FIRST_ID}@{_LOOPBACK}:{listeners.controller_port}",
        # A killed broker can rejoin only after its old session has ended (default: 9 s).
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "log.dirs": str(data),
        "log.retention.ms": "-1",  # with CreateTime, records with old timestamps would be deleted at once
        "log.cleaner.dedupe.buffer.size": str(8 << 20),  # default: 128 MiB, allocated from the heap at the start
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.min.isr": str(min_in_sync),
        "min.insync.replicas": str(min_in_sync),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(min_in_sync),
        "group.initial.rebalance.delay.ms": "0",
        **(_further(listeners) if listeners.links or listeners.hosts else {}),
    }


def joined_properties(properties: Mapping[str, str], listeners: Listeners, node_id: int, voter: str) -> dict[str, str]:
    """``properties`` for a broker that is not the controller; ``voter`` is the controller (``id@host:port``)."""
    return {
        **properties,
        "process.roles": "broker",
        "node.id": str(node_id),
        "listeners": ",".join([listeners.own, *_of_hosts(listeners)]),
        "controller.quorum.voters": voter,
    }


def _further(listeners: Listeners) -> dict[str, str]:
    """Additional listeners. A client uses the address that its listener advertises, so it stays on its link or host."""
    own, controller = listeners.own, f"CONTROLLER://{_LOOPBACK}:{listeners.controller_port}"
    hosts = _of_hosts(listeners)
    links = [f"LINK{number}://{_LOOPBACK}:{port}" for number, (_, port) in enumerate(listeners.links)]
    to_links = [f"LINK{number}://{link}" for number, (link, _) in enumerate(listeners.links)]
    names = [listener.partition(":")[0] for listener in (own, controller, *hosts, *links)]
    return {
        "listeners": ",".join([own, controller, *hosts, *links]),
        "advertised.listeners": ",".join([own, *hosts, *to_links]),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }


def _of_hosts(listeners: Listeners) -> list[str]:
    return [f"HOST{number}://{address}" for number, address in enumerate(listeners.hosts)]


def written(properties: Mapping[str, str]) -> str:
    """The file's content."""
    return "".join(f"{name}={value}\n" for name, value in properties.items())
