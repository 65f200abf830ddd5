"""The patterns of times, in letters of Java's `DateTimeFormatter`.

Of its letters, those are supported whose text has one meaning: `LETTERS` lists them. A date needs year, month and day;
what else the pattern lacks is zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

MONTHS: Final = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
                  "November", "December")  # fmt: skip
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


FRACTION_DIGITS_MAX: Final = 9
"""Largest number of digits of a fraction of a second."""


class Letters(NamedTuple):
    """A run of one letter in a pattern. ``unit``: the part of a time that it stands for. ``form``: its texts, as a
    regular expression."""

    unit: str
    form: str


def _names(names: tuple[str, ...], length: int | None = None) -> str:
    return "|".join(name[:length] for name in names)


LETTERS: Final = {
    **dict.fromkeys(("yyyy", "uuuu"), Letters("year", r"\d{4}")),
    "M": Letters("month", r"\d{1,2}"),
    "MM": Letters("month", r"\d\d"),
    "MMM": Letters("month_name", _names(MONTHS, 3)),
    "MMMM": Letters("month_name", _names(MONTHS)),
    "d": Letters("day", r"\d{1,2}"),
    "dd": Letters("day", r"\d\d"),
    **dict.fromkeys(("E", "EE", "EEE"), Letters("day_name", _names(_DAYS, 3))),
    "EEEE": Letters("day_name", _names(_DAYS)),
    "H": Letters("hour", r"\d{1,2}"),
    "HH": Letters("hour", r"\d\d"),
    "h": Letters("hour_of_half", r"\d{1,2}"),
    "hh": Letters("hour_of_half", r"\d\d"),
    "a": Letters("half", r"AM|PM|am|pm"),
    "m": Letters("minute", r"\d{1,2}"),
    "mm": Letters("minute", r"\d\d"),
    "s": Letters("second", r"\d{1,2}"),
    "ss": Letters("second", r"\d\d"),
    **{"S" * digits: Letters("fraction", rf"\d{{{digits}}}") for digits in range(1, FRACTION_DIGITS_MAX + 1)},
    "X": Letters("zone", r"Z|[+-]\d\d(?:\d\d)?"),
    "XX": Letters("zone", r"Z|[+-]\d{4}"),
    "XXX": Letters("zone", r"Z|[+-]\d\d:\d\d"),
    "x": Letters("zone", r"[+-]\d\d(?:\d\d)?"),
    "xx": Letters("zone", r"[+-]\d{4}"),
    "xxx": Letters("zone", r"[+-]\d\d:\d\d"),
    "Z": Letters("zone", r"[+-]\d{4}"),
}
"""The supported runs of letters. Names are English."""

_TOKEN: Final = re.compile(
    r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<plain>[^'])", re.DOTALL
)
_DATE: Final = {"year": "year (yyyy)", "month": "month (MM)", "day": "day (dd)"}
_INSTEAD: Final = {
    "Y": "Y is the year of a week: write yyyy",
    "y": "write yyyy: a year of other than four digits has more than one meaning",
    "D": "write MM and dd",
    "z": "a zone's name has more than one meaning: write XXX, if the text has an offset",
    "V": "a zone's name has more than one meaning: write XXX, if the text has an offset",
    "S": f"write S up to {FRACTION_DIGITS_MAX} times",
}


class BadPattern(ValueError):
    """A pattern that is not supported. ``fix``: what to write instead."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.fix = fix


@dataclass(frozen=True)
class TimePattern:
    """A pattern, and the IANA zone of times whose text has no offset."""

    pattern: str
    zone: str = "UTC"


class Part(NamedTuple):
    """A part of a pattern. ``unit`` is None for text that stands for itself."""

    unit: str | None
    form: str


def parts(pattern: str) -> tuple[Part, ...]:
    """Return the parts of a pattern. Raises `BadPattern`."""
    found = list(_parts(pattern))
    units = [part.unit for part in found if part.unit is not None]
    for unit in units:
        if units.count(unit) > 1:
            raise BadPattern(f"it has the {unit.replace('_', ' ')} twice", "write each part of a time once")
    have = {"month" if unit == "month_name" else unit for unit in units}
    for unit, name in _DATE.items():
        if unit not in have:
            raise BadPattern(f"it has no {name}", "write a pattern with year, month and day (mm is a minute)")
    if {"month", "month_name"} <= set(units) or {"hour", "hour_of_half"} <= set(units):
        raise BadPattern("it has the month or the hour twice", "write each part of a time once")
    if "half" in have and "hour_of_half" not in have:
        raise BadPattern("it has a without h", "write hh for the hour of a half day")
    return tuple(found)


def step_of(pattern: str) -> int:
    """Return the distance of two times next to each other that a pattern can write, in microseconds."""
    units = {part.unit: part.form for part in parts(pattern)}
    if "fraction" in units:
        return int(10 ** max(0, 6 - int(units["fraction"][3:-1])))
    seconds = {"second": 1, "minute": 60, "hour": 3_600, "hour_of_half": 3_600, "day": 86_400}
    return next(length for unit, length in seconds.items() if unit in units) * 1_000_000


def _parts(pattern: str) -> Iterator[Part]:
    at = 0
    while at < len(pattern):
        match = _TOKEN.match(pattern, at)
        if match is None:
            raise BadPattern("a quote in it does not end", "write '' for one quote")
        at = match.end()
        if match["letters"]:
            letters = LETTERS.get(match["letters"])
            if letters is None:
                fix = _INSTEAD.get(match["letter"], f"use {', '.join(sorted({run[0] for run in LETTERS}))}")
                raise BadPattern(f"{match['letters']} cannot be read", fix)
            yield Part(*letters)
        elif match["plain"] and match["plain"] in "[]{}#":
            raise BadPattern(f"{match['plain']} cannot be read", "write it in quotes if the text has it")
        else:
            # Two quotes are one.
            yield Part(None, re.escape(match["plain"] or match["quoted"] or "'"))
