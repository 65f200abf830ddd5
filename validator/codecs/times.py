"""Texts and numbers to instants, in whole microseconds since the epoch. No conversion goes through a double."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

from validator.model.json_text import is_zero

Rounding = Literal["down", "up"]
"""How a finer time is rounded to microseconds. Windows that contain their end need `up`, so that a time after a
boundary does not move onto it. Windows that contain their start need `down`."""

FARTHEST_US: Final = 2**62
"""Instants farther than this from the epoch (146,000 years) are refused. The bounds of their windows could exceed 64
bits and wrap: an event of the distant past would then close every cell."""
NO_TIMESTAMP_US: Final = -1_000
"""The timestamp that Kafka's clients report for a record without one."""

MICROSECONDS: Final = {"s": 1_000_000, "ms": 1_000, "us": 1}
"""Factor from a unit of time to microseconds. Nanoseconds are divided instead."""

_PER_UNIT: Final = {"s": Fraction(1_000_000), "ms": Fraction(1_000), "us": Fraction(1), "ns": Fraction(1, 1_000)}

_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAYS_OF_400_YEARS: Final = 146_097
_DAY_US: Final = 86_400_000_000
_LARGEST_OFFSET: Final = 18 * 3600
"""Largest zone offset in seconds; java.time has the same limit."""
_LONGEST_EXPLAINED: Final = 100
"""An error explains the form of texts up to this length. The patterns for that do not take linear time."""

_ISO: Final = re.compile(
    r"""
    (?: (\d{4}-\d\d-\d\d)                                                   # extended format
        (?: [Tt\ ] (\d\d) (?: :(\d\d) (?: :(\d\d) (?: [.,](\d{1,9}) )? )? )?
            (\ ?(?:[Zz]|UTC|GMT)
             |\ ?[+-]\d\d(?::?\d\d)?(?:\[[^][\s]+\])?
             |[Zz]\[[^][\s]+\])?
        )?
      | (\d{8}) [Tt] (\d\d)(\d\d) (?: (\d\d) (?: [.,](\d{1,9}) )? )?        # basic format
            ([Zz]|[+-]\d\d(?::?\d\d)?)?
    )""",
    re.VERBOSE | re.ASCII,
)

_WHITE_SPACE: Final = "a time with white space around it"
_UNSUPPORTED: Final = [
    (r"\d{4}(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])", "a date in basic format without a time, or a number without a unit"),
    (r"\s*-?\d+(\.\d*)?([eE][+-]?\d+)?\s*", "a number in quotes; it needs a unit in the configuration"),
    (r"\s.*|.*\s", _WHITE_SPACE),
    (r"(\d{8}|\d{4}-\d\d-\d\d)\ ?([Zz]|UTC|GMT)", "a date with a zone and without a time"),
    (r"\d{8}[Tt]\d\d([Zz]|[+-]\d\d(:?\d\d)?)?", "a time in basic format without minutes"),
    (r"\d{8}[Tt]\d\d:.*|\d{4}-\d\d-\d\d[Tt ]\d{4}(\d\d)?([^\d:].*)?", "a mix of basic and extended format"),
    (r"\d{4}-?W\d\d.*", "an ISO 8601 week date"),
    (r"\d{4}-\d{3}([T ].*)?", "an ISO 8601 ordinal date"),
    (r"[+-]\d{4,}-\d\d.*|\d{5,}-\d\d.*", "a year with a sign or with more than four digits"),
    (r"\d{4}-\d\d", "a month without a day"),
    (r"\d{4}-\d{1,2}-\d{1,2}([T ].*)?", None),
    (r"T?\d{1,2}:\d\d.*", "a time without a date"),
    (r"P.*", "an ISO 8601 duration"),
    (r"\d{1,4}[/.]\d{1,2}[/.]\d{1,4}.*", "a date with slashes or dots"),
    (r"[A-Z][a-z]{2,}[, ].*\d.*|\d{1,2}[- ][A-Z][a-z]{2}.*", "a date with the name of a day or a month"),
]


def instant_of_text(text: str, rounding: Rounding = "down") -> int | str:
    """Return microseconds since the epoch of an ISO 8601 text (no zone: UTC), or the reason why the text is not
    a time, as a clause.

    The table "What decodes" in docs/configuration.md lists the accepted forms.
    """
    whole = _to_the_second(text[:19])
    if whole is not None:
        # The most common forms, without a regular expression for each.
        rest = text[19:-1] if text.endswith("Z") else text[19:]
        if not rest:
            return whole
        if rest[0] == "." and len(rest) <= 10 and rest.isascii() and rest[1:].isdecimal():
            return whole + micros_of(rest[1:], rounding)
    return _instant_of_any_form(text, rounding)


def micros_of(digits: str, rounding: Rounding) -> int:
    """Return the fraction of a second with these decimals, in microseconds."""
    above = rounding == "up" and digits[6:].strip("0") != ""
    return int(digits[:6].ljust(6, "0")) + above


