"""Times of a pattern: the rule against the standard library, and a column against the rule."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

from validator.codecs.plain_patterns import instants_of_pattern
from validator.codecs.time_patterns import instant_of_pattern
from validator.codecs.times import Rounding
from validator.settings.fields import FieldPath
from validator.settings.time_patterns import BadPattern, TimePattern, parts, step_of

pytestmark = pytest.mark.property

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DIRECTIVES: Final = {
    "yyyy": "%Y", "uuuu": "%Y", "MM": "%m", "M": "%m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%d", "EEE": "%a",
    "EEEE": "%A", "HH": "%H", "H": "%H", "hh": "%I", "h": "%I", "a": "%p", "mm": "%M", "m": "%M", "ss": "%S", "s": "%S",
    "S": "%f", "SSS": "%f", "SSSSSS": "%f", "XXX": "%z", "xx": "%z", "Z": "%z",
}  # fmt: skip
"""Letters of a pattern -> the directive of `datetime.strptime`."""
DATES: Final = (["yyyy", "MM", "dd"], ["dd", "MMM", "yyyy"], ["EEEE", "d", "MMMM", "uuuu"], ["M", "d", "yyyy"])
CLOCKS: Final = (["HH", "mm", "ss"], ["H", "m"], ["hh", "mm", "ss", "a"], ["hh", "mm", "ss", "SSS"], ["HH", "mm", "ss",
    "SSSSSS"], ["h", "mm", "a", "XXX"], ["HH", "mm", "s", "S", "Z"], ["HH"], [])  # fmt: skip
ZONES: Final = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")


def pattern_of(chance: random.Random) -> tuple[str, str]:
    """A pattern, and the same in directives of `strptime`."""
    units = [*chance.choice(DATES), *chance.choice(CLOCKS)]
    marks = [chance.choice("-/.: T,") for _ in units]
    quoted = [f"'{mark}'" if mark == "T" else mark for mark in marks]
    ours = "".join(unit + mark for unit, mark in zip(units, quoted, strict=True))
    theirs = "".join(DIRECTIVES[unit] + mark for unit, mark in zip(units, marks, strict=True))
    return ours, theirs


def written(at: datetime, pattern: str) -> str:
    """The text of a time, as Java writes it."""
    found = []
    for unit, form in parts(pattern):
        if unit == "fraction":
            found.append(f"{at.microsecond:06}"[: int(form[3:-1])])
        elif unit == "zone":
            zone = at.strftime("%z")
            found.append(f"{zone[:3]}:{zone[3:]}" if ":" in form else zone)
        elif unit is None:
            found.append(form.removeprefix("\\"))
        else:
            names = {"year": "%Y", "month": "%m", "day": "%d", "month_name": "%B", "day_name": "%A", "hour": "%H"}
            text = at.strftime(names.get(unit, {"hour_of_half": "%I", "half": "%p", "minute": "%M"}.get(unit, "%S")))
            short = unit.endswith("_name") and not form.startswith(("January", "Monday"))
            found.append(text[:3] if short else text.lstrip("0") or "0" if form == r"\d{1,2}" else text)
    return "".join(found)


def by_the_library(text: str, form: str, zone: str) -> int | None:
    """Microseconds since the epoch, as the standard library reads them."""
    try:
        at = datetime.strptime(text, form)  # noqa: DTZ007 - the zone follows
    except ValueError:
        return None
    aware = at if at.tzinfo is not None else at.replace(tzinfo=ZoneInfo(zone))
    return (aware - EPOCH) // timedelta(microseconds=1)


def texts_of(pattern: str, chance: random.Random, number: int) -> list[str]:
    """Times of a pattern; some are of days on which clocks change, some do not exist, some are other texts."""
    found = []
    for _ in range(number):
        days = chance.choice([0, 10_000, 20_542 + chance.randrange(400), -chance.randrange(700_000), 2_900_000])
        at = EPOCH + timedelta(days=days, seconds=chance.randrange(86_400), microseconds=chance.randrange(10**6))
        text = written(at.astimezone(timezone(timedelta(minutes=chance.choice([0, 330, -90])))), pattern)
        if chance.random() < 0.3:
            place = chance.randrange(len(text))
            text = text[:place] + chance.choice("0123459/- :äAZ") + text[place + chance.randrange(2) :]
        found.append(text)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_time_of_a_pattern_is_that_of_the_library_alone_and_in_a_column(seed: int) -> None:
    chance = random.Random(seed)
    pattern, form = pattern_of(chance)
    zone = "UTC" if "zone" in [part.unit for part in parts(pattern)] else chance.choice(ZONES)
    texts = texts_of(pattern, chance, 400)
    rule = [instant_of_pattern(text, TimePattern(pattern, zone)) for text in texts]
    read = 0
    for text, found in zip(texts, rule, strict=True):
        # The library accepts more, such as a day with one digit for `dd`.
        if isinstance(found, int):
            assert found == by_the_library(text, form, zone), (text, pattern, zone)
            read += 1
        elif "zone offset" not in found:  # Java's offsets end at 18 hours
            assert by_the_library(written_again(text, pattern, form), form, zone) is None, (text, pattern, found)
    assert read > 100
    column = pa.array([None, *texts, "", "x" * len(texts[0])])
    instants, known = instants_of_pattern(column, TimePattern(pattern, zone), "down")
    assert known.tolist() == [False, *(isinstance(found, int) for found in rule), False, False]
    assert instants[known].tolist() == [found for found in rule if isinstance(found, int)]


def written_again(text: str, pattern: str, form: str) -> str:
    """``text`` if the library would write it, too; else an empty text."""
    try:
        at = datetime.strptime(text, form)  # noqa: DTZ007 - it is only written
    except ValueError:
        return ""
    return text if written(at, pattern) == text else ""


@pytest.mark.parametrize("rounding", ["down", "up"])
def test_a_fraction_beyond_microseconds_is_rounded(rounding: Rounding) -> None:
    texts = [f"2026-01-01 00:00:00.{fraction:09}" for fraction in (0, 1, 999, 1_000, 1_001, 999_999_999)]
    at = TimePattern("yyyy-MM-dd HH:mm:ss.SSSSSSSSS")
    wanted = [instant_of_pattern(text, at, rounding) for text in texts]
    base = wanted[0]
    assert isinstance(base, int)
    assert [found - base for found in wanted if isinstance(found, int)] == (
        [0, 0, 0, 1, 1, 999_999] if rounding == "down" else [0, 1, 1, 1, 2, 1_000_000]
    )
    instants, known = instants_of_pattern(pa.array(texts), at, rounding)
    assert (instants.tolist(), np.all(known)) == (wanted, True)


def test_clocks_that_change_are_read_as_java_reads_them() -> None:
    at = TimePattern("yyyy-MM-dd HH:mm", "Europe/Berlin")
    twice, skipped = (instant_of_pattern(text, at) for text in ("2026-10-25 02:30", "2026-03-29 02:30"))
    assert twice == instant_of_pattern("2026-10-25 00:30", TimePattern(at.pattern)), "the first of the two"
    assert skipped == instant_of_pattern("2026-03-29 01:30", TimePattern(at.pattern)), "later by the hour"


def test_an_hour_of_half_a_day_without_its_half_is_in_the_first_half() -> None:
    at = TimePattern("dd-MM-yyyy hh:mm:ss:SSS")
    noon = instant_of_pattern("01-01-2026 12:00:00:000", at)
    assert noon == by_the_library("01-01-2026 00:00", "%d-%m-%Y %H:%M", "UTC")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("YYYY-MM-dd", "YYYY cannot be read; Y is the year of a week: write yyyy"),
        ("yy-MM-dd", "yy cannot be read; write yyyy"),
        ("yyyy-mm-dd", "it has no month (MM); write a pattern with year, month and day (mm is a minute)"),
        ("yyyy-MM-dd HH:mm z", "z cannot be read; a zone's name has more than one meaning"),
        ("yyyy-MM-dd'T", "a quote in it does not end"),
        ("yyyy-MM-dd[ HH:mm]", "[ cannot be read; write it in quotes"),
        ("yyyy-MM-dd HH:mm a", "it has a without h"),
        ("yyyy-MM-dd HH:mm:HH", "it has the hour twice"),
        ("yyyy-MM-dd q", "q cannot be read; use "),
    ],
)
def test_a_pattern_that_is_not_supported_is_refused_by_its_letter(pattern: str, said: str) -> None:
    with pytest.raises(BadPattern) as refused:
        parts(pattern)
    assert f"{refused.value}; {refused.value.fix}".startswith(said)
    with pytest.raises(ValueError, match="broken_rule"):
        FieldPath.model_validate({"path": "at", "pattern": pattern})


def test_the_finest_part_of_a_pattern_is_its_step() -> None:
    steps = {"yyyy-MM-dd": 86_400_000_000, "yyyyMMddHHmm": 60_000_000, "yyyyMMddHHmmss": 1_000_000,
             "yyyyMMddHHmmssSSS": 1_000, "yyyyMMddHHmmssSSSSSSSSS": 1}  # fmt: skip
    assert {pattern: step_of(pattern) for pattern in steps} == steps
