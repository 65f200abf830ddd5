"""The one append of a batch: fact rows, and frontier rows as rows of the same commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from validator.codecs.columns import DECODED, TOMBSTONE, UNDECODABLE
from validator.model.books import Books
from validator.model.frontier import Frontier, PartitionId, PartitionSummary
from validator.reconcile.facts import FACTS_TYPE, Kind, Side
from validator.stream.rows import literal_frame

EPOCHS_PER_RETENTION: Final = 24
_EPOCH_US_MOST: Final = 3_600_000_000


def epoch_length_us(retention_us: int) -> int:
    """Length of an epoch of facts: retention drops whole epochs."""
    return max(1_000_000, min(_EPOCH_US_MOST, retention_us // EPOCHS_PER_RETENTION))


def epoch_of(lookup_us: int, retention_us: int) -> int:
    """Epoch of a batch, from its own recorded instant: the epoch's start, in seconds since the Unix epoch."""
    length_us = epoch_length_us(retention_us)
    return lookup_us // length_us * length_us // 1_000_000


def frontier_rows(spark: SparkSession, books: Books, watermark_before_us: int | None, retention_us: int) -> DataFrame:
    """The frontier rows of the batch that ``books`` stand at: offsets and read-through times after it, and what facts
    told up to the batch before."""
    rows = [
        {
            "kind": Kind.FRONTIER.value,
            "batch": books.batch,
            "lookup_us": books.lookup_us,
            "side": frontier.side,
            "topic": place.topic,
            "partition": place.partition,
            "epoch": epoch_of(books.lookup_us, retention_us),
            "frontier": _frontier_value(frontier, watermark_before_us),
        }
        for place, frontier in sorted(books.frontiers.items())
    ]
    return literal_frame(spark, rows, FACTS_TYPE)


def mark_row(spark: SparkSession, books: Books, mark: str, retention_us: int) -> DataFrame:
    """A decision that a replay repeats."""
    row = {
        "kind": Kind.MARK.value,
        "batch": books.batch,
        "lookup_us": books.lookup_us,
        "mark": mark,
        "epoch": epoch_of(books.lookup_us, retention_us),
    }
    return literal_frame(spark, [row], FACTS_TYPE)


def _frontier_value(frontier: Frontier, watermark_us: int | None) -> Mapping[str, object]:
    return {
        "topic_id": frontier.topic_id,
        "first_offset": frontier.first_offset,
        "next_offset": frontier.next_offset,
        "log_start_offset": frontier.log_start_offset,
        "high_watermark": frontier.high_watermark,
        "last_stable_offset": frontier.last_stable_offset,
        "committed_offset": frontier.committed_offset,
        "expired": frontier.expired,
        "records": frontier.records,
        "undecodable": frontier.undecodable,
        "tombstones": frontier.tombstones,
        "first_time_us": frontier.first_time_us,
        "last_time_us": frontier.last_time_us,
        "hidden_start": frontier.hidden_start,
        "horizon_us": frontier.horizon_us,
        "read_through_us": frontier.read_through_us,
        "last_data_us": frontier.last_data_us,
        "newest_event_time_us": frontier.newest_event_time_us,
        "gone_us": frontier.gone_us,
        "appended_after_us": frontier.appended_after_us,
        "unprovable_below": frontier.unprovable_below,
        "read_through_before_us": frontier.read_through_before_us,
        "watermark_us": watermark_us,
    }


def frontier_from(row: Mapping[str, object]) -> tuple[PartitionId, Frontier]:
    """The frontier that a row of the facts table (as a dict, nested) keeps."""
    value = row["frontier"]
    assert isinstance(value, dict)
    kept = {name: value[name] for name in value if name != "watermark_us"}
    place = PartitionId(str(row["topic"]), int(str(row["partition"])))
    return place, Frontier(side=str(row["side"]), topic=place.topic, partition=place.partition, **kept)


def summaries(facts: DataFrame) -> list[PartitionSummary]:
    """What fact rows say per partition; one job, a few rows."""

    def records(status: int) -> Column:
        return F.sum(F.when(F.col("status") == status, F.col("records")).otherwise(F.lit(0)))

    rows = (
        facts.where(F.col("kind") == Kind.FACT.value)
        .groupBy("topic", "partition")
        .agg(
            F.sum("records").alias("records"),
            records(UNDECODABLE).alias("undecodable"),
            records(TOMBSTONE).alias("tombstones"),
            F.max("newest_event_time_us").alias("newest"),
            F.min_by("first_event_time_us", F.when(F.col("status") == DECODED, F.col("first_offset"))).alias("first"),
            F.min("first_time_us").alias("first_time"),
            F.max("last_time_us").alias("last_time"),
            F.max((F.col("side") == Side.INPUT.value).cast("int")).alias("is_input"),
        )
        .collect()
    )
    return [
        PartitionSummary(
            place=PartitionId(row["topic"], row["partition"]),
            records=row["records"],
            undecodable=row["undecodable"],
            tombstones=row["tombstones"],
            newest_event_time_us=row["newest"] if row["is_input"] else None,
            first_event_time_us=row["first"] if row["is_input"] else None,
            first_time_us=row["first_time"],
            last_time_us=row["last_time"],
        )
        for row in sorted(rows, key=lambda row: (row["topic"], row["partition"]))
    ]
