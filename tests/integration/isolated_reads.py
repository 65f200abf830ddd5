"""Reads a range as a worker with little memory does: in a process of its own (`validator.stream.bounded`)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Message

from validator.codecs.one_record import RecordDecoder
from validator.stream.kafka_reading import Range, Reading


def offsets_and_values(reading: Reading, decoder: RecordDecoder, wanted: Range) -> Iterator[list[object]]:
    """Yield the offsets of ``wanted`` and then its values. A huge record after the range does not end the process."""
    yield list(reading.each(Message.offset, [wanted]))
    yield [value for batch in reading.records(wanted, decoder) for value in batch["value"].to_pylist()]
    # Meanwhile an open consumer would fetch the next record, which does not fit into this process's memory.
    time.sleep(3)
