"""The tables of a state in memory: appends and scans as in `StateTables`, without files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from validator.state.tables import SCHEMAS, StateTables, Table


class MemoryTables(StateTables):
    """Keeps the appends in order. Its folder does not exist."""

    def __init__(self) -> None:
        super().__init__(Path("/nonexistent/state"))
        self.appended: list[tuple[Table, pa.Table]] = []
        self._versions: dict[tuple[Table, str], int] = {}

    def append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> None:
        if version > self._versions.get((table, writer), -1):
            self._versions[table, writer] = version
            self.appended.append((table, rows.select(SCHEMAS[table].names).cast(SCHEMAS[table])))

    def begin_append(self, rows: pa.Table, table: Table, *, writer: str, version: int) -> Future[None]:
        begun = super().begin_append(rows, table, writer=writer, version=version)
        wait([begun])
        return begun

    def scan(
        self, table: Table, columns: Sequence[str] | None = None, where: ds.Expression | None = None
    ) -> Iterable[pa.Table]:
        for rows in [rows for of_table, rows in self.appended if of_table is table]:
            found = rows if where is None else rows.filter(where)
            if found.num_rows:
                yield found if columns is None else found.select(list(columns))
