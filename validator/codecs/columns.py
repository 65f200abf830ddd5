"""The columns that every decoded frame has, whatever the topic's format and role.

A decoded frame has one row per Kafka record; a record that does not decode is a row too (``status`` tells).
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

RESULT_TYPE: Final = StructType(
    [
        StructField("offset", LongType()),
        StructField("time_us", LongType()),
        StructField("ids", ArrayType(LongType())),
        StructField("text_ids", ArrayType(StringType())),
    ]
)
"""One record of an output topic: its offset, broker time, and the ids that it claims (integers and texts apart)."""

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
    ]
)
"""``source``: index of the configured topic. ``reach_us`` (inputs): the largest window end that the event proves past,
its event time less disorder and allowed lateness, rounded down to a window boundary. An event carries ``id`` or
``text_id``; a result carries ``result``. ``contributions``, ``hash_a``, ``hash_b``: its fingerprint."""
