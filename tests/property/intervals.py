"""The interval join by brute force: every two events of a cell are tried. "The rule" in docs/oracles/interval_join.md.

A cell is a bucket of the left events' times; `Timing.window_us` is its length. The worlds are those of the windowed
join, with an engine that answers each pair at once, however late, or drops late events.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from random import Random
from typing import ClassVar, Final, Literal, get_args

from tests.property.clock import Clock
from tests.property.engine import Answer, Engine, Fault, Habits
from tests.property.history import Cell, InputEvent, LateRecord, Record, ResultRecord, Step, Timing, role_of
from tests.property.join_agreement import JoinCase
from tests.property.join_reference import LEFT, RIGHT, Join, JoinReference
from tests.property.join_worlds import JoinWorld
from tests.property.logs import Log
from tests.property.spark_histories import Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import Amount
from validator.oracles.interval_join import IntervalJoin
from validator.settings.fields import FieldPath

Level = Literal["later", "now", "on_time", "sure"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)


def is_of_right(id_: str) -> bool:
    """Whether an id is one of the right input."""
    return id_.startswith(RIGHT + "/")


@dataclass(frozen=True)
class IntervalTiming(Timing):
    """The declared timing of an interval join."""

    before_us: int = 0
    after_us: int = 0
    has_ends: bool = False

    def is_pair(self, left: InputEvent, right: InputEvent) -> bool:
        """Whether two events of a key join."""
        later_us = right.event_time_us - left.event_time_us
        if self.has_ends and right.event_time_us > self.own_end(left):
            return False
        return -self.before_us <= later_us <= self.after_us

    def own_end(self, left: InputEvent) -> int:
        """The latest time of a partner: from before the interval to after it. Copies of an id differ. In a history with
        longer times it is later by as much."""
        sixths = (7 * left.offset + 3 * left.partition) % 9 - 1
        return left.event_time_us - self.before_us + (self.before_us + self.after_us) * sixths // 6

    def buckets(self, key: str, time_us: int, *, of_right: bool) -> tuple[Cell, ...]:
        """The buckets with an instant at which a left event, or a left partner, may be."""
        first, last = (time_us - self.after_us, time_us + self.before_us) if of_right else (time_us, time_us)
        starts = {self.window_start(at) for at in (*range(first, last, self.window_us), last)}
        return tuple((start, key) for start in sorted(starts))

    def cells_of(self, event: InputEvent) -> tuple[Cell, ...]:
        """One bucket of a left event, several of a right one."""
        return self.buckets(event.key, event.event_time_us, of_right=is_of_right(event.id))

    def end(self, cell: Cell) -> int:
        """The last partner of the last left event is before this."""
        return cell[0] + self.window_us + max(0, self.after_us)

    @property
    def buckets_most(self) -> int:
        """The most buckets of an event, by trying each twentieth of a bucket."""
        places = range(0, self.window_us, max(1, self.window_us // 20))
        return max(len(self.buckets("a", at, of_right=True)) for at in places)


class IntervalClock(Clock):
    """Time with the buckets of both sides."""

    def __init__(self, timing: Timing, steps: tuple[Step, ...]) -> None:
        super().__init__(timing, steps)
        assert isinstance(timing, IntervalTiming)
        self._buckets = timing.buckets
        self.scope_margin_us = max(0, timing.before_us)

    def cells_of(self, event: InputEvent | LateRecord) -> tuple[Cell, ...]:
        """By the side of the id."""
        return self._buckets(event.key, event.event_time_us, of_right=is_of_right(event.id))

    def is_late(self, event: InputEvent, cell: Cell) -> bool:
        """The event's own time takes the place of the end of the cell."""
        newest = self.newest((event.topic, event.partition), below=event.offset)
        return newest is not None and self._passed(newest) >= event.event_time_us

    def may_be_late(self, event: InputEvent, cell: Cell) -> bool:
        """Likewise, in whole buckets."""
        place = (event.topic, event.partition)
        furthest = [self.hidden_before(place, event.offset), self.ahead_before(place, event.offset)]
        furthest += self.furthest_elsewhere(place)
        mine = self._bucket(event.event_time_us)
        return any(at is not None and self._bucket(self._passed(at)) >= mine for at in furthest)

    def _passed(self, at_us: int) -> int:
        return at_us - self.timing.max_disorder_us - self.timing.allowed_lateness_us

    def _bucket(self, at_us: int) -> int:
        assert isinstance(self.timing, IntervalTiming)
        return (at_us - max(0, self.timing.after_us)) // self.timing.window_us


