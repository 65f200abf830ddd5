"""The windowed join whose results state values, by brute force (SEMANTICS 2.12).

The engine writes the pairs of events that each result used, such as `7|updates/3`, or `7|` for a left event without a
partner. The core and the reference see only how many there are, and aggregates of the amounts of both sides.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, reduce
from itertools import combinations
from random import Random
from typing import ClassVar, Final

from tests.property.engine import Engine, Habits
from tests.property.history import Cell, History, InputEvent, LateRecord, Record, ResultRecord, Timing, role_of
from tests.property.join_agreement import JoinCase, accumulated
from tests.property.join_reference import LEFT, RIGHT, Join
from tests.property.join_worlds import JoinWorld
from tests.property.logs import Log
from tests.property.spark_histories import Referee, coarser, odder, stretched
from tests.property.strategies import EVERYTHING, Allowed, draw_timing
from tests.property.valued import CHOICES_MOST, EXACT, Amount, Place, amount_of, doubles_lose
from validator.oracles.seam import Oracle, Reads
from validator.reconcile.judge import Rules

AGGREGATES: Final = {
    "pairs": "count",
    "of_left": "sum(left.amount)",
    "of_right": "sum(right.amount)",
    "numbers": "count(right.amount)",
    "most": "max(left.amount)",
}
SEMI: Final = {name: text for name, text in AGGREGATES.items() if "right" not in text}


def aggregates_of(join: Join) -> Mapping[str, str]:
    """What results of a join state."""
    return SEMI if join == "semi" else AGGREGATES


def pairs_of(lefts: Sequence[str], rights: Sequence[str], join: Join) -> list[str]:
    """The pairs of which a correct engine states the number."""
    if join == "semi":
        return [f"{left}|" for left in lefts if rights]
    alone = [""] if join == "left" and not rights else []
    return [f"{left}|{right}" for left in lefts for right in (*rights, *alone)]


class PairEngine(Engine):
    """States each pair once, as soon as its window is due and both events were read, however late one of them is."""

    def __init__(self, rng: Random, timing: Timing, habits: Habits, inputs: Sequence[Log], join: Join) -> None:
        super().__init__(rng, timing, habits, inputs)
        self.join = join
        self.used: dict[Cell, list[str]] = defaultdict(list)

    def _take(self, now: int, event: InputEvent, late: Sequence[bool]) -> None:
        # What was answered without a partner stays so.
        if self.join == "left" and not self.closed.isdisjoint(self._cells(event)):
            return
        whole = self.habits
        if event.topic == RIGHT:
            # The late and rejected topics are those of the left input.
            self.habits = replace(whole, side_channels=frozenset())
        super()._take(now, event, late)
        self.habits = whole

    def _emit(self, now: int, cell: Cell) -> None:
        before, fresh = self.used[cell], self.pending.pop(cell)
        self.used[cell] = [*before, *fresh]
        pairs = Counter(self._pairs(self.used[cell])) - Counter(self._pairs(before))
        if pairs:
            self.pending[cell] = list(pairs.elements())
            super()._emit(now, cell)

    def _pairs(self, ids: Sequence[str]) -> list[str]:
        lefts, rights = ([id_ for id_ in ids if id_.startswith(RIGHT) == of_right] for of_right in (False, True))
        return pairs_of(lefts, rights, self.join)


class PairWorld(JoinWorld):
    """One random world of a join whose late and rejected topics have events of the left input."""

    def _input_logs(self) -> list[Log]:
        scope = self.timing.lateness_scope
        found = super()._input_logs()
        self.timing = replace(self.timing, lateness_scope=scope)
        return found

    def _timing(self) -> Timing:
        found = draw_timing(self.rng)
        if self.join == "left":
            # A left event that was answered without a partner stays so: what comes later is late, and dropped.
            found = replace(found, late_policy="drop", lateness_scope="global", allowed_lateness_us=0)
        return found

    def _engine(self, habits: Habits) -> Engine:
        super()._engine(habits)
        if self.join == "left":
            habits = replace(habits, fires_early=0.0)
        return PairEngine(self.rng, self.timing, habits, self.inputs, self.join)


class PairReferee(Referee):
    """The reference, which counts the pairs of the events of a cell."""

    join: ClassVar[Join] = "inner"
    amounts: ClassVar[Mapping[Place, tuple[Amount, ...]]] = {}

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        # Results do not say whose events they used.
        self.all_ids.clear()

    def pairs(self, events: Sequence[InputEvent], aside: int = 0) -> int:
        """How many pairs the events make without so many left ones."""
        lefts, rights = ([str(one) for one in events if one.topic == topic] for topic in (LEFT, RIGHT))
        return len(pairs_of(lefts[aside:], rights, self.join))

    def expected(self, cell: Cell, id_: str) -> int:
        """All pairs of the events that were read."""
        return self.pairs(self.copies.get((cell, id_), []))

    def classes(self, cell: Cell, id_: str) -> Counter[str]:
        """The pairs of the events that were not set aside are owed. A cell out of scope counts its events."""
        copies, seen = self.copies.get((cell, id_), []), self.seen(cell, id_)
        if not self.clock.in_scope(cell):
            return +Counter({"out_of_scope": len(copies)})
        expected = self.pairs(copies)
        on_time, kept = self.pairs(copies, seen["late"]), self.pairs(copies, self.aside(cell, id_))
        processed = min(kept, seen["output"])
        found = Counter({"processed": processed, "late": expected - on_time, "rejected": on_time - kept})
        found.update(self.outstanding(cell, id_, kept - processed))
        found[self.excess_class(cell, id_)] += self.excess(cell, id_, kept)
        return +found

    def aside(self, cell: Cell, id_: str) -> int:
        """How many left events were set aside."""
        return self.seen(cell, id_)["late"] + self.seen(cell, id_)["rejected"]

    def excess(self, cell: Cell, id_: str, expected: int) -> int:
        """The pairs above ``expected``, and the records that were set aside without being events of the cell."""
        lefts = sum(one.topic == LEFT for one in self.copies.get((cell, id_), ()))
        return max(0, self.seen(cell, id_)["output"] - expected) + max(0, self.aside(cell, id_) - lefts)

    def excuses(self, cell: Cell, id_: str) -> tuple[int, int, int]:
        """The pairs that an engine need not have stated: those of events that it has not consumed, of those that it may
        drop, and of those that it may have dropped or whose answers may be unreadable."""
        base, copies = self.clock.due_base(cell), self.copies.get((cell, id_), [])
        consumed = [copy for copy in copies if not self.is_unconsumed(copy)]
        on_time = [copy for copy in consumed if not self.is_dropped(copy, cell)]
        sure = [copy for copy in on_time if not self.may_be_dropped(copy, cell) and self.clock.is_provable(copy, base)]
        aside = self.aside(cell, id_)
        every, of_consumed, of_on_time, of_sure = (
            self.pairs(some, aside) for some in (copies, consumed, on_time, sure)
        )
        return of_consumed - of_on_time, every - of_consumed, of_on_time - of_sure

    def is_held(self, kind: str, found: Sequence[tuple[Cell, Counter[str]]]) -> bool:
        """An unreadable event may be the partner of all others."""
        return super().is_held("unknown_id" if kind == "misplaced" else kind, found)

    def to_explain(self, found: Sequence[tuple[Cell, Counter[str]]], kinds: AbstractSet[str]) -> int:
        """The number of cells."""
        return len({cell for cell, classes in found if any(classes[kind] for kind in kinds)})

    # Values

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """As in the reference; a sound result of a cell with a wrong value has a wrong value."""
        for name in super().result_classes(cell):
            yield "wrong_value" if name in ("correct", "incomplete") and self.is_wrong(cell) else name

    def is_wrong(self, cell: Cell) -> bool:
        """Whether no correct engine can have stated what the results of the cell state."""
        [copies] = [self.copies.get((cell, id_), []) for id_ in self.ids(cell)] or [[]]
        left = self.pairs(copies) - sum(len(result.ids) for result in self.results[cell])
        free = [copy for copy in copies if self.is_dropped(copy, cell) or self.may_be_dropped(copy, cell)]
        sure = [copy for copy in copies if copy not in free]
        if any(self.aside(cell, id_) for id_ in self.ids(cell)):
            return False
        if not self.pairs(copies) or left < 0 or left > self.pairs(copies) - self.pairs(sure):
            return False
        if self.standing(cell) != "missing" or not self.results[cell] or any(map(self.is_unconsumed, copies)):
            return False
        if left and not all(self.clock.is_provable(copy, None) for copy in copies):
            return False
        results = [self.amounts[result.topic, result.partition, result.offset] for result in self.results[cell]]
        parts = [text.rstrip(")").partition("(") for text in aggregates_of(self.join).values() if text != "count"]
        return any(
            not self._may_be(function, [values[i] for values in results], copies, free if left else [], path)
            for i, (function, _, path) in enumerate(parts)
        )

    def _may_be(
        self, function: str, stated: list[Amount], copies: list[InputEvent], free: list[InputEvent], path: str
    ) -> bool:
        topic = LEFT if path.startswith("left.") else RIGHT
        mine, others = ([copy for copy in copies if (copy.topic == topic) is own] for own in (True, False))
        exact = not free
        if exact and self.join == "left" and topic == RIGHT and len(mine) == 1:
            # As many pairs as with the right event used, which may have been dropped.
            exact = False
            free = [copy for copy in mine if self.clock.cells_of(copy) and self._is_free(copy)]
        if len(free) > CHOICES_MOST:
            return True
        certain = [self._amount(copy) for copy in mine if copy not in free]
        rest = [self._amount(copy) for copy in mine if copy in free]
        partners = {len(others), len(others) - sum(copy in free for copy in others)} if self.join != "semi" else {1}
        used = [
            (certain + list(some)) * max(times, 1)
            for size in range(len(rest) + 1)
            for some in combinations(rest, size)
            for times in partners
        ]
        given = [Fraction(number) for number in stated if number is not None]
        numbers = [[Fraction(number) for number in some if number is not None] for some in used]
        flat = [number for some in numbers for number in some]
        if function == "count":
            return bool(given) and min(map(len, numbers)) <= sum(given) <= max(map(len, numbers))
        if not given or not flat:
            return not any(given) and (not exact or not flat)
        if function == "sum":
            sums, lost = [sum(some) for some in numbers], doubles_lose(function, max(numbers, key=len))
            return min(sums) - lost <= sum(given) <= max(sums) + lost
        largest, lost = [max(some) for some in numbers if some], doubles_lose(function, [max(given)])
        return min(largest) - lost <= max(given) <= max(largest) + lost

    def _is_free(self, copy: InputEvent) -> bool:
        [cell] = self.clock.cells_of(copy)
        return self.is_dropped(copy, cell) or self.may_be_dropped(copy, cell)

    def _amount(self, event: InputEvent) -> Amount:
        return self.amounts[event.topic, event.partition, event.offset][0]


@dataclass(frozen=True)
class PairCase(JoinCase):
    """A history of a join whose results state values. ``values``: those of events and results, by their place."""

    values: tuple[tuple[Place, tuple[Amount, ...]], ...] = ()

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        return self.replacing(type("OfPairs", (PairReferee,), {"join": self.join, "amounts": dict(self.values)}))

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with the aggregates."""
        known = super().oracle.model_copy(update={"values": dict(aggregates_of(self.join))})
        return known.reading(Reads(evidence="values", names_ids=False, replaces=self.cumulative))

    @cached_property
    def rules(self) -> Rules:
        """The core counts the matched events of each input, too."""
        return replace(super().rules, several_inputs=True)

    def values_of(self, record: Record) -> list[Amount]:
        """The fields of an event, or the aggregates of a result."""
        if role_of(record) == "output":
            width = len(self.oracle.stated.stated)
        else:
            width = len(self.oracle.seen_from(record.topic).stated.paths)
        return list(dict(self.values).get((record.topic, record.partition, record.offset), (None,) * width))


