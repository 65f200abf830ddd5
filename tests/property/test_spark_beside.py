"""What Spark hands over, and what it reads and wrote, beside the code that needs no Spark."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.property.test_spark_core import spark
from tests.unit.reconcile_rows import fact, facts
from validator.codecs.batches import EVENTS
from validator.config.examples import EXAMPLES
from validator.config.load import loads
from validator.config.model import Limits
from validator.reconcile.facts import GROUPED
from validator.state import tables as state_tables
from validator.state.tables import SCHEMAS, TYPES, StateTables, Table, path_of, read
from validator.stream.decode import Reader, cut, event_reader
from validator.stream.sources import readers_of, sources_of
from validator.stream.stage import Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]


def decoded(records: DataFrame, reader: Reader) -> pa.Table:
    """What the records decode to, in the order of their offsets."""
    batches = cut(records, 0, reader, reader.columns).toArrow().combine_chunks().to_batches()
    return pa.Table.from_batches(reader.batches(iter(batches)), EVENTS).sort_by("offset")


@pytest.mark.parametrize("place", ["$key", "$header.page"])
def test_a_key_of_bytes_that_are_no_text_is_undecodable(spark: SparkSession, place: str) -> None:
    """The driver takes keys as text: one that is none would end every batch that holds it."""
    setup = loads(EXAMPLES["minimal"], "/etc", [f"inputs.0.fields.key={place}"], {})
    given = [b"/help", b"\xff\xfe", bytes(8), "é".encode()]
    event = b'{"id": 1, "page": "x", "customer": "x", "timestamp": "1970-01-01T00:00:00Z", "placed_at": 0}'
    fields = {entry.path for entry in (setup.inputs[0].fields.id, setup.inputs[0].fields.event_time)}
    assert all(f'"{path}"'.encode() in event for path in fields), fields
    rows = [(at, key, event) for at, key in enumerate(given)]
    records = spark.createDataFrame(rows, "offset bigint, key binary, value binary").select(
        "key",
        "value",
        F.lit("topic").alias("topic"),
        F.lit(0).alias("partition"),
        "offset",
        F.lit(0).cast("timestamp").alias("timestamp"),
        F.array(F.struct(F.lit("page").alias("key"), F.col("key").alias("value"))).alias("headers"),
    )
    found = decoded(records, event_reader(setup.inputs[0], setup.oracle, 0, "auto"))
    assert found["event_time_us"].is_valid().to_pylist() == [True, False, True, True]
    assert found["key"].to_pylist() == ["/help", None, "\0" * 8, "é"]


@pytest.mark.parametrize("place", ["$key", "$header.page"])
def test_a_key_above_its_limit_does_not_leave_the_jvm(spark: SparkSession, place: str) -> None:
    """Of headers only the last of each name that is read does."""
    setup = loads(EXAMPLES["minimal"], "/etc", [f"inputs.0.fields.key={place}"], {})
    event = b'{"id": 1, "page": "x", "customer": "x", "timestamp": "1970-01-01T00:00:00Z", "placed_at": 0}'
    lengths = [16, 17, None, 10_000_000, 0]
    rows = [(at, length, event) for at, length in enumerate(lengths)]
    long = F.expr("cast(repeat('x', length) as binary)")
    records = spark.createDataFrame(rows, "offset bigint, length int, value binary").select(
        long.alias("key"),
        "value",
        F.lit("topic").alias("topic"),
        F.lit(0).alias("partition"),
        "offset",
        F.lit(0).cast("timestamp").alias("timestamp"),
        F.array(
            F.struct(F.lit("page").alias("key"), F.lit(b"first").alias("value")),
            F.struct(F.lit("page").alias("key"), long.alias("value")),
            F.struct(F.lit("other").alias("key"), F.expr("cast(repeat('y', 10000000) as binary)").alias("value")),
        ).alias("headers"),
    )
    limits = Limits(key_bytes=16, value_bytes=1_000)
    reader = event_reader(setup.inputs[0], setup.oracle, 0, "auto", limits=limits)
    assert cut(records, 0, reader, reader.columns).toArrow().nbytes < 10_000
    assert decoded(records, reader)["key"].to_pylist() == [
        "x" * 16,
        "its key has 17 bytes, above limits.key_bytes",
        None,
        "its key has 10000000 bytes, above limits.key_bytes",
        "",
    ]


def test_the_stage_reads_several_sources_in_one_job(spark: SparkSession) -> None:
    """As a batch does: some records of each source, and of one source none."""
    setup = loads(EXAMPLES["minimal"], "/etc", [], {})
    readers = readers_of(setup, sources_of(setup))
    columns = frozenset[str]().union(*(reader.columns for reader in readers))
    event = """{"id": 1%07d, "page": "x", "customer": "x", "timestamp": "1970-01-01T00:00:00Z", "placed_at": 0}"""
    frames, direct = [], GROUPED.empty_table()
    stage = Stage(readers, 10**18, with_first_event=False)
    for number, reader in enumerate(readers):
        records = spark.range(0, 40_000 * number, numPartitions=3).select(
            F.lit(None).cast("binary").alias("key"),
            F.format_string(event, "id").cast("binary").alias("value"),
            (F.col("id") % 2).cast("int").alias("partition"),
            F.col("id").alias("offset"),
            F.timestamp_micros(F.col("id")).alias("timestamp"),
            F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
        )
        frames.append(cut(records, number, reader, columns))
        for payload in stage(iter(frames[-1].toArrow().to_batches())):
            direct = pa.concat_tables([direct, pa.ipc.open_stream(payload.column(0)[0].as_buffer()).read_all()])
    facts = stage.facts(reduce(DataFrame.union, frames))
    names = ("records", "contributions", "hash_a", "hash_b")

    def summed(rows: pa.Table) -> list[tuple[int, ...]]:
        keys = ["source", "partition", "status", "window_start_us", "key", "reach_us"]
        found = rows.group_by(keys).aggregate([(name, "sum") for name in names])
        found = found.sort_by([(key, "ascending") for key in keys])
        return list(zip(*(found[f"{name}_sum"].to_pylist() for name in names), strict=True))

    assert summed(facts) == summed(direct)
    assert sum(facts["records"].to_pylist()) == sum(40_000 * number for number in range(len(readers)))
    assert stage.facts(frames[0]).num_rows == 0


def test_tables_that_delta_spark_made_are_read_and_gone_on_with(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 2)

    def row(batch: int) -> dict[str, object]:
        return fact("input", [batch, batch + 1], batch=batch, lookup_us=batch, epoch=batch // 2)

    for batch in range(3):
        frame = spark.createDataFrame(facts(row(batch)).to_pandas(), TYPES[Table.FACTS])
        writer = frame.write.format("delta").mode("append").partitionBy("epoch")
        once = {"txnAppId": "facts-generation-1", "txnVersion": str(batch)}
        writer.options(**once).save(path_of(tmp_path, Table.FACTS))
    tables = StateTables(tmp_path)
    for batch in range(1, 7):
        # Those of before are known by their writer, and change nothing.
        tables.append(facts(row(batch)), Table.FACTS, writer="generation-1", version=batch)
    found = sorted(
        (found for part in tables.scan(Table.FACTS) for found in part.to_pylist()), key=lambda it: it["batch"]
    )
    assert [it["batch"] for it in found] == list(range(7))
    wanted = facts(*[row(batch) for batch in range(7)]).to_pylist()
    assert [it["ids"] for it in found] == [it["ids"] for it in wanted]
    tables.delete_facts(0)
    seen = read(spark, tmp_path, Table.FACTS).orderBy("batch").toArrow().cast(SCHEMAS[Table.FACTS])
    assert seen.to_pylist() == wanted[2:]
