"""Passthrough and filter by brute force, and random worlds of them: each event has a result, which names the event's
time.

A third of the worlds filter nothing. In the others a filter rejects the events of some ids. The engine may set such an
event aside before filtering, as late or as rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from random import Random
from typing import Final

from tests.property.engine import Answer, Engine, Habits
from tests.property.history import Cell, History, InputEvent, Record, ResultRecord, Step, Timing
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from validator.oracles.passthrough import Filter, Passthrough, Where

REJECTED_OF: Final = {"none": 0, "half": 2, "third": 3}
"""Name of a filter -> n, if the filter rejects about one id in n; 0: none."""


@dataclass(frozen=True)
class PassthroughTiming(Timing):
    """The declared timing of a pipeline without windows. ``window_us`` is the size of a bucket, whose offset is 0.
    ``rejects``: a key of `REJECTED_OF`, or "x" to reject every id that begins with "x"."""

    rejects: str = "none"

    def owes(self, event: InputEvent) -> bool:
        """Whether the filter lets an event pass."""
        if self.rejects == "x":
            return not event.id.startswith("x")
        every = REJECTED_OF[self.rejects]
        number = int(event.id) if every else 0
        if not every or number % every:
            return True
        # Some events have one copy that passes and one that does not, as after a correction of the field.
        return number % (2 * every) == 0 and event.partition == 0

    def cell_of_result(self, result: ResultRecord) -> Cell:
        """The bucket of the time that a result names."""
        return self.window_start(result.window_start_us), result.key


class PassthroughReferee(Referee):
    """The reference: a late or rejected record of an event that is owed nothing does not count for the cell's other
    events."""

    def _take(self, step: Step, record: Record) -> None:
        if not hasattr(self, "owe_nothing"):
            self.owe_nothing: Counter[tuple[Cell, str]] = Counter()
        if isinstance(record, InputEvent) and not self.timing.owes(record):
            for cell in self.timing.cells(record.key, record.event_time_us):
                self.owe_nothing[cell, record.id] += 1
        super()._take(step, record)

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """The excess. Late and rejected records of events that owe nothing are not counted. If the cell has events with
        the id and all of them owe nothing, no late or rejected record is in excess."""
        seen, others = self.observed.get((cell, id_), Counter()), self.owe_nothing[cell, id_]
        aside = seen["late"] + seen["rejected"]
        if expected == 0:
            return seen["output"] + (0 if others else aside)
        repeats = len(self.copies.get((cell, id_), ())) - expected
        return max(0, seen["output"] + aside - min(aside, others + repeats) - expected)


class PassthroughEngine(Engine):
    """Answers each event on its own. ``forgets``: the share of rejected events that it answers by mistake."""

    forgets = 0.0

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        if self.timing.owes(event):
            super()._take(now, event, late)
            return
        [home] = self.timing.cells(event.key, event.event_time_us)
        aside = [role for role in ("late", "rejected") if role in self.habits.side_channels]
        if aside and self.rng.random() < 0.4:
            self.answers.append(Answer(now, self.rng.choice(aside), home, (event.id,), event))
        elif self.rng.random() < self.forgets:
            self.answers.append(Answer(now, "output", home, (event.id,)))

    def _emit(self, now: int, cell: Cell) -> None:
        for id_ in self.pending.pop(cell):
            self.answers.append(Answer(now, "output", cell, (id_,)))


class PassthroughWorld(World):
    """One random world of events that are answered one by one."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool) -> None:
        self.own = Random(rng.random())
        self.forgets = self.own.choice((0.0, 0.3)) if faults else 0.0
        super().__init__(rng, allowed, faults)

    def _timing(self) -> Timing:
        known = super()._timing()
        values = {field.name: getattr(known, field.name) for field in fields(known)}
        rejects = self.own.choice(sorted(REJECTED_OF))
        return PassthroughTiming(**{**values, "window_offset_us": 0, "rejects": rejects})

    def _engine(self, habits: Habits) -> Engine:
        # The engine has no window to wait for, but may delay its answers all the same.
        habits = replace(habits, fires_early=self.own.choice((habits.fires_early, 1.0)))
        engine = PassthroughEngine(self.rng, self.timing, habits, self.inputs)
        engine.forgets = self.forgets
        return engine

    def _write(self, answer: Answer) -> None:
        if answer.role == "output":
            start, key = answer.cell
            answer = replace(answer, cell=(start + self.own.randrange(self.timing.window_us), key))
        super()._write(answer)


def passthrough_history(rng: Random, *, causal: bool, allowed: Allowed = EVERYTHING) -> History:
    """A history of an engine that keeps its guarantee (``causal``), or of one that may be broken in any way."""
    return PassthroughWorld(rng, allowed, faults=not causal).history()


@dataclass(frozen=True)
class PassthroughCase(Case):
    """One history of events that are answered one by one."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return PassthroughReferee

    @cached_property
    def oracle(self) -> Passthrough:
        """The oracle with which the core judges it. The decoder has already decided which events pass the filter."""
        timing = self.history.timing
        assert isinstance(timing, PassthroughTiming)
        if timing.rejects == "none":
            return Passthrough.model_construct(kind="passthrough", bucket=timing.window_us)
        where = Where(path="passes", one_of=(True,))
        return Filter.model_construct(kind="filter", bucket=timing.window_us, where=where)


def passthrough_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> PassthroughCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = passthrough_history(rng, causal=causal, allowed=allowed)
    if not causal:
        history = odder(history, rng)
    return PassthroughCase(seed, causal, stretched(coarser(history, rng, steps_most)))
