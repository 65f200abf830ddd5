"""Decoded rows to facts: one row per (batch, topic, partition, cell), additive over batches.

The facts table is the only truth (SEMANTICS section 7): everything else in a state folder is derived from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from validator.codecs.columns import RESULT_TYPE


class Side(StrEnum):
    """Which part of the comparison a fact belongs to."""

    INPUT = "input"
    OUTPUT = "output"
    LATE = "late"
    REJECTED = "rejected"


class Kind(StrEnum):
    """What a row of the facts table is."""

    FACT = "fact"
    """Records of one partition that fell into one cell (or did not decode) in one batch."""
    FRONTIER = "frontier"
    """How far one partition was read, and what its broker said at the batch's instant."""
    MARK = "mark"
    """A decision that a replay must repeat: `rest` (every cell known by then is closed), `retired` (totals of
    what retention dropped)."""


FRONTIER_TYPE: Final = StructType(
    [
        StructField("topic_id", StringType()),
        StructField("first_offset", LongType()),
        StructField("next_offset", LongType()),
        StructField("log_start_offset", LongType()),
        StructField("high_watermark", LongType()),
        StructField("last_stable_offset", LongType()),
        StructField("committed_offset", LongType()),
        StructField("expired", LongType()),
        StructField("records", LongType()),
        StructField("undecodable", LongType()),
        StructField("tombstones", LongType()),
        StructField("first_time_us", LongType()),
        StructField("last_time_us", LongType()),
        StructField("hidden_start", BooleanType()),
        StructField("horizon_us", LongType()),
        StructField("read_through_us", LongType()),
        StructField("last_data_us", LongType()),
        StructField("newest_event_time_us", LongType()),
        StructField("gone_us", LongType()),
        StructField("appended_after_us", LongType()),
        StructField("unprovable_below", LongType()),
        StructField("read_through_before_us", LongType()),
        StructField("watermark_us", LongType()),
    ]
)
"""Offsets of one partition. ``first_offset``: where reading began; ``expired``: offsets that were gone before they
could
be read; ``records``: records read since ``first_offset``, up to the batch before; ``hidden_start``: events before
``first_offset`` exist or existed; ``read_through_us``, ``last_data_us``, ``newest_event_time_us``: as known when the
batch began (what the batch adds follows from its fact rows); ``gone_us``, ``appended_after_us``,
``unprovable_below``: see
`validator.model.frontier.Frontier`;
``watermark_us``: the input watermark when the batch began."""

FACTS_TYPE: Final = StructType(
    [
        StructField("kind", StringType()),
        StructField("batch", LongType()),
        StructField("lookup_us", LongType()),
        StructField("side", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("status", IntegerType()),
        StructField("window_start_us", LongType()),
        StructField("key", StringType()),
        StructField("reach_us", LongType()),
        StructField("records", LongType()),
        StructField("contributions", LongType()),
        StructField("hash_a", LongType()),
        StructField("hash_b", LongType()),
        StructField("first_offset", LongType()),
        StructField("last_offset", LongType()),
        StructField("first_time_us", LongType()),
        StructField("last_time_us", LongType()),
        StructField("newest_event_time_us", LongType()),
        StructField("first_event_time_us", LongType()),
        StructField("min_id", LongType()),
        StructField("max_id", LongType()),
        StructField("ids", ArrayType(StructType([StructField("id", LongType()), StructField("offset", LongType())]))),
        StructField(
            "text_ids", ArrayType(StructType([StructField("id", StringType()), StructField("offset", LongType())]))
        ),
        StructField("results", ArrayType(RESULT_TYPE)),
        StructField("frontier", FRONTIER_TYPE),
        StructField("mark", StringType()),
        StructField("epoch", LongType()),
    ]
)
"""The facts table, column by column; docs/state.md says each in words. ``epoch`` partitions it."""


def null_of(name: str) -> Column:
    """A null of the facts column ``name``."""
    return F.lit(None).cast(_TYPES[name]).alias(name)


_TYPES: Final[dict[str, DataType]] = {field.name: field.dataType for field in FACTS_TYPE.fields}


def aggregate(
    decoded: DataFrame,
    sources: list[tuple[Side, str]],
    *,
    batch: int,
    lookup_us: int,
    epoch: int,
    max_ahead_us: int,
    with_first_event: bool,
) -> DataFrame:
    """Facts of one batch, in the shape of `FACTS_TYPE`.

    ``sources[i]`` is the side and topic of source index i. Events later than ``lookup_us + max_ahead_us`` do not count
    toward ``newest_event_time_us`` and ``reach_us``: a clock gone mad must not close every cell.
    ``with_first_event`` also keeps the event time at the first offset, which the horizon needs once per partition.
    """
    sane = F.col("event_time_us") <= F.lit(lookup_us + max_ahead_us)
    rows = decoded.withColumn("reach_us", F.when(sane, F.col("reach_us")))
    first_event = (
        F.min_by("event_time_us", "offset") if with_first_event else F.max(F.lit(None).cast("bigint"))
    ).alias("first_event_time_us")
    grouped = rows.groupBy("source", "partition", "status", "window_start_us", "key", "reach_us").agg(
        F.count(F.lit(1)).alias("records"),
        F.sum("contributions").alias("contributions"),
        F.sum("hash_a").alias("hash_a"),
        F.sum("hash_b").alias("hash_b"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.min("time_us").alias("first_time_us"),
        F.max("time_us").alias("last_time_us"),
        F.max(F.when(sane, F.col("event_time_us"))).alias("newest_event_time_us"),
        first_event,
        F.min("id").alias("min_id"),
        F.max("id").alias("max_id"),
        # Two lists of numbers, zipped afterwards, cost the whole batch a tenth less than one list of structs. Their
        # orders agree, since a row enters both or none.
        F.collect_list("id").alias("id_list"),
        F.collect_list(F.when(F.col("id").isNotNull(), F.col("offset"))).alias("offset_list"),
        F.collect_list(F.when(F.col("text_id").isNotNull(), F.struct(F.col("text_id").alias("id"), "offset"))).alias(
            "text_ids"
        ),
        F.collect_list("result").alias("results"),
    )
    side = F.element_at(F.array(*[F.lit(side.value) for side, _ in sources]), F.col("source") + 1)
    topic = F.element_at(F.array(*[F.lit(topic) for _, topic in sources]), F.col("source") + 1)
    known = {
        "kind": F.lit(Kind.FACT.value),
        "batch": F.lit(batch).cast("bigint"),
        "lookup_us": F.lit(lookup_us).cast("bigint"),
        "side": side,
        "topic": topic,
        "epoch": F.lit(epoch).cast("bigint"),
        "ids": F.arrays_zip(F.col("id_list").alias("id"), F.col("offset_list").alias("offset")),
        "frontier": null_of("frontier"),
        "mark": null_of("mark"),
    }
    return grouped.select(*[known.get(name, F.col(name)).cast(_TYPES[name]).alias(name) for name in _TYPES])
