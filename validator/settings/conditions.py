"""The condition on the fields of a record (`oracle.where`, `outputs[].where`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Final, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from validator.model.conditions import Combined, Comparison, Condition, Others
from validator.model.json_text import plain_number
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.fields import Frozen, check_path


def _scalars(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise broken_rule("it is not a list", "write a list of values, as in [paid, refunded]")
    return tuple(_text(item) for item in value)


def _scalar(value: Any) -> Any:
    return None if value is None else _text(value)


def _text(item: Any) -> str:
    if not isinstance(item, (str, int, float)):
        shown = "an empty value" if item is None else f"a {type(item).__name__}"
        raise broken_rule(f"{shown} is not a scalar", "write texts, numbers, true or false")
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, float) and not math.isfinite(item):
        raise broken_rule(f"{item!r} is not finite", "write a text or a number that JSON allows")
    try:
        if isinstance(item, str):
            item.encode()
        return plain_number(repr(item)) if isinstance(item, float) else str(item)
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
Number = Annotated[
    Decimal,
    BeforeValidator(_number),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}]}),
]

_SCALAR: Final = {"type": ["string", "number", "boolean"]}
_Value = Annotated[str | None, BeforeValidator(_scalar), WithJsonSchema(_SCALAR)]
_Values = Annotated[
    tuple[str, ...] | None,
    BeforeValidator(_scalars),
    WithJsonSchema({"type": "array", "items": _SCALAR, "minItems": 1}),
]

_BOUNDS: Final = ("at_least", "above", "at_most", "below")
_TESTS: Final = ("one_of", "none_of", "equals", *_BOUNDS, "matches", "exists")
_COMBINED: Final = {"every": "all", "some": "any", "negated": "not"}
"""Attribute -> its key. The keys are names of Python."""


class Where(Frozen):
    """A condition: on a field at `path`, with one of the tests below (or two bounds); or `all`, `any` or `not` of other
    conditions. It is undecodable if it depends on a field that is absent, null or not a scalar."""

    path: str | None = None
    """Path into the value, `$key` or `$header.NAME`."""
    one_of: _Values = None
    """The values that pass. A number and its text are the same, as in keys."""
    none_of: _Values = None
    """The values that do not pass."""
    equals: _Value = None
    """The only value that passes."""
    at_least: Number | None = None
    """This number and higher ones pass."""
    above: Number | None = None
    """Only higher numbers pass."""
    at_most: Number | None = None
    """This number and lower ones pass."""
    below: Number | None = None
    """Only lower numbers pass."""
    matches: str | None = None
    """Texts in which this regular expression (of Python) is found pass."""
    exists: bool | None = None
    """Whether the field must be present and not null."""
    every: tuple[Where, ...] | None = Field(default=None, alias="all", min_length=1)
    """All of these must hold."""
    some: tuple[Where, ...] | None = Field(default=None, alias="any", min_length=1)
    """One of these must hold."""
    negated: Where | None = Field(default=None, alias="not")
    """This must not hold."""

    @field_validator("path")
    @classmethod
    def _is_scalar(cls, path: str | None) -> str | None:
        if path in ("$timestamp", "$offset", "$partition"):
            raise broken_rule(
                f"{path} is not a property of an event", "name a field of the value, $key or $header.NAME"
            )
        return None if path is None else check_path(path)

    @field_validator("matches")
    @classmethod
    def _is_expression(cls, text: str | None) -> str | None:
        try:
            re.compile(text or "")
        except re.error as error:
            raise broken_rule(f"{text!r} is not a regular expression: {error}", "correct it") from None
        return text

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        tests = [name for name in _TESTS if getattr(self, name) is not None]
        joined = [key for name, key in _COMBINED.items() if getattr(self, name) is not None]
        if self.path is None and not joined:
            raise broken_rule_at("path", "it is missing", "name a field, or write all, any or not")
        if not tests and not joined:
            raise broken_rule_at("one_of", "it is missing", f"write {', '.join(_TESTS[:-1])} or {_TESTS[-1]}")
        given = [*(["path"] if self.path is not None and joined else []), *tests, *joined]
        if len(given) > 1 and not self._are_bounds(given):
            raise broken_rule_at(given[1], f"{given[0]} is given already", "leave one of the two out")
        if tests and getattr(self, tests[0]) == ():
            raise broken_rule_at(tests[0], "it is empty", "give at least one entry")
        if tests and tests[0] in _BOUNDS and len(tests) > 1:
            low, high = (getattr(self, name) for name in tests)
            if high < low or (high == low and tests != ["at_least", "at_most"]):
                raise broken_rule_at(tests[1], f"{high} is not greater than {tests[0]} ({low})", "raise it")
        return self

    @staticmethod
    def _are_bounds(given: list[str]) -> bool:
        return len(given) == 2 and given[0] in _BOUNDS[:2] and given[1] in _BOUNDS[2:]

    def condition(self, others: Others = "unowed") -> Condition:
        """The condition for decoders. ``others``: as in `Condition`."""
        return Condition(self.part(), others)

    def paths(self, place: str) -> Iterator[tuple[str, str, bool]]:
        """The places of its paths below ``place``, the paths, and whether each must be a scalar."""
        if self.path is not None:
            yield f"{place}.path", self.path, self.exists is None
        for key, parts in (("all", self.every or ()), ("any", self.some or ())):
            for i, part in enumerate(parts):
                yield from part.paths(f"{place}.{key}[{i}]")
        if self.negated is not None:
            yield from self.negated.paths(f"{place}.not")

    def part(self) -> Comparison | Combined:
        """The condition for decoders, as a part of others."""
        if self.path is None:
            parts = self.every or self.some or (self.negated,)
            found = tuple(part.part() for part in parts if part is not None)
            return Combined(found, every=self.some is None, is_negated=self.negated is not None)
        values = self.one_of or self.none_of or (() if self.equals is None else (self.equals,))
        bounds = (self.at_least, self.above, self.at_most, self.below)
        return Comparison(
            self.path, frozenset(values), *bounds, self.matches, self.exists, is_negated=self.none_of is not None
        )
