"""A Kafka broker that advertises the link: its clients go through the proxy, so the link's faults affect them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from testbed.ports import free_port
from tests.faults.stage import WITHIN_SECONDS, Stage, wait_until


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, Producer]]:
    """A stage whose link leads to a broker, and a producer that has produced through it."""
    stage, port = Stage(tmp_path_factory.mktemp("kafka")), free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with (
        EmbeddedBroker(folder=tmp_path_factory.mktemp("broker"), settings=advertised) as broker,
        stage.proxy(port, broker.bootstrap_servers),
    ):
        broker.create_topics({"events": 1})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 0})
        assert delivery_seconds(producer) < WITHIN_SECONDS
        yield stage, producer


def delivery_seconds(producer: Producer) -> float:
    """Time until the broker has acknowledged one record."""
    started = time.monotonic()
    producer.produce("events", b"1")
    assert producer.flush(WITHIN_SECONDS) == 0
    return time.monotonic() - started


@pytest.mark.full
def test_a_delayed_link_delays_acknowledgements(kafka: tuple[Stage, Producer]) -> None:
    stage, producer = kafka
    times: list[float] = []
    fault = {"kind": "net_delay", "target": "link", "parameters": {"delay": "300ms", "direction": "both"}}
    stage.during(fault, lambda: times.append(delivery_seconds(producer)))
    assert times[0] >= 0.6
    wait_until(lambda: delivery_seconds(producer) < 0.3, "acknowledgements are fast again")


def test_a_partition_holds_records_until_it_is_healed(kafka: tuple[Stage, Producer]) -> None:
    stage, producer = kafka
    delivered: list[object] = []
    waiting: list[int] = []

    def note(error: object, _: object) -> None:
        delivered.append(error)

    def look() -> None:
        producer.produce("events", b"2", on_delivery=note)
        waiting.append(producer.flush(0.5))

    stage.during({"kind": "net_partition", "target": "link"}, look)
    assert waiting == [1]
    assert producer.flush(WITHIN_SECONDS) == 0
    assert delivered == [None]


@pytest.mark.full
def test_a_reset_link_breaks_connections_and_the_client_reconnects(kafka: tuple[Stage, Producer]) -> None:
    stage, producer = kafka
    stage.during({"kind": "net_reset", "target": "link"}, lambda: None)
    assert delivery_seconds(producer) < WITHIN_SECONDS
