"""Distinct by brute force, and worlds of it: ids come again, in their window, in another one, and under another key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.property.engine import Engine, Habits
from tests.property.history import Cell, History, InputEvent, Timing
from tests.property.logs import Log
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from validator.oracles.distinct import Distinct

REPEATED_SHARE: Final = 0.4
WRONG_SHARE: Final = 0.4
DELAY_MOST_US: Final = 15
"""With the delays of `World` a repeated event is still visible before the engine comes to rest."""


class DistinctReferee(Referee):
    """The reference: a cell owes an id once, however often it was sent there."""

    def expected(self, cell: Cell, id_: str) -> int:
        """e(c, id)."""
        return 1 if self.copies.get((cell, id_)) else 0

    @property
    def drops_repeats(self) -> bool:
        """That is what it is."""
        return True


class DistinctEngine(Engine):
    """Lets an id pass once of all events that are ``told_apart`` by nothing: one that is right asks for cell and id.

    An event that is dropped for its lateness may or may not keep later ones of its id from passing.
    """

    def __init__(
        self,
        rng: Random,
        timing: Timing,
        habits: Habits,
        inputs: Sequence[Log],
        told_apart: Callable[[Cell, InputEvent], Hashable],
    ) -> None:
        super().__init__(rng, timing, habits, inputs)
        self.told_apart = told_apart
        self.passed: set[Hashable] = set()

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        [cell] = self._cells(event)
        name = self.told_apart(cell, event)
        if name in self.passed:
            return
        answered, waiting = len(self.answers), len(self.pending.get(cell, ()))
        super()._take(now, event, late)
        is_dropped = (len(self.answers), len(self.pending.get(cell, ()))) == (answered, waiting)
        if not is_dropped or self.rng.random() < 0.5:
            self.passed.add(name)


def by_cell(cell: Cell, event: InputEvent) -> Hashable:
    """As the oracle has it."""
    return cell, event.id


def by_key(cell: Cell, event: InputEvent) -> Hashable:
    """Wrong: an id passes once per key, not once per window."""
    return cell[1], event.id


def by_window(cell: Cell, event: InputEvent) -> Hashable:
    """Wrong: an id passes once per window, not once per key."""
    return cell[0], event.id


def by_record(cell: Cell, event: InputEvent) -> Hashable:
    """Wrong: every event passes."""
    return cell, event.topic, event.partition, event.offset


class DistinctWorld(World):
    """One random world in which ids come again."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool) -> None:
        self.repeats = Random(rng.random())
        is_wrong = faults and self.repeats.random() < WRONG_SHARE
        self.told_apart = self.repeats.choice((by_key, by_window, by_record)) if is_wrong else by_cell
        super().__init__(rng, allowed, faults)

    def _timing(self) -> Timing:
        # `collapse` is refused beside this oracle.
        return replace(super()._timing(), duplicates="count")

    def _engine(self, habits: Habits) -> Engine:
        return DistinctEngine(self.rng, self.timing, habits, self.inputs, self.told_apart)

    def _produce_one(self, log: Log, event: InputEvent) -> None:
        super()._produce_one(log, event)
        rng, window_us = self.repeats, self.timing.window_us
        if rng.random() < REPEATED_SHARE:
            again = replace(
                event,
                broker_time_us=event.broker_time_us + rng.randint(0, DELAY_MOST_US),
                # The same instant, another one of the same window or of a neighbour, and the same place in another.
                event_time_us=event.event_time_us + rng.choice((0, 0, -1, 1, -window_us, window_us)),
                key=event.key if rng.random() < 0.8 else rng.choice("abc"),
            )
            super()._produce_one(rng.choice(self.inputs), again)


def distinct_history(rng: Random, *, causal: bool, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee, or of one that may be broken in any way."""
    return DistinctWorld(rng, allowed, faults=not causal).history()


@dataclass(frozen=True)
class DistinctCase(Case):
    """One history in which repeats are owed nothing."""

    @property
    def referee(self) -> type[Referee]:
        """Who says what the verdicts are."""
        return DistinctReferee

    @property
    def oracle(self) -> Distinct:
        """What the core takes the pipeline for."""
        timing = self.history.timing
        return Distinct.of(timing.window_us, timing.window_offset_us)


def distinct_case(seed: int, *, causal: bool, steps_most: int) -> DistinctCase:
    """The case of a seed."""
    rng = Random(seed)
    history = distinct_history(rng, causal=causal)
    if not causal:
        history = odder(history, rng)
    return DistinctCase(seed, causal, stretched(coarser(history, rng, steps_most)))
