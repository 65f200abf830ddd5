"""The tables of a state in memory: appends and scans as in `StateTables`, without files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from validator.state.tables import SCHEMAS, StateTables, Table


class MemoryTables(StateTables):
    """Keeps the appends in order. ``state``: a folder that gets an empty folder for each epoch of the facts, so that
    retention can drop them; by default there is no folder."""

    def __init__(self, state: Path = Path("/nonexistent/state")) -> None:
        super().__init__(state)
        self.appended: list[tuple[Table, pa.Table]] = []
        self._versions: dict[tuple[Table, str], int] = {}

    def append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> None:
        if version > self._versions.get((table, writer), -1):
            self._versions[table, writer] = version
            self.appended.append((table, rows.select(SCHEMAS[table].names).cast(SCHEMAS[table])))
            if table is Table.FACTS and self.state.exists():
                for epoch in set(rows["epoch"].to_pylist()):
                    (self.state / table.value / f"epoch={epoch}").mkdir(parents=True, exist_ok=True)

    def begin_append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> Future[None]:
        begun = super().begin_append(rows, table, writer=writer, version=version)
        wait([begun])
        return begun

    def delete_facts(self, through_epoch: int) -> None:
        """As in `StateTables`."""
        stays = ds.field("epoch") > through_epoch
        self.appended = [(of, rows.filter(stays) if of is Table.FACTS else rows) for of, rows in self.appended]

    def scan(
        self, table: Table, columns: Sequence[str] | None = None, where: ds.Expression | None = None
    ) -> Iterable[pa.Table]:
        parts = [rows for of_table, rows in self.appended if of_table is table]
        # A filter takes ten times as long over the many chunks of the appends.
        rows = pa.concat_tables([SCHEMAS[table].empty_table(), *parts]).combine_chunks()
        found = rows if where is None else rows.filter(where)
        if found.num_rows:
            yield found if columns is None else found.select(list(columns))