@dataclass(frozen=True)
class Found:
    """What is known of one (cell, id). ``due``: the pairs, and the results without a partner, that are owed at each of
    `LEVELS`."""

    used_in_pairs: int
    used_alone: int
    apart: int
    repeated: int
    aside: int
    due: Mapping[Level, tuple[int, int]]

    def lacking(self, level: Level) -> int:
        """Owed results that do not exist."""
        pairs, alone = self.due[level]
        others = max(0, self.used_in_pairs - pairs) + self.apart
        return max(0, pairs - self.used_in_pairs) + max(0, alone - self.used_alone - others)

    @property
    def used(self) -> int:
        """Contributions in results that state what events do."""
        return self.used_in_pairs + self.used_alone

    @property
    def expected(self) -> int:
        """e(c, id)."""
        return self.used + self.aside + self.lacking("later")


class IntervalReference(JoinReference):
    """One prefix of a history of an interval join, judged."""

    clock_type: ClassVar[type[Clock]] = IntervalClock

    @property
    def times(self) -> IntervalTiming:
        """The timing."""
        assert isinstance(self.timing, IntervalTiming)
        return self.timing

    def kinds_of_results(self, cell: Cell) -> list[tuple[ResultRecord, str]]:
        """Each result of a cell, in the order of positions: pair, alone, apart or repeated."""
        found: list[tuple[ResultRecord, str]] = []
        before: Counter[tuple[str, ...]] = Counter()
        for result in sorted(self.results[cell], key=lambda at: (at.topic, at.partition, at.offset)):
            lefts = [id_ for id_ in result.ids if not is_of_right(id_)]
            rights = [id_ for id_ in result.ids if is_of_right(id_)]
            allowed = 0
            if len(lefts) == len(rights) == 1 and self.join != "semi":
                allowed = sum(
                    self.times.is_pair(left, right)
                    for left in self.copies.get((cell, lefts[0]), ())
                    for right in self.copies.get((cell, rights[0]), ())
                )
            elif len(lefts) == 1 and not rights and self.join == "left":
                allowed = len(self.copies.get((cell, lefts[0]), ()))
            elif len(lefts) == 1 and not rights and self.join == "semi":
                others = [copy for other in self.partners(cell, lefts[0]) for copy in self.copies[cell, other]]
                mine = self.copies.get((cell, lefts[0]), ())
                allowed = sum(any(self.times.is_pair(left, right) for right in others) for left in mine)
            pair = (*lefts, *rights)
            kind = "apart" if not allowed else "repeated" if before[pair] >= allowed else "pair" if rights else "alone"
            before[pair] += 1
            found.append((result, kind))
        return found

    def is_set_aside(self, cell: Cell, id_: str) -> bool:
        """Whether a late or rejected record has the id."""
        seen = self.observed.get((cell, id_), Counter())
        return seen["late"] + seen["rejected"] > 0

    def must_use(self, cell: Cell, copy: InputEvent, level: Level) -> bool:
        """Whether the engine must use an event: at least once it has consumed it (`later`), if it has (`now`), if it
        was not late (`on_time`), and if it cannot have been (`sure`)."""
        if self.is_set_aside(cell, copy.id):
            return False
        if self.is_unconsumed(copy):
            return level == "later"
        if level in ("on_time", "sure") and self.is_dropped(copy, cell):
            return False
        if level == "sure" and self.may_be_dropped(copy, cell):
            return False
        return self.clock.is_provable(copy, None)

    def owed(self, cell: Cell, id_: str, level: Level) -> tuple[int, int]:
        """The pairs that an id is owed, and its results without a partner."""
        pairs = alone = 0
        others = [copy for other in self.partners(cell, id_) for copy in self.copies[cell, other]]
        for mine in self.copies[cell, id_]:
            near = [
                other for other in others if self.times.is_pair(*((other, mine) if is_of_right(id_) else (mine, other)))
            ]
            if not self.must_use(cell, mine, level):
                continue
            used = sum(self.must_use(cell, other, level) for other in near)
            if self.join == "semi":
                alone += not is_of_right(id_) and used > 0
                continue
            pairs += used
            may_join = [
                other
                for other in near
                if self.must_use(cell, other, "later")
                or not (self.is_unconsumed(other) or self.clock.is_provable(other, None))
            ]
            alone += self.join == "left" and not is_of_right(id_) and not may_join
        return pairs, alone

    def found(self, cell: Cell, id_: str) -> Found:
        """Apply the rule to an id of which the cell has an event."""
        used: Counter[str] = Counter()
        for result, kind in self.kinds_of_results(cell):
            used[kind] += result.ids.count(id_)
        seen = self.observed.get((cell, id_), Counter())
        aside = min(seen["late"] + seen["rejected"], len(self.copies[cell, id_]))
        due = {level: self.owed(cell, id_, level) for level in LEVELS}
        return Found(used["pair"], used["alone"], used["apart"], used["repeated"], aside, due)

    def has_event(self, cell: Cell, id_: str) -> bool:
        """Whether the cell has an event with the id."""
        return bool(self.copies.get((cell, id_)))

    # The reference's methods, overridden

    def expected(self, cell: Cell, id_: str) -> int:
        """e(c, id)."""
        return self.found(cell, id_).expected if self.has_event(cell, id_) else 0

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """The classes of one (cell, id)."""
        if not self.clock.in_scope(cell):
            return +Counter({"out_of_scope": len(self.copies.get((cell, id_), ()))})
        seen = self.observed.get((cell, id_), Counter())
        if not self.has_event(cell, id_):
            return +Counter({self.excess_class(cell, id_): seen.total()})
        it = self.found(cell, id_)
        late = min(seen["late"], it.aside)
        classes = Counter({"processed": it.used, "late": late, "rejected": it.aside - late})
        classes.update(self.outstanding(cell, id_, it.lacking("later")))
        resolved = self.is_resolved(cell)
        classes["duplicate" if resolved else "unresolved"] += it.repeated + seen["late"] + seen["rejected"] - it.aside
        classes["misplaced" if resolved else "unresolved"] += it.apart
        return +classes

    def excuses(self, cell: Cell, id_: str) -> tuple[int, int, int]:
        """What is not owed if the engine uses only some of the events."""
        it = self.found(cell, id_)
        left, excused = it.lacking("later"), []
        for level in ("now", "on_time", "sure"):
            excused.append(left - min(left, it.lacking(level)))
            left -= excused[-1]
        unconsumed, dropped, unprovable = excused
        return dropped, unconsumed, unprovable

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """The class of each result."""
        classes = {id_: self.classes(cell, id_) for id_ in self.ids(cell)}
        settled = ("processed", "late", "rejected")
        complete = all(sum(classes[id_][name] for name in settled) == self.expected(cell, id_) for id_ in classes)
        for result, kind in self.kinds_of_results(cell):
            strange = [id_ for id_ in result.ids if not self.has_event(cell, id_)]
            if not self.clock.in_scope(cell) or not self.is_resolved(cell):
                yield "unjudged"
            elif result.ids and (
                (kind == "apart" and len(strange) < len(result.ids)) or any(id_ in self.all_ids for id_ in strange)
            ):
                yield "misplaced"
            elif result.ids and (kind == "repeated" or strange):
                yield "excess"
            else:
                yield "correct" if complete else "incomplete"

    def hidden_answers(self) -> int:
        """At most one answer per bucket of an event."""
        return super().hidden_answers() * self.times.buckets_most

    def hidden_inputs(self) -> int:
        """At most one event per bucket of an event."""
        return super().hidden_inputs() * self.times.buckets_most


