"""The Delta tables of a state folder: their schemas, their making, and the idempotent append.

`facts` is the only truth. `verdicts`, `violations`, `frontiers`, `faults` are derived and may be rebuilt; `runs` tells
who ran when. docs/state.md says every column in words.
"""

from __future__ import annotations

import errno
import os
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.schema import StructType as DeltaStruct
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
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
from validator.state.folder import holds_links

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
``count``: contributions in it now; ``confirmed``, ``retracted``: how many this change confirmed, took back of those (a
suspected row confirms none); ``provable_us``: the instant at which it could first be proven."""

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
        StructField("expects", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("batch", LongType()),
    ]
)
"""Records of the faults topic, as read. ``expects``: JSON; null in a row of a version that did not keep it."""

RUNS_TYPE: Final = StructType(
    [
        StructField("generation", LongType()),
        StructField("started_us", LongType()),
        StructField("version", StringType()),
        StructField("schema", LongType()),
        StructField("configuration", StringType()),
    ]
)
"""One row per start of the sidecar that found a topic to read; secrets are not in it."""

TYPES: Final[dict[Table, StructType]] = {
    Table.FACTS: FACTS_TYPE,
    Table.VERDICTS: VERDICTS_TYPE,
    Table.VIOLATIONS: VIOLATIONS_TYPE,
    Table.FAULTS: FAULTS_TYPE,
    Table.FRONTIERS: FRONTIERS_TYPE,
    Table.RUNS: RUNS_TYPE,
}

SCHEMAS: Final[dict[Table, pa.Schema]] = {table: to_arrow_schema(schema) for table, schema in TYPES.items()}
"""`TYPES` for Arrow, in whose form the driver holds rows."""

_PROPERTIES: Final[dict[str, str | None]] = {
    # Removed files go when retention removes them, not a week later; readers of the newest version never need them.
    "delta.deletedFileRetentionDuration": "interval 1 hours",
    "delta.logRetentionDuration": "interval 1 hours",
    "delta.checkpointInterval": "50",
}
_FACTS_PROPERTIES: Final[dict[str, str | None]] = {
    **_PROPERTIES,
    # Skipping files by these is what makes comparing a few cells cheap; more statistics cost every commit.
    "delta.dataSkippingStatsColumns": "batch,window_start_us,min_id,max_id",
}

COMPACT_EVERY: Final = 100
"""Versions between two compactions: an append costs a tenth of a millisecond for each file of the table."""
COMPACTED_BYTES: Final = 32 * 1024 * 1024
"""Size that small files are joined to; larger ones stay as they are."""
_VACUUM_EVERY: Final = 36 * COMPACT_EVERY
"""Versions between two looks for joined files that no reader can need any more: an hour or less under traffic."""

_MAKING: Final = {table: threading.Lock() for table in Table}
"""Two commits that both make a table conflict; the state's lock keeps other processes away."""
_WRITER: Final = "writer"
"""Name of the Delta transaction in which every commit of a sidecar carries its turn (decision 0138)."""


def path_of(state: Path, table: Table) -> str:
    """Folder of a table."""
    return str(state / table.value)


def exists(state: Path, table: Table) -> bool:
    """Whether the table was made."""
    return (state / table.value / "_delta_log").is_dir()


def has_rows(state: Path, table: Table) -> bool:
    """Whether anything was ever appended to it, told from its folder alone."""
    return exists(state, table) and any((state / table.value).rglob("*.parquet"))


def create_absent(state: Path) -> None:
    """Make the tables that are absent, empty. `append` makes its table itself."""
    for table in Table:
        with _MAKING[table]:
            if not exists(state, table):
                _refuse_without_log(state, table)
                DeltaTable.create(
                    path_of(state, table),
                    SCHEMAS[table],
                    partition_by=_partitions(table),
                    configuration=dict(properties_of(table)),
                )


def _refuse_without_log(state: Path, table: Table) -> None:
    """Raise FileNotFoundError where the absent table is the rest of one, or others were derived from it: made anew it
    would be an empty one, and the state would forget what it verified."""
    derived = (Table.VERDICTS, Table.VIOLATIONS) if table is Table.FACTS else ()
    if any((state / table.value).rglob("*.parquet")) or any(has_rows(state, other) for other in derived):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(state / table.value / "_delta_log"))


def _known_columns(table: DeltaTable) -> int:
    """Columns of a table, those of its structs included."""
    fields = table.schema().fields
    return len(fields) + sum(len(field.type.fields) for field in fields if isinstance(field.type, DeltaStruct))


def _columns(schema: pa.Schema) -> int:
    """`_known_columns` of rows."""
    return len(schema) + sum(int(field.type.num_fields) for field in schema if pa.types.is_struct(field.type))


def properties_of(table: Table) -> Mapping[str, str | None]:
    """The Delta table properties that a table is made with."""
    return _FACTS_PROPERTIES if table is Table.FACTS else _PROPERTIES


def _partitions(table: Table) -> list[str] | None:
    return ["epoch"] if table is Table.FACTS else None


FOR_SPARK: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
}
"""Settings of a Spark session that reads the tables. The sidecar's own does not: `deltalake` reads and appends."""


def read(spark: SparkSession, state: Path, table: Table) -> DataFrame:
    """The table's newest version, for Spark with the settings `FOR_SPARK`."""
    return spark.read.format("delta").load(path_of(state, table))


