"""A state with missing or damaged files is refused with one sentence. The sidecar never judges from the rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.reconcile_rows import fact, facts
from validator.cli.exits import status_of
from validator.model.progress import TimeRules
from validator.oracles.tumbling_window import TumblingWindow
from validator.state.tables import StateTables, Table
from validator.stream.recovery import StateDamaged, recover

RULES = TimeRules(0, 1)


def _a_data_file(table: Path) -> Path:
    return next(iter(sorted(table.glob("epoch=*/*.parquet"))))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


DAMAGES: dict[str, Callable[[Path], None]] = {
    "a data file is gone": lambda table: _a_data_file(table).unlink(),
    "a data file is cut": lambda table: _cut(_a_data_file(table)),
    "a commit is gone": lambda table: (table / "_delta_log" / f"{1:020}.json").unlink(),
    "the last commit is cut": lambda table: _cut(table / "_delta_log" / f"{2:020}.json"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_state_is_refused(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    tables = StateTables(tmp_path)
    frontier = {"topic_id": "x", "first_offset": 0, "next_offset": 1, "log_start_offset": 0, "high_watermark": 1}
    for batch in range(3):
        of_batch = {"kind": "frontier", "batch": batch, "lookup_us": batch, "side": "input", "topic": "input"}
        frontier_row = {**of_batch, "partition": 0, "epoch": 0, "frontier": {**frontier, "last_stable_offset": 1}}
        rows = facts(fact("input", [batch], batch=batch, lookup_us=batch), frontier_row)
        tables.append(rows, Table.FACTS, writer="w", version=batch)
    damage(tmp_path / "facts")
    with pytest.raises(StateDamaged) as refused:
        recover(StateTables(tmp_path), RULES, TumblingWindow.of(1))
    assert str(tmp_path) in str(refused.value)
    assert "give state.path a new folder" in str(refused.value)
    assert status_of(refused.value) == 3
