"""The place of a field in a record: a dotted path into its value, or a part of the record such as `$key`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    field_validator,
    model_validator,
)

from validator.model.zones import zone_names
from validator.settings.errors import broken_rule, broken_rule_at
from validator.settings.time_patterns import BadPattern, parts

Unit = Literal["s", "ms", "us", "ns"]

RECORD_PARTS: Final = ("$key", "$value", "$timestamp", "$offset", "$partition")
WITH_FIELDS: Final = ("$key", "$value", "$envelope")
"""The parts of a record that may have fields."""
HEADER: Final = re.compile(r"^\$header\.[^\s]+$")
SEGMENT: Final = re.compile(r"^[^\s.$][^.]*$")


class Frozen(BaseModel):
    """The base of all parts of a configuration: immutable, without unknown keys, and without values in errors.

    Pydantic builds a part when it is first used, and the schema reads the docstrings of attributes by itself
    (`validator.config.schema`): together they take twice as long as everything else that reading a file does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


class WithDurations(Frozen):
    """A part with durations. An attribute has microseconds, and its name says so (``idle_after_us``). In the file a
    duration is written with its unit, and its key has none (``idle_after``)."""

    model_config = ConfigDict(alias_generator=lambda name: name.removesuffix("_us"))


def check_path(path: str) -> str:
    """``path`` itself if it is a dotted path or a part of the record; raises PydanticCustomError if not."""
    if path.startswith("$"):
        part, *names = path.split(".")
        has_fields = part in WITH_FIELDS and bool(names) and all(SEGMENT.match(name) for name in names)
        if path in RECORD_PARTS or HEADER.match(path) or has_fields:
            return path
        parts = ", ".join((*RECORD_PARTS, "$key.FIELD", "$envelope.FIELD", "$header.NAME"))
        raise broken_rule(f"{path!r} is not a part of a record", f"use one of {parts}")
    if not path or not all(SEGMENT.match(segment) for segment in path.split(".")):
        raise broken_rule(f"{path!r} is not a path", "write names joined by dots, as in user.id")
    return path


def check_single(named: Iterable[tuple[str, str]], others: Sequence[tuple[str, str]], place: str | None = None) -> None:
    """Refuse a path inside another one, which then is not a single value. Both are pairs of a name and a path.

    ``place``: the field to change; None: the name.
    """
    for name, path in named:
        for other_name, other in others:
            # That the whole value or key has fields does not make it one of them.
            if path.startswith(other + ".") and other not in WITH_FIELDS:
                problem = f"{path} is inside {other}, which {other_name} reads as a single value"
                raise broken_rule_at(place or name, problem, "name paths that do not contain each other")


class _AtPath(Frozen):
    """A mapping with a path. If it has nothing else, it may be written as the path alone."""

    path: str

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value

    @field_validator("path")
    @classmethod
    def _valid(cls, path: str) -> str:
        return check_path(path)


class FieldPath(_AtPath):
    """A field of a record; written as its path alone, as ``{path: ..., unit: ...}``, or as
    ``{path: ..., pattern: ...}``."""

    path: str
    """Names joined by dots, into the value; or `$key`, `$key.FIELD`, `$value` (the whole value), `$envelope.FIELD`,
    `$timestamp`, `$header.NAME`, `$offset`, `$partition`."""
    unit: Unit | None = None
    """Unit of a time that is a number: `s`, `ms`, `us` or `ns`. None means a text."""
    pattern: str | None = None
    """Form of a time that is a text, in letters of Java's DateTimeFormatter. None means ISO 8601 (no zone means
    UTC)."""
    time_zone: str | None = None
    """IANA name of the zone of texts of `pattern`, if these have no offset; UTC by default."""

    @property
    def has_form(self) -> bool:
        """Whether the field is described as a time."""
        return self.unit is not None or self.pattern is not None or self.time_zone is not None

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, name: str | None) -> str | None:
        if name is not None and name not in zone_names():
            raise broken_rule(f"{name!r} is not a known time zone", "write an IANA name such as Europe/Berlin")
        return name

    @model_validator(mode="after")
    def _form(self) -> Self:
        if self.pattern is None:
            if self.time_zone is not None:
                raise broken_rule_at("time_zone", "only a pattern needs it", "leave it out, or write a pattern")
            return self
        if self.unit is not None:
            raise broken_rule_at("pattern", "a time with a unit is a number", "leave out pattern or unit")
        if self.path in ("$timestamp", "$offset", "$partition"):
            raise broken_rule_at("pattern", f"{self.path} is a number", "leave the pattern out")
        try:
            units = [part.unit for part in parts(self.pattern)]
        except BadPattern as error:
            raise broken_rule_at("pattern", f"{self.pattern}: {error}", error.fix) from None
        if "zone" in units and self.time_zone is not None:
            raise broken_rule_at("time_zone", "the texts have an offset by the pattern", "leave it out")
        return self


class ValuePath(_AtPath):
    """A value in a result; written as its path alone, or as ``{path: ..., tolerance: ...}``."""

    path: str
    """Names joined by dots, into the value; or `$key.FIELD` or `$header.NAME`."""
    tolerance: Decimal | None = Field(default=None, ge=0, allow_inf_nan=False, examples=[0.005])
    """The largest difference to the exact value that is still right, for engines that compute with 32-bit
    floating-point numbers. 0: the value is exact. Without it, what doubles lose is right."""


class IdsPath(_AtPath):
    """A list of event ids in a result; written as its path alone, or as ``{path: ..., input: TOPIC}``."""

    path: str
    """Path of the list; or `$key` or `$header.NAME`, which then holds a list, or the text of a JSON array."""
    input: str | None = None
    """The input topic of these ids, if each input has its own id space. None: all inputs share one."""


def one_or_many(value: Any) -> Any:
    """A single entry as a list of one; lists stay."""
    return [value] if isinstance(value, (str, dict)) else value


Key = Annotated[tuple[FieldPath, ...], Field(examples=["page", ["country", "page"], []]), BeforeValidator(one_or_many)]
"""A key of any number of fields; always a tuple in the model. A key of no fields is the same for all records."""


def _one_alone(paths: tuple[FieldPath, ...], dumped: SerializerFunctionWrapHandler) -> Any:
    # The identity of a state has it so.
    found = dumped(paths)
    return found[0] if len(found) == 1 else found


Id = Annotated[
    tuple[FieldPath, ...],
    Field(min_length=1, examples=["id", ["order_id", "line"]]),
    BeforeValidator(one_or_many),
    WrapSerializer(_one_alone, when_used="json"),
]
"""The id of an event, of one or more fields; always a tuple in the model."""

Ids = Annotated[tuple[IdsPath, ...], Field(min_length=1), BeforeValidator(one_or_many)]
"""The paths of a result's id lists; always a tuple in the model."""
