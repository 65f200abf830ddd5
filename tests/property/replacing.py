"""Emission `cumulative` with windows, by brute force: of a window's results only the last one that was read counts.

The results of random worlds of the tumbling window become running ones: each repeats the ids of those before it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TypeVar

from tests.property.clock import Clock
from tests.property.counted import counted_case, counting
from tests.property.history import Cell, Ending, History, PartitionState, Record, ResultRecord, Step, Timing
from tests.property.spark_histories import Case, Referee, case
from tests.property.strategies import EVERYTHING, Allowed
from validator.oracles.seam import Oracle, Reads

Place = TypeVar("Place", Record, PartitionState)

RESTORES = 0.1
"""Share of the results of a broken engine that do not repeat the ids before them, as after a lost checkpoint."""


class ReplacingClock(Clock):
    """Time in which a cell is due from its newest result on."""

    def __init__(self, timing: Timing, steps: tuple[Step, ...]) -> None:
        super().__init__(timing, steps)
        self.of_cell: dict[Cell, list[tuple[Step, ResultRecord]]] = defaultdict(list)
        for step in steps:
            results = [record for record in step.records if isinstance(record, ResultRecord)]
            for record in sorted(results, key=lambda it: it.offset):
                self.of_cell[self.cell_of(record)].append((step, record))

    def due_base(self, cell: Cell) -> int | None:
        """As for any cell, but at the earliest when the newest result was read."""
        base, results = super().due_base(cell), self.of_cell[cell]
        return base if base is None or not results else max(base, results[-1][0].lookup_us)

    def is_scattered(self, cell: Cell) -> bool:
        """Whether the results are on several partitions, so that it is unknown which one is the newest."""
        return len({(one.topic, one.partition) for _, one in self.of_cell[cell]}) > 1

    def in_scope(self, cell: Cell) -> bool:
        """As for any cell, if its newest result is known."""
        return super().in_scope(cell) and not self.is_scattered(cell)


class ReplacingReferee(Referee):
    """The reference, with the newest result of each cell only."""

    clock_type = ReplacingClock

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        clock = self.clock
        assert isinstance(clock, ReplacingClock)
        for cell, results in clock.of_cell.items():
            if results and not clock.is_scattered(cell):
                self.results[cell].append(results[-1][1])
                for id_ in results[-1][1].ids:
                    self.observed[cell, id_]["output"] += 1

    def _take(self, step: Step, record: Record) -> None:
        if not isinstance(record, ResultRecord):
            super()._take(step, record)
            return
        cell = self.clock.cell_of(record)
        self.clock.touched[cell].append(step.lookup_us)
        self.last_observed_us[cell] = step.lookup_us


@dataclass(frozen=True)
class ReplacingCase(Case):
    """A history whose results replace each other. ``several``: they are in several topics."""

    several: bool = False

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return ReplacingReferee

    @cached_property
    def oracle(self) -> Oracle:
        """The core keeps the newest results."""
        return super().oracle.reading(Reads(replaces=True, several_outputs=self.several))


@dataclass(frozen=True)
class CountedReplacingCase(ReplacingCase):
    """As `ReplacingCase`, with counts instead of ids."""

    @cached_property
    def oracle(self) -> Oracle:
        """The core counts."""
        return counting(super().oracle).reading(
            Reads(replaces=True, several_outputs=self.several, evidence="values", names_ids=False)
        )


def replacing_case(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    counted: bool = False,
    several: bool = False,
    allowed: Allowed = EVERYTHING,
) -> ReplacingCase:
    """The case that ``seed`` generates. ``counted``: results state counts. ``several``: each partition of the output is
    one of another topic."""
    made = (counted_case if counted else case)(seed, causal=causal, steps_most=steps_most, allowed=allowed)
    kind = CountedReplacingCase if counted else ReplacingCase
    history = running(made.history, Random(seed), restores=0 if causal else RESTORES)
    return kind(made.seed, causal, in_topics(history) if several else history, several)


def in_topics(history: History) -> History:
    """The same history, in which the second partition of the output is one of another topic."""

    def moved(at: Place) -> Place:
        return replace(at, topic="to-more") if at.topic == "to-output" and at.partition == 1 else at

    steps = tuple(
        replace(step, records=tuple(map(moved, step.records)), partitions=tuple(map(moved, step.partitions)))
        for step in history.steps
    )
    return replace(history, steps=steps)


def running(history: History, rng: Random, *, restores: float) -> History:
    """The same history, in which each result repeats the ids of the earlier results of its cell."""
    ids: dict[Cell, tuple[str, ...]] = defaultdict(tuple)

    def repeated(record: Record) -> Record:
        if not isinstance(record, ResultRecord):
            return record
        cell = (record.window_start_us, record.key)
        ids[cell] = record.ids if rng.random() < restores else (*ids[cell], *record.ids)
        return replace(record, ids=ids[cell])

    steps = []
    for step in history.steps:
        changed = {id(record): repeated(record) for record in sorted(step.records, key=lambda it: it.offset)}
        steps.append(replace(step, records=tuple(changed[id(record)] for record in step.records)))
    return replace(history, steps=tuple(steps))
