"""Decoded rows to facts: one row per (batch, topic, partition, cell), additive over batches.

The facts table is the only truth (SEMANTICS section 7): everything else in a state folder is derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
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

from validator.codecs.columns import RESULT_TYPE, UNDECODABLE
from validator.codecs.fingerprints import hash_a, hash_b
from validator.reconcile.arrays import Ints, ints


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
        StructField("cleanup_policy", StringType()),
        StructField("compacted_below", LongType()),
        StructField("compacted", LongType()),
        StructField("markers", LongType()),
        StructField("watermark_us", LongType()),
    ]
)
"""Offsets of one partition. ``first_offset``: where reading began; ``expired``: offsets that were gone before they
could
be read; ``records``: records read since ``first_offset``, up to the batch before; ``hidden_start``: events before
``first_offset`` exist or existed; ``read_through_us``, ``last_data_us``, ``newest_event_time_us``: as known when the
batch began (what the batch adds follows from its fact rows); ``gone_us``, ``appended_after_us``,
``unprovable_below``, ``cleanup_policy``, ``compacted_below``, ``compacted``, ``markers``: see
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
    ]
)
"""The facts table, column by column; docs/state.md says each in words. ``epoch`` partitions it."""


FACTS_SCHEMA: Final[pa.Schema] = to_arrow_schema(FACTS_TYPE)
"""`FACTS_TYPE` for Arrow."""


def aggregate(
    decoded: DataFrame, sources: int, *, lookup_us: int, max_ahead_us: int, with_first_event: bool
) -> DataFrame:
    """Facts of one batch but for what is the same in all of its rows, which `completed` adds.

    ``sources``: how many there are. Events later than ``lookup_us + max_ahead_us`` do not count toward
    ``newest_event_time_us`` and ``reach_us``: a clock gone mad must not close every cell.
    ``with_first_event`` also keeps the event time at the first offset, which the horizon needs once per partition.
    """
    # A number in the plan is a constant in the code that Spark makes of it: another one in each batch is compiled
    # and run cold in each batch. An element of a list is data.
    limit = F.array(*[F.lit(lookup_us + max_ahead_us)] * sources)[F.col("source")]
    sane = F.col("event_time_us") <= limit
    rows = decoded.withColumn("reach_us", F.when(sane, F.col("reach_us")))
    run = F.col("run")
    first_event = (
        F.min_by(F.coalesce(run["first_event_time_us"], "event_time_us"), "offset")
        if with_first_event
        else F.max(F.lit(None).cast("bigint"))
    ).alias("first_event_time_us")
    return rows.groupBy("source", "partition", "status", "window_start_us", "key", "reach_us").agg(
        F.sum(F.coalesce(run["records"], F.lit(1))).alias("records"),
        F.sum("contributions").alias("contributions"),
        F.sum("hash_a").alias("hash_a"),
        F.sum("hash_b").alias("hash_b"),
        F.min("offset").alias("first_offset"),
        F.max(F.coalesce(run["last_offset"], "offset")).alias("last_offset"),
        F.min("time_us").alias("first_time_us"),
        F.max(F.coalesce(run["last_time_us"], "time_us")).alias("last_time_us"),
        F.max(F.when(sane, F.col("event_time_us"))).alias("newest_event_time_us"),
        first_event,
        F.min(F.coalesce(run["min_id"], "id")).alias("min_id"),
        F.max(F.coalesce(run["max_id"], "id")).alias("max_id"),
        # Two lists of numbers, zipped afterwards, cost the whole batch a tenth less than one list of structs. Their
        # orders agree, since a row enters both or none.
        F.collect_list("id").alias("id_list"),
        # Those of records that did not decode have no id beside them: `completed` takes them out.
        F.collect_list(
            F.when(F.col("id").isNotNull() | (F.col("status") == F.lit(UNDECODABLE)), F.col("offset"))
        ).alias("offset_list"),
        F.collect_list(run["ids"]).alias("id_runs"),
        F.collect_list(run["offsets"]).alias("offset_runs"),
        F.collect_list(F.when(F.col("text_id").isNotNull(), F.struct(F.col("text_id").alias("id"), "offset"))).alias(
            "text_ids"
        ),
        F.collect_list("result").alias("results"),
    )


