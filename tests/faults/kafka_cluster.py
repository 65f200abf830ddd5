"""A Kafka cluster of two brokers: the embedded one, which is also the controller, and a second one that joins it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from faults.backends.kafka_leaders import PartitionLeadership
from testbed.broker import EmbeddedBroker
from testbed.joined_broker import JoinedBroker
from tests.faults.stage import WITHIN_SECONDS, wait_until


@dataclass(frozen=True)
class Cluster:
    """Both brokers, and a separate client's view of them."""

    first: EmbeddedBroker
    second: JoinedBroker

    @property
    def bootstrap_servers(self) -> str:
        return f"{self.first.bootstrap_servers},{self.second.bootstrap_servers}"

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def led(self, topic: str) -> dict[int, PartitionLeadership]:
        """Return partition -> leader, ordered replicas, and in-sync replicas."""
        partitions = self.admin().list_topics(topic, timeout=WITHIN_SECONDS).topics[topic].partitions
        return {
            n: PartitionLeadership(p.leader, tuple(p.replicas), frozenset(p.isrs))
            for n, p in sorted(partitions.items())
        }

    def create(self, topic: str, orders: dict[int, list[int]]) -> None:
        """Create a topic with these ordered replicas. Return when all are in sync and the first ones lead."""
        new = NewTopic(topic, len(orders), replica_assignment=[orders[number] for number in sorted(orders)])
        admin = self.admin()
        for done in admin.create_topics([new]).values():
            done.result()

        def is_settled() -> bool:
            seen = self.led(topic)
            return len(seen) == len(orders) and all(
                seen[n].in_sync == set(order) and seen[n].leader == order[0] for n, order in orders.items()
            )

        wait_until(is_settled, f"all replicas of {topic} are in sync")


@contextmanager
def cluster_of_two(folder: Path) -> Iterator[Cluster]:
    """Start both brokers, and wait until they answer and know each other."""
    # Kafka's own rebalancing every five minutes would undo what a test sets up.
    still = {"auto.leader.rebalance.enable": "false"}
    first = EmbeddedBroker(folder=folder / "1", settings=still, replicas=2)
    with first, JoinedBroker(first, folder / "2") as second:
        yield Cluster(first, second)
