"""Facts: rows per (batch, topic, partition, cell), additive over batches, and over the tasks that read a batch.

The facts table is the only truth (SEMANTICS section 7): verdicts, violations and totals are derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
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
    """Kinds of rows of the facts table."""

    FACT = "fact"
    """Records of one partition that fell into one cell (or did not decode) in one batch."""
    FRONTIER = "frontier"
    """The frontier of one partition, and the offsets that its broker returned at the batch's instant."""
    MARK = "mark"
    """A decision that a replay must repeat, such as a retirement or the end of a run with `--once`. docs/state.md lists
    the marks."""


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
        StructField("cleanup_policy", StringType()),
        StructField("compacted_below", LongType()),
        StructField("compacted", LongType()),
        StructField("markers", LongType()),
        StructField("watermark_us", LongType()),
    ]
)
"""The frontier of one partition. Offsets and read-through times are those after the batch. Counts, times of
records and ``watermark_us`` (the input watermark) are those before it: the batch's part follows from its fact rows.

``first_offset``: where reading began. ``expired``: offsets that expired before they were read. ``records``: records
read since ``first_offset``. ``hidden_start``: events before ``first_offset`` exist or existed. ``gone_us``:
`Frontier.unread_since_us` of `validator.model.frontier`, which describes the other fields."""

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
        StructField(
            "stretches",
            ArrayType(
                StructType(
                    [
                        StructField("first", LongType()),
                        StructField("last", LongType()),
                        StructField("records", LongType()),
                    ]
                )
            ),
        ),
        StructField("earliest_us", LongType()),
        StructField("latest_us", LongType()),
    ]
)
"""The columns of the facts table; docs/state.md describes each. ``epoch`` partitions the table."""


FACTS_SCHEMA: Final[pa.Schema] = to_arrow_schema(FACTS_TYPE)
"""`FACTS_TYPE` for Arrow."""


_ADDED: Final = ("kind", "batch", "lookup_us", "side", "topic", "frontier", "mark", "epoch")

GROUPED: Final = pa.schema([("source", pa.int32()), *(field for field in FACTS_SCHEMA if field.name not in _ADDED)])
"""Fact rows as a Spark task returns them (`validator.reconcile.grouping`), without the columns that are the same in all
rows of a batch or of a source. ``source``: index of the configured topic."""


def completed(
    grouped: pa.Table, sources: Sequence[tuple[Side, str]], *, batch: int, lookup_us: int, epoch: int
) -> pa.Table:
    """Return rows of `GROUPED` as facts. ``sources[i]``: side and topic of source i."""
    size = grouped.num_rows
    source = grouped["source"]
    constant = {"kind": Kind.FACT.value, "batch": batch, "lookup_us": lookup_us, "epoch": epoch}
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        **{name: grouped[name] for name in grouped.column_names if name in FACTS_SCHEMA.names},
        **{name: pa.repeat(pa.scalar(value), size) for name, value in constant.items()},
        "side": pa.array([side.value for side, _ in sources]).take(source),
        "topic": pa.array([topic for _, topic in sources]).take(source),
        "frontier": pa.nulls(size, FACTS_SCHEMA.field("frontier").type),
        "mark": pa.nulls(size, pa.string()),
    }
    return pa.table([columns[field.name].cast(field.type) for field in FACTS_SCHEMA], schema=FACTS_SCHEMA)
