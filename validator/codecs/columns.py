"""The columns that every decoded frame has, whatever the topic's format and role.

A decoded frame has one row per Kafka record, or per run of records; a record that does not decode is a row too
(``status`` tells).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import ArrayType, IntegerType, LongType, StringType, StructField, StructType

DECODED: Final = 0
"""``status`` of a record that decoded."""
UNDECODABLE: Final = 1
"""``status`` of a record that did not; it has no cell and no ids."""
TOMBSTONE: Final = 2
"""``status`` of a null value on an output topic that is not cumulative: counted and ignored."""
REACH: Final = 3
"""``status`` of a fact row without records, which keeps the reach of events whose facts were retired."""

UNEXAMINED: Final = 4
"""``status`` of a record of an output topic that was not examined: it is larger than the limits, or does not fit
into memory. What it holds is not known, as of a record that was gone before it was read."""
KNOWN: Final = 5
"""``status`` of a fact row without records, which keeps ids of input events whose cell was retired, as long as results
of another cell carry them."""

RESULT_TYPE: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("time_us", LongType()),
        StructField("ids", ArrayType(LongType())),
        StructField("text_ids", ArrayType(StringType())),
    ]
)
"""One record of an output topic: its offset, broker time, and the ids that it claims (integers and texts apart)."""

RUN_TYPE: Final = StructType(
    [
        StructField("records", LongType()),
        StructField("window_start_us", LongType()),
        StructField("key", StringType()),
        StructField("reach_us", LongType()),
        StructField("event_time_us", LongType()),
        StructField("first_event_time_us", LongType()),
        StructField("last_offset", LongType()),
        StructField("last_time_us", LongType()),
        StructField("min_id", LongType()),
        StructField("max_id", LongType()),
        StructField("hash_a", LongType()),
        StructField("hash_b", LongType()),
        StructField("ids", ArrayType(LongType())),
        StructField("offsets", ArrayType(LongType())),
    ]
)
"""Events of one partition, window, key and reach, grouped where they were read (`validator.codecs.plain_events`).
``event_time_us`` is the largest, ``first_event_time_us`` that of the smallest offset; the hashes are sums; ``ids`` and
``offsets`` agree item by item."""

DECODED_TYPE: Final = StructType(
    [
        StructField("source", IntegerType()),
        StructField("status", IntegerType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("time_us", LongType()),
        StructField("event_time_us", LongType()),
        StructField("window_start_us", LongType()),
        StructField("key", StringType()),
        StructField("reach_us", LongType()),
        StructField("id", LongType()),
        StructField("text_id", StringType()),
        StructField("result", RESULT_TYPE),
        StructField("contributions", LongType()),
        StructField("hash_a", LongType()),
        StructField("hash_b", LongType()),
        StructField("run", RUN_TYPE),
    ]
)
"""``source``: index of the configured topic. ``reach_us`` (inputs): the largest window end that the event proves past,
its event time less disorder and allowed lateness, rounded down to a window boundary. An event carries ``id`` or
``text_id``; a result carries ``result``. ``contributions``, ``hash_a``, ``hash_b``: its fingerprint, of a result
without the hashes of its integers. A row with a ``run`` is that run: the smallest offset and broker time, the largest
event time, no id of its own."""