def pair_case(
    seed: int,
    join: Join,
    *,
    causal: bool,
    steps_most: int,
    allowed: Allowed = EVERYTHING,
    cumulative: bool = False,
) -> PairCase:
    """The case that ``seed`` generates."""
    rng = Random(seed)
    history = PairWorld(rng, allowed, not causal, join).history()
    if not causal:
        history = odder(history, rng)
    named = stretched(coarser(history, rng, steps_most))
    named = accumulated(named, seed, causal) if cumulative else named
    values = tuple(_valued(record, join, causal, rng) for step in named.steps for record in step.records)
    return PairCase(seed, causal, _anonymous(named), join, cumulative, tuple(filter(None, values)))


def _valued(record: Record, join: Join, causal: bool, rng: Random) -> tuple[Place, tuple[Amount, ...]] | None:
    place = (record.topic, record.partition, record.offset)
    if isinstance(record, InputEvent):
        amount = amount_of(record.id)
        if record.topic == LEFT:
            return place, (amount,)
        return place, () if join == "semi" else (amount, None if amount is None else Decimal(1))
    if not isinstance(record, ResultRecord):
        return None
    stated = _stated_by(record.ids, join)
    if not causal and rng.random() < 0.1:
        at = rng.randrange(len(stated))
        stated[at] = EXACT.add(stated[at] or Decimal(0), Decimal(rng.choice((1, -1, 1000))))
    return place, tuple(stated)


def _stated_by(pairs: Sequence[str], join: Join) -> list[Amount]:
    sides = [pair.partition("|")[::2] for pair in pairs]
    of_left, of_right = (
        [it for pair in sides if pair[at] and (it := amount_of(pair[at])) is not None] for at in (0, 1)
    )
    total = [reduce(EXACT.add, some) if some else None for some in (of_left, of_right)]
    found = {
        "of_left": total[0],
        "of_right": total[1],
        "numbers": Decimal(len(of_right)),
        "most": max(of_left, default=None),
    }
    return [found[name] for name in aggregates_of(join) if name != "pairs"]


def _anonymous(history: History) -> History:
    timing = history.timing

    def anonymous(record: Record) -> Record:
        if isinstance(record, InputEvent | LateRecord):
            [cell] = timing.cells(record.key, record.event_time_us)
            return replace(record, id=_name(cell))
        if isinstance(record, ResultRecord):
            return replace(record, ids=(_name((record.window_start_us, record.key)),) * len(record.ids))
        return record

    steps = tuple(replace(step, records=tuple(map(anonymous, step.records))) for step in history.steps)
    return replace(history, steps=steps)


def _name(cell: Cell) -> str:
    return f"{cell[1]}@{cell[0]}"
