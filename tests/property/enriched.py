"""Enrichment by brute force: the events and results of `tests.property.passthrough`, and a table whose rows results
state (SEMANTICS 2.37).

An engine applies the rows of the table up to some event time, in the order of their offsets (it stops before the first
row that is later) or of their times, and answers with the row that it then has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from random import Random
from types import MappingProxyType
from typing import Final, Literal

from tests.property.clock import Clock
from tests.property.history import (
    Cell,
    History,
    InputEvent,
    PartitionState,
    Record,
    ResultRecord,
    Step,
    TableRow,
    TopicPartition,
    Undecodable,
    role_of,
)
from tests.property.passthrough import PassthroughReferee, PassthroughTiming, PassthroughWorld
from tests.property.spark_histories import SCALE, Case, Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed
from validator.oracles.enrichment import Enrichment
from validator.oracles.seam import Oracle, Reads
from validator.settings.topics import TableTopic

Place = tuple[str, int, int]
Stated = int | str | None
Join = Literal["inner", "left"]
_NO_ROW: Final = "no row"
_DUE: Final = ("overdue", "missing")
_TABLE: Final = TableTopic.model_validate({"topic": "rows", "fields": {"key": "$key", "event_time": "$timestamp"}})


@dataclass(frozen=True, slots=True)
class StatingResult(ResultRecord):
    """A result with a field of a row."""

    value: Stated = None


def stating(result: ResultRecord, value: Stated) -> StatingResult:
    """A result that states this value."""
    return StatingResult(**asdict(result), value=value)


@dataclass(frozen=True)
class EnrichedTiming(PassthroughTiming):
    """The declared timing; how far events may be from a row that holds. None: any time."""

    behind_us: int | None = None
    ahead_us: int | None = None
    join: Join = "left"


class EnrichedClock(Clock):
    """Time, in which the absence of an answer of an inner join proves nothing before all inputs and rows are read."""

    def proven(self, instant_us: int, places: list[TopicPartition]) -> bool:
        """As elsewhere; also of inputs and rows in an inner join."""
        assert isinstance(self.timing, EnrichedTiming)
        causes = self.places("input", "table") if places and self.timing.join == "inner" else []
        return super().proven(instant_us, [*places, *causes])


class EnrichedReferee(PassthroughReferee):
    """The reference, with results that state rows of a table; the core's column is `wrong_value`."""

    stated: Mapping[Place, Stated] = MappingProxyType({})
    clock_type = EnrichedClock

    def _take(self, step: Step, record: Record) -> None:
        if not hasattr(self, "rows"):
            self.rows: list[tuple[int | None, TableRow]] = []
            self.read_at: dict[Place, int] = {}
            self.events_at: dict[Cell, int] = {}
        if isinstance(record, InputEvent):
            for cell in self.clock.cells_of(record):
                self.events_at.setdefault(cell, step.lookup_us)
        if isinstance(record, TableRow):
            place = (record.topic, record.partition)
            self.rows.append((self.clock.read_through(place, self.steps.index(step)), record))
        else:
            self.read_at[record.topic, record.partition, record.offset] = step.lookup_us
            super()._take(step, record)

    def is_resolved(self, cell: Cell) -> bool:
        """As in the reference, but the table is read through, too."""
        places = self.clock.places("input", "table")
        has_inputs = bool(self.clock.places("input"))
        if has_inputs and self.clock.proven(self.last_observed_us.get(cell, 0), places):
            return True
        at_end = self.ending in ("once", "leave_open") or self.clock.is_resting(cell)
        return at_end and not self.clock.held("input")

    def standing(self, cell: Cell) -> str:
        """With an inner join blocked only if inputs and rows are read as far as an overdue contribution needs."""
        found, base = super().standing(cell), self.clock.due_base(cell)
        assert isinstance(self.timing, EnrichedTiming)
        if found != "blocked" or base is None or self.timing.join == "left":
            return found
        if self.ending in ("once", "leave_open") or self.clock.is_left_due(cell):
            return found
        is_read = self.clock.proven(base + self.timing.overdue_after_us, self.clock.places("input"))
        return found if is_read else "pending"

    def expected(self, cell: Cell, id_: str) -> int:
        """With an inner join, answers of an event that may owe none are expected as they are."""
        known = super().expected(cell, id_)
        is_end = self.ending != "none" and self.clock.now.committed is not None
        is_seen = any(self.seen(cell, other) for other in self.ids(cell))
        is_at_rest = self.clock.is_left_due(cell) or self.ending == "once"
        is_at_rest |= self.ending == "leave_open" and self.clock.due_base(cell) is not None
        # Until then ids are not compared (2.17, 3.31).
        is_compared = is_end or is_seen or is_at_rest or self.standing(cell) in _DUE
        if not is_compared or not self.clock.in_scope(cell) or self.is_obliged(cell):
            return known
        return min(known, self.seen(cell, id_).total())

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """An event that may owe none has no more excess."""
        return super().excess(cell, id_, super().expected(cell, id_))

    def is_obliged(self, cell: Cell) -> bool:
        """Whether each possible state of the table has a row of the key."""
        timing = self.timing
        assert isinstance(timing, EnrichedTiming)
        at_us = self.events_at.get(cell)
        if timing.join == "left" or at_us is None:
            return True
        mine = [(before, row) for before, row in self.rows if row.key == cell[1]]
        if len({row.partition for _, row in mine}) > 1:
            return False
        base, ends = self.clock.due_base(cell), [step.lookup_us for step in self.steps if step.ending != "none"]
        for before, row in mine:
            # A removal after the first event was read: the engine may have seen it before it answered.
            is_too_late = timing.ahead_us is not None and row.event_time_us > timing.end(cell) + timing.ahead_us
            if row.value is not None or is_too_late or before is None or before < at_us:
                continue
            is_answered = base is not None and before >= base + timing.missing_after_us
            if not is_answered and not (self.clock.is_left_due(cell) and before >= ends[-1]):
                return False
        return None not in self.possible(cell, at_us) and _NO_ROW not in self.possible(cell, at_us)

    def is_held(self, kind: str, found: Sequence[tuple[Cell, Counter[str]]]) -> bool:
        """A hidden row may have removed any row, and a hidden event may have the answer of another one."""
        assert isinstance(self.timing, EnrichedTiming)
        if kind != "missing" or self.timing.join == "left":
            return super().is_held(kind, found)
        hidden = self.hidden_answers() + self.hidden_inputs()
        are_rows_hidden = any(record.role == "table" for record in self.undecodable)
        return are_rows_hidden or 0 < hidden >= self.to_explain(found, {kind})

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """As in the reference; a judged result of events of the cell must state a possible row."""
        results = sorted(self.results[cell], key=lambda at: (at.topic, at.partition, at.offset))
        for result, name in zip(results, super().result_classes(cell), strict=True):
            is_of_cell = bool(result.ids) and all(self.copies.get((cell, id_)) for id_ in result.ids)
            place = (result.topic, result.partition, result.offset)
            value = result.value if isinstance(result, StatingResult) else self.stated.get(place)
            yield "wrong_value" if name != "unjudged" and is_of_cell and not self.may_be(cell, value, place) else name

    def may_be(self, cell: Cell, value: Stated, place: Place) -> bool:
        """Whether an engine may state this value for an event of the cell, in the result at this place."""
        assert isinstance(self.timing, EnrichedTiming)
        if len({row.partition for _, row in self.rows if row.key == cell[1]}) > 1:
            return True
        found = self.possible(cell, self.read_at[place])
        return value in found or (value is None and _NO_ROW in found and self.timing.join == "left")

    def possible(self, cell: Cell, at_us: int) -> list[Stated]:
        """The values of the possible rows of a cell, for what was read at an instant."""
        timing = self.timing
        assert isinstance(timing, EnrichedTiming)
        first = None if timing.behind_us is None else cell[0] - timing.behind_us
        last = None if timing.ahead_us is None else timing.end(cell) + timing.ahead_us
        # What is read after the partition had been read through the result's T was appended later.
        known = [row for before, row in self.rows if before is None or before < at_us]
        mine = sorted((row for row in known if row.key == cell[1]), key=lambda row: row.offset)

        def is_over(row: TableRow | None) -> bool:
            """Whether a later row has surely replaced it before the first event."""
            for later in mine:
                follows = row is None or (later.offset > row.offset and later.event_time_us >= row.event_time_us)
                reached = max(
                    it.event_time_us for it in known if it.partition == later.partition and it.offset <= later.offset
                )
                if follows and first is not None and reached < first:
                    return True
            return False

        candidates = [row for row in mine if last is None or row.event_time_us <= last]
        allowed = [row.value for row in candidates if not is_over(row)]
        return allowed if is_over(None) else [*allowed, _NO_ROW]


