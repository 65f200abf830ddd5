"""Evidence `values` by brute force: the reference judges the same world, in which all events of a cell have one id.

The id of an event is the name of its cell. A result that states a number lists the name of its cell so many times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final

from tests.property.history import Cell, InputEvent, LateRecord, Record, ResultRecord, Timing
from tests.property.spark_histories import Case, case
from tests.property.strategies import EVERYTHING, Allowed
from validator.oracles.seam import Oracle, Reads

ANOTHER: Final = 1_000_003
"""Distance to the next seed, if a history has repeats that the pipeline drops: they need ids."""


def counting(oracle: Oracle) -> Oracle:
    """The oracle whose results state the number of their events."""
    return oracle.model_copy(update={"values": {"number": "count"}})


@dataclass(frozen=True)
class CountedCase(Case):
    """A history whose results state how many events they used."""

    @cached_property
    def oracle(self) -> Oracle:
        """The core counts."""
        return counting(super().oracle).reading(Reads(evidence="values", names_ids=False))

    def anonymous(self) -> CountedCase:
        """The same history without the ids of its events."""
        timing = self.history.timing
        steps = tuple(
            replace(step, records=tuple(_anonymous(record, timing) for record in step.records))
            for step in self.history.steps
        )
        return replace(self, history=replace(self.history, steps=steps))


def counted_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> CountedCase:
    """The case that ``seed`` generates, as `spark_histories.case`."""
    return counted_history(seed, causal=causal, steps_most=steps_most, allowed=allowed).anonymous()


def counted_history(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> CountedCase:
    """The case of a seed, with the ids of its events."""
    for other in count(seed, ANOTHER):
        found = case(other, causal=causal, steps_most=steps_most, allowed=allowed)
        if found.history.timing.duplicates == "count":
            break
    return CountedCase(other, causal, found.history)


def _anonymous(record: Record, timing: Timing) -> Record:
    match record:
        case InputEvent() | LateRecord():
            return replace(record, id=_name(*timing.cells(record.key, record.event_time_us)))
        case ResultRecord():
            return replace(record, ids=(_name((record.window_start_us, record.key)),) * len(record.ids))
        case _:
            return record


def _name(cell: Cell) -> str:
    return f"{cell[1]}@{cell[0]}"
