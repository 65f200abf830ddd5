"""Times of a pattern to instants, one text at a time. `validator.settings.time_patterns` defines the patterns."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Final

from validator.codecs.times import Rounding, days_of, micros_of, offset_of
from validator.model.zones import zone as zone_of
from validator.settings.time_patterns import MONTHS, TimePattern, parts

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a local time


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    named = [part.form if part.unit is None else f"(?P<{part.unit}>{part.form})" for part in parts(pattern)]
    return re.compile("".join(named), re.ASCII | re.DOTALL)


def instant_of_pattern(text: str, at: TimePattern, rounding: Rounding = "down") -> int | str:
    """Return microseconds since the epoch of a text, or the reason why it is not a time, as a clause."""
    match = _expression(at.pattern).fullmatch(text)
    if match is None:
        return f"is a text that does not have the form {at.pattern}"
    found = match.groupdict()
    month = found.get("month") or f"{_month(found['month_name']):02}"
    days = days_of(f"{found['year']}-{month:0>2}-{found['day']:0>2}")
    if days is None:
        return "is a text with a date that does not exist"
    hour, minute, second = (int(found.get(unit) or 0) for unit in ("hour", "minute", "second"))
    if of_half := found.get("hour_of_half"):
        # As Java's `SimpleDateFormat`: without a half of the day it is the first one.
        hour = int(of_half) % 12 + (12 if (found.get("half") or "").lower() == "pm" else 0)
        if not 1 <= int(of_half) <= 12:
            hour = 24
    if hour > 23 or minute > 59 or second > 59:
        return "is a text with a time of day that does not exist"
    local = days * 86_400 + hour * 3_600 + minute * 60 + second
    if zone := found.get("zone"):
        offset = offset_of(zone)
        if offset is None:
            return "is a text with a zone offset that does not exist"
    else:
        offset = offset_at(at.zone, local)
    fraction = found.get("fraction")
    return (local - offset) * 1_000_000 + (micros_of(fraction, rounding) if fraction else 0)


def _month(name: str) -> int:
    return next(number for number, month in enumerate(MONTHS, 1) if month.startswith(name))


_zone = cache(zone_of)


@lru_cache(maxsize=65_536)
def offset_at(zone: str, local: int) -> int:
    """Return the offset of a local time, both in seconds. As in Java, of a time that occurs twice the first counts, and
    a time that a change of the clocks skips is later by what they skip."""
    if zone == "UTC":
        return 0
    try:
        at = (_EPOCH + timedelta(seconds=local)).replace(tzinfo=_zone(zone))
    except OverflowError:
        # The year 0.
        at = datetime.min.replace(tzinfo=_zone(zone))
    offset = at.utcoffset()
    assert offset is not None, "a zone has an offset at every time"
    return round(offset.total_seconds())