class InnerInterval(IntervalReference, Referee):
    """A pair needs an event of each side."""


class LeftInterval(IntervalReference, Referee):
    """A left event without a partner is answered, too."""

    join = "left"


class SemiInterval(IntervalReference, Referee):
    """A left event with a partner is answered once."""

    join = "semi"


REFEREES: Final[dict[Join, type[Referee]]] = {"inner": InnerInterval, "left": LeftInterval, "semi": SemiInterval}


class IntervalEngine(Engine):
    """Joins each event with all earlier ones, however late. With a left join, a left event whose cell ends without a
    partner has a result of its own, and may still have partners later. With a semi join, a left
    event has one result, with its first partner."""

    def __init__(self, rng: Random, timing: IntervalTiming, habits: Habits, inputs: Sequence[Log], join: Join) -> None:
        super().__init__(rng, timing, habits, inputs)
        self.is_pair, self.join = timing.is_pair, join
        self.stored: dict[str, list[InputEvent]] = defaultdict(list)
        self.lonely: dict[Cell, list[InputEvent]] = defaultdict(list)
        self.answered: list[InputEvent] = []

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        cells, of_right = self._cells(event), is_of_right(event.id)
        for role, luck in (("rejected", 0.2), ("late", 0.7 if all(late) else 0.0)):
            if role in self.habits.side_channels and self.rng.random() < luck:
                self.answers.append(Answer(now, "late" if role == "late" else "rejected", cells[0], (event.id,), event))
                return
        if all(late) and self._drops_late():
            return
        found = False
        for other in self.stored[event.key]:
            left, right = (other, event) if of_right else (event, other)
            if is_of_right(other.id) != of_right and self.is_pair(left, right):
                [cell] = self._cells(left)
                if self.join == "semi":
                    if not any(one is left for one in self.answered):
                        self.answers.append(Answer(now, "output", cell, (left.id,)))
                        self.answered.append(left)
                    continue
                self.answers.append(Answer(now, "output", cell, (left.id, right.id)))
                self.lonely[cell] = [one for one in self.lonely[cell] if one is not left]
                found = True
        self.stored[event.key].append(event)
        if self.join == "left" and not of_right and not found:
            self.lonely[cells[0]].append(event)
            self.pending[cells[0]].append(event.id)
            if cells[0] in self.closed:
                self._emit(now, cells[0])

    def _is_late(self, event: InputEvent, cell: Cell) -> bool:
        """Whether an event is late by itself."""
        place = (event.topic, event.partition)
        moved = [at for other, at in self.latest.items() if other == place or self.timing.may_move(place, other)]
        slack = self.timing.max_disorder_us + self.timing.allowed_lateness_us
        return bool(moved) and max(moved) - slack >= event.event_time_us

    def _emit(self, now: int, cell: Cell) -> None:
        del self.pending[cell]
        for event in self.lonely.pop(cell, []):
            self.answers.append(Answer(now, "output", cell, (event.id,)))


