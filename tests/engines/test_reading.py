"""Reading a topic up to its current end."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from testbed.broker import EmbeddedBroker
from tests.engines.reading import messages

pytestmark = pytest.mark.timeout(120)
BEFORE = 300


def test_a_growing_topic_is_read_up_to_its_end_at_the_start(
    broker: EmbeddedBroker, topic_names: Callable[[str], str]
) -> None:
    topic = topic_names("busy")
    broker.create_topics({topic: 1})
    first, stop = threading.Event(), threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        number = 0
        while not stop.is_set():
            producer.produce(topic, str(number))
            assert producer.flush(30) == 0
            number += 1
            if number == BEFORE:
                first.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert first.wait(60)
        found = [int(message.value() or b"") for message in messages(broker.bootstrap_servers, topic)]
        assert writer.is_alive()
    finally:
        stop.set()
        writer.join()
    assert len(found) >= BEFORE
    assert found == list(range(len(found)))  # no record is repeated or missing


def test_uncommitted_records_are_left_out(broker: EmbeddedBroker, topic_names: Callable[[str], str]) -> None:
    topic = topic_names("transactions")
    broker.create_topics({topic: 2})  # the second partition stays empty

    def begin(name: str, value: str) -> Producer:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": f"{topic}-{name}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        return producer

    begin("kept", "kept").commit_transaction(30)
    begin("aborted", "aborted").abort_transaction(30)
    # The partition ends with a marker, which no consumer sees.
    assert [message.value() for message in messages(broker.bootstrap_servers, topic)] == [b"kept"]
    hanging = begin("open", "open")
    assert [message.value() for message in messages(broker.bootstrap_servers, topic)] == [b"kept"]
    hanging.commit_transaction(30)
    assert [message.value() for message in messages(broker.bootstrap_servers, topic)] == [b"kept", b"open"]
