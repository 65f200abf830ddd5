"""Faults that a Kafka client makes, and faults of a broker, seen by a second client of a real broker."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from faults.errors import FaultRefused
from faults.journal import read
from faults.kinds.poison import FORMS
from faults.runner import run
from faults.schedule import timeline
from testbed.broker import EmbeddedBroker
from tests.faults.stage import (
    HEALERS,
    WITHIN_SECONDS,
    Stage,
    abandoned,
    is_alive,
    state_of,
    wait_until,
)

Names = Callable[[str], str]


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that the tests of this file may stop."""
    with EmbeddedBroker(folder=tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(stage: Stage, own_broker: EmbeddedBroker, topic_names: Names) -> str:
    """A topic of one partition, which is also a target of the stage."""
    name = topic_names("events")
    own_broker.create_topics({name: 1})
    stage.targets["events"] = {"type": "topic", "bootstrap_servers": own_broker.bootstrap_servers, "topic": name}
    return name


def send(broker: EmbeddedBroker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "linger.ms": 0})
    producer.produce(topic, value, partition=0)
    assert producer.flush(WITHIN_SECONDS) == 0


def ends(broker: EmbeddedBroker, topic: str, isolation: str) -> int:
    """Return the end of the only partition at this isolation level."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "looks", "isolation.level": isolation}
    )
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), WITHIN_SECONDS)[1])
    finally:
        consumer.close()


def values(broker: EmbeddedBroker, topic: str, isolation: str) -> list[bytes | None]:
    """Return all values that a consumer of this isolation level reads up to the end of the partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reads",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    read: list[bytes | None] = []
    deadline = time.monotonic() + WITHIN_SECONDS
    try:
        while time.monotonic() < deadline:
            message: Message | None = consumer.poll(1)
            if message is not None and message.error() is not None:
                return read  # end of the partition
            if message is not None:
                read.append(message.value())
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic} within {WITHIN_SECONDS:g} s")


def test_a_hanging_transaction_stops_readers_of_committed_records(
    stage: Stage, own_broker: EmbeddedBroker, topic: str
) -> None:
    send(own_broker, topic, b"before")
    read: list[list[bytes | None]] = []

    def look() -> None:
        send(own_broker, topic, b"after")
        assert ends(own_broker, topic, "read_committed") == 1
        assert ends(own_broker, topic, "read_uncommitted") == 3
        read.append(values(own_broker, topic, "read_committed"))

    stage.during({"kind": "transaction_hang", "target": "events"}, look)
    assert read == [[b"before"]]
    assert ends(own_broker, topic, "read_committed") == ends(own_broker, topic, "read_uncommitted")
    assert values(own_broker, topic, "read_committed") == [b"before", b"after"]


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_hanging_transaction_of_a_killed_runner_is_ended(
    stage: Stage, own_broker: EmbeddedBroker, topic: str, healer: str
) -> None:
    fault = {"kind": "transaction_hang", "target": "events"}
    abandoned(stage, fault, healer, lambda: ends(own_broker, topic, "read_committed") == 0)
    assert ends(own_broker, topic, "read_committed") == ends(own_broker, topic, "read_uncommitted") == 2


@pytest.mark.full
def test_a_transaction_is_ended_when_the_broker_answers_again(
    stage: Stage, own_broker: EmbeddedBroker, topic: str
) -> None:
    config, broker = stage.write({"kind": "transaction_hang", "target": "events"}), own_broker.process.pid
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line.partition(":")[0])
        if line.startswith("failure:"):
            os.kill(broker, signal.SIGSTOP)
        if line.startswith("waiting"):
            os.kill(broker, signal.SIGCONT)

    try:
        run(config, timeline(config), say, Event())
    finally:
        os.kill(broker, signal.SIGCONT)
    assert [line.partition(",")[0] for line in lines] == ["failure", "waiting", "healed"]
    assert ends(own_broker, topic, "read_committed") == ends(own_broker, topic, "read_uncommitted") == 2


@pytest.mark.full
def test_a_transaction_beyond_the_timeout_of_the_broker_is_refused(stage: Stage, topic: str) -> None:
    fault = {"kind": "transaction_hang", "target": "events", "for": "10s", "parameters": {"timeout": "10s"}}
    with pytest.raises(FaultRefused, match=r"transaction .* 10 s"):
        timeline(stage.write(fault))


def test_a_partition_that_does_not_exist_is_refused(stage: Stage, own_broker: EmbeddedBroker, topic: str) -> None:
    fault = {"kind": "transaction_hang", "target": "events", "parameters": {"partition": 1}}
    with pytest.raises(FaultRefused, match=r"events: .* no partition 1"):
        stage.during(fault, lambda: None)
    assert ends(own_broker, topic, "read_uncommitted") == 0


@pytest.mark.full
def test_poison_is_counted_and_stops_when_it_is_healed(stage: Stage, own_broker: EmbeddedBroker, topic: str) -> None:
    send(own_broker, topic, b"good")
    parameters = {"form": "each", "per_second": 1000, "at_most": 7}
    stage.during({"kind": "poison", "target": "events", "for": "200ms", "parameters": parameters}, lambda: None)
    read_back = values(own_broker, topic, "read_committed")
    forms = list(FORMS.values())
    assert read_back == [b"good", *forms, *forms[:2]]
    facts = next(iter(read(stage.folder / "st").values())).facts
    assert facts.records == {"events": 7}
    assert facts.offsets == {f"{topic}/0": 7}


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_poison_of_a_killed_runner_stops_with_it(
    stage: Stage, own_broker: EmbeddedBroker, topic: str, healer: str
) -> None:
    def poison_arrives() -> bool:
        wait_until(lambda: ends(own_broker, topic, "read_uncommitted") >= 20, "poison comes in")
        return True

    abandoned(stage, {"kind": "poison", "target": "events", "parameters": {"per_second": 200}}, healer, poison_arrives)
    end = ends(own_broker, topic, "read_uncommitted")
    assert values(own_broker, topic, "read_uncommitted") == [FORMS["not_json"]] * end


