"""Copies of events of which results without ids state each id once (`inputs[].duplicates: collapse`, SEMANTICS 2.4).

Fact rows then have the ids of events, and the fields of each (`validator.reconcile.values.fields_of_events`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import pyarrow as pa

from validator.model import arrays
from validator.model.arrays import Bools, Ints, ints, listed, run_starts
from validator.model.stated_values import Values
from validator.oracles.ids import Flags
from validator.reconcile.contributions import INPUT, OUTPUT, OWES_NOTHING, Gathered, Items, sides_of
from validator.reconcile.known_values import fields_of_copies


@dataclass(frozen=True)
class Copies:
    """The id of each entry of a comparison, as `Items.source` numbers them: whether it is a text, and the integer or
    the number of the text. Entries that are results have none, and a group of their own."""

    is_text: Ints
    id: Ints

    @staticmethod
    def of_facts(facts: pa.Table) -> tuple[Ints, Ints, Ints, pa.Array, pa.Array]:
        """Return the row, the offset and the kind of each event of some facts, and the integers and the texts. Events
        of a row are in the order of their fields."""
        (rows, integers), (of_texts, texts) = (listed(facts[name]) for name in ("ids", "text_ids"))
        row = np.concatenate([rows, of_texts])
        kind = np.repeat([0, 1], [len(rows), len(of_texts)])
        offset = np.concatenate([ints(arrays.field(some, "offset")) for some in (integers, texts)])
        mine = (sides_of(facts) != OUTPUT)[row]
        order = np.flatnonzero(mine)[np.argsort(row[mine], kind="stable")]
        return row[order], offset[order], kind[order], arrays.field(integers, "id"), arrays.field(texts, "id")

    @classmethod
    def of(cls, gathered: Gathered) -> Self:
        """Return the ids of all facts."""
        number: dict[str, int] = {}
        kinds, ids = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for facts, _ in gathered:
            _, _, kind, integers, texts = cls.of_facts(facts)
            # The integers of each row come before its texts, and both are in the order of their rows.
            found = np.empty(len(kind), dtype=np.int64)
            found[kind == 0] = ints(integers)
            found[kind == 1] = [number.setdefault(text, len(number)) for text in texts.to_pylist()]
            results = np.full(len(listed(facts["results"])[0]), -1, dtype=np.int64)
            kinds += [kind, results]
            ids += [found, np.arange(len(results))]
        return cls(np.concatenate(kinds), np.concatenate(ids))

    def _ordered(self, items: Items) -> tuple[Ints, Bools, Bools]:
        """Return the events among ``items`` by cell, id and position, which of them is the first one of its id, and
        which is the first of its id and partition."""
        assert items.source is not None, "entries without ids have it"
        events = np.flatnonzero(items.side == INPUT)
        source = items.source[events]
        keys = (
            items.offset[events],
            items.partition[events],
            self.id[source],
            self.is_text[source],
            items.cell[events],
        )
        events = events[np.lexsort(keys)]
        source = items.source[events]
        is_first = run_starts(items.cell[events], self.is_text[source], self.id[source])
        return (
            events,
            is_first,
            run_starts(items.cell[events], self.is_text[source], self.id[source], items.partition[events]),
        )

    def counted_once(self, items: Items, flags: Flags) -> tuple[Items, Flags]:
        """Return the entries and flags, in which the first copy of each id of a cell counts, and the others do not."""
        assert items.times is not None, "entries without ids have it"
        events, is_first, in_partition = self._ordered(items)
        if not len(events):
            return items, flags
        starts = np.flatnonzero(is_first)

        def of_any(condition: Bools) -> Bools:
            found = condition.copy()
            # SEMANTICS 2.5: one such copy excuses the contribution.
            found[events[starts]] = np.logical_or.reduceat(condition[events], starts)
            return found

        def of_first(condition: Bools) -> Bools:
            # SEMANTICS 2.10: the engine has read the first copy of a partition before the others.
            found = condition.copy()
            found[events] = condition[events[in_partition]][np.cumsum(in_partition) - 1]
            return of_any(found)

        side, times = items.side.copy(), items.times.copy()
        repeats = events[~is_first]
        side[repeats], times[repeats] = OWES_NOTHING, 0
        flags = replace(
            flags,
            late=of_first(flags.late),
            doubtful=of_first(flags.doubtful),
            elsewhere=of_first(flags.elsewhere),
            unread=of_any(flags.unread),
            unsure=of_any(flags.unsure),
        )
        return replace(items, side=side, times=times), flags

    def differ(self, gathered: Gathered, items: Items, values: Values, size: int) -> Bools:
        """Return the cells in which copies of an event have different fields, so that it is not known which of these
        the engine used. ``items``: as `counted_once` returns them."""
        assert items.source is not None, "entries without ids have it"
        assert items.times is not None, "entries without ids have it"
        found = np.zeros(size, dtype=np.bool_)
        repeats = np.flatnonzero((items.side == OWES_NOTHING) & (items.times == 0))
        if not len(repeats) or not values.paths:
            return found
        concerned, stored = set(items.cell[repeats].tolist()), fields_of_copies(gathered, len(values.paths))
        seen: dict[tuple[int, int, int], list[object]] = defaultdict(list)
        for i in np.flatnonzero((items.side == INPUT) | (items.times == 0)).tolist():
            if (cell := int(items.cell[i])) in concerned:
                source = int(items.source[i])
                seen[cell, int(self.is_text[source]), int(self.id[source])].append(stored[source])
        for (cell, _, _), fields in seen.items():
            found[cell] |= any(other != fields[0] for other in fields[1:])
        return found
