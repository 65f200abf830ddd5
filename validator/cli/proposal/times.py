"""The fields of sampled records that hold a time, and its form: a unit, a pattern, ISO 8601, or the schema's type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from operator import gt, lt
from typing import Any, Final

from validator.codecs.time_patterns import instant_of_pattern
from validator.codecs.times import instant_of_decimal, instant_of_integer, instant_of_text
from validator.model.field_values import TypedTime
from validator.settings.formats.guesses import ENOUGH
from validator.settings.time_patterns import TimePattern, parts

PATTERNS: Final = (
    "dd-MM-yyyy HH:mm:ss", "dd-MM-yyyy HH:mm:ss.SSS", "dd-MM-yyyy HH:mm:ss:SSS", "dd-MM-yyyy hh:mm:ss:SSS",
    "dd.MM.yyyy HH:mm:ss", "dd/MM/yyyy HH:mm:ss", "MM/dd/yyyy HH:mm:ss", "MM/dd/yyyy hh:mm:ss a",
    "yyyy/MM/dd HH:mm:ss", "yyyy/MM/dd HH:mm:ss.SSS", "yyyy-MM-dd HH:mm:ss:SSS", "yyyyMMddHHmmss",
    "yyyyMMddHHmmssSSS", "EEE, dd MMM yyyy HH:mm:ss Z", "dd/MMM/yyyy:HH:mm:ss Z", "MMM d, yyyy h:mm:ss a",
    "MMM d, yyyy hh:mm:ss a", "MMM d, yyyy HH:mm:ss", "dd MMM yyyy HH:mm:ss", "EEE MMM dd HH:mm:ss yyyy",
)  # fmt: skip
"""The patterns that are tried, the more usual one of two first."""
_YEAR_1990, _YEAR_2100 = 631_152_000, 4_102_444_800
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_NAMED: Final = re.compile(r"(?i)time|timestamp|date|expir|until|(^|_)(ts|at|start|end)$|(Start|End|At)$")
_UNNAMED: Final = re.compile(r"(column|field)\d+")
"""Columns of lines that do not name their fields."""
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")
_DAY_SECONDS: Final = 86_400
_FIRST: Final = 3
"""Values that must all have a form, before it is tried on the others."""


@dataclass(frozen=True)
class Time:
    """A field that holds a time. ``form``: unit or pattern, as in the file. ``instants``: of each record, in
    microseconds."""

    path: str
    form: Mapping[str, str]
    instants: Sequence[int | None]

    @property
    def setting(self) -> Any:
        """The field as in the file."""
        return {"path": self.path, **self.form} if self.form else self.path

    @property
    def said(self) -> str:
        """The field and its form, for people."""
        return " ".join([self.path, *(f"({name} {value})" for name, value in self.form.items())])

    @property
    def has_zone(self) -> bool:
        """Whether the form leaves no doubt about the zone."""
        pattern = self.form.get("pattern")
        return "unit" in self.form or (pattern is not None and any(part.unit == "zone" for part in parts(pattern)))


def times_of(scalars: Mapping[str, Sequence[object]], timestamps_us: Sequence[int]) -> Iterator[Time]:
    """Yield the times of each field, its likely form first. ``timestamps_us``: of the records."""
    for path, column in scalars.items():
        given = [value for value in column if value is not None]
        for form in _forms(path, given):
            if not all(_instant(value, form) is not None for value in given[:_FIRST]):
                continue
            instants = [None if value is None else _instant(value, form) for value in column]
            if given and sum(instant is not None for instant in instants) >= ENOUGH * len(given):
                yield Time(path, form, instants)
    if any(instant > 0 for instant in timestamps_us):
        yield Time("$timestamp", {}, list(timestamps_us))
    for path, column in scalars.items():
        yield from _unnamed(path, column)


def _unnamed(path: str, column: Sequence[object]) -> Iterator[Time]:
    """Yield the times that a column without a name may have if its numbers grow, although they are near 1970."""
    given = [str(value) for value in column if value is not None]
    if not _UNNAMED.fullmatch(path) or not given or not all(text.isdecimal() for text in given):
        return
    numbers = [int(text) for text in given]
    if any(_is_usual(given, unit) for unit in _PER_SECOND):
        return
    # A count so far rises and falls, since it is that of different keys.
    rises, falls = (sum(is_after(a, b) for a, b in pairwise(numbers)) for is_after in (lt, gt))
    if rises > 0 and rises >= ENOUGH * (rises + falls):
        for unit in ("ms", "s"):
            form = {"unit": unit}
            yield Time(path, form, [None if value is None else _instant(value, form) for value in column])


def _forms(path: str, given: Sequence[object]) -> Iterator[Mapping[str, str]]:
    if not given or any(isinstance(value, (bool, bytes)) for value in given):
        return
    first = given[0]
    if isinstance(first, TypedTime):
        yield {}
    elif all(isinstance(value, (int, float, Decimal)) or _NUMBER.fullmatch(str(value)) for value in given):
        usual = [unit for unit in _PER_SECOND if _is_usual(given, unit)]
        is_small = not usual and _NAMED.search(path.rpartition(".")[2])
        yield from ({"unit": unit} for unit in (usual or (("ms", "s") if is_small else ())))
        if isinstance(first, str) and len(first) >= len("yyyyMMddHHmmss"):
            yield from ({"pattern": pattern} for pattern in PATTERNS)
    elif isinstance(first, str) and first[:1].isalnum() and any(character.isdigit() for character in first):
        if isinstance(instant_of_text(first), int):
            yield {}
        else:
            yield from ({"pattern": pattern} for pattern in PATTERNS)


def _is_usual(given: Sequence[object], unit: str) -> bool:
    factor = _PER_SECOND[unit]
    usual = sum(_YEAR_1990 * factor <= float(str(value)) < _YEAR_2100 * factor for value in given)
    return usual >= ENOUGH * len(given)


def _instant(value: object, form: Mapping[str, str]) -> int | None:
    """The time of a value, by the functions with which the sidecar reads it."""
    found: int | str | None
    if isinstance(value, TypedTime):
        in_days = value.unit == "d"
        number = value * _DAY_SECONDS if in_days else int(value)
        found = instant_of_integer(number, "s" if in_days else value.unit, "down")
    elif "unit" in form:
        is_int = type(value) is int
        found = (
            instant_of_integer(value, form["unit"], "down")
            if isinstance(value, int) and is_int
            else instant_of_decimal(str(value), form["unit"], "down")
        )
    elif not isinstance(value, str):
        return None
    elif "pattern" in form:
        found = instant_of_pattern(value, TimePattern(form["pattern"]))
    else:
        found = instant_of_text(value)
    return found if isinstance(found, int) else None
