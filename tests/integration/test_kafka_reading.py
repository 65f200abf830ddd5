"""Workers read offset ranges from a real broker: every visible record once, in order, cut to the limits. A range whose
records have expired fails."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from testbed.broker import EmbeddedBroker
from tests.integration.isolated_reads import offsets_and_values
from tests.tiers import first_of
from validator.codecs.one_record import TOO_LARGE
from validator.codecs.times import FARTHEST_US
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.stream import kafka_reading
from validator.stream.bounded import Ended, bounded
from validator.stream.decode import Reader
from validator.stream.kafka_reading import Range, ReadFailed, Reading
from validator.stream.sources import readers_of, reading_of, sources_of

pytestmark = pytest.mark.timeout(300)
NAMES = itertools.count()
WORKER_BYTES_MIN = 402_653_184
"""The minimum of `limits.worker_bytes`."""
Headers = list[tuple[str, bytes | None]]
Delivered = tuple[int, bytes | None, bytes | None, Headers]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def configured(broker: EmbeddedBroker, *settings: str) -> Config:
    given = [f"kafka.bootstrap_servers={broker.bootstrap_servers}", "limits.value_bytes=2000", "limits.key_bytes=20"]
    fields = ["inputs.0.fields.id=$header.id", "inputs.0.fields.key=$key"]
    return loads(EXAMPLES["clickstream"], "/etc", [*given, *fields, *settings], {})


def reader_of(config: Config) -> Reader:
    return readers_of(config, sources_of(config))[-1]


def read(reading: Reading, reader: Reader, wanted: Range) -> pa.Table:
    """Return all records of a range; the test process acts as the worker."""
    batches = list(replace(reading, memory_bytes=None).records(wanted, reader.decoder))
    return pa.Table.from_batches(batches) if batches else pa.table({"offset": pa.array([], pa.int64())})


Log = dict[tuple[str, int], list[tuple[Delivered, bool]]]
"""Partition -> the records written to it, in order, and whether each was committed."""


def written(broker: EmbeddedBroker, topics: list[str], chance: random.Random) -> Log:
    """Write logs of two partitions each, in every compression, with several interleaved transactions, committed and
    aborted. Some logs end with markers, some with records of an aborted transaction."""
    broker.create_topics(dict.fromkeys(topics, 2))
    log: Log = {(topic, partition): [] for topic in topics for partition in (0, 1)}
    under_way: list[Writer] = []
    for number in range(24):
        under_way.append(Writer(broker, f"{topics[0]}-{number}", chance))
        for writer in chance.sample(under_way, min(2, len(under_way))):
            writer.write(log, chance)
        while len(under_way) > (0 if number == 23 else chance.choice([1, 3])):
            under_way.pop(chance.randrange(len(under_way))).end(log)
    for place, held in log.items():
        log[place] = sorted(held, key=lambda item: item[0][0])
    return log


class Writer:
    """A producer with or without a transaction."""

    def __init__(self, broker: EmbeddedBroker, name: str, chance: random.Random) -> None:
        options: dict[str, Any] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": chance.choice(["none", "gzip", "snappy", "lz4", "zstd"]),
        }
        self._in_transaction = chance.random() < 0.7
        self._commits = not self._in_transaction or chance.random() < 0.5
        self._producer = Producer({**options, **({"transactional.id": name} if self._in_transaction else {})})
        self._written: list[tuple[tuple[str, int], Delivered]] = []
        if self._in_transaction:
            self._producer.init_transactions(30)
            self._producer.begin_transaction()

    def write(self, log: Log, chance: random.Random) -> None:
        topic, partition = chance.choice(list(log))
        for _ in range(chance.choice([1, 7, 150])):
            value, key, headers = record(chance)

            def delivered(
                error: object,
                message: Message,
                value: bytes | None = value,
                key: bytes | None = key,
                headers: Headers = headers,
            ) -> None:
                assert error is None
                self._written.append(((topic, partition), (int(message.offset() or 0), value, key, headers)))

            self._producer.produce(topic, value, key, headers=headers, partition=partition, on_delivery=delivered)  # type: ignore[arg-type]
        assert self._producer.flush(30) == 0

    def end(self, log: Log) -> None:
        if self._in_transaction:
            (self._producer.commit_transaction if self._commits else self._producer.abort_transaction)(30)
        for place, delivered in self._written:
            log[place].append((delivered, self._commits))


def record(chance: random.Random) -> tuple[bytes | None, bytes | None, Headers]:
    value = chance.choice([None, b"", b"\x00too large: 5", b"v" * 2001, json.dumps({"n": chance.random()}).encode()])
    key = chance.choice([None, b"", b"\xff", b"k" * 20, b"k" * 21])
    headers = [(chance.choice(["id", "other"]), chance.choice([None, b"", b"i", b"i" * 5000])) for _ in range(3)]
    return value, key, headers[: chance.randrange(4)]


def expected(delivered: Delivered, partition: int) -> dict[str, Any]:
    offset, value, key, headers = delivered
    if value is not None and len(value) > 2000:
        value = TOO_LARGE + b"2001"
    elif value is not None and value.startswith(TOO_LARGE):
        value = b""
    ids = [found for name, found in headers if name == "id"][-1:]
    return {
        "offset": offset,
        "partition": partition,
        "value": value,
        "key": key if key is not None and len(key) <= 20 else None,
        "key_size": None if key is None else len(key),
        "headers": [
            {
                "key": "id",
                "value": None if one is None or len(one) > 4096 else one,
                "size": None if one is None else len(one),
            }
            for one in ids
        ],
    }


@pytest.mark.parametrize("isolation", first_of(["read_committed", "read_uncommitted"]))
def test_every_visible_record_of_a_range_is_read_once(
    broker: EmbeddedBroker, isolation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads random ranges of several partitions with one consumer."""
    chance, topics = random.Random(isolation), [f"log-{next(NAMES)}" for _ in range(2)]
    log = written(broker, topics, chance)
    config = configured(broker, f"kafka.isolation_level={isolation}")
    reader, reading = reader_of(config), reading_of(config)
    ends = {(topic, number): offset_after(broker, topic, number) for topic, number in log}
    seen: Counter[str] = Counter()
    for _ in range(150):
        monkeypatch.setattr(kafka_reading, "_RECORDS_MAX", chance.choice([1, 100, 16_384]))
        topic, number = place = chance.choice(list(log))
        end = chance.choice([ends[place], chance.randrange(ends[place] + 1)])
        start = chance.choice([0, chance.randrange(end + 1), max(0, end - chance.randrange(4))])
        how = reading.with_low_memory() if chance.random() < 0.05 else reading
        found = read(how, reader, Range(0, topic, number, start, end)).to_pylist()
        assert all(one.pop("time_us") > 10**15 for one in found)
        shown = [delivered for delivered, commits in log[place] if commits or isolation == "read_uncommitted"]
        wanted = [expected(delivered, number) for delivered in shown if start <= delivered[0] < end]
        assert found == wanted, (place, start, end)
        seen["to a gap"] += end > start and (not wanted or wanted[-1]["offset"] < end - 1)
        seen["records"] += len(wanted)
    assert seen["to a gap"] > 20
    assert seen["records"] > 2_000