class IntervalWorld(JoinWorld):
    """One random world of an interval join."""

    def __init__(self, rng: Random, allowed: Allowed, faults: bool, join: Join) -> None:
        self.intervals = Random(rng.random())
        super().__init__(rng, allowed, faults, join)

    def _input_logs(self) -> list[Log]:
        scope = self.timing.lateness_scope
        logs = super()._input_logs()
        if self.timing.late_policy == "drop":
            self.timing = replace(self.timing, lateness_scope=scope)
        return logs

    def _timing(self) -> Timing:
        known = replace(super()._timing(), window_offset_us=0)
        values = {field.name: getattr(known, field.name) for field in fields(known)}
        before, after = self.intervals.choice((0, 0, 3, 8)), self.intervals.choice((0, 2, 5, 12))
        # The partners may all be some time later, or earlier.
        shift = self.intervals.choice((0, 0, 0, before + 2, -after - 2))
        before, after = before - shift, after + shift
        return IntervalTiming(**values, before_us=before, after_us=after, has_ends=self.intervals.random() < 0.4)

    def _broken(self, answers: Sequence[Answer], faults: Sequence[Fault]) -> list[Answer]:
        """Some pairs also exchange their right events."""
        broken = super()._broken(answers, faults)
        of_key: dict[str, list[int]] = defaultdict(list)
        for at, answer in enumerate(broken):
            if answer.role == "output" and len(answer.ids) == 2 and is_of_right(answer.ids[1]):
                of_key[answer.cell[1]].append(at)
        for places in of_key.values():
            if len(places) > 1 and self.intervals.random() < 0.5:
                one, other = self.intervals.sample(places, 2)
                first, second = broken[one].ids, broken[other].ids
                broken[one] = replace(broken[one], ids=(first[0], second[1]))
                broken[other] = replace(broken[other], ids=(second[0], first[1]))
        return broken

    def _engine(self, habits: Habits) -> Engine:
        super()._engine(habits)
        assert isinstance(self.timing, IntervalTiming)
        return IntervalEngine(self.rng, self.timing, habits, self.inputs, self.join)


@dataclass(frozen=True)
class IntervalCase(JoinCase):
    """One history for the interval join."""

    @property
    def referee(self) -> type[Referee]:
        """The reference that judges it."""
        return REFEREES[self.join]

    @cached_property
    def oracle(self) -> IntervalJoin:
        """The oracle with which the core judges it."""
        it = self.history.timing
        assert isinstance(it, IntervalTiming)
        made = IntervalJoin.of(it.window_us, it.before_us, it.after_us, join=self.join, left=LEFT, right=RIGHT)
        return made.model_copy(update={"until": FieldPath(path="until", unit="us")}) if it.has_ends else made

    def values_of(self, record: Record) -> list[Amount]:
        """The own end of a left event."""
        it = self.history.timing
        assert isinstance(it, IntervalTiming)
        if not it.has_ends or role_of(record) != "input" or record.topic == RIGHT:
            return []
        return [Decimal(it.own_end(record)) if isinstance(record, InputEvent) else None]


def interval_case(seed: int, join: Join, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> JoinCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = IntervalWorld(rng, allowed, not causal, join).history()
    history = history if causal else odder(history, rng)
    return IntervalCase(seed, causal, stretched(coarser(history, rng, steps_most)), join)
