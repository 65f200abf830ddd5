"""The running aggregate whose results state values, by brute force (SEMANTICS 2.30).

The worlds are those of `tests.property.running` with cumulative emission, without ids: a result states how many events
it used. All events of a key have one id, the key. The events of a key that were due first count as used; what is
proven of each of the others is found by asking for each of them.

With `EVERY`, a correct engine has a result after every so many events, and a faulty one now and then another result.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count, pairwise
from random import Random
from typing import ClassVar, Final

from tests.property.clock import Clock
from tests.property.history import (
    ANSWERS,
    SIDE_CHANNELS,
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
from tests.property.running import LONG_AGO, NO_WINDOW, RunningWorld, Said, ids_of, running_case
from tests.property.spark_histories import Case, Referee
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import ALL, UncountedReferee, ValuedCase, ValuedReferee, each_claiming, valued
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads

ANOTHER: Final = 1_000_003
"""Distance to the next seed, if a history has repeats that the pipeline drops: they need ids."""
EVERY: Final = 3
"""Number of events of a key from one result to the next."""


class KeyClock(Clock):
    """Time with a due instant per event of a key."""

    def __init__(self, timing: Timing, steps: tuple[Step, ...]) -> None:
        super().__init__(timing, steps)
        self.times: dict[Cell, list[int]] = defaultdict(list)
        self.read_us: dict[tuple[str, int, int], int] = {}
        for step, event in self.events():
            for cell in self.cells_of(event):
                self.times[cell].append(event.event_time_us)
            self.read_us[event.topic, event.partition, event.offset] = step.lookup_us
        self.said: dict[Cell, list[tuple[Step, Said]]] = defaultdict(list)
        for step in steps:
            results = [record for record in step.records if isinstance(record, ResultRecord | Tombstone)]
            for record in sorted(results, key=lambda it: it.offset):
                if record.key is not None:
                    self.said[NO_WINDOW, record.key].append((step, record))

    def cells_of(self, event: InputEvent | LateRecord) -> tuple[Cell, ...]:
        """The cell of the event's key."""
        return ((NO_WINDOW, event.key),)

    def end(self, cell: Cell) -> int:
        """Just after the latest time of its events."""
        return max(self.times.get(cell, [LONG_AGO])) + 1

    def fell_us(self, cell: Cell) -> int | None:
        """The lookup of the last result that stated fewer events than the one before it."""
        stated = [(step, len(ids_of(one))) for step, one in self.said[cell]]
        falls = [step.lookup_us for (_, before), (step, now) in pairwise(stated) if now < before]
        return max(falls, default=None)

    def event_due_us(self, event: InputEvent, cell: Cell) -> int | None:
        """Since when one event of a cell is due: it was read, the watermark has passed its time, and no result has
        fallen."""
        marks = zip(self.steps, self._watermarks, strict=True)
        closed = [step.lookup_us for step, mark in marks if mark is not None and mark > event.event_time_us][:1]
        if not closed:
            return None
        fell = self.fell_us(cell)
        read = self.read_us[event.topic, event.partition, event.offset]
        return max([*closed, read] if fell is None else [*closed, read, fell])

    def due_base(self, cell: Cell) -> int | None:
        """As for any cell, but at the earliest when a result fell."""
        base, fell = super().due_base(cell), self.fell_us(cell)
        return base if base is None or fell is None else max(base, fell)

    def is_scattered(self, cell: Cell) -> bool:
        """Whether the results of a key are on several partitions, so that it is unknown which one is the newest."""
        return len({(one.topic, one.partition) for _, one in self.said[cell]}) > 1

    def in_scope(self, cell: Cell) -> bool:
        """Whether no partition hides its start: any key may have hidden events."""
        return not self.is_scattered(cell) and not any(map(self.hides_start, self.places("input")))


