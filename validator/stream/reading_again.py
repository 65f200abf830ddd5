"""Reads a small range of offsets a second time in a Spark worker, with a loop over messages and a consumer of its own
(SEMANTICS 5.2). Only the client library, the size limits and the decoder are those of the first reading.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from validator.codecs.one_record import RecordDecoder
from validator.stream.kafka_reading import Columns, Range, ReadFailed, Reading

_BYTES_MAX: Final = 16 * 2**20
"""Bytes of messages that a second reading holds. If a range has more, it is not done, and the next one is smaller."""
_SECONDS: Final = 5.0
"""Time of a second reading: the next batch waits for it."""
_POLL_SECONDS: Final = 0.1


def records_again(reading: Reading, wanted: Range, decoder: RecordDecoder) -> Iterator[pa.RecordBatch]:
    """The visible records of a range, as `Reading.records` gives them, read by a new consumer in a loop of its own.

    Raises `ReadFailed` if the range cannot be read as a whole within `_SECONDS`, or if records of it may have expired.
    """
    messages = _messages_again(reading, wanted)
    if messages:
        columns = Columns(wanted.partition, decoder)
        columns.add(messages, np.array([message.offset() for message in messages], dtype=np.int64))
        yield columns.batch()


def _messages_again(reading: Reading, wanted: Range) -> list[Message]:
    found: list[Message] = []
    partition = TopicPartition(wanted.topic, wanted.partition, wanted.start)
    ours = {
        "group.id": "streamproof",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.message.max.bytes": 2**20,
        "queued.max.messages.kbytes": 4 * 1024,
        "receive.message.max.bytes": 2**31 - 1,
        "log_level": 0,
    }
    consumer = Consumer({**reading.options, **ours})
    try:
        consumer.assign([partition])
        deadline, size = time.monotonic() + _SECONDS, 0
        reached = wanted.start
        while reached < wanted.end:
            message = consumer.poll(_POLL_SECONDS)
            if time.monotonic() > deadline:
                raise ReadFailed(f"a second reading did not end within {_SECONDS:g} s")
            if message is None or (message.topic(), message.partition()) != (wanted.topic, wanted.partition):
                # No message, or an error of the group (its permissions are not needed) or of a connection.
                continue
            error, offset = message.error(), int(message.offset() or 0)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                raise ReadFailed(f"a second reading failed: {error.str()}")
            if offset >= wanted.end:
                # The next record, or the end of the log: nothing of the range is left.
                break
            if error is None:
                found.append(message)
                reached = offset + 1
                size += len(message)
                if size > _BYTES_MAX:
                    raise ReadFailed(f"a second reading would hold more than {_BYTES_MAX:,} bytes")
        # Retention may have removed records of the range meanwhile.
        start, _ = consumer.get_watermark_offsets(partition, timeout=_SECONDS, cached=False)
        if start > wanted.start:
            raise ReadFailed("records expired before a second reading")
    except KafkaException as error:
        raise ReadFailed(f"a second reading failed: {error.args[0].str()}") from error
    finally:
        with suppress(KafkaException):
            consumer.close()
    return found
