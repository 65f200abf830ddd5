"""Any client can write to the faults topic. A record that no table can hold would end the sidecar at every start."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from validator.state.tables import StateTables, Table, rows_of
from validator.stream.fault_records import _window, record
from validator.stream.fault_rows import decoded

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbooks" / "StreamproofFaultNotHealed.md"
RECORD = {"id": "1", "kind": "kill", "target": "a", "state": "injected", "time": "2026-01-01T00:00:00Z", "seed": 7}


def test_a_record_becomes_a_row_that_the_table_holds() -> None:
    row = decoded(json.dumps(RECORD).encode())
    assert row is not None
    assert (row["name"], row["seed"], row["time_us"]) == ("kill", 7, 1_767_225_600_000_000)
    assert rows_of(Table.FAULTS, [row]).num_rows == 1


@pytest.mark.parametrize(
    ("given", "expects"),
    [
        (["duplicate", "overdue"], {"duplicate", "overdue"}),
        (["duplicates", "undecodable", 7, None, "missing"], {"missing"}),
        ([], set()),
        ("duplicate", set()),  # a part of a word is not a class
        (None, set()),
        ({"missing": 1}, set()),
    ],
    # Sorted, since test processes that run in parallel need the same names.
    ids=lambda value: str(sorted(value)) if isinstance(value, set) else str(value),
)
def test_a_window_expects_the_classes_that_its_record_names(given: object, expects: set[str]) -> None:
    row = decoded(json.dumps({**RECORD, "expects": given}).encode())
    assert row is not None
    assert _window([row]).expects == expects


def test_a_record_of_another_tool_expects_nothing() -> None:
    row = decoded(json.dumps(RECORD).encode())
    assert row is not None
    assert _window([row]).expects == frozenset()


@pytest.mark.parametrize(
    "odd",
    [
        *[{"seed": seed} for seed in (2**63, -(2**63) - 1, float("inf"), float("nan"), "x", [1])],
        *[{"id": "\ud800"}, {"target": "\udfff"}, {"time": "yesterday"}, {"time": 5}, {"state": "broken"}],
    ],
    ids=str,
)
def test_a_record_that_does_not_fit_the_table_is_ignored(odd: dict[str, object]) -> None:
    assert decoded(json.dumps({**RECORD, **odd}).encode()) is None


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"5", b"null", b"\xff", b"[" * 100_000], ids=lambda value: repr(value[:9])
)
def test_an_invalid_record_is_ignored(value: bytes) -> None:
    assert decoded(value) is None


def test_a_start_that_reads_the_topic_again_adds_nothing_twice(tmp_path: Path) -> None:
    def read(upto: int) -> list[dict[str, object]]:
        rows = [decoded(json.dumps({**RECORD, "id": str(offset)}).encode()) for offset in range(upto)]
        return [{**row, "topic": "faults", "partition": 0, "offset": at} for at, row in enumerate(rows) if row]

    for batch, upto in enumerate((2, 2, 3, 3)):
        record(StateTables(tmp_path), read(upto), batch)
    record(StateTables(tmp_path), [{**read(1)[0], "offset": 3}], 9)
    found = [row for part in StateTables(tmp_path).scan(Table.FAULTS) for row in part.to_pylist()]
    assert sorted((row["offset"], row["id"], row["batch"]) for row in found) == [
        (0, "0", 0),
        (1, "1", 0),
        (2, "2", 2),
        (3, "0", 9),
    ]


def test_the_record_that_the_runbook_gives_ends_a_fault() -> None:
    [command] = re.findall(r"\$ (printf .*) > healed\.txt", RUNBOOK.read_text(encoding="utf-8"))
    written = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout
    key, value = written.removesuffix("\n").split("\t")
    row = decoded(value.encode())
    assert row is not None
    assert (row["id"], row["kind"], row["target"], row["state"]) == (key, "KIND", "TARGET", "healed")
    assert rows_of(Table.FAULTS, [row]).num_rows == 1