class KeyReferee(Referee):
    """The reference, with the newest result of each key."""

    clock_type = KeyClock
    clock: KeyClock
    every: ClassVar[int] = 1
    """Number of events of a key from one result to the next."""

    def __init__(self, history: History, upto_step: int, ending: Ending) -> None:
        super().__init__(history, upto_step, ending)
        for cell, said in self.clock.said.items():
            for step, _ in said:
                self.clock.touched[cell].append(step.lookup_us)
                self.last_observed_us[cell] = max(step.lookup_us, self.last_observed_us.get(cell, step.lookup_us))
            newest = said[-1][1]
            if isinstance(newest, ResultRecord) and not self.clock.is_scattered(cell):
                self.results[cell].append(newest)
                self.observed[cell, cell[1]]["output"] += len(newest.ids)

    def _take(self, step: Step, record: Record) -> None:
        if isinstance(record, InputEvent):
            for cell in self.clock.cells_of(record):
                self.all_ids.add(cell[1])
                self.clock.touched[cell].append(step.lookup_us)
                self.copies[cell, cell[1]].append(record)
        elif not isinstance(record, ResultRecord | Tombstone):
            super()._take(step, record)

    def answered(self, events: int) -> int:
        """How many of so many events the last result has."""
        return events // self.every * self.every

    def expected(self, cell: Cell, id_: str) -> int:
        """The events of a key, in scope without those after the last result that is owed, unless a result has them."""
        events = super().expected(cell, id_)
        if self.every == 1 or not self.clock.in_scope(cell):
            return events
        return max(self.answered(events), min(events, self.seen(cell, id_)["output"]))

    def outstanding(self, cell: Cell, id_: str, count: int) -> Counter[str]:
        """The outstanding events of a key, each by what is proven of it. Those that were due first count as used."""
        events = self.copies[cell, id_]
        expected = self.expected(cell, id_)
        used, answers = expected - count, self.clock.places(*ANSWERS)
        held = self.clock.held(*ANSWERS)
        at_rest = self._is_at_rest(cell)

        def more(after_us: int | None, *, consumed: bool) -> int:
            """How many of the events that were due so long ago are not used, of all or of the consumed ones."""
            owed = [
                event
                for event in events
                if (at_rest and not held) or (after_us is not None and self._is_past(cell, event, after_us, answers))
            ]
            owed = [event for event in owed if not (consumed and self.is_unconsumed(event))]
            return max(0, self.answered(len(owed)) - used)

        missing_after_us = self.timing.missing_after_us
        overdue_after_us = None if at_rest else self.timing.overdue_after_us
        would_miss = more(missing_after_us, consumed=False)
        would_delay = max(would_miss, more(overdue_after_us, consumed=False))
        missing = more(missing_after_us, consumed=True)
        delayed = max(missing, more(overdue_after_us, consumed=True))
        unconsumed = would_delay - delayed
        if self.ending != "none":
            of_consumed = self.answered(sum(not self.is_unconsumed(event) for event in events))
            unconsumed = min(count, max(0, expected - of_consumed))
        left = count - unconsumed - delayed
        blocked = count if at_rest and held else 0
        if held and not at_rest:
            blocked = max(0, self.answered(sum(self._would_be_overdue(cell, event) for event in events)) - used)
        blocked = min(left, max(0, blocked - would_delay))
        if self.clock.answer_gaps():
            # An answer to any event may have been in the gap.
            missing = 0
        return +Counter(
            missing=missing,
            overdue=delayed - missing,
            blocked=blocked,
            unconsumed=unconsumed,
            pending=left - blocked,
        )

    def _is_at_rest(self, cell: Cell) -> bool:
        if self.ending == "once" or self.clock.is_left_due(cell):
            return True
        return self.ending == "leave_open" and self.clock.closing(cell) is not None

    def _is_past(self, cell: Cell, event: InputEvent, after_us: int, places: Sequence[tuple[str, int]]) -> bool:
        due_us = self.clock.event_due_us(event, cell)
        return due_us is not None and bool(places) and self.clock.proven(due_us + after_us, list(places))

    def _would_be_overdue(self, cell: Cell, event: InputEvent) -> bool:
        """Whether an event would be overdue, if it were not for open transactions."""
        due_us, held = self.clock.event_due_us(event, cell), self.clock.held(*ANSWERS)
        free = [place for place in self.clock.places(*ANSWERS) if place not in held]
        if not free:
            return due_us is not None and self.clock.now.lookup_us >= due_us + self.timing.overdue_after_us
        return self._is_past(cell, event, self.timing.overdue_after_us, free)

    def unconsumed_overdue(self, cell: Cell, classes: Counter[str]) -> int:
        """How many events would be missing if the engine had consumed all."""
        if not self.clock.in_scope(cell) or not self.clock.places(*ANSWERS):
            return 0
        events = self.copies.get((cell, cell[1]), [])
        seen = self.seen(cell, cell[1])
        used = min(len(events), seen.total())
        places = self.clock.places(*ANSWERS)
        owed = [event for event in events if self._is_past(cell, event, self.timing.missing_after_us, places)]
        if self._is_at_rest(cell) and not self.clock.held(*ANSWERS):
            owed = events
        consumed = [event for event in owed if not self.is_unconsumed(event)]
        return max(0, self.answered(len(owed)) - used) - max(0, self.answered(len(consumed)) - used)


@dataclass(frozen=True)
class KeyedCase(Case):
    """A history whose results state how many events of their key they used. ``every``: number of events from one result
    to the next."""

    every: int = 1

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return type("OfEvery", (KeyReferee,), {"every": self.every})

    @cached_property
    def oracle(self) -> RunningAggregate:
        """The core keeps the newest results and counts."""
        given = {"values": {"number": "count"}, "every": self.every}
        known = RunningAggregate.of(replaces=True).model_copy(update=given)
        return known.reading(Reads(replaces=True, evidence="values", names_ids=False))


