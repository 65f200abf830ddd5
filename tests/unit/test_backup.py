"""A backup of a state while a sidecar commits batches to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from validator.state import backup as module
from validator.state import folder
from validator.state.backup import backup
from validator.state.tables import StateTables, Table, rows_of

IN_ORDER = (Table.FACTS, Table.FAULTS, Table.VIOLATIONS, Table.VERDICTS, Table.FRONTIERS)
"""The order in which a batch appends to the tables."""


class Sidecar:
    def __init__(self, state: Path) -> None:
        folder.take(state)
        self._tables = StateTables(state)
        self._tables.take_over()
        self._batches = 0

    def batch(self) -> None:
        self._batches += 1
        for table in IN_ORDER:
            row = {"batch": self._batches, **({"epoch": 0} if table is Table.FACTS else {})}
            self._tables.append(rows_of(table, [row]), table, writer="w", version=self._batches)


def _batches_of(state: Path, table: Table) -> list[int]:
    return sorted(number for part in StateTables(state).scan(table, ["batch"]) for number in part["batch"].to_pylist())


@pytest.mark.full
@pytest.mark.timeout(400)
def test_no_table_of_a_copy_is_ahead_of_an_earlier_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole batch is committed between any two accesses of the backup. Some batches also start compactions and
    checkpoints of the log."""
    state, copy = tmp_path / "state", tmp_path / "a copy"
    sidecar = Sidecar(state)
    for _ in range(97):
        sidecar.batch()

    def looked_up(path: str) -> Any:
        if Path(path).is_relative_to(state):
            sidecar.batch()
        return DeltaTable(path)

    monkeypatch.setattr(module, "DeltaTable", looked_up)
    assert backup(state, copy) > 0
    newest = [_batches_of(copy, table) for table in IN_ORDER]
    assert newest == [list(range(1, len(found) + 1)) for found in newest]
    ends = [len(found) for found in newest]
    assert ends == sorted(ends, reverse=True)
    assert ends[-1] >= 97
    # A sidecar can continue in the copy.
    assert folder.is_state(copy)
    StateTables(copy).take_over()


def test_an_incomplete_copy_is_not_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, copy = tmp_path / "state", tmp_path / "copy"
    Sidecar(state).batch()
    (state / "identity.json").write_text("{}")
    taken = iter(range(3))

    def full(source: Path, target: Path) -> None:
        if next(taken, None) is None:
            raise OSError(28, "No space left on device")
        target.write_bytes(source.read_bytes())

    monkeypatch.setattr(module, "_copied", full)
    with pytest.raises(OSError, match="No space left"):
        backup(state, copy)
    assert not folder.is_state(copy)
    monkeypatch.undo()
    with pytest.raises(folder.StateRefused, match="holds files"):
        backup(state, copy)
    with pytest.raises(folder.StateRefused, match="inside the state"):
        backup(state, state / "copy")
    with pytest.raises(folder.StateRefused, match="is not a state"):
        backup(tmp_path, tmp_path / "other")
