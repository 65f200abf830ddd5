"""The running aggregate by brute force, and random worlds of it: all results of a key are read again for every id.

A cell is an id of a key: `["a","7"]`. Each id that a result lists is a result of that id's cell. With cumulative
emission the results of a key are ordered as they were read, and only the last one counts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from random import Random
from typing import ClassVar

from tests.property.clock import Clock
from tests.property.engine import Answer, Engine, Fault, Habits, break_answers
from tests.property.history import (
    Cell,
    Ending,
    History,
    InputEvent,
    LateRecord,
    Record,
    ResultRecord,
    Step,
    Timing,
    Tombstone,
)
from tests.property.logs import Log
from tests.property.spark_histories import Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, World
from validator.oracles.running_aggregate import RunningAggregate

NO_WINDOW = -(1 << 63)
"""The start of a cell without a window, as in the core."""
LONG_AGO = -(1 << 80)
"""Earlier than any instant."""


@dataclass(frozen=True)
class RunningTiming(Timing):
    """The declared timing of a pipeline that answers per key. ``cumulative``: each result lists all ids of its key so
    far."""

    cumulative: bool = False


def cell_of(key: str, id_: str) -> Cell:
    """The cell of an id of a key."""
    return NO_WINDOW, json.dumps([key, id_], separators=(",", ":"))


Said = ResultRecord | Tombstone


def ids_of(said: Said) -> tuple[str, ...]:
    """The ids that a result lists."""
    return said.ids if isinstance(said, ResultRecord) else ()


class RunningClock(Clock):
    """Time with a due instant per event."""

    def __init__(self, timing: Timing, steps: tuple[Step, ...]) -> None:
        super().__init__(timing, steps)
        assert isinstance(timing, RunningTiming)
        self.cumulative = timing.cumulative
        self.times: dict[Cell, list[int]] = defaultdict(list)
        for _, event in self.events():
            self.times[cell_of(event.key, event.id)].append(event.event_time_us)
        self.of_key: dict[str, list[tuple[Step, Said]]] = defaultdict(list)
        for step in steps:
            results = [record for record in step.records if isinstance(record, ResultRecord | Tombstone)]
            for record in sorted(results, key=lambda it: it.offset):
                if record.key is not None and (self.cumulative or isinstance(record, ResultRecord)):
                    self.of_key[record.key].append((step, record))

    def cells_of(self, event: InputEvent | LateRecord) -> tuple[Cell, ...]:
        """The one cell of the event's id and key."""
        return (cell_of(event.key, event.id),)

    def end(self, cell: Cell) -> int:
        """Just after the latest time of its events."""
        return max(self.times.get(cell, [LONG_AGO])) + 1

    def withdrawn_us(self, cell: Cell) -> int | None:
        """The lookup of the result that withdrew the id: the first after the last that lists it. None if none did."""
        key, id_ = json.loads(cell[1])
        said = self.of_key[key]
        listing = [number for number, (_, one) in enumerate(said) if id_ in ids_of(one)]
        if not self.cumulative or not listing or listing[-1] == len(said) - 1:
            return None
        return said[listing[-1] + 1][0].lookup_us

    def due_base(self, cell: Cell) -> int | None:
        """As for any cell, but at the earliest when the id was withdrawn."""
        base, withdrawn = super().due_base(cell), self.withdrawn_us(cell)
        return base if base is None or withdrawn is None else max(base, withdrawn)

    def is_scattered(self, key: str) -> bool:
        """Whether the results of a key are on several partitions, so that it is unknown which one is the newest."""
        return self.cumulative and len({(one.topic, one.partition) for _, one in self.of_key[key]}) > 1

    def in_scope(self, cell: Cell) -> bool:
        """Whether the cell's first event is after the horizon. An id without an event is out of scope if a partition
        hides its start."""
        if self.is_scattered(json.loads(cell[1])[0]):
            return False
        first = min(self.times.get(cell, [LONG_AGO]))
        for place in self.places("input"):
            events = [event for _, event in self.events() if (event.topic, event.partition) == place]
            if not self.hides_start(place):
                continue
            if not events:
                return False
            if first <= min(events, key=lambda event: event.offset).event_time_us + self.timing.max_disorder_us:
                return False
        return True