def keyed_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING, every: int = 1) -> KeyedCase:
    """The case that ``seed`` generates."""
    named, anonymous = histories(seed, causal=causal, steps_most=steps_most, allowed=allowed, every=every)
    return KeyedCase(named.seed, causal, anonymous, every)


def histories(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    allowed: Allowed,
    is_counted: bool = True,
    every: int = 1,
    world: type[RunningWorld] = RunningWorld,
) -> tuple[Case, History]:
    """The case of a seed, with the ids of its events, and its history without them."""
    for other in count(seed, ANOTHER):
        found = running_case(other, causal=causal, steps_most=steps_most, cumulative=True, allowed=allowed, world=world)
        roles = {state.role for step in found.history.steps for state in step.partitions}
        sets_aside = every == 1 and world.sets_aside
        if found.history.timing.duplicates == "count" and (sets_aside or roles.isdisjoint(SIDE_CHANNELS)):
            break
    if every > 1:
        found = replace(found, history=_after_every(every, found))
    if not is_counted:
        found = replace(found, history=each_claiming(found.history))
    return found, anonymous_of(found.history)


def _after_every(every: int, of: Case) -> History:
    """The same history, in which results have only the events up to the last one after which one is due."""
    rng = Random(of.seed)

    def cut(record: Record) -> Record:
        if not isinstance(record, ResultRecord) or (not of.causal and rng.random() < 0.2):
            return record
        return replace(record, ids=record.ids[: len(record.ids) // every * every])

    steps = tuple(replace(step, records=tuple(map(cut, step.records))) for step in of.history.steps)
    return replace(of.history, steps=steps)


def anonymous_of(history: History) -> History:
    """The same history, in which all events of a key have one id."""
    steps = tuple(replace(step, records=tuple(map(_anonymous, step.records))) for step in history.steps)
    return replace(history, steps=steps)


def _anonymous(record: Record) -> Record:
    match record:
        case InputEvent() | LateRecord():
            return replace(record, id=record.key)
        case ResultRecord():
            return replace(record, ids=(record.key,) * len(record.ids))
        case _:
            return record


class KeyedValuesReferee(ValuedReferee, KeyReferee):
    """The reference, with the class `wrong_value` of the newest result."""

    def is_wrong(self, cell: Cell) -> bool:
        """As in `ValuedReferee`, if the result states the number of all events, none was set aside, and no answer can
        have been in a gap."""
        seen = self.seen(cell, cell[1])
        is_whole = len(self.copies.get((cell, cell[1]), ())) == seen["output"] == seen.total()
        return is_whole and not self.clock.answer_gaps() and super().is_wrong(cell)


class UncountedKeyClock(KeyClock):
    """Time of keys whose results do not say whether they state fewer events than the one before."""

    def fell_us(self, cell: Cell) -> int | None:
        """The lookup of the last result."""
        return max((step.lookup_us for step, _ in self.said[cell]), default=None)


class KeyedUncountedReferee(UncountedReferee, KeyedValuesReferee):
    """The reference for results that do not state how many events they used."""

    clock_type = UncountedKeyClock


@dataclass(frozen=True)
class KeyedValuesCase(ValuedCase):
    """As `KeyedCase`, with aggregates of a field."""

    every: int = 1

    @cached_property
    def oracle(self) -> RunningAggregate:
        """The core keeps the aggregates of each key."""
        given = {"values": dict(self.aggregates), "every": self.every}
        known = RunningAggregate.of(replaces=True).model_copy(update=given)
        return known.reading(Reads(replaces=True, evidence="values", names_ids=False))

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        base = KeyedValuesReferee if self.oracle.stated.count_name else KeyedUncountedReferee
        given = {"amounts": dict(self.values), "aggregates": dict(self.aggregates), "every": self.every}
        return type("OfKeys", (base,), given)


def keyed_values_case(
    seed: int,
    *,
    causal: bool,
    steps_most: int,
    aggregates: Mapping[str, str] = ALL,
    allowed: Allowed = EVERYTHING,
    every: int = 1,
) -> KeyedValuesCase:
    """The case that ``seed`` generates, as `keyed_case`."""
    is_counted = "count" in aggregates.values()
    named, anonymous = histories(
        seed, causal=causal, steps_most=steps_most, allowed=allowed, is_counted=is_counted, every=every
    )
    made = valued(named, KeyedCase(named.seed, causal, anonymous), aggregates)
    return KeyedValuesCase(made.seed, causal, anonymous, made.aggregates, made.values, every=every)
