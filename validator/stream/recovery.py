"""The state of a run from its facts: books, cells with their closing times, and what the derived tables already say.

Nothing but the tables is read: no checkpoint, no file of an earlier process.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from validator.model.books import Books, TimeRules
from validator.model.frontier import Rest
from validator.reconcile import cells as cell_rows
from validator.reconcile.facts import Kind
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS, VIOLATIONS
from validator.state.tables import Table, create_absent, has_rows, read
from validator.stream.committing import frontier_from, summaries
from validator.stream.retiring import Retired, drop_folders, retired_so_far
from validator.stream.rows import literal_frame
from validator.stream.run_record import MINUTE_US, RunRecord, record_of

_CLOSING_TYPE = StructType([StructField("window_start_us", LongType()), StructField("passed_us", LongType())])


@dataclass(frozen=True)
class Recovered:
    """``cells`` is None for a state without facts."""

    books: Books
    cells: DataFrame | None
    retired: Retired


def recover(spark: SparkSession, state: Path, rules: TimeRules, window_us: int) -> Recovered:
    """Fold the facts of ``state``; an empty state gives empty books."""
    if not has_rows(state, Table.FACTS):
        return Recovered(Books(rules), None, Retired())
    facts = read(spark, state, Table.FACTS)
    retired = retired_so_far(facts)
    drop_folders(spark, state, retired.through_epoch)
    facts = read(spark, state, Table.FACTS).where(F.col("epoch") > F.lit(retired.through_epoch))
    last = facts.where(F.col("kind") == Kind.FRONTIER.value).agg(F.max("batch")).collect()[0][0]
    if last is None:
        return Recovered(Books(rules), None, Retired())
    # A frame reads the table as it is when it runs: the cells are folded after the next batch was appended, which
    # brings its facts itself. Without this bound they would count twice.
    facts = facts.where(F.col("batch") <= F.lit(last))
    frontier_rows = facts.where((F.col("batch") == last) & (F.col("kind") == Kind.FRONTIER.value))
    newest = [row.asDict(recursive=True) for row in frontier_rows.drop("ids", "text_ids", "results").collect()]
    frontiers = dict(frontier_from(row) for row in newest)
    before = Books(
        rules,
        batch=last,
        lookup_us=newest[0]["lookup_us"],
        watermark_us=newest[0]["frontier"]["watermark_us"],
        frontiers=frontiers,
        retirements=retired.retirements,
    )
    books = before.with_facts(summaries(facts.where(F.col("batch") == last)))
    return Recovered(books, _cells(spark, state, facts, books, window_us), retired)


def _cells(spark: SparkSession, state: Path, facts: DataFrame, books: Books, window_us: int) -> DataFrame:
    """The fold of all facts, with closing times as they were decided, and what the derived tables say."""
    folded = cell_rows.fold(facts).drop("closed_us", "rest_us", "published")
    steps = _watermark_steps(facts, books)
    reached = [watermark for watermark, _ in steps]
    windows = [row[0] for row in folded.select("window_start_us").distinct().collect()]
    closings = []
    for start in windows:
        # Watermarks never fall: the first step that reached the window's end closed it.
        step = bisect_left(reached, start + window_us)
        if step < len(steps):
            closings.append({"window_start_us": start, "passed_us": steps[step][1]})
    passed = literal_frame(spark, closings, _CLOSING_TYPE)
    marks = (
        facts.where(F.col("kind") == Kind.MARK.value)
        .groupBy("mark")
        .agg(F.max("lookup_us").alias("last"), F.min("lookup_us").alias("first"))
        .collect()
    )
    rests = {row["mark"]: row["last"] for row in marks}
    all_us, closed_us = rests.get(f"rest_{Rest.ALL.value}"), rests.get(f"rest_{Rest.CLOSED.value}")

    def by(instant_us: int | None) -> Column:
        return F.when(F.col("first_seen_us") <= F.lit(instant_us), F.lit(instant_us).cast("bigint"))

    by_watermark = F.when(F.col("passed_us").isNotNull(), F.greatest("passed_us", "first_seen_us"))
    with_times = folded.join(F.broadcast(passed), ["window_start_us"], "left").withColumns(
        {"closed_us": F.least(by_watermark, by(all_us)), "rest_us": F.greatest(by(all_us), by(closed_us))}
    )
    told = _published(spark, state)
    if told is None:
        whole = with_times.withColumn("published", F.lit(None).cast(cell_rows.PUBLISHED_TYPE))
    else:
        whole = with_times.join(told, list(cell_rows.KEYS), "left")
    return whole.select(*[F.col(field.name) for field in cell_rows.CELLS_TYPE.fields])


def _watermark_steps(facts: DataFrame, books: Books) -> list[tuple[int, int]]:
    """(watermark, lookup instant of the batch that reached it), rising."""
    per_batch = (
        facts.where(F.col("kind") == Kind.FRONTIER.value)
        .groupBy("batch")
        .agg(F.max("lookup_us").alias("lookup_us"), F.max("frontier.watermark_us").alias("watermark_us"))
    )
    before = F.lag("lookup_us").over(Window.orderBy("batch"))
    steps = (
        per_batch.withColumn("reached_us", before)
        .where("watermark_us IS NOT NULL AND reached_us IS NOT NULL")
        .groupBy("watermark_us")
        .agg(F.min("reached_us").alias("reached_us"))
        .orderBy("watermark_us")
        .collect()
    )
    found = [(row["watermark_us"], row["reached_us"]) for row in steps]
    if books.watermark_us is not None and (not found or books.watermark_us > found[-1][0]):
        found.append((books.watermark_us, books.lookup_us))
    return found


def _published(spark: SparkSession, state: Path) -> DataFrame | None:
    """(window_start_us, key, published) from the newest rows of the derived tables; None where they say nothing."""
    if not has_rows(state, Table.VERDICTS) and not has_rows(state, Table.VIOLATIONS):
        return None
    create_absent(spark, state)
    verdicts = read(spark, state, Table.VERDICTS)
    digest = F.xxhash64(*CONTRIBUTIONS, *RESULTS).alias("digest")
    newest = verdicts.groupBy(*cell_rows.KEYS).agg(F.max_by(digest, "batch").alias("digest"))
    violations = read(spark, state, Table.VIOLATIONS)
    current = violations.groupBy("violation", "class", *cell_rows.KEYS).agg(F.max_by("count", "batch").alias("count"))
    counts = current.groupBy(*cell_rows.KEYS).agg(
        *[F.sum(F.when(F.col("class") == name, F.col("count")).otherwise(F.lit(0))).alias(name) for name in VIOLATIONS]
    )
    joined = newest.join(counts, list(cell_rows.KEYS), "full")
    fields = [F.col("digest"), *[F.coalesce(F.col(name), F.lit(0)).alias(name) for name in VIOLATIONS]]
    return joined.select(*cell_rows.KEYS, F.struct(*fields).cast(cell_rows.PUBLISHED_TYPE).alias("published"))


def restore_record(spark: SparkSession, state: Path, record: RunRecord) -> None:
    """Counters, recent minutes and the latest violations from the derived tables."""
    if not has_rows(state, Table.VIOLATIONS):
        return
    violations = read(spark, state, Table.VIOLATIONS)
    minute = (F.col("lookup_us") / F.lit(MINUTE_US)).cast("bigint").alias("minute")
    for row in (
        violations.groupBy("class", "phase", "fault", "state", minute)
        .agg(F.sum("confirmed").alias("confirmed"), F.sum("retracted").alias("retracted"))
        .collect()
    ):
        at_us = row["minute"] * MINUTE_US
        record.add_confirmed(
            row["class"], row["phase"], row["state"], row["confirmed"], row["retracted"], at_us, fault=row["fault"]
        )
    delays = violations.where("state = 'confirmed' AND confirmed > 0 AND provable_us IS NOT NULL")
    for row in delays.groupBy("lookup_us", "provable_us").count().limit(100_000).collect():
        record.detection.add((row["lookup_us"] - row["provable_us"]) / 1e6, row["count"])
    newest = violations.orderBy(F.col("batch").desc()).limit(100).collect()
    for row in reversed(newest):
        record.remember(record_of(row))