class RunningReferee(Referee):
    """The reference, with results split by id."""

    clock_type = RunningClock

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        clock = self.clock
        assert isinstance(clock, RunningClock)
        for key, said in clock.of_key.items():
            for number, (step, one) in enumerate(said):
                cells = {cell_of(key, id_) for id_ in ids_of(one)}
                for cell in cells:
                    self._observed(cell, step.lookup_us)
                if clock.is_scattered(key) or (clock.cumulative and number < len(said) - 1):
                    continue
                for id_ in ids_of(one):
                    cell = cell_of(key, id_)
                    assert isinstance(one, ResultRecord)
                    self.results[cell].append(replace(one, ids=(id_,)))
                    self.observed[cell, id_]["output"] += 1
        for cell in list(self.last_observed_us):
            withdrawn = clock.withdrawn_us(cell)
            if withdrawn is not None:
                self._observed(cell, withdrawn)

    def _observed(self, cell: Cell, instant_us: int) -> None:
        self.clock.touched[cell].append(instant_us)
        self.last_observed_us[cell] = max(instant_us, self.last_observed_us.get(cell, instant_us))

    def _take(self, step: Step, record: Record) -> None:
        if not isinstance(record, ResultRecord | Tombstone):
            super()._take(step, record)


class RunningEngine(Engine):
    """Answers for a key once its watermark has passed the time of one of its events, and answers later events at
    once.

    With cumulative results it lists all ids of the key each time. It may also withdraw a result or list fewer ids, and
    then list all again.
    """

    def __init__(self, rng: Random, timing: RunningTiming, habits: Habits, inputs: Sequence[Log]) -> None:
        super().__init__(rng, timing, habits, inputs)
        self.cumulative = timing.cumulative
        self.waiting: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.said: dict[str, list[str]] = defaultdict(list)

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        del late
        if self.timing.duplicates == "collapse" and event.id in self.seen:
            return
        self.seen.add(event.id)
        is_past = self._is_past(event.event_time_us)
        if "rejected" in self.habits.side_channels and self.rng.random() < self.habits.rejects:
            self.answers.append(Answer(now, "rejected", (0, event.key), (event.id,), event))
        elif is_past and "late" in self.habits.side_channels and self.rng.random() < 0.3:
            self.answers.append(Answer(now, "late", (0, event.key), (event.id,), event))
        else:
            for key in self._keys(event):
                self.waiting[key].append((event.id, event.event_time_us))
                if is_past or self.rng.random() < self.habits.fires_early:
                    self._say(now, key)

    def _keys(self, event: InputEvent) -> Sequence[str]:
        """The keys of the results that have an event."""
        return (event.key,)

    def _is_past(self, time_us: int) -> bool:
        return self.watermark is not None and time_us < self.watermark

    def _say(self, now: int, key: str) -> None:
        new = [id_ for id_, _ in self.waiting.pop(key, [])]
        rng, before = self.rng, list(self.said[key])
        self.said[key] += new
        whole = self.said[key] if self.cumulative else new
        lists: list[list[str]] = [whole]
        if self.cumulative and rng.random() < 0.3:
            # As after a recovery. An empty list is a tombstone.
            lists = [rng.choice(([], before[: rng.randint(0, len(before))])), whole]
        elif rng.random() < self.habits.splits:
            cut = rng.randint(0, len(new))
            lists = [before + new[:cut], whole] if self.cumulative else [new[:cut], new[cut:]]
        for ids in lists:
            if ids or self.cumulative:
                self.answers.append(Answer(now, "output", (0, key), tuple(rng.sample(ids, len(ids)))))

    def _advance(self, now: int) -> None:
        super()._advance(now)
        for key, waiting in list(self.waiting.items()):
            if now in self.habits.flushes_us or any(self._is_past(time) for _, time in waiting):
                self._say(now, key)
        if self.cumulative and self.said and self.rng.random() < 0.01:
            # A result that repeats the previous one.
            self._say(now, self.rng.choice(sorted(self.said)))


