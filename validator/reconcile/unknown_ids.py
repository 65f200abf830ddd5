"""Ids in answers that no input had when their cells were compared. Once an input has such an id, its cells are compared
again (SEMANTICS 2.7). Otherwise the class of the id would depend on whether the sidecar was restarted since."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.model.arrays import Bools, Ints, field, is_one_of, listed
from validator.reconcile.facts import Side

ROOM_BYTES: Final = 64 * 1024 * 1024
"""Memory for ids. An id that does not fit stays unknown until its cell is compared for another reason, or after a
restart."""

Unknown = tuple[Ints, pa.Array]
"""Ids of one kind, integers or texts: the row of each id's cell, and the ids."""


class UnknownIds:
    """The unknown ids of the cells in memory, by row."""

    def __init__(self, room_bytes: int = ROOM_BYTES) -> None:
        self._room = room_bytes
        none = np.empty(0, dtype=np.int64)
        self._kinds: dict[str, Unknown] = {
            "ids": (none, pa.array([], pa.int64())),
            "text_ids": (none, pa.array([], pa.string())),
        }

    def compared(self, rows: Ints, numbers: Unknown, texts: Unknown) -> None:
        """Replace the unknown ids of the cells ``rows``, which were compared."""
        for name, (of_rows, ids) in zip(self._kinds, (numbers, texts), strict=True):
            self._keep(name, ~np.isin(self._kinds[name][0], rows))
            known_rows, known = self._kinds[name]
            if len(ids) and self._bytes() + of_rows.nbytes + ids.nbytes <= self._room:
                self._kinds[name] = np.concatenate([known_rows, of_rows]), pa.concat_arrays([known, ids])

    def read(self, facts: pa.Table) -> Ints:
        """Return the rows of the cells with an unknown id that an input event in ``facts`` has."""
        found = []
        for name, (rows, ids) in self._kinds.items():
            if len(ids):
                inputs = facts.filter(pa.array(is_one_of(facts["side"], Side.INPUT.value)))
                events = field(listed(inputs[name])[1], "id")
                has = pc.is_in(ids, value_set=events.cast(ids.type))
                found.append(rows[np.asarray(has.to_numpy(zero_copy_only=False), dtype=np.bool_)])
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def drop(self, removed: Bools) -> None:
        """Remove the cells for which ``removed`` holds. All row numbers change."""
        number = np.cumsum(~removed) - 1
        for name in self._kinds:
            self._keep(name, ~removed[self._kinds[name][0]])
            rows, ids = self._kinds[name]
            self._kinds[name] = number[rows], ids

    def _keep(self, name: str, retained: Bools) -> None:
        if not retained.all():
            rows, ids = self._kinds[name]
            self._kinds[name] = rows[retained], ids.filter(pa.array(retained))

    def _bytes(self) -> int:
        return sum(rows.nbytes + ids.nbytes for rows, ids in self._kinds.values())
