"""Appends to the tables of a state stay fast and columns are read by name."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler

from tests.unit.reconcile_rows import fact, facts
from validator.cli.exits import status_of
from validator.state import tables as state_tables
from validator.state.tables import SCHEMAS, PathUnfit, StateTables, Table, join_facts, rows_of
from validator.stream.retention import drop_folders


def _append(tables: StateTables, batch: int, *, settled: bool = True) -> None:
    rows = facts(fact("input", [batch], batch=batch, lookup_us=batch, epoch=batch // 5))
    tables.append(rows, Table.FACTS, writer="w", version=batch)
    if settled:
        tables.close()


def _batches(tables: StateTables) -> list[int]:
    return sorted(batch for part in tables.scan(Table.FACTS, ["batch"]) for batch in part["batch"].to_pylist())


def test_small_files_are_compacted_without_changing_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each append is slower than the last one, by a tenth of a millisecond per file."""
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 10)
    tables = StateTables(tmp_path)
    for batch in range(45):
        _append(tables, batch)
    found = DeltaTable(str(tmp_path / "facts"))
    assert len(found.file_uris()) < 20
    assert {int(values["epoch"]) for values in found.partitions()} == set(range(9))
    assert all("/epoch=" in file for file in found.file_uris())
    assert _batches(tables) == _batches(StateTables(tmp_path)) == list(range(45))
    rows = [row for part in tables.scan(Table.FACTS) for row in part.to_pylist()]
    assert all(row["ids"] == [{"id": row["batch"], "offset": 0}] for row in rows)


def test_an_append_writes_a_file_for_each_epoch_with_the_statistics_that_skip_it(tmp_path: Path) -> None:
    """The comparison of a few cells reads only files with facts of their windows and ids."""
    tables = StateTables(tmp_path)
    tables.take_over()
    rows = [fact("input", ids, batch=7, lookup_us=7, epoch=epoch) for ids, epoch in (([4, 9], 0), ([5], 3))]
    tables.append(facts(*rows), Table.FACTS, writer="w", version=7)
    found = pa.table(DeltaTable(str(tmp_path / "facts")).get_add_actions(flatten=True)).sort_by("partition.epoch")
    assert found["num_records"].to_pylist() == [1, 1]
    bounds = [found[name].to_pylist() for name in ("partition.epoch", "min.min_id", "max.max_id", "min.batch")]
    assert bounds == [[0, 3], [4, 5], [9, 5], [7, 7]]
    columns = pq.read_metadata(tmp_path / "facts" / found["path"][0].as_py()).row_group(0).to_dict()["columns"]
    ids = next(column for column in columns if column["path_in_schema"] == "ids.list.element.id")
    assert "DELTA_BINARY_PACKED" in ids["encodings"]
    assert sorted(row["ids"][-1]["id"] for part in tables.scan(Table.FACTS) for row in part.to_pylist()) == [5, 9]


@pytest.mark.parametrize("table", Table)
def test_a_scan_skips_no_file_with_rows_that_it_wants(tmp_path: Path, table: Table) -> None:
    """A reader takes bounds that a file's statistics lack for bounds that exclude it."""
    tables = StateTables(tmp_path)
    tables.take_over()
    values = {"string": "a", "int64": 7, "int32": 7, "int16": 7, "int8": 7, "bool": True}
    row = {field.name: values.get(str(field.type)) for field in SCHEMAS[table]}
    for version in range(3):
        tables.append(rows_of(table, [row]), table, writer="w", version=version)
    for name, value in row.items():
        found = (
            [part.num_rows for part in tables.scan(table, where=ds.field(name) == value)] if value is not None else [3]
        )
        assert sum(found) == 3, name