def completed(
    grouped: pa.Table, sources: Sequence[tuple[Side, str]], *, batch: int, lookup_us: int, epoch: int
) -> pa.Table:
    """Rows of `aggregate` as facts, fingerprints completed, in the shape of `FACTS_SCHEMA`.

    ``sources[i]``: side and topic of source i.
    """
    size = grouped.num_rows
    grouped, stretches = _parted(grouped)
    source = grouped["source"]
    constant = {"kind": Kind.FACT.value, "batch": batch, "lookup_us": lookup_us, "epoch": epoch}
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        **{name: grouped[name] for name in grouped.column_names if name in FACTS_SCHEMA.names},
        **{name: pa.repeat(pa.scalar(value), size) for name, value in constant.items()},
        "side": pa.array([side.value for side, _ in sources]).take(source),
        "topic": pa.array([topic for _, topic in sources]).take(source),
        **_hashes(grouped),
        "ids": _ids(grouped),
        "frontier": pa.nulls(size, FACTS_SCHEMA.field("frontier").type),
        "mark": pa.nulls(size, pa.string()),
        "stretches": stretches,
    }
    ordered = [columns[field.name].cast(field.type) for field in FACTS_SCHEMA]
    return pa.table(ordered, schema=FACTS_SCHEMA)


def _parted(grouped: pa.Table) -> tuple[pa.Table, pa.Array]:
    """``grouped`` without the offsets of undecodable records, and of each row the stretches of those."""
    bad = ints(grouped["status"]) == UNDECODABLE
    kind = FACTS_SCHEMA.field("stretches").type
    if not bad.any():
        return grouped, pa.nulls(grouped.num_rows, kind)
    lists = grouped["offset_list"].combine_chunks()
    lengths = ints(pc.list_value_length(lists))
    offsets = ints(_flat(lists))
    of_bad = np.repeat(bad, lengths)
    kept = np.where(bad, 0, lengths)
    ends = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(kept, dtype=np.int32)])
    good = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.array(offsets[~of_bad]))
    found: list[list[dict[str, int]] | None] = [None] * grouped.num_rows
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    for row in np.flatnonzero(bad).tolist():
        mine = np.sort(offsets[starts[row] : starts[row + 1]])
        breaks = np.flatnonzero(np.diff(mine) != 1) + 1
        found[row] = [
            {"first": int(run[0]), "last": int(run[-1]), "records": len(run)}
            for run in np.split(mine, breaks)
            if len(run)
        ]
    at = grouped.schema.get_field_index("offset_list")
    return grouped.set_column(at, "offset_list", good), pa.array(found, kind)


def _hashes(grouped: pa.Table) -> dict[str, pa.Array]:
    """The fingerprints, with the integers that results carry."""
    results = grouped["results"]
    ids = pc.struct_field(_flat(results), "ids")
    integers = ints(_flat(ids))
    in_results, in_rows = ints(pc.list_value_length(ids)), ints(pc.list_value_length(results))
    return {
        name: pa.array(ints(grouped[name]) + _sums(_sums(term(integers), in_results), in_rows))
        for name, term in (("hash_a", hash_a), ("hash_b", hash_b))
    }


def _sums(values: Ints, lengths: Ints) -> Ints:
    """The sums of consecutive stretches of these lengths, modulo 2**64."""
    totals = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(values)])
    ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])
    sums: Ints = np.diff(totals[ends])
    return sums


def _ids(grouped: pa.Table) -> pa.Array:
    """Ids and offsets of single events and of runs, as one column of lists of (id, offset)."""
    size = grouped.num_rows
    singly = ints(pc.list_value_length(grouped["id_list"]))
    of_row = np.repeat(np.arange(size), ints(pc.list_value_length(grouped["id_runs"])))
    in_runs = np.bincount(of_row, ints(pc.list_value_length(_flat(grouped["id_runs"]))), size).astype(np.int64)
    ends = np.concatenate([np.zeros(1, dtype=np.int32), np.cumsum(singly + in_runs, dtype=np.int32)])
    columns = [
        np.concatenate([ints(_flat(grouped[f"{name}_list"])), ints(_flat(_flat(grouped[f"{name}_runs"])))])
        for name in ("id", "offset")
    ]
    if singly.any() and in_runs.any():
        rows = np.arange(size)
        order = np.argsort(np.concatenate([np.repeat(rows, singly), np.repeat(rows, in_runs)]), kind="stable")
        columns = [column[order] for column in columns]
    items = pa.StructArray.from_arrays([pa.array(column) for column in columns], names=["id", "offset"])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), items)


def _flat(lists: pa.ChunkedArray | pa.Array) -> pa.Array:
    flat = pc.list_flatten(lists)
    return flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
