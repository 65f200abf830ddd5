"""Results of one event each that carry no id, but repeat two of its fields (`same`), by brute force.

The world is that of `tests.property.passthrough`. All events of a bucket have one id, as in `tests.property.counted`.
The fields of an event depend on its id in that world, and are often equal. Whether results repeat the fields is decided
by comparing the multisets of both; only where an engine may have dropped events do hashes decide, by all choices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from decimal import Decimal
from functools import cached_property
from itertools import combinations, count
from random import Random
from typing import Final

from tests.property.counted import ANOTHER
from tests.property.history import Cell, History, InputEvent, LateRecord, Record, ResultRecord, Step, role_of
from tests.property.passthrough import PassthroughCase, PassthroughReferee, PassthroughTiming, passthrough_case
from tests.property.spark_histories import Referee
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import CHOICES_MOST, Place, ValuedReferee
from validator.oracles.passthrough import Passthrough
from validator.oracles.seam import Reads

Tuple = tuple[str | None, ...]
"""The fields of an event, or those that a result repeats."""
NAMES: Final = ("amount", "status")


def tuple_of(id_: str) -> Tuple:
    """The fields of the event with this id: equal to those of others, or absent, now and then."""
    rng = Random(id_)
    return rng.choice((None, "1", "2", "2")), rng.choice((None, "new", "paid"))


def hashes_of(given: Tuple) -> list[Decimal | None]:
    """A number for the fields up to each one; None where this one is null."""
    return [
        None if one is None else Decimal(Random(str(given[: i + 1])).getrandbits(63)) for i, one in enumerate(given)
    ]


@dataclass(frozen=True)
class PlacedTiming(PassthroughTiming):
    """A timing that knows which events pass the filter by their positions."""

    stopped: frozenset[Place] = frozenset()

    def owes(self, event: InputEvent) -> bool:
        """Whether the filter lets an event pass."""
        return (event.topic, event.partition, event.offset) not in self.stopped


@dataclass(frozen=True)
class RepeatedCase(PassthroughCase):
    """A history of events that are answered one by one, without their ids. ``tuples``: the fields of each record."""

    tuples: tuple[tuple[Place, Tuple], ...] = ()
    width: int = len(NAMES)

    @cached_property
    def oracle(self) -> Passthrough:
        """The oracle with which the core judges it."""
        values = {name: f"same({name})" for name in NAMES[: self.width]}
        return super().oracle.model_copy(update={"values": values}).reading(Reads(evidence="values", names_ids=False))

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the fields."""
        return type("OfTuples", (RepeatedReferee,), {"tuples": dict(self.tuples)})

    def values_of(self, record: Record) -> list[Decimal | None]:
        """The hashes of the fields of an event, or of those that a result repeats."""
        given = dict(self.tuples).get((record.topic, record.partition, record.offset), (None,) * self.width)
        is_other = role_of(record) == "input" and not self.history.timing.owes(record)  # type: ignore[arg-type]
        return [None] * self.width if is_other else hashes_of(given)


class RepeatedReferee(ValuedReferee, PassthroughReferee):
    """The reference: a sound result of a bucket whose results repeat other fields than its events have is wrong."""

    tuples: Mapping[Place, Tuple] = {}

    def _take(self, step: Step, record: Record) -> None:
        super()._take(step, record)
        # SEMANTICS 2.23: a result of a bucket without events is not known to be that of another one.
        self.all_ids.clear()

    def _is_impossible(self, cell: Cell, copies: list[InputEvent], free: list[InputEvent]) -> bool:
        records = [record for step in self.steps for record in step.records if isinstance(record, LateRecord)]
        aside = [self.of(record) for record in records if cell in self.clock.cells_of(record)]
        others = any(at == cell for (at, _), number in self.owe_nothing.items() if number)
        if (aside and others) or len(free) > CHOICES_MOST:
            return False
        width = len(next(iter(self.tuples.values())))
        results = [self.of(result) for result in self.results[cell]]
        sure = [self.of(copy) for copy in copies if copy not in free]
        rest = [self.of(copy) for copy in free]
        used = [sure + list(some) for size in range(len(rest) + 1) for some in combinations(rest, size)]
        # SEMANTICS 2.36: without a field, a set-aside record does not say which tuple its event had.
        places = [i for i in range(width) if all(None not in one[: i + 1] for one in aside)]
        if len(used) == 1 and len(places) == width:
            owed = Counter(used[0])
            owed.subtract(aside)
            owed.subtract(results)
            return any(owed.values())
        return any(self._differs(i, used, aside, results) for i in places)

    @staticmethod
    def _differs(i: int, used: list[list[Tuple]], aside: list[Tuple], results: list[Tuple]) -> bool:
        columns = [[hashes_of(one)[i] for one in some] for some in used]
        stated, less = ([hashes_of(one)[i] for one in some] for some in (results, aside))
        return not ValuedReferee.may_be("sum", stated, columns, less)

    def of(self, record: InputEvent | LateRecord | ResultRecord) -> Tuple:
        """The fields of a record."""
        return self.tuples[record.topic, record.partition, record.offset]


def repeated_case(
    seed: int, *, causal: bool, steps_most: int, width: int = len(NAMES), allowed: Allowed = EVERYTHING
) -> RepeatedCase:
    """The case that ``seed`` generates. Set-aside records lack fields now and then. If the engine may err, some results
    have another field."""
    for other in count(seed, ANOTHER):
        named = passthrough_case(other, causal=causal, steps_most=steps_most, allowed=allowed)
        if named.history.timing.duplicates == "count":
            break
    timing, rng = named.history.timing, Random(other)
    assert isinstance(timing, PassthroughTiming)
    records = [record for step in named.history.steps for record in step.records]
    tuples: list[tuple[Place, Tuple]] = []
    for record, [id_] in _with_ids(records):
        given = tuple_of(id_)[:width]
        if not causal and isinstance(record, ResultRecord) and rng.random() < 0.1:
            given = tuple_of(str(rng.randrange(100)))[:width]
        if isinstance(record, LateRecord):
            given = tuple(one if rng.random() < 0.8 else None for one in given)
        tuples.append(((record.topic, record.partition, record.offset), given))
    places = frozenset(
        (record.topic, record.partition, record.offset)
        for record in records
        if isinstance(record, InputEvent) and not timing.owes(record)
    )
    placed = PlacedTiming(**{one.name: getattr(timing, one.name) for one in fields(timing)}, stopped=places)
    steps = tuple(
        replace(step, records=tuple(_anonymous(record, placed) for record in step.records))
        for step in named.history.steps
    )
    history = History(placed, steps, named.history.final)
    return RepeatedCase(other, causal, history, tuple(tuples), width)


def _with_ids(records: list[Record]) -> Iterator[tuple[InputEvent | LateRecord | ResultRecord, tuple[str]]]:
    for record in records:
        if isinstance(record, InputEvent | LateRecord):
            yield record, (record.id,)
        elif isinstance(record, ResultRecord):
            # A result that lists no id, or several, is one without fields of an event.
            yield record, (record.ids[0] if len(record.ids) == 1 else "",)


def _anonymous(record: Record, timing: PlacedTiming) -> Record:
    match record:
        case InputEvent() | LateRecord():
            return replace(record, id=_name(*timing.cells(record.key, record.event_time_us)))
        case ResultRecord():
            return replace(record, ids=(_name(timing.cell_of_result(record)),))
        case _:
            return record


def _name(cell: Cell) -> str:
    return f"{cell[1]}@{cell[0]}"
