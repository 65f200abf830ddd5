"""Leaders of Kafka partitions: reads leaders and in-sync replicas, orders replicas, and elects preferred leaders."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata

from faults.backends import kafka, kafka_protocol
from faults.backends.kafka_protocol import Partition
from faults.errors import FaultRefused, Unreachable

_PLAIN: Final = "plaintext"


@dataclass(frozen=True)
class PartitionLeadership:
    """A partition in the cluster's metadata. ``leader`` is -1 if there is none."""

    leader: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]


class Leaders:
    """Reads and changes the leaders of one cluster's partitions.

    Raises FaultRefused; Unreachable if no broker answers.
    """

    def __init__(self, addresses: str, options_file: Path | None) -> None:
        protocol = str(kafka.options(addresses, options_file).get("security.protocol", _PLAIN))
        if protocol.lower() != _PLAIN:
            raise FaultRefused(f"{addresses}: leaders can be moved only over a PLAINTEXT listener, not {protocol}.")
        self._addresses = addresses
        self._admin = kafka.admin(addresses, options_file)

    def partitions(self) -> dict[Partition, PartitionLeadership]:
        """All partitions of the cluster."""
        return {
            (topic, number): PartitionLeadership(partition.leader, tuple(partition.replicas), frozenset(partition.isrs))
            for topic, described in self._seen().topics.items()
            for number, partition in described.partitions.items()
        }

    def broker(self) -> int:
        """The id of the broker that is advertised at the client's address."""
        ours = _resolved(self._addresses)
        for number, broker in self._seen().brokers.items():
            if _resolved(f"{broker.host}:{broker.port}") & ours:
                return int(number)
        raise FaultRefused(f"{self._addresses}: the cluster advertises no broker there; name an advertised address.")

    def being_reassigned(self, partitions: Sequence[Partition]) -> list[Partition]:
        """The ``partitions`` that are being reassigned."""
        return kafka_protocol.being_reassigned(self._addresses, partitions)

    def reorder_replicas(self, replicas: Mapping[Partition, Sequence[int]]) -> None:
        """Change the order of the replicas of partitions. No record is copied."""
        if replicas:
            kafka_protocol.alter(self._addresses, replicas)

    def elect(self, partitions: Collection[Partition]) -> bool:
        """Elect the first replica of each partition. Returns whether it leads all of them now."""
        return not partitions or kafka_protocol.elect(self._addresses, sorted(partitions))

    def _seen(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=kafka.LOOK_SECONDS_MAX)
        except KafkaException as error:
            raise Unreachable(f"{self._addresses} does not answer.") from error


def _resolved(address: str) -> frozenset[tuple[str, int]]:
    """The IP addresses that ``host:port`` resolves to, each with the port; empty if it does not resolve."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset((str(place[0]), int(port)) for *_, place in found)