def test_a_scan_runs_no_python_code_in_threads_of_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a thread can abort a process that ends."""
    tables = StateTables(tmp_path)
    _append(tables, 1)
    monkeypatch.setattr(DeltaStorageHandler, "open_input_file", None)
    assert _batches(tables) == [1]


def test_a_scan_has_the_rows_of_an_append_that_has_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, written = threading.Event(), StateTables.append

    def slow(self: StateTables, *args: Any, **options: Any) -> None:
        assert may_write.wait(60)
        written(self, *args, **options)

    monkeypatch.setattr(StateTables, "append", slow)
    tables = StateTables(tmp_path)
    begun = tables.begin_append(
        facts(fact("input", [1], batch=1, lookup_us=1, epoch=0)), Table.FACTS, writer="w", version=1
    )
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(_batches, tables)
        with pytest.raises(TimeoutError):
            found.result(0.1)
        assert not begun.done()
        may_write.set()
        assert found.result(60) == [1]
    assert begun.result() is None


def test_a_scan_after_a_failed_append_has_the_rows_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = StateTables(tmp_path)
    _append(tables, 1)
    monkeypatch.setattr(tables, "_commit", lambda *_: 1 / 0)
    begun = tables.begin_append(
        facts(fact("input", [2], batch=2, lookup_us=2, epoch=0)), Table.FACTS, writer="w", version=2
    )
    assert _batches(tables) == [1]
    with pytest.raises(ZeroDivisionError):
        begun.result()


def test_compaction_beside_appends_and_deletions_changes_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 2)
    tables = StateTables(tmp_path)
    tables.take_over()
    first = 0
    for batch in range(60):
        _append(tables, batch, settled=False)
        _append(tables, batch, settled=False)
        if batch % 20 == 19:
            tables.delete_facts((first := batch - 8) // 5 - 1)
        assert _batches(tables) == list(range(first // 5 * 5, batch + 1))
    tables.close()
    assert len(DeltaTable(str(tmp_path / "facts")).file_uris()) < 20
    assert _batches(StateTables(tmp_path)) == list(range(first // 5 * 5, 60))


def test_files_that_a_successor_joined_meanwhile_are_not_joined_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in range(5):
        _append(StateTables(tmp_path), batch)
    bins, found = state_tables._bins, list[int]()

    def late(folder: Path, files: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        monkeypatch.setattr(state_tables, "_bins", bins)
        StateTables(tmp_path)._compact(Table.FACTS, vacuums=False)
        found.append(len(files))
        return bins(folder, files)

    monkeypatch.setattr(state_tables, "_bins", late)
    StateTables(tmp_path)._compact(Table.FACTS, vacuums=False)
    assert found == [5]
    assert _batches(StateTables(tmp_path)) == list(range(5))
    assert len(DeltaTable(str(tmp_path / "facts")).file_uris()) == 1
    assert len([*(tmp_path / "facts").rglob("part-*.parquet")]) == 6, "what it wrote in vain is gone"


def test_files_stay_if_a_step_after_the_commit_that_names_them_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = StateTables(tmp_path)
    tables.take_over()
    for batch in range(48):
        _append(tables, batch)
    newest = tmp_path / "facts" / "_delta_log" / "_last_checkpoint"
    newest.unlink(missing_ok=True)
    (newest / "not a file").mkdir(parents=True)
    before = DeltaTable(str(tmp_path / "facts"))
    with pytest.raises(OSError, match="rename"):
        join_facts(tmp_path / "facts", before)
    shutil.rmtree(newest)
    assert DeltaTable(str(tmp_path / "facts")).version() == before.version() + 1
    assert _batches(StateTables(tmp_path)) == list(range(48))


def test_files_with_more_ids_than_memory_is_meant_for_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids that follow each other take next to nothing in a file."""
    monkeypatch.setattr(state_tables, "_JOINED_BYTES", 3_000_000)
    tables = StateTables(tmp_path)
    tables.take_over()
    for batch in range(6):
        rows = facts(fact("input", range(batch * 100_000, (batch + 1) * 100_000), batch=batch, lookup_us=batch))
        tables.append(rows, Table.FACTS, writer="w", version=batch)
    join_facts(tmp_path / "facts", DeltaTable(str(tmp_path / "facts")))
    files = pa.table(DeltaTable(str(tmp_path / "facts")).get_add_actions(flatten=True))
    assert sorted(files["num_records"].to_pylist()) == [1, 1, 1, 1, 1, 1]
    assert sum(files["size_bytes"].to_pylist()) < 100_000


