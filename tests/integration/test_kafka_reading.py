"""Ranges of offsets as the workers read them from a real broker: every visible record once, in order, and cut to the
limits; where records are gone, the range fails."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from testbed.broker import EmbeddedBroker
from validator.codecs.one_record import TOO_LARGE
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Config
from validator.stream import kafka_reading
from validator.stream.decode import Reader
from validator.stream.kafka_reading import Range, ReadFailed, Reading
from validator.stream.sources import readers_of, reading_of, sources_of

pytestmark = pytest.mark.timeout(300)
NAMES = itertools.count()
Told = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


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
    """All records of a range; the worker of a test is this process."""
    batches = list(replace(reading, memory_bytes=None).records(wanted, reader.decoder))
    return pa.Table.from_batches(batches) if batches else pa.table({"offset": pa.array([], pa.int64())})


def written(broker: EmbeddedBroker, topic: str, chance: random.Random) -> list[Told]:
    """A log with transactions that were committed and aborted, in every compression; what of it is visible."""
    broker.create_topics({topic: 1})
    visible: list[Told] = []
    at = 0
    for number in range(12):
        codec = chance.choice(["none", "gzip", "snappy", "lz4", "zstd"])
        transactional = chance.random() < 0.6
        options: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec}
        producer = Producer({**options, **({"transactional.id": f"{topic}-{number}"} if transactional else {})})
        if transactional:
            producer.init_transactions(30)
            producer.begin_transaction()
        batch: list[Told] = []
        for _ in range(chance.choice([0, 1, 7, 300])):
            one = record(chance, at + len(batch))
            batch.append(one)
            _, value, key, headers = one
            producer.produce(topic, value, key, headers=headers, partition=0)  # type: ignore[arg-type]
        aborted = transactional and chance.random() < 0.5
        if transactional:
            producer.flush(30)
            producer.abort_transaction(30) if aborted else producer.commit_transaction(30)
        assert producer.flush(30) == 0
        at += len(batch) + (1 if transactional and batch else 0)
        visible += [] if aborted else batch
    return visible


def record(chance: random.Random, offset: int) -> Told:
    value = chance.choice([None, b"", b"\x00too large: 5", b"v" * 2001, json.dumps({"n": offset}).encode()])
    key = chance.choice([None, b"", b"\xff", b"k" * 20, b"k" * 21])
    headers = [(chance.choice(["id", "other"]), chance.choice([None, b"", b"i", b"i" * 5000])) for _ in range(3)]
    return offset, value, key, headers[: chance.randrange(4)]


def expected(told: Told) -> dict[str, Any]:
    offset, value, key, headers = told
    if value is not None and len(value) > 2000:
        value = TOO_LARGE + b"2001"
    elif value is not None and value.startswith(TOO_LARGE):
        value = b""
    ids = [found for name, found in headers if name == "id"][-1:]
    return {
        "offset": offset,
        "partition": 0,
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


@pytest.mark.parametrize("seed", range(3))
def test_every_visible_record_of_a_range_is_read_once(
    broker: EmbeddedBroker, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, topic = random.Random(seed), f"log-{next(NAMES)}"
    monkeypatch.setattr(kafka_reading, "_RECORDS_AT_MOST", chance.choice([1, 100, 16_384]))
    visible = written(broker, topic, chance)
    assert len({told[1] for told in visible}) > 4
    config = configured(broker)
    reader, reading = reader_of(config), reading_of(config)
    end = offset_after(broker, topic)
    cuts = sorted({0, end, *(chance.randrange(end + 1) for _ in range(6))})
    found: list[dict[str, Any]] = []
    for sparing in (False, True):
        how = reading.spared() if sparing else reading
        parts = [read(how, reader, Range(0, topic, 0, *cut)) for cut in itertools.pairwise(cuts)]
        found = pa.concat_tables([part for part in parts if part.num_rows]).to_pylist()
        assert all(one.pop("time_us") > 10**15 for one in found)
        assert found == [expected(told) for told in visible]


def offset_after(broker: EmbeddedBroker, topic: str) -> int:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "ends"})
    _, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.close()
    assert isinstance(high, int)
    return high


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


def test_what_is_gone_fails_the_range_and_the_next_one_is_read(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that retention took, offsets that never were, and a topic that does not exist."""
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
    reader, reading = reader_of(config), reading_of(config)
    lenient = replace(reading, may_miss=frozenset({topic, "no-such"}))
    monkeypatch.setattr(kafka_reading, "_SILENCE_SECONDS", 8.0)
    for wanted, why in (
        (Range(0, topic, 0, 2, 10), "gone before they could be read"),
        (Range(0, topic, 0, 20, 30), "gone before they could be read"),
        (Range(0, "no-such", 0, 0, 1), "UnknownTopicOrPartition"),
        (Range(0, topic, 0, 8, 30), "did not answer in time"),
    ):
        with pytest.raises(ReadFailed, match=why):
            read(reading, reader, wanted)
        if "gone" in why or wanted.topic == "no-such":
            assert read(lenient, reader, wanted).num_rows == 0
        assert read(reading, reader, Range(0, topic, 0, 4, 10))["offset"].to_pylist() == list(range(4, 10))


def test_a_worker_goes_on_with_one_consumer(broker: EmbeddedBroker) -> None:
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
