"""The embedded broker behaves as Kafka: it keeps data and aborts transactions, and leaves no process or folder
behind."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from testbed.broker import BrokerError, EmbeddedBroker
from testbed.demo.brokers import DemoBrokers
from tests.process_end import await_end, needs_pidfd
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.stream.brokers import Brokers

Names = Callable[[str], str]


def produce(broker: EmbeddedBroker, topic: str, *values: str, timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value, timestamp=timestamp_ms)
    assert producer.flush(30) == 0


def read(broker: EmbeddedBroker, topic: str, isolation: str = "read_committed") -> list[str]:
    """Return all values of partition 0 up to its current end."""
    return [value for value, _ in read_with_timestamps(broker, topic, isolation)]


def read_with_timestamps(broker: EmbeddedBroker, topic: str, isolation: str) -> list[tuple[str, tuple[int, int]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[str, tuple[int, int]]] = []
    while (message := consumer.poll(30)) is not None:
        error = message.error()
        if error is None:
            found.append((message.value().decode(), message.timestamp()))
        elif error.code() == KafkaError._PARTITION_EOF:
            break
        else:
            raise KafkaException(error)
    consumer.close()
    assert message is not None, "the end of the partition was not reached within 30 s"
    return found


def test_records_are_read_in_order(broker: EmbeddedBroker, topic_names: Names) -> None:
    topic = topic_names("input")
    broker.create_topics({topic: 1})
    produce(broker, topic, "a", "b", "c")
    assert read(broker, topic) == ["a", "b", "c"]


@pytest.mark.full
def test_the_broker_sets_the_timestamp_by_default(broker: EmbeddedBroker, topic_names: Names) -> None:
    appended, created = topic_names("appended"), topic_names("created")
    broker.create_topics({appended: 1})
    broker.create_topics({created: 1}, config={"message.timestamp.type": "CreateTime"})
    for topic in (appended, created):
        produce(broker, topic, "a", timestamp_ms=1234)
    [(_, appended_time)] = read_with_timestamps(broker, appended, "read_committed")
    [(_, created_time)] = read_with_timestamps(broker, created, "read_committed")
    assert appended_time[1] > 1_700_000_000_000
    assert created_time[1] == 1234


def test_aborted_transactions_are_hidden_from_committed_readers(broker: EmbeddedBroker, topic_names: Names) -> None:
    topic = topic_names("output")
    broker.create_topics({topic: 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in (("aborted", producer.abort_transaction), ("committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        assert producer.flush(30) == 0
        end(30)
    assert read(broker, topic) == ["committed"]
    assert read(broker, topic, "read_uncommitted") == ["aborted", "committed"]


@pytest.mark.full
def test_topics_are_made_only_on_request_and_can_be_deleted(broker: EmbeddedBroker, topic_names: Names) -> None:
    topic = topic_names("input")
    undelivered: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 1000})
    producer.produce(topic, "lost", on_delivery=lambda error, _: undelivered.append(error))
    assert producer.flush(30) == 0
    assert undelivered[0] is not None
    broker.create_topics({topic: 1})  # this fails if the producer has created the topic
    with pytest.raises(KafkaException, match="already exists"):
        broker.create_topics({topic: 1})
    broker.delete_topic(topic)
    broker.create_topics({topic: 2})


@pytest.mark.full
def test_a_restart_keeps_data_and_address() -> None:
    with EmbeddedBroker() as broker:
        address, folder = broker.bootstrap_servers, broker.folder
        broker.create_topics({"kept": 1})
        produce(broker, "kept", "before")
        broker.restart()
        produce(broker, "kept", "between")
        broker.kill()
        with pytest.raises(BrokerError, match="not running"):
            broker.wait_ready()
        broker.restart()
        assert broker.bootstrap_servers == address
        assert read(broker, "kept") == ["before", "between"]
        process = broker.process
    assert not process.is_running
    assert not folder.exists()


@pytest.mark.full
def test_a_broker_that_cannot_start_quotes_its_log(tmp_path: Path) -> None:
    broker = EmbeddedBroker(folder=tmp_path, settings={"log.message.timestamp.type": "Yesterday"})
    with pytest.raises(BrokerError, match=r"(?s)ended with status 1.*Yesterday"):
        broker.start()
    with pytest.raises(BrokerError, match="not running"):
        broker.process.wait(0)


@needs_pidfd
def test_the_broker_dies_with_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from testbed.broker import EmbeddedBroker\n"
        "broker = EmbeddedBroker(folder=pathlib.Path(sys.argv[1])).start()\n"
        "print(broker.process.pid, flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        broker = int(parent.stdout.readline())
        parent.kill()
    assert await_end(broker)


@pytest.mark.full
def test_the_command_runs_a_broker_until_ctrl_c_and_removes_its_data() -> None:
    command = [sys.executable, "-m", "validator.cli.main", "broker", "--port", "0", "--topic", "orders:2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            found = re.fullmatch(r"Kafka listens at (\S+), topics orders; its data is in (\S+)\.\n", said)
            assert found, said
            metadata = AdminClient({"bootstrap.servers": found[1]}).list_topics(timeout=30)
            assert len(metadata.topics["orders"].partitions) == 2
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert not Path(found[2]).exists()


def test_offsets_of_a_group_are_asked_for_before_the_broker_has_any(tmp_path: Path) -> None:
    with EmbeddedBroker() as fresh:
        fresh.create_topics({"events": 1})
        changes = [f"kafka.bootstrap_servers={fresh.bootstrap_servers}", "engine.consumer_group=none-yet"]
        asked = Brokers(loads(EXAMPLES["clickstream"], tmp_path, changes, environment={}))
        assert asked.committed([TopicPartition("events", 0)]) == {}


@pytest.mark.full
def test_three_brokers_have_pgvals_replicas_and_leaders(tmp_path: Path) -> None:
    brokers = DemoBrokers(tmp_path, {}, count=3, hosts=("127.0.0.2",))
    try:
        brokers.start()
        brokers.first.create_topics({"click": 4, "output": 3})
        # A client in a network of its own reaches all brokers at their addresses there.
        through = AdminClient({"bootstrap.servers": brokers.first.host_servers[0], "log_level": 0})
        seen = through.list_topics(timeout=30)
        assert {broker.host for broker in seen.brokers.values()} == {"127.0.0.2"}
        assert len(seen.brokers) == 3
        for name, leaders in {"click": [1, 2, 3, 1], "output": [1, 2, 3]}.items():
            partitions = [of for _, of in sorted(seen.topics[name].partitions.items())]
            assert [of.leader for of in partitions] == leaders
            assert {tuple(sorted(of.isrs)) for of in partitions} == {(1, 2, 3)}
        resource = ConfigResource(ConfigResource.Type.TOPIC, "click")
        [found] = through.describe_configs([resource]).values()
        assert found.result(30)["min.insync.replicas"].value == "2"
        for broker in brokers.all[1:]:
            broker.kill()
        producer = Producer({"bootstrap.servers": brokers.first.bootstrap_servers, "message.timeout.ms": 5000})
        refused: list[KafkaError | None] = []
        producer.produce("click", "lost", partition=0, on_delivery=lambda error, _: refused.append(error))
        producer.flush(30)
        assert [error is None for error in refused] == [False], "one replica in sync is not enough"
    finally:
        brokers.kill()
