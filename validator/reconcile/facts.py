"""Facts: rows per (batch, topic, partition, cell), additive over batches, and over the tasks that read a batch.

The facts table is the only truth (SEMANTICS section 7): verdicts, violations and totals are derived from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import pyarrow as pa

from validator.codecs.columns import AGGREGATE_TYPE, RESULT_TYPE, list_of


class Side(StrEnum):
    """Which part of the comparison a fact belongs to."""

    INPUT = "input"
    OUTPUT = "output"
    LATE = "late"
    REJECTED = "rejected"
    TABLE = "table"
    """A table that the pipeline looks up: an input that moves no watermark and whose rows owe nothing."""


class Kind(StrEnum):
    """Kinds of rows of the facts table."""

    FACT = "fact"
    """Records of one partition that fell into one cell (or did not decode) in one batch."""
    FRONTIER = "frontier"
    """The frontier of one partition, and the offsets that its broker returned at the batch's instant."""
    MARK = "mark"
    """A decision that a replay must repeat, such as a retirement or the end of a run with `--once`. docs/state.md lists
    the marks."""


FRONTIER_TYPE: Final = pa.struct(
    [
        ("topic_id", pa.string()),
        ("first_offset", pa.int64()),
        ("next_offset", pa.int64()),
        ("log_start_offset", pa.int64()),
        ("high_watermark", pa.int64()),
        ("last_stable_offset", pa.int64()),
        ("committed_offset", pa.int64()),
        ("expired", pa.int64()),
        ("records", pa.int64()),
        ("undecodable", pa.int64()),
        ("tombstones", pa.int64()),
        ("first_time_us", pa.int64()),
        ("last_time_us", pa.int64()),
        ("hidden_start", pa.bool_()),
        ("horizon_us", pa.int64()),
        ("read_through_us", pa.int64()),
        ("last_data_us", pa.int64()),
        ("newest_event_time_us", pa.int64()),
        ("gone_us", pa.int64()),
        ("appended_after_us", pa.int64()),
        ("unprovable_below", pa.int64()),
        ("read_through_before_us", pa.int64()),
        ("cleanup_policy", pa.string()),
        ("compacted_below", pa.int64()),
        ("compacted", pa.int64()),
        ("markers", pa.int64()),
        ("unowed", pa.int64()),
        ("event_after_us", pa.int64()),
        ("pauses", list_of(pa.struct([("offset", pa.int64()), ("until_us", pa.int64())]))),
        ("pause_us", pa.int64()),
        ("watermark_us", pa.int64()),
    ]
)
"""The frontier of one partition. Offsets and read-through times are those after the batch. Counts, times of
records and ``watermark_us`` (the input watermark) are those before it: the batch's part follows from its fact rows.

``first_offset``: where reading began. ``expired``: offsets that expired before they were read. ``records``: records
read since ``first_offset``. ``hidden_start``: events before ``first_offset`` exist or existed. ``gone_us``:
`Frontier.unread_since_us` of `validator.model.frontier`, which describes the other fields."""

FACTS_SCHEMA: Final[pa.Schema] = pa.schema(
    [
        ("kind", pa.string()),
        ("batch", pa.int64()),
        ("lookup_us", pa.int64()),
        ("side", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("status", pa.int32()),
        ("window_start_us", pa.int64()),
        ("key", pa.string()),
        ("reach_us", pa.int64()),
        ("records", pa.int64()),
        ("contributions", pa.int64()),
        ("hash_a", pa.int64()),
        ("hash_b", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("first_time_us", pa.int64()),
        ("last_time_us", pa.int64()),
        ("newest_event_time_us", pa.int64()),
        ("first_event_time_us", pa.int64()),
        ("min_id", pa.int64()),
        ("max_id", pa.int64()),
        ("ids", list_of(pa.struct([("id", pa.int64()), ("offset", pa.int64())]))),
        ("text_ids", list_of(pa.struct([("id", pa.string()), ("offset", pa.int64())]))),
        ("results", list_of(RESULT_TYPE)),
        ("frontier", FRONTIER_TYPE),
        ("mark", pa.string()),
        ("epoch", pa.int64()),
        ("stretches", list_of(pa.struct([("first", pa.int64()), ("last", pa.int64()), ("records", pa.int64())]))),
        ("earliest_us", pa.int64()),
        ("latest_us", pa.int64()),
        ("times", list_of(pa.struct([("offset", pa.int64()), ("time_us", pa.int64()), ("before_us", pa.int64())]))),
        ("aggregates", list_of(AGGREGATE_TYPE)),
    ]
)
"""The columns of the facts table; docs/state.md describes each. ``epoch`` partitions the table."""


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
