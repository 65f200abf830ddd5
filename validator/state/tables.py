"""The Delta tables of a state folder: their schemas, their making, and the idempotent append.

`facts` is the only truth. `verdicts`, `violations`, `frontiers`, `faults` are derived and may be rebuilt; `runs` tells
who ran when. docs/state.md says every column in words.
"""

from __future__ import annotations

import threading
from enum import StrEnum
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from validator.reconcile.facts import FACTS_TYPE, FRONTIER_TYPE
from validator.reconcile.judge import CONTRIBUTIONS, RESULTS

SCHEMA_VERSION: Final = 1
"""Raised whenever a table's columns change meaning; a state of a newer version is refused."""


class Table(StrEnum):
    """The tables, named as their folders."""

    FACTS = "facts"
    VERDICTS = "verdicts"
    VIOLATIONS = "violations"
    FAULTS = "faults"
    FRONTIERS = "frontiers"
    RUNS = "runs"


VERDICTS_TYPE: Final = StructType(
    [
        StructField("batch", LongType()),
        StructField("lookup_us", LongType()),
        StructField("window_start_us", LongType()),
        StructField("key", StringType()),
        StructField("state", StringType()),
        StructField("closed_us", LongType()),
        *[StructField(name, LongType()) for name in (*CONTRIBUTIONS, *RESULTS)],
    ]
)
"""A cell's verdict after a batch that changed it; the newest ``batch`` of a cell counts."""

VIOLATIONS_TYPE: Final = StructType(
    [
        StructField("violation", StringType()),
        StructField("class", StringType()),
        StructField("batch", LongType()),
        StructField("lookup_us", LongType()),
        StructField("state", StringType()),
        StructField("window_start_us", LongType()),
        StructField("key", StringType()),
        StructField("count", LongType()),
        StructField("confirmed", LongType()),
        StructField("retracted", LongType()),
        StructField("provable_us", LongType()),
        StructField("ids", ArrayType(StringType())),
        StructField("phase", StringType()),
        StructField("fault", StringType()),
        StructField("explanation", StringType()),
    ]
)
"""A violation (a cell and a class) after a batch that changed it; the newest ``batch`` of a violation counts.
``count``: contributions in it now; ``confirmed``, ``retracted``: how many this change added, took back;
``provable_us``: the instant at which it could first be proven."""

FRONTIERS_TYPE: Final = StructType(
    [
        StructField("batch", LongType()),
        StructField("lookup_us", LongType()),
        StructField("side", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        *FRONTIER_TYPE.fields,
    ]
)
"""Frontiers after a batch, one row per partition: a copy of the facts' frontier rows for readers, made now and then."""

FAULTS_TYPE: Final = StructType(
    [
        StructField("id", StringType()),
        StructField("name", StringType()),
        StructField("kind", StringType()),
        StructField("target", StringType()),
        StructField("state", StringType()),
        StructField("time_us", LongType()),
        StructField("plan", StringType()),
        StructField("seed", LongType()),
        StructField("parameters", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("batch", LongType()),
    ]
)
"""Records of the faults topic, as read."""

RUNS_TYPE: Final = StructType(
    [
        StructField("generation", LongType()),
        StructField("started_us", LongType()),
        StructField("version", StringType()),
        StructField("schema", LongType()),
        StructField("configuration", StringType()),
    ]
)
"""One row per start of the sidecar, or of its query after a trouble that it mended; secrets are not in it."""

TYPES: Final[dict[Table, StructType]] = {
    Table.FACTS: FACTS_TYPE,
    Table.VERDICTS: VERDICTS_TYPE,
    Table.VIOLATIONS: VIOLATIONS_TYPE,
    Table.FAULTS: FAULTS_TYPE,
    Table.FRONTIERS: FRONTIERS_TYPE,
    Table.RUNS: RUNS_TYPE,
}

_PROPERTIES: Final[dict[str, str]] = {
    # Removed files go when retention removes them, not a week later; readers of the newest version never need them.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.checkpointInterval": "50",
}
_FACTS_PROPERTIES: Final[dict[str, str]] = {
    **_PROPERTIES,
    # Skipping by batch and window is what makes expansion of a few cells cheap; more statistics cost every commit.
    "delta.dataSkippingStatsColumns": "batch,window_start_us",
}


_MAKING: Final = {table: threading.Lock() for table in Table}
"""Two commits that both make a table conflict; the state's lock keeps other processes away."""


def path_of(state: Path, table: Table) -> str:
    """Folder of a table."""
    return str(state / table.value)


def exists(state: Path, table: Table) -> bool:
    """Whether the table was made."""
    return (state / table.value / "_delta_log").is_dir()


def has_rows(state: Path, table: Table) -> bool:
    """Whether anything was ever appended to it, told from its folder alone: no Spark job."""
    return exists(state, table) and any((state / table.value).rglob("*.parquet"))


def create_absent(spark: SparkSession, state: Path) -> None:
    """Make the tables that are not there yet, empty. `append` makes its table itself; this is for readers."""
    for table, schema in TYPES.items():
        with _MAKING[table]:
            if not exists(state, table):
                _create(spark, state, table, schema)


def _create(spark: SparkSession, state: Path, table: Table, schema: StructType) -> None:
    from delta.tables import DeltaTable

    builder = DeltaTable.createIfNotExists(spark).location(path_of(state, table)).addColumns(schema)
    if table is Table.FACTS:
        builder = builder.partitionedBy("epoch")
    for name, value in properties_of(table).items():
        builder = builder.property(name, value)
    builder.execute()


def properties_of(table: Table) -> dict[str, str]:
    """The Delta table properties that a table is made with."""
    return _FACTS_PROPERTIES if table is Table.FACTS else _PROPERTIES


def read(spark: SparkSession, state: Path, table: Table) -> DataFrame:
    """The table's newest version."""
    return spark.read.format("delta").load(path_of(state, table))


def append(frame: DataFrame, state: Path, table: Table, *, writer: str, version: int) -> None:
    """Append once: a second append of the same ``writer`` and ``version`` changes nothing.

    One writer per table and generation; Delta keeps the highest version per writer in the table itself.
    """
    names = [field.name for field in TYPES[table].fields]
    written = (
        frame.select(*names)
        .write.format("delta")
        .mode("append")
        .option("txnAppId", f"{table.value}-{writer}")
        .option("txnVersion", str(version))
    )
    with _MAKING[table]:
        if not exists(state, table):
            written = written.options(**properties_of(table))
            if table is Table.FACTS:
                written = written.partitionBy("epoch")
        written.save(path_of(state, table))
