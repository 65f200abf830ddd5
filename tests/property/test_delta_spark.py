"""Another Delta reader, Spark's, reads the tables of a state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.property.test_spark_core import spark
from tests.unit.reconcile_rows import fact, facts
from validator.state import tables as state_tables
from validator.state.tables import SCHEMAS, StateTables, Table, path_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]
pytestmark = [pytest.mark.property, pytest.mark.timeout(300)]


@pytest.mark.full
def test_delta_spark_reads_a_table_whose_files_were_joined_and_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 2)
    rows = [fact("input", [batch, batch + 1], batch=batch, lookup_us=batch, epoch=batch // 2) for batch in range(7)]
    tables = StateTables(tmp_path)
    for batch, row in enumerate(rows):
        tables.append(facts(row), Table.FACTS, writer="generation-1", version=batch)
    tables.delete_facts(0)
    frame = spark.read.format("delta").load(path_of(tmp_path, Table.FACTS))
    seen = frame.orderBy("batch").toArrow().cast(SCHEMAS[Table.FACTS])
    assert seen.to_pylist() == facts(*rows[2:]).to_pylist()
