"""Cells: the fold of facts that is kept in memory, one row per (window, key).

`fold` is a pure sum: folding batch after batch, all at once, or in another order gives the same rows.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from validator.codecs.columns import DECODED
from validator.reconcile.built_once import built_once
from validator.reconcile.facts import Kind, Side

KEYS: Final = ("window_start_us", "key")
"""What identifies a cell."""

_SIDES: Final = {Side.INPUT: "expected", Side.OUTPUT: "processed", Side.LATE: "late", Side.REJECTED: "rejected"}

_SUMS: Final = (*(f"{name}_{part}" for name in _SIDES.values() for part in ("count", "a", "b")), "results")
_MINIMA: Final = ("first_batch", "first_seen_us", "first_input_time_us", "first_result_time_us")
_MAXIMA: Final = ("expected_us", "observed_us", "last_input_time_us", "last_result_time_us", "closed_us", "rest_us")

EXPANSION_FIELDS: Final = (
    "version",
    "expected",
    "processed",
    "late",
    "rejected",
    "duplicate",
    "known",
    "unknown",
    "outstanding",
    "dropped_late",
    "unconsumed",
    "unprovable",
    "correct",
    "incomplete",
    "excess",
    "misplaced",
)
EXPANSION_TYPE: Final = StructType([StructField(name, LongType()) for name in EXPANSION_FIELDS])
"""What comparing a cell's ids one by one gave, when `validator.reconcile.judge` counted ``version`` of it. ``known``
and ``unknown``: observed ids that the cell does not expect, by whether any cell does. The last four count
its results."""

PUBLISHED_TYPE: Final = StructType(
    [StructField(name, LongType()) for name in ("digest", "missing", "duplicate", "misplaced", "unknown_id")]
)
"""What the derived tables say of a cell: hash of its last verdict, and how many violations were confirmed."""

CELLS_TYPE: Final = StructType(
    [
        StructField("window_start_us", LongType()),
        StructField("key", StringType()),
        *[StructField(name, LongType()) for name in (*_SUMS, *_MINIMA, *_MAXIMA)],
        StructField("expansion", EXPANSION_TYPE),
        StructField("published", PUBLISHED_TYPE),
    ]
)
"""Per side: count of contributions and two additive hashes. ``first_batch``: oldest batch with a fact of the cell.
``expected_us``, ``observed_us``: lookup instant of the last batch that read an input, an observation of it.
``closed_us``: closing time. ``rest_us``: instant at which a run with `--once` assumed the pipeline at rest.
Times ``*_time_us`` are broker times."""


def contributions_of(facts: DataFrame) -> DataFrame:
    """The fact rows that say something about a cell."""
    return facts.where((F.col("kind") == Kind.FACT.value) & (F.col("status") == DECODED))


def fold(facts: DataFrame) -> DataFrame:
    """Rows of `CELLS_TYPE` from fact rows of any number of batches; closing times are left to the judge."""
    return contributions_of(facts).groupBy(*KEYS).agg(*_folding()).select(*_shape())


@built_once
def _shape() -> list[Column]:
    return [F.col(field.name).cast(field.dataType).alias(field.name) for field in CELLS_TYPE.fields]


@built_once
def _folding() -> list[Column]:
    sums = {}
    for side, name in _SIDES.items():
        mine = F.col("side") == side.value
        for part, column in (("count", "contributions"), ("a", "hash_a"), ("b", "hash_b")):
            sums[f"{name}_{part}"] = F.sum(F.when(mine, F.col(column)).otherwise(F.lit(0)))
    given = F.col("side") == Side.INPUT.value
    answer = F.col("side") == Side.OUTPUT.value
    values = {
        **sums,
        "results": F.sum(F.when(answer, F.col("records")).otherwise(F.lit(0))),
        "first_batch": F.min("batch"),
        "first_seen_us": F.min("lookup_us"),
        "first_input_time_us": F.min(F.when(given, F.col("first_time_us"))),
        "first_result_time_us": F.min(F.when(answer, F.col("first_time_us"))),
        "expected_us": F.max(F.when(given, F.col("lookup_us"))),
        "observed_us": F.max(F.when(~given, F.col("lookup_us"))),
        "last_input_time_us": F.max(F.when(given, F.col("last_time_us"))),
        "last_result_time_us": F.max(F.when(answer, F.col("last_time_us"))),
        "closed_us": F.max(F.lit(None).cast("bigint")),
        "rest_us": F.max(F.lit(None).cast("bigint")),
        "expansion": F.max(F.lit(None).cast(EXPANSION_TYPE)),
        "published": F.max(F.lit(None).cast(PUBLISHED_TYPE)),
    }
    return [column.alias(name) for name, column in values.items()]


def merge(*parts: DataFrame) -> DataFrame:
    """One row per cell from several folds (the cells so far, and what a batch adds)."""
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.union(part)
    # Versions only grow, so the newest comparison is the largest; only one part carries what was published.
    newest = F.max("expansion").alias("expansion")
    return rows.groupBy(*KEYS).agg(*_merging(), newest, F.max("published").alias("published"))


@built_once
def _merging() -> list[Column]:
    return [
        *[F.sum(name).alias(name) for name in _SUMS],
        *[F.min(name).alias(name) for name in _MINIMA],
        *[F.max(name).alias(name) for name in _MAXIMA],
    ]


def compared_anew(cells: DataFrame, expanded: DataFrame) -> DataFrame:
    """The cells with the expansions of ``expanded`` (window_start_us, key, expansion) in place of what they had.

    The newest need not be the largest: what was unconsumed and is lost now changes no version.
    """
    rows = cells.withColumn("fresh", F.lit(0)).unionByName(_only_expansion(expanded).withColumn("fresh", F.lit(1)))
    newest = F.max_by("expansion", "fresh").alias("expansion")
    return rows.groupBy(*KEYS).agg(*_merging(), newest, F.max("published").alias("published"))


def _only_expansion(expanded: DataFrame) -> DataFrame:
    """Rows that add nothing but an expansion."""
    return expanded.select(*_expansion_alone())


@built_once
def _expansion_alone() -> list[Column]:
    empty = {name: F.lit(0) for name in _SUMS}
    columns = []
    for field in CELLS_TYPE.fields:
        if field.name in (*KEYS, "expansion"):
            columns.append(F.col(field.name))
        else:
            columns.append(empty.get(field.name, F.lit(None)).cast(field.dataType).alias(field.name))
    return columns