def test_a_topic_that_does_not_exist_is_refused(stage: Stage, topic: str) -> None:
    stage.targets["events"]["topic"] = "nowhere"
    with pytest.raises(FaultRefused, match=r"events: .* no topic nowhere"):
        stage.during({"kind": "poison", "target": "events"}, lambda: None)


@pytest.mark.full
def test_options_are_read_from_their_file(stage: Stage, own_broker: EmbeddedBroker, topic: str) -> None:
    stage.targets["events"]["options_file"] = "client.properties"
    (stage.folder / "client.properties").write_text("# how we reach it\nsecurity.protocol=carrier_pigeon\n")
    with pytest.raises(FaultRefused, match=r"client\.properties: security\.protocol "):
        stage.during({"kind": "poison", "target": "events"}, lambda: None)
    (stage.folder / "client.properties").write_text("security.protocol=plaintext\nlinger\n")
    with pytest.raises(FaultRefused, match=r"line 2 of .*client\.properties .*name=value"):
        stage.during({"kind": "poison", "target": "events"}, lambda: None)
    assert ends(own_broker, topic, "read_uncommitted") == 0


def answers(broker: EmbeddedBroker) -> bool:
    try:
        AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}).list_topics(timeout=1)
    except KafkaException:
        return False
    return True


def add_broker(stage: Stage, broker: EmbeddedBroker) -> int:
    """Add the broker as a target with its own start command; return its process id."""
    pid = broker.process.pid
    (stage.folder / "broker.pid").write_text(str(pid))
    command = subprocess.check_output(["ps", "-ww", "-o", "args=", "-p", str(pid)], text=True).split()
    stage.targets["broker"] = {
        "type": "broker",
        "address": broker.bootstrap_servers,
        "pid_file": "broker.pid",
        "start": command,
        "folder": str(broker.folder),
    }
    return pid


@pytest.mark.full
def test_a_paused_broker_does_not_answer_until_it_is_healed(stage: Stage, own_broker: EmbeddedBroker) -> None:
    pid = add_broker(stage, own_broker)
    seen: list[tuple[str, bool]] = []
    try:
        stage.during(
            {"kind": "broker_pause", "target": "broker"}, lambda: seen.append((state_of(pid), answers(own_broker)))
        )
        assert seen == [("T", False)]
        assert answers(own_broker)
    finally:
        (stage.folder / "broker.pid").unlink()  # the stage ends the processes of pid files


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_paused_broker_of_a_killed_runner_is_continued(
    stage: Stage, own_broker: EmbeddedBroker, healer: str
) -> None:
    pid = add_broker(stage, own_broker)
    try:
        abandoned(stage, {"kind": "broker_pause", "target": "broker"}, healer, lambda: state_of(pid) == "T")
        assert answers(own_broker)
    finally:
        (stage.folder / "broker.pid").unlink()  # the stage ends the processes of pid files


@pytest.mark.full
@pytest.mark.parametrize("healer", HEALERS)
def test_the_killed_broker_of_a_killed_runner_is_started_again(stage: Stage, tmp_path: Path, healer: str) -> None:
    with EmbeddedBroker(folder=tmp_path / "broker") as broker:
        pid = add_broker(stage, broker)
        try:
            abandoned(stage, {"kind": "broker_kill", "target": "broker"}, healer, lambda: not answers(broker))
            assert stage.pid("broker") != pid
            assert answers(broker)
        finally:
            if stage.pid("broker") != pid:  # it is not a child of the fixture's process
                os.kill(stage.pid("broker"), signal.SIGKILL)


@pytest.mark.full
def test_a_broker_that_does_not_answer_before_the_fault_is_refused(stage: Stage, own_broker: EmbeddedBroker) -> None:
    pid = add_broker(stage, own_broker)
    (stage.folder / "broker.pid").rename(stage.folder / "kept")
    stage.targets["broker"] |= {"address": "127.0.0.1:1", "pid_file": "kept"}
    with pytest.raises(FaultRefused, match=r"broker: .* 127\.0\.0\.1:1 does not answer"):
        stage.during({"kind": "broker_kill", "target": "broker"}, lambda: None)
    assert is_alive(pid)


# The last test of this file: the restarted broker is not a child of the fixture's process.
@pytest.mark.full
def test_a_killed_broker_is_healed_when_it_answers_again(stage: Stage, own_broker: EmbeddedBroker, topic: str) -> None:
    pid = add_broker(stage, own_broker)
    seen: list[bool] = []

    def say(line: str) -> None:
        if line.startswith("failure:"):
            seen.append(answers(own_broker))
        if line.startswith("healed:"):
            seen.append(answers(own_broker))

    config = stage.write({"kind": "broker_kill", "target": "broker"})
    run(config, timeline(config), say, Event())
    assert seen == [False, True]
    assert stage.pid("broker") != pid
    send(own_broker, topic, b"it takes records")
    os.kill(stage.pid("broker"), signal.SIGKILL)