def offset_after(broker: EmbeddedBroker, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.close()
    assert isinstance(high, int)
    return high


@pytest.mark.full
def test_no_event_of_the_topic_shortens_a_range(broker: EmbeddedBroker) -> None:
    """While a range is read, records are deleted, the broker is killed, or the topic is recreated or deleted."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    def delete_records(topic: str) -> None:
        for future in admin.delete_records([TopicPartition(topic, 0, 9_000)]).values():
            future.result()

    def kill(topic: str) -> None:
        broker.kill()
        broker.restart()

    def recreate(topic: str) -> None:
        broker.delete_topic(topic)
        broker.create_topics({topic: 1})

    config = configured(broker)
    reader = reader_of(config)
    reading = replace(reading_of(config), memory_bytes=None, silence_seconds=20.0).with_low_memory()
    for happens, why in (
        (delete_records, "expired before they could be read"),
        (kill, None),
        (recreate, "UnknownTopicOrPartition|expired before they could be read|did not answer in time"),
    ):
        topic = f"log-{next(NAMES)}"
        broker.create_topics({topic: 1})
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 5, "log_level": 0})
        for _ in range(10_000):
            # More than a consumer fetches ahead.
            producer.produce(topic, random.randbytes(500).hex().encode(), partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        batches = reading.records(Range(0, topic, 0, 0, 10_000), reader.decoder)
        found: list[int] = next(batches)["offset"].to_pylist()
        assert len(found) < 9_000
        happens(topic)
        if why is None:
            found += [offset for batch in batches for offset in batch["offset"].to_pylist()]
            assert found == list(range(10_000))
        else:
            with pytest.raises(ReadFailed, match=why):
                list(batches)


def test_a_producer_timestamp_is_kept_or_out_of_range(broker: EmbeddedBroker) -> None:
    topic = f"log-{next(NAMES)}"
    any_time = {f"message.timestamp.{side}.max.ms": str(2**63 - 1) for side in ("before", "after")}
    broker.create_topics({topic: 1}, {"message.timestamp.type": "CreateTime", **any_time})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    stamps = [1, FARTHEST_US // 1000, FARTHEST_US // 1000 + 1, 2**62, 2**63 - 1]
    for stamp in stamps:
        producer.produce(topic, b"{}", partition=0, timestamp=stamp)
    assert producer.flush(30) == 0
    config = configured(broker)
    found = read(reading_of(config), reader_of(config), Range(0, topic, 0, 0, 5))["time_us"].to_pylist()
    assert found[:2] == [stamp * 1000 for stamp in stamps[:2]]
    assert all(time > FARTHEST_US for time in found[2:])


def test_a_range_ends_before_an_open_transaction(broker: EmbeddedBroker) -> None:
    topic = f"log-{next(NAMES)}"
    broker.create_topics({topic: 1})
    options = {"bootstrap.servers": broker.bootstrap_servers}
    plain, held = Producer(options), Producer({**options, "transactional.id": topic})
    for number in range(3):
        plain.produce(topic, str(number).encode(), partition=0)
    assert plain.flush(30) == 0
    held.init_transactions(30)
    held.begin_transaction()
    held.produce(topic, b"held", partition=0)
    held.flush(30)
    try:
        config = configured(broker)
        found = read(reading_of(config), reader_of(config), Range(0, topic, 0, 0, 3))
        assert found["value"].to_pylist() == [b"0", b"1", b"2"]
    finally:
        held.abort_transaction(30)


@pytest.mark.full
def test_an_expired_record_fails_its_range_and_the_next_one_is_read(broker: EmbeddedBroker) -> None:
    """Records that retention removed, offsets that never existed, and a topic that does not exist."""
    topic = f"log-{next(NAMES)}"
    broker.create_topics({topic: 1})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, str(number).encode(), partition=0)
    assert producer.flush(30) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result()
    config = configured(broker)
    reader, reading = reader_of(config), replace(reading_of(config), silence_seconds=8.0)
    lenient = replace(reading, may_miss=frozenset({topic, "no-such"}))
    for wanted, why in (
        (Range(0, topic, 0, 2, 10), "expired before they could be read"),
        (Range(0, topic, 0, 20, 30), "expired before they could be read"),
        (Range(0, "no-such", 0, 0, 1), "UnknownTopicOrPartition"),
        (Range(0, topic, 0, 8, 30), "did not answer in time"),
    ):
        with pytest.raises(ReadFailed, match=why):
            read(reading, reader, wanted)
        if "expired" in why or wanted.topic == "no-such":
            assert read(lenient, reader, wanted).num_rows == 0
        assert read(reading, reader, Range(0, topic, 0, 4, 10))["offset"].to_pylist() == list(range(4, 10))


def test_a_worker_keeps_one_consumer(broker: EmbeddedBroker) -> None:
    topic = f"log-{next(NAMES)}"
    broker.create_topics({topic: 2})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(20):
        producer.produce(topic, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0
    config = configured(broker)
    reader, reading = reader_of(config), reading_of(config)
    seen = set()
    for start in range(10):
        for partition in (0, 1):
            found = read(reading, reader, Range(0, topic, partition, start, start + 1))
            assert found["value"].to_pylist() == [str(2 * start + partition).encode()]
            seen |= {id(consumer) for consumer, _ in kafka_reading._consumers.values()}
    assert len(seen) == 1


@pytest.mark.full
def test_a_record_is_read_alone_by_a_busy_reader(broker: EmbeddedBroker) -> None:
    """A record is read although the records before and after it do not fit into the reader's memory. Neither the
    reader nor the process that requested the record ends."""
    topic = f"log-{next(NAMES)}"
    broker.create_topics({topic: 1})
    options = {"message.max.bytes": 500_000_000, "compression.type": "gzip", "queue.buffering.max.kbytes": 1_000_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **options})
    for value in (b"x" * 400_000_000, b"small", b"x" * 400_000_000):
        producer.produce(topic, value, partition=0)
        assert producer.flush(120) == 0
    config = configured(broker)
    reading = replace(reading_of(config).with_low_memory(isolated=True), memory_bytes=WORKER_BYTES_MIN)
    decoder = reader_of(config).decoder
    found = list(bounded(120, offsets_and_values, reading, decoder, Range(0, topic, 0, 1, 2)))
    assert found == [[1], [b"small"]]
    for neighbour in (0, 2):
        with pytest.raises(Ended) as ended:
            list(bounded(120, offsets_and_values, reading, decoder, Range(0, topic, 0, neighbour, neighbour + 1)))
        assert ended.value.by_memory
