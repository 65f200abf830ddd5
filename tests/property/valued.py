"""Evidence `values` with aggregates of a field, by brute force.

The world is that of `tests.property.counted`. Every event has an amount, which depends on its id; a result states the
aggregates of the amounts of the events that it used, and a faulty one states something else now and then. Which values
a cell may have is decided by trying all choices of events that a correct engine may have dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from random import Random
from typing import ClassVar, Final

from tests.property.counted import counted_history
from tests.property.history import Cell, History, InputEvent, LateRecord, Record, ResultRecord, role_of
from tests.property.sessions import CountingReferee, counted_session_history
from tests.property.spark_histories import Case, Referee
from tests.property.strategies import EVERYTHING, Allowed
from validator.codecs.one_record import NO_ID
from validator.oracles.seam import Oracle, Reads
from validator.oracles.session_window import SessionWindow
from validator.oracles.tumbling_window import TumblingWindow

Amount = Decimal | None
Place = tuple[str, int, int]
"""Topic, partition, offset."""

ALL: Final = {
    "number": "count",
    "total": "sum(amount)",
    "least": "min(amount)",
    "most": "max(amount)",
    "mean": "avg(amount)",
    "having": "count(amount)",
}
WINDOWED: Final = ALL | {"kinds": "distinct(amount)"}
SUMS: Final = {"number": "count", "total": "sum(amount)"}
OF_IDS: Final = {"number": "count", "ids": "sum_mod64(amount)", "squares": "sum_squares_mod64(amount)"}
WITHOUT_COUNT: Final = {"total": "sum(amount)", "least": "min(amount)"}
EXACT: Final = Context(prec=200)
CHOICES_MOST: Final = 10
"""Most events of a cell that a correct engine may have dropped; with more, no value is judged to be right or wrong."""


def amount_of(id_: str) -> Amount:
    """The amount of the event with this id: often small and whole, at times huge, with many decimals, or absent."""
    rng = Random(id_)
    kind = rng.randrange(8)
    if kind == 0:
        return None
    if kind == 1:
        return Decimal(rng.randrange(-(10**25), 10**25))
    if kind == 2:
        return Decimal(rng.randrange(-(10**12), 10**12)).scaleb(-rng.randrange(13, 30))
    return Decimal(rng.randrange(-3, 12)) if kind < 6 else Decimal(rng.randrange(0, 1000)).scaleb(-2)


def number_of(id_: str) -> Amount:
    """The integer that the event with this id has instead, at times none: sums are modulo 2^64."""
    rng = Random(id_)
    return None if rng.random() < 0.05 else Decimal(rng.randrange(-(2**63), 2**63) >> rng.choice((0, 0, 40)))


def _signed(number: int) -> Decimal:
    return Decimal((number + 2**63) % 2**64 - 2**63)


def fields_of(amount: Amount, aggregates: Mapping[str, str]) -> tuple[Amount, ...]:
    """An event's fields: its amount, 1 if results count the amounts, and its hash if they count different ones."""
    if "squares" in aggregates:
        return amount, None if amount is None else _signed(int(amount) ** 2)
    found: list[Amount] = [amount]
    if "having" in aggregates:
        found.append(None if amount is None else Decimal(1))
    if "kinds" in aggregates:
        found.append(None if amount is None else Decimal(Random(str(amount.normalize(EXACT))).getrandbits(63)))
    return tuple(found)


def stated_by(amounts: list[Amount], aggregates: Mapping[str, str]) -> list[Amount]:
    """What a correct result states about these amounts, without their number. An average is rounded to 40 digits."""
    numbers = [Fraction(number) for number in amounts if number is not None]
    found = {"count": _rounded(Fraction(len(numbers))), "distinct": _rounded(Fraction(len(set(numbers))))}
    if numbers:
        total = sum(numbers)
        of = {"sum": total, "min": min(numbers), "max": max(numbers), "avg": total / len(numbers)}
        # Any number with the same remainder will do.
        squares = sum(number * number for number in numbers) % 2**64
        of |= {"sum_mod64": total, "sum_squares_mod64": squares - 2**64 * (len(numbers) % 2)}
        found |= {name: _rounded(number) for name, number in of.items()}
    return [found.get(text.partition("(")[0]) for text in aggregates.values() if text != "count"]


def _rounded(number: Fraction) -> Decimal:
    return EXACT.scaleb(Decimal(round(number * 10**38)), -38)


def doubles_lose(function: str, numbers: Sequence[Fraction]) -> Fraction:
    """What doubles lose of a value of these numbers (SEMANTICS 2.29)."""
    often = {"sum": len(numbers) + 2, "avg": 3, "min": 2, "max": 2}[function]
    return Fraction(often, 2**53) * sum(map(abs, numbers), Fraction(0))


def places_of(number: Decimal) -> int:
    """The number of digits after the point that a result shows, without redundant zeros."""
    return len(format(number, "f").partition(".")[2].rstrip("0"))