class RunningWorld(World):
    """One random world without windows."""

    sets_aside: ClassVar[bool] = True
    """Whether events may be late or rejected."""

    def __init__(self, rng: Random, allowed: Allowed, *, faults: bool, cumulative: bool) -> None:
        self.cumulative = cumulative
        self.faulty = faults
        self.hides = rng.random() < 0.5
        self.is_orderly = not faults or rng.random() < 0.5
        self.is_keyed = not faults or rng.random() < 0.8
        self.newest_us: dict[str, int] = {}
        super().__init__(rng, replace(allowed, hidden_inputs=allowed.hidden_inputs and self.hides), faults)

    def _timing(self) -> Timing:
        # Lateness is reported: this oracle does not tolerate dropped late events.
        known = super()._timing()
        values = {field.name: getattr(known, field.name) for field in fields(known)}
        return RunningTiming(**{**values, "late_policy": "report", "cumulative": self.cumulative})

    def _moved(self) -> int:
        # If a copy is hidden before the start of a state, the validator cannot know that its time differs.
        return 0 if self.hides else super()._moved()

    def _engine(self, habits: Habits) -> Engine:
        assert isinstance(self.timing, RunningTiming)
        return RunningEngine(self.rng, self.timing, habits, self.inputs)

    def _broken(self, answers: Sequence[Answer], faults: Sequence[Fault]) -> list[Answer]:
        broken: list[Answer] = []
        for answer in answers:
            broken += break_answers(self.rng, self.timing, [answer], faults) if answer.ids else [answer]
        return broken

    def _log_of(self, answer: Answer) -> Log:
        if not self.cumulative or answer.role != "output" or not self.is_keyed:
            return super()._log_of(answer)
        logs = [log for log in self.answers if log.role == "output"]
        return logs[sum(map(ord, answer.cell[1])) % len(logs)]

    def _appended_us(self, answer: Answer) -> int:
        at = super()._appended_us(answer)
        if self.cumulative and self.is_orderly and answer.role == "output":
            # An engine writes the results of a key in order.
            at = self.newest_us[answer.cell[1]] = max(at, self.newest_us.get(answer.cell[1], at))
        return at

    def _record(self, log: Log, offset: int, now: int, answer: Answer, is_garbled: bool) -> Record:
        if self.cumulative and answer.role == "output" and not answer.ids:
            return Tombstone(*log.place, offset, now, answer.cell[1])
        return super()._record(log, offset, now, answer, is_garbled)


def running_history(
    rng: Random,
    *,
    causal: bool,
    cumulative: bool = False,
    allowed: Allowed = EVERYTHING,
    world: type[RunningWorld] = RunningWorld,
) -> History:
    """A history of an engine that keeps its guarantee (``causal``), or of one that may be broken in any way."""
    return world(rng, allowed, faults=not causal, cumulative=cumulative).history()


@dataclass(frozen=True)
class RunningCase(Case):
    """One history without windows."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return RunningReferee

    @cached_property
    def oracle(self) -> RunningAggregate:
        """The oracle with which the core judges it."""
        timing = self.history.timing
        assert isinstance(timing, RunningTiming)
        return RunningAggregate.of(replaces=timing.cumulative)


def running_case(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    cumulative: bool = False,
    allowed: Allowed = EVERYTHING,
    world: type[RunningWorld] = RunningWorld,
) -> RunningCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = running_history(rng, causal=causal, cumulative=cumulative, allowed=allowed, world=world)
    if not causal:
        history = odder(history, rng)
    return RunningCase(seed, causal, stretched(coarser(history, rng, steps_most)))
