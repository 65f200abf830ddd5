"""Results under a condition by brute force: an engine that writes a window's results only from a number of events on.

The world is that of `tests.property.counted`. The engine counts the events that the results of a window have together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Final

from tests.property.counted import CountedCase, counted_history
from tests.property.history import Cell, InputEvent, Record, ResultRecord
from tests.property.spark_histories import Case, Referee
from tests.property.strategies import EVERYTHING, Allowed
from validator.oracles.seam import Oracle
from validator.settings.aggregates import LowerBound

LEAST: Final = 2
"""Number of events from which on the engine writes a result."""


@dataclass(frozen=True)
class HavingCase(CountedCase):
    """A history without the results of windows that have fewer events."""

    @cached_property
    def oracle(self) -> Oracle:
        """The core knows the bound."""
        known = super().oracle
        bounds = {"number": LowerBound(at_least=LEAST)}
        return known.model_copy(update={"having": bounds}).reading(known.reads)

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the bound."""
        return HavingReferee


class HavingReferee(Referee):
    """The reference, in which a window without results owes nothing if it may have too few events (SEMANTICS 2.33)."""

    def expected(self, cell: Cell, id_: str) -> int:
        """Nothing once the window is compared and may have too few events."""
        return 0 if self._owes_nothing(cell, id_) else super().expected(cell, id_)

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """An engine may set events aside before it counts."""
        return 0 if self._owes_nothing(cell, id_) else super().excess(cell, id_, expected)

    def excuses(self, cell: Cell, id_: str) -> tuple[int, int, int]:
        """If the consumed events alone may be too few, all of them wait for the others. If those of them are whose
        answers would surely have been read, no loss is proven."""
        copies, base = self.copies[cell, id_], self.clock.due_base(cell)
        dropped, unconsumed, unprovable = super().excuses(cell, id_)
        if self._is_answered(cell) or not self._surely(cell, id_, copies):
            return dropped, unconsumed, unprovable
        consumed = [copy for copy in copies if not self.is_unconsumed(copy)]
        if not self._surely(cell, id_, consumed):
            return 0, len(copies), 0
        if not self._surely(cell, id_, [copy for copy in consumed if self.clock.is_provable(copy, base)]):
            return dropped, unconsumed, len(consumed) - dropped
        return dropped, unconsumed, unprovable

    def _owes_nothing(self, cell: Cell, id_: str) -> bool:
        copies = self.copies.get((cell, id_), [])
        if not copies or not self.clock.in_scope(cell) or self._is_answered(cell) or self._surely(cell, id_, copies):
            return False
        if self.seen(cell, id_).total() == len(copies):
            # Each is set aside, whether or not the window owes a result.
            return False
        if self.seen(cell, id_).total() and self.is_resolved(cell):
            return True  # SEMANTICS 2.17: its ids are compared before it is due
        at_end = self.ending != "none" and self.clock.now.committed is not None
        return at_end or self.standing(cell) in ("overdue", "missing")

    def _is_answered(self, cell: Cell) -> bool:
        # What states no event stands for a null value.
        return any(result.ids for result in self.results[cell])

    def _surely(self, cell: Cell, id_: str, copies: list[InputEvent]) -> bool:
        on_time = [one for one in copies if not (self.is_dropped(one, cell) or self.may_be_dropped(one, cell))]
        seen = self.seen(cell, id_)
        return len(on_time) - seen["late"] - seen["rejected"] >= LEAST


def having_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> Case:
    """The case that ``seed`` generates. If the engine may err, it keeps some results that it should not write."""
    found, rng = counted_history(seed, causal=causal, steps_most=steps_most, allowed=allowed), Random(seed)
    made = found.anonymous()
    records = [record for step in made.history.steps for record in step.records]
    of_cell = Counter[Cell]()
    for record in records:
        if isinstance(record, ResultRecord):
            of_cell[record.window_start_us, record.key] += len(record.ids)
    kept = {cell for cell, number in of_cell.items() if number >= LEAST or (not causal and rng.random() < 0.2)}

    def is_written(record: Record) -> bool:
        return not isinstance(record, ResultRecord) or (record.window_start_us, record.key) in kept

    steps = tuple(replace(step, records=tuple(filter(is_written, step.records))) for step in made.history.steps)
    return HavingCase(made.seed, causal, replace(made.history, steps=steps))
