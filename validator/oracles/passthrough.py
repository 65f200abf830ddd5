"""Passthrough, map and filter: without a window, each event owes one result, with its id, its key and its time.

The cell of an event is its key and the bucket of event time that contains its time. Buckets are adjacent and start at
the epoch. A result names its event's time, not the bucket. Source: SEMANTICS section 1 (cell without a window: a bucket
of event time and a key), docs/oracles/passthrough.md.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, field_validator, model_validator

from validator.codecs.conditions import Condition
from validator.model.field_values import part_and_names
from validator.oracles.seam import Assigned, Declared, Oracle
from validator.settings.durations import PositiveDuration, format_duration
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.fields import Frozen, check_path
from validator.settings.time_patterns import step_of

if TYPE_CHECKING:
    from validator.model.arrays import Ints

BUCKET_US: Final = 10_000_000
_UNITS_US: Final = {"s": 1_000_000, "ms": 1_000}


class Passthrough(Oracle):
    """Each event needs exactly one result. `map` is the same for a pipeline that changes the payload."""

    kind: Literal["passthrough", "map"]
    """A result for each event."""

    cell_noun: ClassVar[str] = "bucket of time"
    noun: ClassVar[str] = "bucket from"
    bucket: PositiveDuration = BUCKET_US
    """Length of a bucket. Events are judged per key and per bucket of event time. The length must be a whole multiple
    of the unit of each output's `event_time`."""

    result_time: ClassVar[Literal["window_start", "event_time"]] = "event_time"

    @property
    def grid_us(self) -> int:
        """Distance between the starts of adjacent buckets."""
        return self.bucket

    @property
    def span_us(self) -> int:
        """The length of a bucket."""
        return self.bucket

    def assigned(self, event_times_us: Ints) -> Assigned:
        """Each event belongs to the bucket that contains its time."""
        return Assigned(None, self._floor(event_times_us))

    def starts_of_results(self, named_us: Ints) -> Ints:
        """A result names the time of its event."""
        return self._floor(named_us)

    def ends_us(self, starts_us: Ints) -> Ints:
        """Starts are at most 2^62 (docs/ARCHITECTURE.md), so no end wraps."""
        return starts_us + self.bucket

    def reaches_us(self, event_times_us: Ints, slack_us: int) -> Ints:
        """The ends of buckets are starts of buckets."""
        return self._floor(event_times_us - slack_us)

    def latest_reaches_us(self, starts_us: Ints, slack_us: int) -> Ints:
        """Starts near the int64 maximum are clamped, so that no sum wraps."""
        import numpy as np

        latest = np.minimum(starts_us, np.iinfo(np.int64).max - self.bucket) + (self.bucket - 1)
        return self._floor(latest - slack_us)

    def check(self, declared: Declared) -> None:
        """Also refuse a length that is not a multiple of an output's time unit: a rounded time may leave its bucket."""
        super().check(declared)
        for i, output in enumerate(declared.outputs):
            at = output.fields.event_time
            unit = "ms" if at is not None and at.path == "$timestamp" else at.unit if at is not None else None
            step_us = _UNITS_US.get(unit or "", 1) if at is None or at.pattern is None else step_of(at.pattern)
            if self.bucket % step_us:
                problem = (
                    f"{format_duration(self.bucket)} is not a multiple of the unit of outputs[{i}].fields.event_time"
                )
                raise broken_rule_at("oracle.bucket", problem, f"write a multiple of {format_duration(step_us)}")

    def _floor(self, instants_us: Ints) -> Ints:
        return instants_us - instants_us % self.bucket


def _scalars(value: Any) -> Any:
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


class Where(Frozen):
    """The condition under which an event needs a result: a field has one of the listed values, or is within bounds."""

    path: str
    """Path into the value, `$key` or `$header.NAME`. An event without the field is undecodable."""
    one_of: Annotated[
        tuple[str, ...] | None,
        BeforeValidator(_scalars),
        WithJsonSchema({"type": "array", "items": {"type": ["string", "number", "boolean"]}, "minItems": 1}),
    ] = None
    """The values that pass. A number and its text are the same, as in keys."""
    at_least: _Number | None = None
    """Lower bound: this number and higher ones pass. An event whose field is not a number is undecodable."""
    below: _Number | None = None
    """Upper bound: only lower numbers pass. An event whose field is not a number is undecodable."""

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
        bounds = [name for name in ("at_least", "below") if getattr(self, name) is not None]
        if self.one_of is not None and bounds:
            raise broken_rule_at(bounds[0], "one_of is given already", "leave one of the two out")
        if self.one_of is None and not bounds:
            raise broken_rule_at("one_of", "it is missing", "write one_of, at_least or below")
        if self.one_of == ():
            raise broken_rule_at("one_of", "it is empty", "give at least one entry")
        if self.at_least is not None and self.below is not None and self.below <= self.at_least:
            raise broken_rule_at("below", f"{self.below} is not greater than at_least ({self.at_least})", "raise it")
        return self


class Filter(Passthrough):
    """Each event for which the condition holds needs exactly one result. Other events must have none."""

    kind: Literal["filter"]  # type: ignore[assignment]
    """A result for some events."""
    where: Annotated[Where, Field()]
    """Which events pass."""

    @property
    def condition(self) -> Condition:
        """The condition that `where` configures."""
        where = self.where
        return Condition(where.path, frozenset(where.one_of or ()), where.at_least, where.below)

    def check(self, declared: Declared) -> None:
        """Also refuse a condition on a field that contains, or lies inside, a field of the event."""
        super().check(declared)
        path = self.where.path
        for i, entry in enumerate(declared.inputs):
            part, names = part_and_names(path)
            if not part or part == "$key":
                (entry.key_format if part else entry.format).check([("oracle.where.path", names)])
            others = {"id": (entry.fields.id,), "key": entry.fields.key, "event_time": (entry.fields.event_time,)}
            for name, fields in others.items():
                for other in (field.path for field in fields if field is not None):
                    if path.startswith(other + ".") or (other.startswith(path + ".") and not path.startswith("$")):
                        of_input = f"the {name} of inputs[{i}]"
                        is_inside = f"{path} is inside {other}, which is {of_input}"
                        holds = f"{other}, which is {of_input}, is inside {path}"
                        problem = is_inside if path.startswith(other + ".") else holds
                        raise broken_rule_at("oracle.where.path", problem, "name a field that is a single value")
