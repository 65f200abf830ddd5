"""What a worker with little memory reads in isolation, for a process of its own (`validator.stream.bounded`)."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Message

from validator.codecs.one_record import RecordDecoder
from validator.stream.kafka_reading import Range, Reading


def offsets_and_values(reading: Reading, decoder: RecordDecoder, wanted: Range) -> Iterator[list[object]]:
    """Yield the offsets of ``wanted`` and then its values. The process survives what follows the range."""
    yield list(reading.each(Message.offset, [wanted]))
    yield [value for batch in reading.records(wanted, decoder) for value in batch["value"].to_pylist()]
    # Meanwhile a consumer of this process would fetch what follows, and end it.
    time.sleep(3)
