"""Anyone may write to the faults topic: a record that no table can hold would end the sidecar at every start."""

from __future__ import annotations

import json

import pytest

from validator.state.tables import Table, rows_of
from validator.stream.faults_topic import _row

RECORD = {"id": "1", "kind": "kill", "target": "a", "state": "injected", "time": "2026-01-01T00:00:00Z", "seed": 7}


def test_a_record_becomes_a_row_that_the_table_holds() -> None:
    row = _row(json.dumps(RECORD).encode())
    assert row is not None
    assert (row["name"], row["seed"], row["time_us"]) == ("kill", 7, 1_767_225_600_000_000)
    assert rows_of(Table.FAULTS, [row]).num_rows == 1


@pytest.mark.parametrize(
    "odd",
    [
        *[{"seed": seed} for seed in (2**63, -(2**63) - 1, float("inf"), float("nan"), "x", [1])],
        *[{"id": "\ud800"}, {"target": "\udfff"}, {"time": "yesterday"}, {"time": 5}, {"state": "broken"}],
    ],
    ids=str,
)
def test_a_record_that_the_table_cannot_hold_is_none(odd: dict[str, object]) -> None:
    assert _row(json.dumps({**RECORD, **odd}).encode()) is None


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"5", b"null", b"\xff", b"[" * 100_000], ids=lambda value: repr(value[:9])
)
def test_what_is_no_record_is_none(value: bytes) -> None:
    assert _row(value) is None
