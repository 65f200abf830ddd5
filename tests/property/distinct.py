"""Distinct by brute force, and random worlds with repeated ids: in the same window, in another one, and under another
key.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
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
"""With the delays of `World`, a repeated event still becomes visible before the engine comes to rest."""


class DistinctReferee(Referee):
    """The reference: a cell owes each id once, however often producers sent it."""

    def expected(self, cell: Cell, id_: str) -> int:
        """e(c, id)."""
        return 1 if self.copies.get((cell, id_)) else 0

    @property
    def drops_repeats(self) -> bool:
        """Always true: that is the oracle's definition."""
        return True


class DistinctEngine(Engine):
    """Passes the first event of each ``told_apart`` value. A correct engine distinguishes events by cell and id.

    If an event was dropped as late, later ones with its id may or may not pass.
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
    """The correct choice: an id passes once per cell."""
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
    """One random world in which ids are repeated."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool) -> None:
        self.repeats = Random(rng.random())
        is_wrong = faults and self.repeats.random() < WRONG_SHARE
        self.told_apart = self.repeats.choice((by_key, by_window, by_record)) if is_wrong else by_cell
        super().__init__(rng, allowed, faults)

    def _timing(self) -> Timing:
        # The configuration refuses `collapse` for this oracle.
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
                # The same instant, a neighbouring instant, or the same place in a neighbouring window.
                event_time_us=event.event_time_us + rng.choice((0, 0, -1, 1, -window_us, window_us)),
                key=event.key if rng.random() < 0.8 else rng.choice("abc"),
            )
            super()._produce_one(rng.choice(self.inputs), again)


def distinct_history(rng: Random, *, causal: bool, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee (``causal``), or of one that may be broken in any way."""
    return DistinctWorld(rng, allowed, faults=not causal).history()


@dataclass(frozen=True)
class DistinctCase(Case):
    """One history for the distinct oracle."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return DistinctReferee

    @cached_property
    def oracle(self) -> Distinct:
        """The oracle with which the core judges it."""
        timing = self.history.timing
        return Distinct.of(timing.window_us, timing.window_offset_us)


def distinct_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> DistinctCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = distinct_history(rng, causal=causal, allowed=allowed)
    if not causal:
        history = odder(history, rng)
    return DistinctCase(seed, causal, stretched(coarser(history, rng, steps_most)))