@lru_cache(maxsize=4096)
def _to_the_second(text: str) -> int | None:
    """Return the instant of ``YYYY-MM-DDThh:mm:ss``; None if the text is not that, or has the hour 24."""
    if len(text) < 19 or not text[-1].isdecimal() or text[13] + text[16] != "::" or text[11:13] == "24":
        return None
    instant = _instant_of_any_form(text, "down")
    return instant if isinstance(instant, int) else None


def _instant_of_any_form(text: str, rounding: Rounding) -> int | str:
    match = _ISO.fullmatch(text)
    if match is None:
        return _why_not(text)
    day, hour, minute, second, fraction, zone, basic, *rest = match.groups()
    if basic is not None:
        hour, minute, second, fraction, zone = rest
        day = f"{basic[:4]}-{basic[4:6]}-{basic[6:]}"
    days = days_of(day)
    if days is None:
        return "is a text with a date that does not exist"
    if hour is None:
        return days * _DAY_US
    seconds = int(hour) * 3600 + int(minute or 0) * 60 + int(second or 0)
    micros = micros_of(fraction, rounding) if fraction else 0
    out_of_range = int(hour) > 23 or int(minute or 0) > 59 or int(second or 0) > 59
    # ISO 8601 allows 24:00:00 as the end of a day.
    if out_of_range and (int(hour) != 24 or seconds != 86_400 or (fraction and fraction.strip("0"))):
        return "is a text with a time of day that does not exist" + (" (leap second)" if second == "60" else "")
    if zone:
        offset = offset_of(zone.partition("[")[0].strip())
        if offset is None:
            return "is a text with a zone offset that does not exist"
        seconds -= offset
    return (days * 86_400 + seconds) * 1_000_000 + micros


@lru_cache(maxsize=1024)
def days_of(day: str) -> int | None:
    """Return the days from the epoch to a date of the proleptic Gregorian calendar, which has a year 0; None if the
    date does not exist."""
    year = int(day[:4])
    try:
        ordinal = date(year or 400, int(day[5:7]), int(day[8:])).toordinal()
    except ValueError:
        return None
    return ordinal - _EPOCH - (0 if year else _DAYS_OF_400_YEARS)


@lru_cache(maxsize=1024)
def offset_of(zone: str) -> int | None:
    """Return the offset in seconds east of Greenwich; None if it does not exist."""
    if zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    minutes = int(digits[2:] or 0)
    seconds = int(digits[:2]) * 3600 + minutes * 60
    if minutes > 59 or seconds > _LARGEST_OFFSET:
        return None
    return -seconds if zone[0] == "-" else seconds


def _why_not(text: str) -> str:
    if len(text) > _LONGEST_EXPLAINED:
        if text != text.strip():
            return f"is a text in a time format that is not supported: {_WHITE_SPACE}"
        return "is a text that is not an ISO 8601 time"
    for pattern, name in _UNSUPPORTED:
        if re.fullmatch(pattern, text, re.ASCII | re.DOTALL):
            what = name or _odd_date(text)
            return f"is a text in a time format that is not supported: {what}"
    return "is a text that is not an ISO 8601 time"


def _odd_date(text: str) -> str:
    """Return the unsupported part of a text that begins as a date with dashes."""
    if not re.match(r"\d{4}-\d\d-\d\d(?!\d)", text, re.ASCII):
        return "a month or a day with one digit"
    rest = text[11:]
    if re.search(r"[.,]\d{10,}", rest):
        return "a fraction of a second with more than nine digits"
    if re.match(r"[\d:.,]*\ ?([+-]\d\d(:?\d\d)?\ |(UTC|GMT)[+-]\d)", rest, re.ASCII):
        # The first of these is Go's `Time.String`.
        return "an offset with a zone name that is not in brackets"
    if re.search(r"[A-Za-z]{2,}", rest):
        return "a zone without an offset"
    return "a time of day or a zone offset in another form than hh:mm:ss.f and +hh:mm"


def instant_of_integer(number: int, unit: str, rounding: Rounding = "down") -> int | None:
    """Return microseconds since the epoch of a whole number in ``unit``; None beyond `FARTHEST_US`."""
    whole = _divided(number, 1_000, rounding) if unit == "ns" else number * MICROSECONDS[unit]
    return whole if -FARTHEST_US <= whole <= FARTHEST_US else None


def _divided(number: int, divisor: int, rounding: Rounding) -> int:
    return -(-number // divisor) if rounding == "up" else number // divisor


def instant_of_decimal(text: str, unit: str, rounding: Rounding = "down") -> int | None:
    """As `instant_of_integer`, for the text of a JSON number."""
    if is_zero(text):
        return 0
    try:
        number = Decimal(text)
    except InvalidOperation:
        # The exponent has more digits than `Decimal` accepts.
        if "e-" not in text.lower():
            return None
        return _divided(-1 if text.startswith("-") else 1, 10**30, rounding)
    if number.adjusted() > 30:
        return None
    if number.adjusted() < -30:
        return _divided(-1 if number < 0 else 1, 10**30, rounding)
    whole = Fraction(number) * _PER_UNIT[unit]
    micros = _divided(whole.numerator, whole.denominator, rounding)
    return micros if -FARTHEST_US <= micros <= FARTHEST_US else None