class EnrichedWorld(PassthroughWorld):
    """A world without a filter."""

    join: Join = "left"

    def _timing(self) -> PassthroughTiming:
        known = super()._timing()
        own = [self.own.choice((None, 0, 2, 8)) for _ in range(2)]
        values = {field.name: getattr(known, field.name) for field in fields(known)}
        own_values = {"rejects": "none", "behind_us": own[0], "ahead_us": own[1], "join": self.join}
        return EnrichedTiming(**{**values, **own_values})


@dataclass(frozen=True)
class EnrichedCase(Case):
    """A history with a table. ``stated``: what results state, by their place."""

    stated: tuple[tuple[Place, Stated], ...] = ()

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle."""
        timing = self.history.timing
        assert isinstance(timing, EnrichedTiming)
        return Enrichment.model_construct(
            kind="enrichment",
            table=_TABLE,
            join=timing.join,
            values={"tier": "tier"},
            bucket=timing.window_us,
            behind=timing.behind_us,
            ahead=timing.ahead_us,
        ).reading(Reads())

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows what results state."""
        return type("OfEnrichment", (EnrichedReferee,), {"stated": dict(self.stated)})

    def values_of(self, record: Record) -> list[Decimal | None]:
        """What a row has, or what a result states."""
        if isinstance(record, TableRow):
            return [None if record.value is None else Decimal(record.value)]
        if role_of(record) not in ("output", "table"):
            return []
        value = dict(self.stated).get((record.topic, record.partition, record.offset))
        return [None if value is None else Decimal(value)]


