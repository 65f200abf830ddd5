"""The first batch appends while the absent tables are being made: neither must fail the other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from validator.state import tables
from validator.state.tables import RUNS_TYPE, Table, append, create_absent, read
from validator.stream.rows import literal_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW = {"generation": 1, "started_us": 1, "version": "1", "schema": 1, "configuration": ""}


@pytest.mark.parametrize("attempt", range(3))
def test_an_append_and_the_maker_of_tables_meet(
    spark: SparkSession, tmp_path: Path, attempt: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TYPES", {Table.RUNS: RUNS_TYPE})
    rows = literal_frame(spark, [ROW], RUNS_TYPE).localCheckpoint()
    together = threading.Barrier(2)

    def make() -> None:
        together.wait()
        create_absent(spark, tmp_path)

    def write() -> None:
        together.wait()
        append(rows, tmp_path, Table.RUNS, writer="a", version=0)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(make), pool.submit(write)]:
            done.result()
    assert read(spark, tmp_path, Table.RUNS).count() == 1
