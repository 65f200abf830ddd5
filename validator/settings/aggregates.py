"""The aggregates over the events of a cell that results may state as values (SEMANTICS 2.23, 2.29)."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final, Self

from pydantic import AfterValidator, WithJsonSchema, model_validator

from validator.model.stated_values import HASHES, MODULAR, OF_FIELDS, Bound, OfField
from validator.settings.conditions import Number
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.fields import Frozen, check_path


def _aggregate(text: str) -> str:
    found = OfField.of(text)
    if text == "count" or (found is not None and check_path(found.path)):
        return text
    known = ", ".join(f"{name}(PATH)" for name in OF_FIELDS)
    hashed = f"; in {' and '.join(MODULAR)}, PATH may be {' or '.join(f'{name}(PATH)' for name in HASHES)}"
    raise broken_rule(f"{text!r} is not an aggregate", f"use count (the number of events) or one of {known}{hashed}")


_PLAIN: Final = rf"({'|'.join(OF_FIELDS)})\(\s*[^()\s]+\s*\)"
_HASHED: Final = rf"({'|'.join(MODULAR)})\(\s*({'|'.join(HASHES)})\(\s*[^()\s]+\s*\)\s*\)"
Aggregate = Annotated[
    str,
    AfterValidator(_aggregate),
    WithJsonSchema({"type": "string", "pattern": f"^(count|{_PLAIN}|{_HASHED})$"}),
]
"""An aggregate over the events of a cell: `count`, their number; `count(PATH)`, the number of those in which the field
is not null; `distinct(PATH)`, the number of its different values; or `sum(PATH)`, `min(PATH)`, `max(PATH)`,
`avg(PATH)` of a field that is a number. As in SQL, null values do not count. `sum_mod64(PATH)` and
`sum_squares_mod64(PATH)` of an integer are modulo 2^64, also of a hash: `sum_mod64(crc32(PATH))`. A result of one event
(`passthrough`, `map`, `filter`) states only `same(PATH)`: it repeats this field."""

_DIGITS_BEFORE: Final = 30
_DIGITS_AFTER: Final = 38


class LowerBound(Frozen):
    """The bound that a value reaches in every result: HAVING of SQL."""

    at_least: Number | None = None
    """Results state this number or a higher one."""
    above: Number | None = None
    """Results state a higher number."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.at_least is None) == (self.above is None):
            raise broken_rule_at("above", "a bound is at_least or above", "write one of the two")
        _, digits, exponent = self.bound.least.as_tuple()
        assert isinstance(exponent, int), "it is finite"
        if -exponent > _DIGITS_AFTER or len(digits) + exponent > _DIGITS_BEFORE:
            raise broken_rule_at("above" if self.at_least is None else "at_least", "it has too many digits", "round it")
        return self

    @property
    def bound(self) -> Bound:
        """The bound for decoders and the comparison."""
        least = self.above if self.at_least is None else self.at_least
        return Bound(Decimal(0) if least is None else least, is_above=self.at_least is None)
