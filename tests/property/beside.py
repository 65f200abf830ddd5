"""Values beside ids by brute force: the reference computes the aggregates of the events that each result names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from random import Random

from tests.property.history import Cell, InputEvent, LateRecord, Record, ResultRecord, role_of
from tests.property.spark_histories import Case, Referee, case
from tests.property.strategies import EVERYTHING, Allowed
from tests.property.valued import EXACT, WINDOWED, Amount, Place, ValuedReferee, amount_of, fields_of, stated_by
from validator.oracles.seam import Oracle, Reads


@dataclass(frozen=True)
class BesideCase(Case):
    """A history whose results state aggregates beside ids. ``values``: those of events and results, by their place."""

    values: tuple[tuple[Place, tuple[Amount, ...]], ...] = ()

    @cached_property
    def oracle(self) -> Oracle:
        """The oracle with the aggregates."""
        return super().oracle.model_copy(update={"values": WINDOWED}).reading(Reads())

    @property
    def referee(self) -> type[Referee]:
        """A reference that knows the amounts."""
        return type("OfValuesBesideIds", (BesideReferee,), {"amounts": dict(self.values)})

    @cached_property
    def _values(self) -> Mapping[Place, tuple[Amount, ...]]:
        return dict(self.values)

    def values_of(self, record: Record) -> list[Amount]:
        """The amount of an event, or the aggregates of a result."""
        stated = self.oracle.stated
        width = len(stated.stated) if role_of(record) == "output" else len(stated.paths)
        return list(self._values.get((record.topic, record.partition, record.offset), (None,) * width))


class BesideReferee(Referee):
    """The reference, with the class `inconsistent` of results (SEMANTICS 2.32); the core's column is `wrong_value`."""

    amounts: Mapping[Place, tuple[Amount, ...]] = {}

    def result_classes(self, cell: Cell) -> Iterator[str]:
        """As in the reference; whether a judged result is inconsistent depends on nothing but its own ids."""
        results = sorted(self.results[cell], key=lambda at: (at.topic, at.partition, at.offset))
        for result, name in zip(results, super().result_classes(cell), strict=True):
            yield "wrong_value" if name != "unjudged" and self._is_inconsistent(cell, result) else name

    def _is_inconsistent(self, cell: Cell, result: ResultRecord) -> bool:
        used = [{self._amount(copy) for copy in self.copies.get((cell, id_), ())} for id_ in result.ids]
        if not used or any(len(amounts) != 1 for amounts in used):
            return False
        numbers = [number for amounts in used for number in amounts]
        functions = [text.partition("(")[0] for text in WINDOWED.values() if text != "count"]
        stated = self.amounts[result.topic, result.partition, result.offset]
        return any(
            not ValuedReferee.may_be(function, [value], [numbers], [])
            for function, value in zip(functions, stated, strict=True)
        )

    def _amount(self, record: InputEvent) -> Amount:
        return self.amounts[record.topic, record.partition, record.offset][0]


def beside_case(seed: int, *, causal: bool, steps_most: int, allowed: Allowed = EVERYTHING) -> BesideCase:
    """The case that ``seed`` generates. If the engine may err, copies of an event may differ, and results may state
    wrong values."""
    found, rng = case(seed, causal=causal, steps_most=steps_most, allowed=allowed), Random(seed)
    values: list[tuple[Place, tuple[Amount, ...]]] = []
    for record in (record for step in found.history.steps for record in step.records):
        place = (record.topic, record.partition, record.offset)
        if isinstance(record, InputEvent | LateRecord):
            amount = amount_of(record.id)
            if not causal and rng.random() < 0.05:
                amount = Decimal(7)
            values.append((place, fields_of(amount, WINDOWED)))
        elif isinstance(record, ResultRecord):
            stated = stated_by([amount_of(id_) for id_ in record.ids], WINDOWED)
            if not causal and rng.random() < 0.2:
                at = rng.randrange(len(stated))
                stated[at] = EXACT.add(stated[at] or Decimal(0), Decimal(rng.choice((1, -1, 1000))).scaleb(-2))
            values.append((place, tuple(stated)))
    return BesideCase(found.seed, found.causal, found.history, tuple(values))
