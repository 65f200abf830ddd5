"""A range is read completely or fails, whatever events librdkafka delivers between its records."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.stream import kafka_reading
from validator.stream.kafka_reading import ConsumerMessages, Range, ReadFailed, _until_end
from validator.stream.sources import reading_of

HISTORIES: Final = 3_000
SKIPPED: Final = (
    KafkaError._BAD_MSG,
    KafkaError._BAD_COMPRESSION,
    KafkaError._NOT_IMPLEMENTED,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.UNKNOWN,
    KafkaError._AUTO_OFFSET_RESET,
)
"""Partition errors. After one of them, librdkafka skips the batch of records that it could not read."""


class Deliveries:
    """A consumer that delivers ``events``, a few at a time. Time passes only when none are left."""

    def __init__(self, events: list[Message], chance: random.Random) -> None:
        self._events, self._chance = events, chance
        self.seconds = 0.0

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Ignored: the events are delivered whatever is assigned."""

    def unassign(self) -> None:
        """Ignored: no event is lost."""

    def consume(self, most: int, timeout: float) -> list[Message]:
        """The next events."""
        self.seconds += not self._events
        count = min(most, self._chance.choice([0, 1, 1, 2, 5, 1_000]))
        taken, self._events = self._events[:count], self._events[count:]
        return taken


def one(offset: int, topic: str = "t", partition: int = 0) -> Message:
    return Message(topic=topic, partition=partition, offset=offset, value=b"v")


def event(code: int, offset: int = -1001, topic: str | None = "t", partition: int = 0) -> Message:
    where = {} if topic is None else {"topic": topic, "partition": partition, "offset": offset}
    return Message(error=KafkaError(code, "said"), **where)  # type: ignore[arg-type]


def history(chance: random.Random, visible: list[int], end_of_log: int, start: int) -> tuple[list[Message], str | None]:
    """Events of a log read from ``start``, and the kind of disturbance among them, if any."""
    events = [one(offset) for offset in visible if offset >= start] + [event(KafkaError._PARTITION_EOF, end_of_log)]
    at = chance.randrange(len(events))
    kind = chance.choice(
        [None, "other", "group", "early end", "skipped", "stale end", "stale", "repeated", "backwards"]
    )
    offset = int(events[at].offset() or 0)
    if kind == "other":
        events.insert(at, event(chance.choice(SKIPPED), offset, *chance.choice([("u", 0), ("t", 1)])))
    elif kind == "group":
        events.insert(at, event(KafkaError.GROUP_AUTHORIZATION_FAILED, topic=None))
    elif kind == "early end":
        events.insert(at, event(KafkaError._PARTITION_EOF, offset))
    elif kind == "skipped":
        events[at : at + chance.choice([1, 3])] = [event(chance.choice(SKIPPED), offset)]
    elif kind == "stale end":
        events.insert(at, event(KafkaError._PARTITION_EOF, 10_000, *chance.choice([("u", 0), ("t", 1)])))
    elif kind == "stale":
        topic, partition = chance.choice([("u", 0), ("t", 1)])
        events[:0] = [one(offset + number, topic, partition) for number in range(chance.choice([1, 3]))]
    elif kind == "repeated" and at < len(events) - 1:
        events.insert(at, events[at])
    elif kind == "backwards" and start:
        events.insert(at, one(chance.randrange(start)))
    return events, kind


def test_a_range_is_read_whole_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_reading, "_MESSAGES_AT_ONCE", 7)
    outcomes = Counter[tuple[str | None, bool]]()
    for seed in range(HISTORIES):
        chance = random.Random(seed)
        end_of_log = chance.randrange(1, 30)
        visible = sorted(chance.sample(range(end_of_log), chance.randrange(end_of_log + 1)))
        end = chance.choice([end_of_log, chance.randrange(1, end_of_log + 1)])
        wanted = Range(0, "t", 0, chance.randrange(end), end)
        events, kind = history(chance, visible, end_of_log, wanted.start)
        deliveries = Deliveries(events, chance)
        monkeypatch.setattr(kafka_reading, "time", SimpleNamespace(monotonic=lambda said=deliveries: said.seconds))
        found: list[int] = []
        try:
            reads = _until_end(
                cast("Consumer", deliveries), ConsumerMessages(), wanted, 2.0, low_memory=chance.random() < 0.2
            )
            for messages, offsets in reads:
                assert [message.offset() for message in messages] == offsets.tolist()
                assert {(message.topic(), message.partition()) for message in messages} <= {("t", 0)}
                found += offsets.tolist()
        except (ReadFailed, MemoryError):
            outcomes[kind, False] += 1
            assert kind in ("skipped", "stale", "repeated", "backwards"), (seed, kind)
            continue
        outcomes[kind, True] += 1
        assert found == [offset for offset in visible if wanted.start <= offset < wanted.end], (seed, kind)
    # Events after the end of the range are not read.
    assert all(outcomes[kind, False] > 50 for kind in ("skipped", "stale", "repeated", "backwards")), outcomes


@pytest.mark.parametrize("given", [{}, {"client.id": "mine"}])
def test_clients_have_the_client_id_of_the_configuration(given: dict[str, str]) -> None:
    config = loads(EXAMPLES["clickstream"], Path("/etc"), (), {})
    config = config.model_copy(update={"kafka": config.kafka.model_copy(update={"options": given})})
    assert reading_of(config)._client_options(alone=False)["client.id"] == given.get("client.id", "streamproof")


def test_repeated_client_errors_do_not_delay_the_timeout_of_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    said = event(KafkaError.GROUP_AUTHORIZATION_FAILED, topic=None)
    deliveries = Deliveries([], random.Random(1))
    monkeypatch.setattr(kafka_reading, "time", SimpleNamespace(monotonic=lambda: deliveries.seconds))

    def consume(most: int, timeout: float) -> list[Message]:
        deliveries.seconds += 1
        assert deliveries.seconds < 20, "the range waits without an end"
        return [said]

    monkeypatch.setattr(deliveries, "consume", consume)
    with pytest.raises(ReadFailed, match=r"in time: .* t-0 from offset 3"):
        list(
            _until_end(cast("Consumer", deliveries), ConsumerMessages(), Range(0, "t", 0, 3, 9), 5.0, low_memory=False)
        )


@pytest.mark.parametrize("advances", [True, False])
def test_a_range_of_aborted_transactions_may_take_longer_than_the_timeout(
    advances: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka omits their records and returns no message meanwhile. Only its statistics show that it advances."""
    deliveries, client_messages = Deliveries([], random.Random(1)), ConsumerMessages()
    monkeypatch.setattr(kafka_reading, "time", SimpleNamespace(monotonic=lambda: deliveries.seconds))

    def consume(most: int, timeout: float) -> list[Message]:
        deliveries.seconds += 1
        if deliveries.seconds == 60:
            return [event(KafkaError._PARTITION_EOF, 900)]
        next_offset = 3 + 10 * int(deliveries.seconds) if advances else 13
        partitions = {"-1": {"next_offset": -1001}, "0": {"next_offset": next_offset}, "1": {"next_offset": 10**6}}
        client_messages.statistics(json.dumps({"topics": {"t": {"partitions": partitions}}}))
        return []

    monkeypatch.setattr(deliveries, "consume", consume)
    reads = _until_end(cast("Consumer", deliveries), client_messages, Range(0, "t", 0, 3, 900), 5.0, low_memory=False)
    if advances:
        assert list(reads) == []
    else:
        with pytest.raises(ReadFailed, match="in time"):
            list(reads)