def test_a_deletion_waits_for_a_compaction_and_an_append_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta refuses to commit a deletion if its files were joined since it began."""
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 2)
    released, compact = threading.Event(), StateTables._compact

    def late(self: StateTables, table: Table, *, vacuums: bool) -> None:
        released.wait()
        compact(self, table, vacuums=vacuums)

    monkeypatch.setattr(StateTables, "_compact", late)
    tables = StateTables(tmp_path)
    for batch in range(10):
        _append(tables, batch, settled=False)
    assert not released.is_set()
    threading.Timer(0.5, released.set).start()
    tables.delete_facts(0)
    assert released.is_set()
    assert _batches(tables) == list(range(5, 10))


def test_files_deleted_by_retention_do_not_stop_the_cleanup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 10)
    tables = StateTables(tmp_path)
    for batch in range(12):
        _append(tables, batch)
    drop_folders(tables, 0)
    facts_folder = tmp_path / "facts"
    before = set(facts_folder.rglob("epoch=*/*.parquet"))
    DeltaTable(str(facts_folder)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert set(facts_folder.rglob("epoch=*/*.parquet")) < before
    _append(tables, 12)
    assert _batches(tables) == list(range(5, 13))


def test_a_repeated_append_is_recognised_after_compaction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_tables, "COMPACT_EVERY", 2)
    monkeypatch.setattr(state_tables, "_VACUUM_EVERY", 4)
    tables = StateTables(tmp_path)
    for batch in range(12):
        _append(tables, batch)
        _append(tables, batch)
        _append(StateTables(tmp_path), batch)
    assert _batches(tables) == list(range(12))


@pytest.mark.parametrize("name", ["with space", "100%", "key=value", "häßlich", "a#b?c"])
def test_the_state_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    tables = StateTables(tmp_path / name)
    for batch in range(3):
        _append(tables, batch)
    assert _batches(StateTables(tmp_path / name)) == [0, 1, 2]
    assert (tmp_path / name / "facts" / "_delta_log").is_dir()
    tables.delete_facts(0)
    assert _batches(tables) == []


@pytest.mark.parametrize("table", [Table.FACTS, Table.VIOLATIONS, Table.FAULTS, Table.RUNS])
def test_every_column_is_documented(table: Table) -> None:
    page = (Path(__file__).parents[2] / "docs" / "state.md").read_text()
    assert [name for name in SCHEMAS[table].names if f"`{name}`" not in page] == []


def test_a_folder_name_that_delta_would_misread_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PathUnfit, match="name another folder") as refused:
        StateTables(tmp_path / "a%20b")
    assert status_of(refused.value) == 2


def test_a_new_table_has_the_first_turn_from_its_first_commit_on(tmp_path: Path) -> None:
    StateTables(tmp_path).take_over()
    made = [DeltaTable(tmp_path / table.value) for table in Table]
    assert {(one.version(), one.transaction_version("writer")) for one in made} == {(0, 1)}


@pytest.mark.parametrize("table", Table)
def test_a_table_whose_creation_was_cut_off_is_created_by_the_next_start(tmp_path: Path, table: Table) -> None:
    """A full disk or a kill leaves a log without a commit."""
    (tmp_path / table.value / "_delta_log").mkdir(parents=True)
    tables = StateTables(tmp_path)
    tables.take_over()
    assert DeltaTable(tmp_path / table.value).schema().fields[0].name == SCHEMAS[table].names[0]
