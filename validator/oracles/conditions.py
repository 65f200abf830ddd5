"""The condition of an oracle on a field of its events (`oracle.where`)."""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema, field_validator, model_validator

from validator.codecs.conditions import Condition
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.fields import Frozen, check_path


def _scalars(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise broken_rule("it is not a list", "write a list of values, as in [paid, refunded]")
    return tuple(_text(item) for item in value)


def _text(item: Any) -> str:
    if not isinstance(item, (str, int, float)):
        shown = "an empty value" if item is None else f"a {type(item).__name__}"
        raise broken_rule(f"{shown} is not a scalar", "write texts, numbers, true or false")
    from validator.codecs.one_record import canonical

    try:
        return canonical(item)
    except ValueError as error:
        raise broken_rule(f"{item!r} {error}", "write a text or a number that JSON allows") from None


def _number(value: Any) -> Decimal:
    fix = "write a number, as in 10 or 0.5"
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        raise broken_rule(f"{value!r} is not a number" if isinstance(value, bool) else "it is not a number", fix)
    try:
        number = Decimal(str(value))
    except InvalidOperation:
        raise broken_rule(f"{value!r} is not a number", fix) from None
    if not number.is_finite() or math.fabs(number.adjusted()) > _EXPONENT_MAX:
        raise broken_rule(f"{value!r} is not finite, or is too large or too small to compare", fix)
    return number


_EXPONENT_MAX: Final = 300
_Number = Annotated[
    Decimal,
    BeforeValidator(_number),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
]


_Values = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_scalars),
    WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}),
]


class Where(Frozen):
    """The condition under which an event needs a result: a field has one of the listed values, has none of them, or is
    within bounds."""

    path: str
    """Path into the value, `$key` or `$header.NAME`. An event without the field is undecodable."""
    one_of: _Values = None
    """The values that pass. A number and its text are the same, as in keys."""
    none_of: _Values = None
    """The values that do not pass."""
    at_least: _Number | None = None
    """This number and higher ones pass. An event whose field is not a number is undecodable."""
    below: _Number | None = None
    """Only lower numbers pass, as with `at_least`."""

    @field_validator("path")
    @classmethod
    def _is_scalar(cls, path: str) -> str:
        if path in ("$timestamp", "$offset", "$partition"):
            raise broken_rule(
                f"{path} is not a property of an event", "name a field of the value, $key or $header.NAME"
            )
        return check_path(path)

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        given = [name for name in ("one_of", "none_of", "at_least", "below") if getattr(self, name) is not None]
        if not given:
            raise broken_rule_at("one_of", "it is missing", "write one_of, none_of, at_least or below")
        if len(given) > 1 and given != ["at_least", "below"]:
            raise broken_rule_at(given[1], f"{given[0]} is given already", "leave one of the two out")
        if getattr(self, given[0]) == ():
            raise broken_rule_at(given[0], "it is empty", "give at least one entry")
        if self.at_least is not None and self.below is not None and self.below <= self.at_least:
            raise broken_rule_at("below", f"{self.below} is not greater than at_least ({self.at_least})", "raise it")
        return self

    def condition(self, *, skips_others: bool) -> Condition:
        """The condition for decoders. ``skips_others``: as in `Condition`."""
        values = frozenset(self.one_of or self.none_of or ())
        return Condition(self.path, values, self.at_least, self.below, self.none_of is not None, skips_others)