def _table(rng: Random, history: History) -> list[TableRow]:
    """Rows in the order of their offsets, of times around those of the results; most times rise."""
    results = [record for step in history.steps for record in step.records if isinstance(record, ResultRecord)]
    near = [result.window_start_us for result in results] or [history.steps[0].lookup_us]
    keys = [result.key for result in results] or ["a"]
    times = sorted(rng.choice(near) + rng.randint(-12, 6) * SCALE for _ in range(rng.choice((0, 1, 3, 6, 12))))
    found: list[TableRow] = []
    assert isinstance(history.timing, EnrichedTiming)
    is_inner = history.timing.join == "inner"
    if is_inner and rng.random() < 0.7:
        # Only events of keys with a row owe results.
        found = [TableRow("rows", 0, i, 0, key, min(near) - 60 * SCALE, 1) for i, key in enumerate(sorted(set(keys)))]
    for offset, time_us in enumerate(times, len(found)):
        at_us = time_us - rng.choice((0, 0, 2, 6, 20)) * SCALE
        value = None if rng.random() < (0.3 if is_inner else 0.15) else rng.choice((offset, offset, 1))
        found.append(TableRow("rows", 0, offset, 0, rng.choice(keys), at_us, value))
    return found


def _used(rng: Random, rows: Sequence[TableRow], key: str, at_us: int) -> tuple[Stated, list[TableRow]]:
    """What an engine states that has applied the rows up to an event time, and the rows that it must have read."""
    if rng.random() < 0.5:
        first = next((row.offset for row in rows if row.event_time_us > at_us), len(rows))
        read = [row for row in rows if row.offset < first]
        mine = [row for row in read if row.key == key]
    else:
        read = [row for row in rows if row.event_time_us <= at_us]
        mine = sorted((row for row in read if row.key == key), key=lambda row: (row.event_time_us, row.offset))
    return (mine[-1].value if mine else None), read


