"""The running aggregate over the rows of a table, by brute force (SEMANTICS 2.35).

The worlds are those of `tests.property.running`. Each row of the table is added, and perhaps changed or deleted: a
change removes the version before it (an event of its own, whose id begins with `-`) and adds the next one, perhaps for
another key. All changes of a row are on one partition, in their order. A result states how many rows its key has by
the changes that the engine has used, and sums over these rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import count
from random import Random
from typing import Final

from tests.property.engine import Answer, Engine, Habits
from tests.property.history import (
    ANSWERS,
    Cell,
    History,
    InputEvent,
    Record,
    ResultRecord,
    Role,
    TopicPartition,
)
from tests.property.keyed import ANOTHER, KeyedCase, KeyedValuesCase, KeyReferee, UncountedKeyClock, anonymous_of
from tests.property.logs import Log
from tests.property.running import RunningEngine, RunningTiming, RunningWorld
from tests.property.spark_histories import Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import Amount, Place, ValuedReferee, valued
from validator.oracles.running_aggregate import RunningAggregate
from validator.oracles.seam import Reads

AVERAGES: Final = {"number": "count", "total": "sum(amount)", "mean": "avg(amount)", "having": "count(amount)"}
"""The aggregates from which a row can be removed again."""
_LIFE_US: Final = 20
"""How long a row changes: with an open transaction and a repeated row, less than the engine runs after the last row."""
_EACH: Final = 1_000
"""Contributions that an unreadable change may explain: any number, as of a truncation (SEMANTICS 4.14)."""


def live(used: Sequence[str]) -> list[str]:
    """The rows that are left of these changes. What removes an unknown row has no effect, as in Flink."""
    found: list[str] = []
    for id_ in used:
        if not id_.startswith("-"):
            found.append(id_)
        elif id_[1:] in found:
            found.remove(id_[1:])
    return found


class TableEngine(RunningEngine):
    """Says of a key which rows it has, and at times what an older state had, as after a recovery."""

    def _say(self, now: int, key: str) -> None:
        new = [id_ for id_, _ in self.waiting.pop(key, [])]
        rng, before = self.rng, list(self.said[key])
        self.said[key] += new
        states = [self.said[key]]
        if rng.random() < 0.3:
            states.insert(0, before[: rng.randint(0, len(before))])
        elif rng.random() < self.habits.splits:
            states.insert(0, before + new[: rng.randint(0, len(new))])
        for used in states:
            rows = live(used)
            self.answers.append(Answer(now, "output", (0, key), tuple(rng.sample(rows, len(rows)))))


class TableWorld(RunningWorld):
    """One random table."""

    def _append(self, log: Log, event: InputEvent) -> None:
        self._live(log, event, event.broker_time_us + _LIFE_US)

    def _live(self, log: Log, event: InputEvent, until_us: int) -> None:
        """Write a version of a row, and perhaps what follows, up to an instant at which the engine still runs."""
        super()._append(log, event)
        [draft] = [draft for draft in log.drafts if draft.truth is event]
        if draft.make is None or self.rng.random() < 0.4:
            return
        # A version that was written is removed later, in the same partition.
        later = self.rng.randint(draft.append_us, until_us)
        wait = self.rng.choice((0, later - draft.append_us))
        gone = replace(event, id=f"-{event.id}", broker_time_us=later, event_time_us=event.event_time_us + wait)
        super()._append(log, gone)
        if self.rng.random() < 0.6 and event.id.count("'") < 2:
            key = self.rng.choice((event.key, "a", "b"))
            self._live(log, replace(gone, id=f"{event.id}'", key=key), until_us)

    def _engine(self, habits: Habits) -> Engine:
        assert isinstance(self.timing, RunningTiming)
        only: frozenset[Role] = frozenset({"output"})
        return TableEngine(self.rng, self.timing, replace(habits, side_channels=only), self.inputs)

    def _record(self, log: Log, offset: int, now: int, answer: Answer, is_garbled: bool) -> Record:
        found = super()._record(log, offset, now, answer, is_garbled)
        if not answer.ids and self.rng.random() < 0.5:
            return ResultRecord(*log.place, offset, now, answer.cell[1], 0, ())
        return found


class TableClock(UncountedKeyClock):
    """Time in which absence is proven only while the inputs are read through, too."""

    def proven(self, instant_us: int, places: list[TopicPartition]) -> bool:
        """As in any clock. What is proven by answers also needs the inputs."""
        inputs = self.places("input")
        needed = inputs if places and not set(places) & set(inputs) else []
        return super().proven(instant_us, [*places, *needed]) and (not needed or bool(inputs))

    def held(self, *roles: Role) -> list[TopicPartition]:
        """Also an open transaction of an input may change what results should state."""
        return super().held(*(("input", *roles) if roles == ANSWERS else roles))


class TableReferee(KeyReferee):
    """The reference, with contributions that count -1."""

    clock_type = TableClock
    removed: frozenset[Place] = frozenset()

    def sign(self, event: InputEvent) -> int:
        """-1 for what a change removes."""
        return -1 if (event.topic, event.partition, event.offset) in self.removed else 1

    def rows(self, cell: Cell) -> int:
        """How many rows a key has by all changes that were read."""
        return sum(map(self.sign, self.copies.get((cell, cell[1]), ())))

    def surplus_and_outstanding(self, cell: Cell) -> tuple[int, int]:
        """By how much the newest result is off: what is proven to be too much, and what is still to come."""
        more = self.seen(cell, cell[1])["output"] - self.rows(cell)
        surplus = max(0, more - sum(map(self.may_be_unused, self.copies.get((cell, cell[1]), ()))))
        return surplus, abs(more) - surplus

    def may_be_unused(self, event: InputEvent) -> bool:
        """Whether a correct engine need not have used a change."""
        if self.clock.answer_gaps() or self.is_unconsumed(event):
            return True
        [cell] = self.clock.cells_of(event)
        if self._is_at_rest(cell) and not self.clock.held(*ANSWERS):
            return False
        return not self._is_past(cell, event, self.timing.missing_after_us, self.clock.places(*ANSWERS))

    def _would_be_overdue(self, cell: Cell, event: InputEvent) -> bool:
        due_us = self.clock.event_due_us(event, cell)
        until_us = None if due_us is None else due_us + self.timing.overdue_after_us
        through = until_us is not None and self.clock.proven(until_us, self.clock.places("input"))
        return through and bool(self.clock.places("input")) and super()._would_be_overdue(cell, event)

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """The classes of the changes of a key."""
        events = self.expected(cell, id_)
        if not self.clock.in_scope(cell):
            return +Counter(out_of_scope=events)
        surplus, outstanding = self.surplus_and_outstanding(cell)
        found = Counter(processed=events - outstanding)
        found.update(self.outstanding(cell, id_, outstanding))
        found[self.excess_class(cell, id_)] += surplus
        return +found

    def unconsumed_overdue(self, cell: Cell, classes: Counter[str]) -> int:
        """As in `KeyReferee`, of the changes that the newest result lacks."""
        if not self.clock.in_scope(cell) or not self.clock.places(*ANSWERS):
            return 0
        events, places = self.copies.get((cell, cell[1]), []), self.clock.places(*ANSWERS)
        used = len(events) - self.surplus_and_outstanding(cell)[1]
        owed = [event for event in events if self._is_past(cell, event, self.timing.missing_after_us, places)]
        if self._is_at_rest(cell) and not self.clock.held(*ANSWERS):
            owed = events
        consumed = [event for event in owed if not self.is_unconsumed(event)]
        return max(0, len(owed) - used) - max(0, len(consumed) - used)

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """The class of the newest result of a key."""
        surplus, outstanding = self.surplus_and_outstanding(cell)
        for _ in self.results[cell]:
            if not self.clock.in_scope(cell) or not self.is_resolved(cell):
                yield "unjudged"
            elif surplus:
                yield "excess"
            else:
                yield "incomplete" if outstanding else "wrong_value" if self.is_wrong(cell) else "correct"

    def is_wrong(self, cell: Cell) -> bool:
        """Whether values are wrong: here results state none."""
        del cell
        return False

    def is_held(self, kind: str, found: Sequence[tuple[Cell, Counter[str]]]) -> bool:
        """A hidden change may also explain that a result states fewer rows."""
        if kind != "missing":
            return super().is_held(kind, found)
        hidden = self.hidden_answers() + self.hidden_inputs()
        return hidden > 0 and self.to_explain(found, {kind}) <= hidden

    def hidden_answers(self) -> int:
        """As in the reference, by contributions."""
        return _EACH * super().hidden_answers()

    def hidden_inputs(self) -> int:
        """As in the reference, by contributions."""
        return _EACH * super().hidden_inputs()


class TableValuesReferee(TableReferee):
    """The reference, with the class `wrong_value` of the newest result."""

    amounts: Mapping[Place, tuple[Amount, ...]] = {}
    aggregates: Mapping[str, str] = {}

    def is_wrong(self, cell: Cell) -> bool:
        """Whether all changes are used, and a value is not that of the rows that they leave."""
        events = self.copies.get((cell, cell[1]), [])
        if self.rows(cell) <= 0 or any(map(self.may_be_unused, events)) or self.standing(cell) != "missing":
            return False
        numbers = [
            (self.sign(event), Fraction(amount))
            for event in events
            if (amount := self.amounts[event.topic, event.partition, event.offset][0]) is not None
        ]
        size, total = sum(sign for sign, _ in numbers), sum(sign * number for sign, number in numbers)
        [result] = self.results[cell]
        stated = self.amounts[result.topic, result.partition, result.offset]
        functions = [text.partition("(")[0] for text in self.aggregates.values() if text != "count"]
        return any(not _may_be(function, value, size, total) for function, value in zip(functions, stated, strict=True))


def _may_be(function: str, stated: Amount, size: int, total: Fraction | int) -> bool:
    """Whether a result may state this value of ``size`` numbers with this ``total``."""
    if function == "count":
        return stated == size
    # An average is the total of one number that stands for all.
    owed = Fraction(total, max(size, 1)) if function == "avg" else Fraction(total)
    return ValuedReferee.may_be(function, [stated], [[_decimal(owed)] if size > 0 else []], [], loses=False)


def _decimal(number: Fraction) -> Amount:
    # `may_be` makes a fraction of it again.
    return number  # type: ignore[return-value]


@dataclass(frozen=True)
class TableCase(KeyedCase):
    """A history whose results state how many rows their key has. ``removed``: the events that changes remove."""

    removed: frozenset[Place] = frozenset()

    def is_removed(self, record: Record) -> bool:
        """Whether a change removes the event."""
        return (record.topic, record.partition, record.offset) in self.removed

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the signs."""
        return type("OfRows", (TableReferee,), {"removed": self.removed})

    @cached_property
    def oracle(self) -> RunningAggregate:
        """The core adds and removes."""
        return signed(super().oracle)


