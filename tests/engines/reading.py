"""Reads the current content of a topic with read_committed, also while producers write to it."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

_METADATA_SECONDS_MAX: Final = 30
_READ_SECONDS_MAX: Final = 120.0


def consumer(bootstrap_servers: str, group: str = "offline-count") -> Consumer:
    """Return a read_committed consumer that commits nothing and reports the end of a partition."""
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )


def messages(bootstrap_servers: str, topic: str) -> list[Message]:
    """Return the records of ``topic`` up to its ends at the time of the call. Records appended later are left out."""
    reader = consumer(bootstrap_servers)
    try:
        ends = _ends(reader, topic)
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
        found: list[Message] = []
        unread = set(ends)
        deadline = time.monotonic() + _READ_SECONDS_MAX
        while unread:
            assert time.monotonic() < deadline, f"partitions {sorted(unread)} of {topic} were not read to their ends"
            for message in reader.consume(1000, 0.2):
                partition, offset = message.partition() or 0, message.offset() or 0
                error = message.error()
                if error is not None:
                    # librdkafka reports the end only after an empty fetch: never for a single partition under constant
                    # writes.
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard(partition)
                    continue
                if offset < ends[partition]:
                    found.append(message)
                # The last offset may be an invisible transaction marker. Then the next record shows that the end is
                # passed.
                if offset + 1 >= ends[partition]:
                    unread.discard(partition)
        return found
    finally:
        reader.close()


def _ends(reader: Consumer, topic: str) -> dict[int, int]:
    """Return partition -> its end, without empty partitions."""
    ends = {}
    for partition in reader.list_topics(topic, timeout=_METADATA_SECONDS_MAX).topics[topic].partitions:
        found = reader.get_watermark_offsets(TopicPartition(topic, partition), _METADATA_SECONDS_MAX)
        assert found is not None, f"the broker does not tell the end of {topic}-{partition}"
        low, high = found
        if high > low:
            ends[partition] = high
    return ends