def _with_table(rng: Random, history: History, *, causal: bool) -> tuple[History, dict[Place, Stated]]:
    """The history with the table's partition, and what results state. An inner join leaves results out."""
    rows, timing = _table(rng, history), history.timing
    assert isinstance(timing, EnrichedTiming)
    stated: dict[Place, Stated] = {}
    last_us = history.steps[-1].lookup_us
    left_out: set[Record] = set()
    needed = {row.offset: rng.randint(rows[0].event_time_us, last_us) for row in rows}
    for result in (record for step in history.steps for record in step.records if isinstance(record, ResultRecord)):
        [(start, key)] = timing.cells(result.key, result.window_start_us)
        early = 60 * SCALE if timing.behind_us is None else timing.behind_us
        late = 60 * SCALE if timing.ahead_us is None else timing.ahead_us
        at_us = rng.randint(start, start + timing.window_us - 1) + rng.choice(
            (0, -early, late, rng.randint(-early, late))
        )
        value, read = _used(rng, rows, key, at_us)
        # A broken engine may state rows before they are written.
        for row in read if causal or rng.random() < 0.5 else ():
            needed[row.offset] = min(needed[row.offset], result.broker_time_us)
        if not causal and rng.random() < 0.25:
            value = rng.choice((None, 1, 77, rng.randrange(12)))
        if timing.join == "inner" and value is None and (causal or rng.random() < 0.6):
            left_out.add(result)
        stated[result.topic, result.partition, result.offset] = value
    appended_us = last_us
    written: list[Record] = []
    for row in reversed(rows):
        appended_us = min(appended_us, needed[row.offset])
        is_lost = rng.random() < 0.02
        one = replace(row, broker_time_us=appended_us)
        written.insert(0, Undecodable("table", "rows", 0, row.offset, appended_us) if is_lost else one)
    steps: list[Step] = []
    before = 0
    for number, step in enumerate(history.steps):
        ends = sum(record.broker_time_us <= step.lookup_us for record in written)
        lags = number < len(history.steps) - 2 and step.ending == "none" and rng.random() < 0.3
        read_to = rng.randint(before, max(before, ends)) if lags else max(before, ends)
        unused: list[TableRow] = []
        is_read = before == len(written) and number == len(history.steps) - 1 and steps
        if is_read and not any(isinstance(record, ResultRecord) for record in step.records) and rng.random() < 0.7:
            # Rows that no engine had when it wrote the last result.
            unused = [
                replace(row, offset=len(rows) + i, broker_time_us=step.lookup_us) for i, row in enumerate(rows[:4])
            ]
            read_to = ends = before + len(unused)
        state = PartitionState("table", "rows", 0, 0, before, read_to, max(before, ends), max(before, ends))
        answers = [record for record in step.records if record not in left_out]
        records = (*answers, *written[before:read_to], *unused)
        steps.append(replace(step, records=records, partitions=(*step.partitions, state)))
        before = read_to
    return replace(history, steps=tuple(steps)), stated


def enriched_case(
    seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING, join: Join = "left"
) -> EnrichedCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    world = type("OfJoin", (EnrichedWorld,), {"join": join})
    history = world(rng, allowed, faults=not causal).history()
    if not causal:
        history = odder(history, rng)
    history = stretched(coarser(history, rng, steps_most))
    whole, stated = _with_table(rng, history, causal=causal)
    return EnrichedCase(seed, causal, whole, tuple(stated.items()))