@dataclass(frozen=True)
class TableValuesCase(KeyedValuesCase):
    """As `TableCase`, with aggregates of a field."""

    removed: frozenset[Place] = frozenset()

    def is_removed(self, record: Record) -> bool:
        """Whether a change removes the event."""
        return (record.topic, record.partition, record.offset) in self.removed

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts and the signs."""
        known = {"amounts": dict(self.values), "aggregates": dict(self.aggregates), "removed": self.removed}
        return type("OfRows", (TableValuesReferee,), known)

    @cached_property
    def oracle(self) -> RunningAggregate:
        """The core adds and removes."""
        return signed(super().oracle)


def signed(oracle: RunningAggregate) -> RunningAggregate:
    """The oracle for changes of a table."""
    return oracle.reading(Reads(replaces=True, evidence="values", names_ids=False, signed=True))


def table_case(
    seed: int, *, causal: bool, steps_most: int, aggregates: Mapping[str, str] = {}, allowed: Allowed = EVERYTHING
) -> TableCase | TableValuesCase:
    """The case that ``seed`` generates."""
    for other in count(seed, ANOTHER):
        rng = Random(other)
        world = TableWorld(rng, allowed, faults=not causal, cumulative=True)
        if world.timing.duplicates == "count":
            break
    history = world.history()
    if not causal:
        history = odder(history, rng)
    history = stretched(coarser(history, rng, steps_most))
    removed = frozenset(
        (record.topic, record.partition, record.offset)
        for step in history.steps
        for record in step.records
        if isinstance(record, InputEvent) and record.id.startswith("-")
    )
    named = KeyedCase(other, causal, _unsigned(history))
    anonymous = TableCase(other, causal, anonymous_of(history), removed=removed)
    if not aggregates:
        return anonymous
    made = valued(named, anonymous, aggregates)
    return TableValuesCase(other, causal, anonymous.history, made.aggregates, made.values, removed=removed)


def _unsigned(history: History) -> History:
    """The same history, in which what a change removes has the id of the row."""

    def of(record: Record) -> Record:
        return replace(record, id=record.id.removeprefix("-")) if isinstance(record, InputEvent) else record

    steps = tuple(replace(step, records=tuple(map(of, step.records))) for step in history.steps)
    return replace(history, steps=steps)
