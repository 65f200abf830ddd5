"""The first batch appends while the missing tables are being created: neither must make the other fail."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from validator.state.tables import StateTables, Table, create_absent, rows_of

ROW = {"generation": 1, "started_us": 1, "version": "1", "schema": 1, "configuration": ""}


@pytest.mark.parametrize("attempt", range(10))
def test_an_append_concurrent_with_table_creation_is_kept(tmp_path: Path, attempt: int) -> None:
    rows = rows_of(Table.RUNS, [ROW])
    together = threading.Barrier(2)

    def make() -> None:
        together.wait()
        create_absent(tmp_path)

    def write() -> None:
        together.wait()
        StateTables(tmp_path).append(rows, Table.RUNS, writer="a", version=attempt)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(make), pool.submit(write)]:
            done.result()
    assert [part.to_pylist() for part in StateTables(tmp_path).scan(Table.RUNS)] == [[ROW]]


def test_a_repeated_append_changes_nothing(tmp_path: Path) -> None:
    rows = rows_of(Table.RUNS, [ROW])
    for process in range(2):
        tables = StateTables(tmp_path)
        tables.append(rows, Table.RUNS, writer="a", version=3)
        tables.append(rows, Table.RUNS, writer="a", version=3)
        tables.append(rows, Table.RUNS, writer="a", version=2)
        assert sum(part.num_rows for part in tables.scan(Table.RUNS)) == 1, process
    StateTables(tmp_path).append(rows, Table.RUNS, writer="b", version=2)
    assert sum(part.num_rows for part in StateTables(tmp_path).scan(Table.RUNS)) == 2
