"""Evidence `values` where the pipeline drops repeats (`duplicates: collapse`), by brute force.

The events of the inputs have ids, and results state how many different ones they used, and aggregates of their amounts.
The reference judges a cell as one thing that is owed once for each of its different ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final

from tests.property.counted import ANOTHER
from tests.property.history import SIDE_CHANNELS, Cell, History, InputEvent, Record, ResultRecord, Step
from tests.property.history_facts import _id as numbered
from tests.property.spark_histories import Case, Referee, case
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import ValuedCase, ValuedReferee, valued
from validator.oracles.seam import Oracle

OF_DIFFERENT: Final = {
    "number": "count",
    "total": "sum(amount)",
    "least": "min(amount)",
    "kinds": "distinct(amount)",
}


@dataclass(frozen=True)
class CollapsedCase(ValuedCase):
    """A history whose results state aggregates over different events."""

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with the aggregates, for events with ids."""
        known = super().oracle
        return known.reading(known.reads._replace(collapses=True, has_ids=True))

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        known = {"amounts": dict(self.values), "aggregates": dict(self.aggregates)}
        return type("OfDifferent", (CollapsedReferee,), known)

    @property
    def copies_explain(self) -> bool:
        """A hidden event may have a new id."""
        return True

    def id_of(self, record: Record) -> int | str:  # type: ignore[override]
        """The id of an event."""
        return numbered(0, record.id) if isinstance(record, InputEvent) else 0


class CollapsedReferee(ValuedReferee):
    """The reference, in which a cell is owed once for each different id of its events."""

    def _take(self, step: Step, record: Record) -> None:
        if isinstance(record, ResultRecord):
            # A history that is stretched moves its cells.
            record = replace(record, ids=(name_of((record.window_start_us, record.key)),) * len(record.ids))
        super()._take(step, record)
        if isinstance(record, InputEvent):
            for cell in self.clock.cells_of(record):
                self.copies[cell, name_of(cell)].append(record)

    def ids(self, cell: Cell) -> list[str]:
        """The cell is one thing."""
        return [name_of(cell)]

    def by_id(self, cell: Cell) -> Mapping[str, list[InputEvent]]:
        """The copies of each event of a cell."""
        found: dict[str, list[InputEvent]] = {}
        for copy in self.copies.get((cell, name_of(cell)), ()):
            found.setdefault(copy.id, []).append(copy)
        return found

    def expected(self, cell: Cell, id_: str) -> int:
        """Each different id once."""
        return len(self.by_id(cell)) if id_ == name_of(cell) else 0

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """There are no topics of events that were set aside."""
        return max(0, self.seen(cell, id_).total() - expected)

    def excuses(self, cell: Cell, id_: str) -> tuple[int, int, int]:
        """How many ids have an excuse: that of any of their copies, the first of its partition for lateness."""
        base = self.clock.due_base(cell)
        dropped = unconsumed = unprovable = 0
        for copies in self.by_id(cell).values():
            firsts = [self.first_copy(copy, cell) for copy in copies]
            if any(map(self.is_unconsumed, copies)):
                unconsumed += 1
            elif any(self.is_dropped(first, cell) for first in firsts):
                dropped += 1
            elif any(self.may_be_dropped(first, cell) for first in firsts) or not all(
                self.clock.is_provable(copy, base) for copy in copies
            ):
                unprovable += 1
        return dropped, unconsumed, unprovable

    def explicable(self) -> set[str]:
        """A hidden event may have a new id, so that it explains a number that is too large."""
        return {*super().explicable(), "duplicate"}

    def is_wrong(self, cell: Cell) -> bool:
        """As in `ValuedReferee`, for one copy of each event."""
        by_id, seen = self.by_id(cell), self.seen(cell, name_of(cell)).total()
        left = len(by_id) - seen
        if not by_id or left < 0 or not self.results[cell]:
            return False
        free = []
        for copies in by_id.values():
            firsts = [self.first_copy(copy, cell) for copy in copies]
            if any(self.is_dropped(one, cell) or self.may_be_dropped(one, cell) for one in firsts):
                free.append(copies[0])
        every = [copy for copies in by_id.values() for copy in copies]
        if self.standing(cell) != "missing" or left > len(free) or any(map(self.is_unconsumed, every)):
            return False
        if not all(self.clock.is_provable(copy, None) for copy in every):
            return False
        return self._is_impossible(cell, [copies[0] for copies in by_id.values()], free if left else [])


def name_of(cell: Cell) -> str:
    """The one thing that a cell owes."""
    return f"{cell[1]}@{cell[0]}"


def collapsed_case(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    aggregates: Mapping[str, str] = OF_DIFFERENT,
    allowed: Allowed = EVERYTHING,
) -> CollapsedCase:
    """The case that ``seed`` generates."""
    for other in count(seed, ANOTHER):
        named = case(other, causal=causal, steps_most=steps_most, allowed=allowed)
        roles = {state.role for step in named.history.steps for state in step.partitions}
        if named.history.timing.duplicates == "collapse" and roles.isdisjoint(SIDE_CHANNELS):
            break
    found = valued(Case(other, causal, named.history), replace(named, history=in_numbers(named.history)), aggregates)
    return CollapsedCase(found.seed, causal, found.history, found.aggregates, found.values)


def in_numbers(history: History) -> History:
    """The same history, in which results do not name events."""

    def counted(record: Record) -> Record:
        if not isinstance(record, ResultRecord):
            return record
        return replace(record, ids=(name_of((record.window_start_us, record.key)),) * len(record.ids))

    steps = tuple(replace(step, records=tuple(map(counted, step.records))) for step in history.steps)
    return replace(history, steps=steps)