@dataclass(frozen=True)
class ValuedCase(Case):
    """A history whose results state aggregates. ``values``: those of events and results, by their place."""

    aggregates: tuple[tuple[str, str], ...] = ()
    values: tuple[tuple[Place, tuple[Amount, ...]], ...] = ()
    of_sessions: bool = False

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with the aggregates."""
        timing = self.history.timing
        found: Oracle = TumblingWindow.of(timing.window_us, timing.window_offset_us)
        if self.of_sessions:
            found = SessionWindow.of(timing.window_us)
        reads = Reads(
            evidence="values", names_ids=False, adds_up=self.of_sessions, has_ids="squares" in dict(self.aggregates)
        )
        return found.model_copy(update={"values": dict(self.aggregates)}).reading(reads)

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        known, given = dict(self.values), dict(self.aggregates)

        base: type[Referee] = ValuedReferee if self.oracle.stated.count_name else UncountedReferee
        if self.of_sessions:
            base = ValuedSessionReferee
        return type("OfValues", (base,), {"amounts": known, "aggregates": given})

    def values_of(self, record: Record) -> list[Amount]:
        """The amount of an event, or the aggregates of a result."""
        place = (record.topic, record.partition, record.offset)
        stated = self.oracle.stated
        width = len(stated.stated) if role_of(record) == "output" else len(stated.paths)
        return list(dict(self.values).get(place, (None,) * width))

    def id_of(self, record: Record) -> int:
        """The integer of the event, if results state sums of these."""
        number = self.values_of(record)[0] if "squares" in dict(self.aggregates) else None
        return NO_ID if number is None else int(number)


class ValuedReferee(Referee):
    """The reference, with the class `wrong_value` of results (SEMANTICS 2.29)."""

    amounts: Mapping[Place, tuple[Amount, ...]] = {}
    aggregates: Mapping[str, str] = {}

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """As in the reference; a sound result of a cell with a wrong value has a wrong value."""
        for name in super().result_classes(cell):
            yield "wrong_value" if name in ("correct", "incomplete") and self.is_wrong(cell) else name

    def is_wrong(self, cell: Cell) -> bool:
        """Whether no correct engine can have stated what the results of the cell state."""
        ids = self.ids(cell)
        copies = [copy for id_ in ids for copy in self.copies.get((cell, id_), ())]
        seen: Counter[str] = sum((self.seen(cell, id_) for id_ in ids), Counter())
        left = len(copies) - seen.total()
        if not copies or left < 0 or not self.results[cell]:
            return False
        free = [copy for copy in copies if self.is_dropped(copy, cell) or self.may_be_dropped(copy, cell)]
        if self.standing(cell) != "missing" or left > len(free) or any(map(self.is_unconsumed, copies)):
            return False
        if not all(self.clock.is_provable(copy, None) for copy in copies):
            return False
        if not left and self.knows_used:
            free = []
        return self._is_impossible(cell, copies, free)

    knows_used: ClassVar[bool] = True
    """Whether results say how many events they used."""

    def _is_impossible(self, cell: Cell, copies: list[InputEvent], free: list[InputEvent]) -> bool:
        aside = [
            self.amount(record)
            for step in self.steps
            for record in step.records
            if isinstance(record, LateRecord) and cell in self.clock.cells_of(record)
        ]
        if None in aside or len(free) > CHOICES_MOST:
            return False
        results = [self.amounts[result.topic, result.partition, result.offset] for result in self.results[cell]]
        sure = [self.amount(copy) for copy in copies if copy not in free]
        rest = [self.amount(copy) for copy in free]
        used = [sure + list(some) for size in range(len(rest) + 1) for some in combinations(rest, size)]
        functions = [text.partition("(")[0] for text in self.aggregates.values() if text != "count"]
        return any(
            not self.may_be(function, [values[i] for values in results], used, aside)
            for i, function in enumerate(functions)
        )

    def amount(self, record: InputEvent | LateRecord) -> Amount:
        """The amount of an event."""
        return self.amounts[record.topic, record.partition, record.offset][0]

    @staticmethod
    def may_be(
        function: str, stated: list[Amount], used: list[list[Amount]], aside: list[Amount], *, loses: bool = True
    ) -> bool:
        """Whether the values that results state lie between those that the choices of used events give."""
        given = [Fraction(number) for number in stated if number is not None]
        numbers = [[Fraction(number) for number in some if number is not None] for some in used]
        flat = [number for some in numbers for number in some]
        loose = bool(aside) or len(used) > 1
        if function == "count":
            counts = [len(some) - len(aside) for some in numbers]
            return bool(given) and min(counts) <= sum(given) <= max(counts)
        if function in ("sum_mod64", "sum_squares_mod64"):
            power = 1 if function == "sum_mod64" else 2
            owed = [number**power for number in numbers[0]]
            less = [Fraction(number) ** power for number in aside if number is not None]
            # SEMANTICS 2.34: whatever was dropped may make any value right.
            return len(used) > 1 or (
                len(owed) <= len(less) if not given else (sum(given) - sum(owed) + sum(less)) % 2**64 == 0
            )
        if function == "distinct":
            most, least = (
                max(len(set(some)) for some in numbers),
                min(len(set(some).difference(aside)) for some in numbers),
            )
            return max(given, default=0) <= most and sum(given) >= least
        if not given or not flat:
            # SEMANTICS 2.29: a sum of nothing may be 0.
            return not any(given) and (loose or not flat)
        if function == "avg" and len(set(stated)) > 1:
            return True
        every = max(numbers, key=len)
        lost = doubles_lose(function, every) if loses else Fraction(0)
        if function == "sum":
            sums = [sum(some) - sum(Fraction(number) for number in aside if number is not None) for some in numbers]
            return min(sums) - lost <= sum(given) <= max(sums) + lost
        found = min(given) if function in ("min", "avg") else max(given)
        if function == "avg" and not loose:
            mean = sum(flat) / len(flat)
            places = min(places_of(number) for number in stated if number is not None)
            return abs(mean - found) <= max(Fraction(1, 10**places), abs(found) / 2**51) + lost
        if function != "avg":
            lost = doubles_lose(function, [found])
        if aside or function == "avg":
            return min(flat) - lost <= found <= max(flat) + lost
        pick = min if function == "min" else max
        choices = [pick(some) for some in numbers if some]
        return min(choices) - lost <= found <= max(choices) + lost


class UncountedReferee(ValuedReferee):
    """The reference for results that do not state how many events they used."""

    knows_used = False

    def seen(self, cell: Cell, id_: str) -> Counter[str]:
        """The results of a cell stand for all events that the engine has read and not set aside, or each for one if
        there are none."""
        copies = self.copies.get((cell, id_), ())
        seen, events = Counter(super().seen(cell, id_)), len(copies)
        seen["output"] = 0
        if self.results.get(cell):
            unread = sum(map(self.is_unconsumed, copies))
            seen["output"] = max(0, events - unread - seen.total()) if events else len(self.results[cell])
        return +seen

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """A result of a cell without events is one too many."""
        has_events = any(self.copies.get((cell, id_)) for id_ in self.ids(cell))
        judged = self.clock.in_scope(cell) and self.is_resolved(cell)
        for name in super().result_classes(cell):
            if judged and has_events and name == "excess":
                yield "wrong_value" if self.is_wrong(cell) else "correct" if self._is_complete(cell) else "incomplete"
            else:
                yield "excess" if judged and not has_events else name

    def _is_complete(self, cell: Cell) -> bool:
        copies = sum(len(self.copies.get((cell, id_), ())) for id_ in self.ids(cell))
        return sum((self.seen(cell, id_) for id_ in self.ids(cell)), Counter[str]()).total() >= copies


class ValuedSessionReferee(ValuedReferee, CountingReferee):
    """The reference of sessions, with the class `wrong_value`."""


def each_claiming(history: History) -> History:
    """The history in which no result lists nothing: without a number it stands for something."""

    def claiming(record: Record) -> Record:
        return replace(record, ids=record.ids or ("",)) if isinstance(record, ResultRecord) else record

    steps = tuple(replace(step, records=tuple(map(claiming, step.records))) for step in history.steps)
    return replace(history, steps=steps)


def valued_case(
    seed: int, *, causal: bool, steps_most: int, aggregates: Mapping[str, str] = WINDOWED, allowed: Allowed = EVERYTHING
) -> ValuedCase:
    """The case that ``seed`` generates, as `counted_case`."""
    found = counted_history(seed, causal=causal, steps_most=steps_most, allowed=allowed)
    if "count" not in aggregates.values():
        found = replace(found, history=each_claiming(found.history))
    return valued(found, found.anonymous(), aggregates)


def valued_session_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> ValuedCase:
    """The case that ``seed`` generates, of sessions."""
    found = counted_session_history(seed, causal=causal, steps_most=steps_most, allowed=allowed)
    return replace(valued(found, found.anonymous(), WINDOWED), of_sessions=True)


def valued(named: Case, anonymous: Case, aggregates: Mapping[str, str]) -> ValuedCase:
    """The case of a history, with the amounts of the ids that its records have in the ``named`` one."""
    rng = Random(named.seed)
    values: list[tuple[Place, tuple[Amount, ...]]] = []
    value_of = number_of if "squares" in aggregates else amount_of
    for record in (record for step in named.history.steps for record in step.records):
        place = (record.topic, record.partition, record.offset)
        if isinstance(record, InputEvent | LateRecord):
            values.append((place, fields_of(value_of(record.id), aggregates)))
        elif isinstance(record, ResultRecord):
            stated = stated_by([value_of(id_) for id_ in record.ids], aggregates)
            if not named.causal and rng.random() < 0.1:
                at = rng.randrange(len(stated))
                by = Decimal(rng.choice((1, -1, 1000))).scaleb(-rng.randrange(3))
                stated[at] = EXACT.add(stated[at] or Decimal(0), by)
            values.append((place, tuple(stated)))
    return ValuedCase(named.seed, named.causal, anonymous.history, tuple(aggregates.items()), tuple(values))
