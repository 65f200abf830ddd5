"""Leaders of Kafka partitions: reads leaders and in-sync replicas, orders replicas, and elects preferred leaders.

kafka-python sends what confluent-kafka 2.16 cannot: alter and list reassignments (KIP-455), for which it has no call,
and elect leaders, whose binding fails with a SystemError for every argument.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import ClusterMetadata

from faults.backends import kafka
from faults.errors import FaultRefused, Unreachable

Partition = tuple[str, int]
"""Topic and partition number."""
_PREFERRED: Final = 0
_NOT_NEEDED: Final = 84
"""Error code ELECTION_NOT_NEEDED: the preferred replica leads already."""
_NAMES: Final = {
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
"""librdkafka's name of an option -> kafka-python's."""
_IDENTIFICATION: Final = "ssl.endpoint.identification.algorithm"


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
        self._addresses = addresses
        self._options = _translated(addresses, kafka.options(addresses, options_file))
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
        with self._client("the request for the list of reassignments") as client:
            return [tuple(found) for found in client.list_partition_reassignments(_by_topic(partitions))]

    def reorder_replicas(self, replicas: Mapping[Partition, Sequence[int]]) -> None:
        """Set the replicas of partitions, and their order: the first is the preferred leader. If only the order
        changes, no record is copied."""
        from kafka import TopicPartition

        if not replicas:
            return
        with self._client("the reassignment") as client:
            answered = client.alter_partition_reassignments(
                {TopicPartition(*place): list(order) for place, order in replicas.items()}
            )
        for (topic, number), error in answered.items():
            if error is not None:
                raise FaultRefused(
                    f"{self._addresses}: the broker refused the reassignment of {topic}/{number} ({error.message})."
                )

    def elect(self, partitions: Collection[Partition]) -> bool:
        """Elect the first replica of each partition. Returns whether it leads all of them now."""
        if not partitions:
            return True
        with self._client("the election") as client:
            answer = client.elect_leaders(_PREFERRED, _by_topic(sorted(partitions)), raise_errors=False)
        codes = [
            answered.error_code for topic in answer.replica_election_results for answered in topic.partition_result
        ]
        return not answer.error_code and all(code in (0, _NOT_NEEDED) for code in codes)

    @contextmanager
    def _client(self, what: str) -> Iterator[Any]:
        """A client for one request. The names of its errors say what happened."""
        from kafka.admin import KafkaAdminClient
        from kafka.errors import BrokerResponseError, KafkaError

        logging.getLogger("kafka").setLevel(logging.CRITICAL + 1)
        try:
            with KafkaAdminClient(**self._options) as client:
                yield client
        except BrokerResponseError as error:
            raise FaultRefused(f"{self._addresses}: the broker refused {what} ({type(error).message}).") from error
        except (KafkaError, OSError) as error:
            raise Unreachable(f"{self._addresses}: no broker answered {what} ({type(error).__name__}).") from error

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


def _by_topic(partitions: Collection[Partition]) -> dict[str, list[int]]:
    return {topic: [number for of, number in partitions if of == topic] for topic, _ in partitions}


def _translated(addresses: str, given: kafka.Options) -> dict[str, Any]:
    """kafka-python's options. Raises FaultRefused if one that is needed for the connection has no equivalent."""
    milliseconds = round(kafka.LOOK_SECONDS_MAX * 1000)
    translated: dict[str, Any] = {
        "bootstrap_servers": [address.strip() for address in addresses.split(",")],
        "bootstrap_timeout_ms": milliseconds,
        "request_timeout_ms": milliseconds,
        "reconnect_backoff_max_ms": 500,
    }
    for name, value in given.items():
        if name in _NAMES:
            translated[_NAMES[name]] = str(value).upper() if name == "security.protocol" else value
        elif name == _IDENTIFICATION:
            translated["ssl_check_hostname"] = value != "none"
        elif name.startswith(("ssl.", "sasl.", "enable.ssl.")):
            raise FaultRefused(f"{addresses}: leaders cannot be moved with {name}; use {', '.join(_NAMES)}.")
    return translated
