"""Leader moves on a cluster of two real brokers, seen in another client's metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from faults.backends.kafka_leaders import Leaders, PartitionLeadership
from faults.errors import FaultRefused
from faults.journal import read
from tests.faults.kafka_cluster import Cluster, cluster_of_two
from tests.faults.stage import HEALERS, WITHIN_SECONDS, Stage, abandoned, wait_until

Names = Callable[[str], str]
ORDERS = {0: [1, 2], 1: [2, 1], 2: [1, 2]}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of_two(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def topic(stage: Stage, cluster: Cluster, topic_names: Names) -> Iterator[str]:
    """A topic with replicas on both brokers, deleted after the test: a demoted broker must lead no other topic."""
    name = topic_names("events")
    cluster.create(name, ORDERS)
    stage.targets["events"] = {"type": "topic", "bootstrap_servers": cluster.bootstrap_servers, "topic": name}
    address = cluster.first.bootstrap_servers
    stage.targets["broker-1"] = {"type": "broker", "address": address, "pid": cluster.first.process.pid}
    yield name
    cluster.first.delete_topic(name)


def are_led_by(cluster: Cluster, topic: str, *leaders: int) -> bool:
    """Return whether these brokers lead, after a short wait: each broker learns of an election on its own."""
    wait_until(
        lambda: [led.leader for led in cluster.led(topic).values()] == [*leaders], f"{topic} is led by {leaders}"
    )
    return True


def are_as(cluster: Cluster, topic: str, before: dict[int, PartitionLeadership]) -> bool:
    """Return whether leaders, ordered replicas and in-sync replicas are as before."""
    wait_until(lambda: cluster.led(topic) == before, f"{topic} is as before: {before}")
    return True


def takes_a_record(cluster: Cluster, topic: str, partition: int) -> bool:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce(topic, b"x", partition=partition)
    return producer.flush(WITHIN_SECONDS) == 0


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "target", "parameters", "meanwhile"),
    [
        ("leader_move", "events", {}, [2, 1, 2]),
        ("leader_move", "events", {"partition": 0, "to": 2}, [2, 2, 1]),
        ("broker_demote", "broker-1", {}, [2, 2, 2]),
    ],
)
def test_other_brokers_lead_until_the_fault_is_healed(
    stage: Stage,
    cluster: Cluster,
    topic: str,
    kind: str,
    target: str,
    parameters: dict[str, Any],
    meanwhile: list[int],
) -> None:
    before = cluster.led(topic)

    def look() -> None:
        assert are_led_by(cluster, topic, *meanwhile)
        assert all(takes_a_record(cluster, topic, partition) for partition in ORDERS)

    stage.during({"kind": kind, "target": target, "parameters": parameters}, look)
    assert are_as(cluster, topic, before)


@pytest.mark.full
def test_a_leader_that_was_not_preferred_is_restored(stage: Stage, cluster: Cluster, topic: str) -> None:
    Leaders(cluster.bootstrap_servers, None).reorder_replicas({(topic, 0): [2, 1]})
    before = cluster.led(topic) | {0: PartitionLeadership(1, (2, 1), frozenset({1, 2}))}
    assert are_as(cluster, topic, before)

    def look() -> None:
        assert are_led_by(cluster, topic, 2, 2, 1)

    stage.during({"kind": "leader_move", "target": "events", "parameters": {"partition": 0}}, look)
    assert are_as(cluster, topic, before)


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
@pytest.mark.parametrize(
    ("kind", "target", "meanwhile"), [("leader_move", "events", [2, 1, 2]), ("broker_demote", "broker-1", [2, 2, 2])]
)
def test_leaders_moved_by_a_killed_runner_are_restored(
    stage: Stage, cluster: Cluster, topic: str, kind: str, target: str, meanwhile: list[int], healer: str
) -> None:
    before = cluster.led(topic)
    abandoned(stage, {"kind": kind, "target": target}, healer, lambda: are_led_by(cluster, topic, *meanwhile))
    assert are_as(cluster, topic, before)


@pytest.mark.full
def test_a_previous_leader_that_was_down_leads_again(stage: Stage, cluster: Cluster, topic: str) -> None:
    """It is not in sync yet when healing starts, so one election is not enough."""
    fault = {"kind": "leader_move", "target": "events", "parameters": {"partition": 1}}

    def look() -> None:
        assert are_led_by(cluster, topic, 1, 1, 1)
        cluster.second.kill()
        cluster.second.restart()

    before = cluster.led(topic)
    stage.during(fault, look)
    assert are_as(cluster, topic, before)


@pytest.mark.full
def test_the_end_of_a_transaction_is_seen_after_a_leader_move(stage: Stage, cluster: Cluster, topic: str) -> None:
    def look() -> None:
        for order in ([2, 1], [1, 2]):
            Leaders(cluster.bootstrap_servers, None).reorder_replicas({(topic, 0): order})
            Leaders(cluster.bootstrap_servers, None).elect([(topic, 0)])
            assert are_led_by(cluster, topic, order[0], 2, 1)

    stage.during({"kind": "transaction_hang", "target": "events"}, look, limits={"healed_within": "20s"})


@pytest.mark.full
def test_a_partition_without_another_replica_in_sync_is_refused(
    stage: Stage, cluster: Cluster, topic: str, topic_names: Names
) -> None:
    alone = topic_names("alone")
    cluster.create(alone, {0: [1]})
    stage.targets["events"]["topic"] = alone
    try:
        for kind, target in (("leader_move", "events"), ("broker_demote", "broker-1")):
            with pytest.raises(FaultRefused, match=f"{target}: {alone}/0 .* in-sync"):
                stage.during({"kind": kind, "target": target}, lambda: None)
    finally:
        cluster.first.delete_topic(alone)
    assert read(stage.folder / "st") == {}
    assert [led.replicas for led in cluster.led(topic).values()] == [(1, 2), (2, 1), (1, 2)]


@pytest.mark.full
@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"to": 7}, r"events: broker 7 .*/0; use one of 2\."),
        ({"partition": 9}, "events: .* partition 9; .* 0 to 2"),
    ],
)
def test_an_impossible_move_is_refused(
    stage: Stage, cluster: Cluster, topic: str, parameters: dict[str, Any], words: str
) -> None:
    with pytest.raises(FaultRefused, match=words):
        stage.during({"kind": "leader_move", "target": "events", "parameters": parameters}, lambda: None)
    assert read(stage.folder / "st") == {}