def rows_of(table: Table, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A few rows from the driver; absent columns are null."""
    return pa.Table.from_pylist([dict(row) for row in rows], SCHEMAS[table])


def _with_nulls(rows: pa.Table, table: Table, names: Sequence[str]) -> pa.Table:
    for name in names:
        rows = rows.append_column(SCHEMAS[table].field(name), pa.nulls(rows.num_rows, SCHEMAS[table].field(name).type))
    return rows


class PathUnfit(Exception):
    """The tables' library would take the folder's name for another."""

    exit_status = 2


class StateTaken(Exception):
    """Another sidecar took over the state while this one ran; this one committed nothing since."""

    exit_status = 2


class StateTables:
    """The tables of one state folder, read and appended to without Spark: a commit costs tens of milliseconds.

    For the one process that holds the state's lock; threads may share it.
    """

    def __init__(self, state: Path) -> None:
        """Raises `PathUnfit` where a part of the path reads as an escape: ``%20`` would be looked for as a blank."""
        if re.search("%[0-9A-Fa-f]{2}", str(state)):
            raise PathUnfit(f"state.path {state}: a percent sign before two hex digits is misread; name another folder")
        self.state = state
        self._open: dict[Table, DeltaTable] = {}
        self._turns: dict[Table, int] = {}

    def take_over(self) -> None:
        """Make this object the only one that can commit to the tables, and make the absent ones.

        Where the file system does not carry the state's lock to another host, a sidecar there may still run. Each
        table's log gets a turn above all earlier ones: from then on a commit with an earlier turn is refused, also one
        that was under way. Raises `StateTaken` where another sidecar does the same at the same moment.
        """
        create_absent(self.state)
        for table in Table:
            with _MAKING[table]:
                known = self._newest(table)
                assert known is not None
                self._turns[table] = (known.transaction_version(_WRITER) or 0) + 1
                self._commit(known, table, rows_of(table, []), [])

    def _commit(self, known: DeltaTable, table: Table, rows: pa.Table, transactions: list[Transaction]) -> None:
        """Append ``rows`` to the table as it is ``known``. Delta refuses a commit whose transaction another commit has
        had since: so that a turn stays the newest until the commit with it is done."""
        turn = self._turns.get(table)
        if turn is not None:
            transactions = [*transactions, Transaction(_WRITER, turn)]
        lacks = _known_columns(known) < _columns(rows.schema)
        try:
            # A table that an earlier version made gets the columns that came later; its rows have null there.
            write_deltalake(
                known,
                rows,
                mode="append",
                schema_mode="merge" if lacks else None,
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        except CommitFailedError as error:
            if turn is None or DeltaTable(path_of(self.state, table)).transaction_version(_WRITER) == turn:
                raise
            raise self._taken() from error

    def _check_turn(self, known: DeltaTable, table: Table) -> None:
        if table in self._turns and known.transaction_version(_WRITER) != self._turns[table]:
            raise self._taken()

    def _taken(self) -> StateTaken:
        return StateTaken(
            f"another sidecar took over the state {self.state}, on a host whose lock this one does not see: stop one "
            "of the two for good, and do not start this one again by itself"
        )

    def append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> None:
        """Append once: a second append of the same ``writer`` and ``version`` changes nothing.

        ``rows``: columns of `SCHEMAS`, in any order. One writer per table and generation; Delta keeps the highest
        version per writer in the table itself.
        """
        application = f"{table.value}-{writer}"
        told = rows.select(SCHEMAS[table].names).cast(SCHEMAS[table])
        once = Transaction(application, version)
        with _MAKING[table]:
            known = self._newest(table)
            if known is None:
                write_deltalake(
                    path_of(self.state, table),
                    told,
                    mode="append",
                    partition_by=_partitions(table),
                    configuration=dict(properties_of(table)),
                    commit_properties=CommitProperties(app_transactions=[once]),
                )
                return
            self._check_turn(known, table)
            done = known.transaction_version(application)
            if done is None or done < version:
                self._commit(known, table, told, [once])
                self._tidy(table, known)

    def scan(
        self, table: Table, columns: Sequence[str] | None = None, where: ds.Expression | None = None
    ) -> Iterable[pa.Table]:
        """The rows of the newest version for which ``where`` holds, file by file; nothing for an absent table."""
        with _MAKING[table]:
            known = self._newest(table)
            if known is None:
                return []
            dataset = known.to_pyarrow_dataset()
        # A table that a version of before made lacks the columns that came later.
        lacks = [name for name in columns or SCHEMAS[table].names if name not in dataset.schema.names]
        asked = None if columns is None else [name for name in columns if name not in lacks]
        batches = dataset.to_batches(columns=asked, filter=where)
        return (_with_nulls(pa.Table.from_batches([batch]), table, lacks) for batch in batches if batch.num_rows)

    def delete_facts(self, through_epoch: int) -> None:
        """Take the facts of old epochs out of the table; their files stay."""
        with _MAKING[Table.FACTS]:
            known = self._newest(Table.FACTS)
            if known is not None:
                self._check_turn(known, Table.FACTS)
                known.delete(f"epoch <= {through_epoch}")

    def _tidy(self, table: Table, known: DeltaTable) -> None:
        """Join small files now and then: one more commit, which changes no row. They leave the disk later."""
        known.update_incremental()
        version = known.version()
        if version % COMPACT_EVERY == 0:
            known.optimize.compact(target_size=COMPACTED_BYTES, max_concurrent_tasks=1)
        # It removes every file that the log does not name, through links as well.
        if version % _VACUUM_EVERY == 0 and not holds_links(self.state / table.value):
            known.vacuum(dry_run=False)

    def _newest(self, table: Table) -> DeltaTable | None:
        known = self._open.get(table)
        if known is not None:
            known.update_incremental()
            return known
        try:
            self._open[table] = known = DeltaTable(path_of(self.state, table))
        except TableNotFoundError:
            return None
        return known
