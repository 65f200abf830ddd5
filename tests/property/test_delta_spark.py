"""Delta tables that Spark writes and reads, against the code that does not use Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.property.test_spark_core import spark
from tests.unit.reconcile_rows import fact, facts
from validator.state import tables as state_tables
from validator.state.tables import SCHEMAS, TYPES, StateTables, Table, path_of, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]


def test_tables_created_by_delta_spark_are_read_and_continued(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 2)

    def row(batch: int) -> dict[str, object]:
        return fact("input", [batch, batch + 1], batch=batch, lookup_us=batch, epoch=batch // 2)

    for batch in range(3):
        frame = spark.createDataFrame(facts(row(batch)).to_pylist(), TYPES[Table.FACTS])
        writer = frame.write.format("delta").mode("append").partitionBy("epoch")
        once = {"txnAppId": "facts-generation-1", "txnVersion": str(batch)}
        writer.options(**once).save(path_of(tmp_path, Table.FACTS))
    tables = StateTables(tmp_path)
    for batch in range(1, 7):
        # Spark wrote batches 1 and 2 with the same writer and version: they are not appended again.
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
