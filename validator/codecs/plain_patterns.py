"""Texts of a pattern to instants, a column at once: digits at fixed places here, others one by one.

`validator.codecs.time_patterns` has the rule.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from validator.codecs.fingerprints import Ints
from validator.codecs.plain_json import Bools, Bytes, raw
from validator.codecs.plain_times import read_others
from validator.codecs.time_patterns import instant_of_pattern, offset_at
from validator.codecs.times import Rounding
from validator.settings.time_patterns import TimePattern, parts

_SIZE: Final = {"year": 4, "month": 2, "day": 2, "hour": 2, "hour_of_half": 2, "minute": 2, "second": 2}
_MOST: Final = {"month": 12, "hour": 23, "hour_of_half": 12, "minute": 59, "second": 59}


class _Digits(NamedTuple):
    """A part of a text in which each part has a fixed place. ``text``: what stands for itself."""

    unit: str | None
    first: int
    last: int
    text: str


@cache
def _digits(pattern: str) -> tuple[_Digits, ...] | None:
    """Return the places of the parts, if all of them are digits of fixed length or ASCII text; else None."""
    at, found = 0, []
    for unit, form in parts(pattern):
        text = "" if unit is not None else re.sub(r"\\(.)", r"\1", form, flags=re.DOTALL)
        size = _SIZE.get(unit or "", len(text)) if unit != "fraction" else int(form[3:-1])
        if not text.isascii() or (unit is not None and form not in (r"\d\d", rf"\d{{{size}}}")):
            return None
        found.append(_Digits(unit, at, at + size, text))
        at += size
    return tuple(found)


def instants_of_pattern(texts: pa.Array, at: TimePattern, rounding: Rounding) -> tuple[Ints, Bools]:
    """Return microseconds since the epoch of each text, and which texts are times, as `instant_of_pattern` has them.
    Only texts with names, with an offset or of another length are read one by one."""
    instants = np.zeros(len(texts), dtype=np.int64)
    known = np.zeros(len(texts), dtype=np.bool_)
    is_valid = texts.is_valid().to_numpy(zero_copy_only=False)
    digits = _digits(at.pattern)
    if digits is not None:
        offsets, data = raw(texts)
        rows = np.flatnonzero((np.diff(offsets) == digits[-1].last) & is_valid)
        if len(rows):
            characters = data[offsets[:-1][rows] + np.arange(digits[-1].last)[:, None]]
            found, good = _instants(characters, digits, at.zone, rounding)
            instants[rows[good]], known[rows[good]] = found[good], True
    read_others(texts, is_valid & ~known, lambda text: instant_of_pattern(text, at, rounding), instants, known)
    return instants, known


def _instants(characters: Bytes, digits: tuple[_Digits, ...], zone: str, rounding: Rounding) -> tuple[Ints, Bools]:
    """Return the instants of texts of one form, and which of them exist. ``characters[i]``: those at place i."""
    count = characters.shape[1]
    good = np.ones(count, dtype=np.bool_)
    values = {unit: np.zeros(count, dtype=np.int64) for unit in ("hour", "minute", "second", "fraction")}
    for part in digits:
        if part.unit is None:
            good &= (characters[part.first : part.last] == np.frombuffer(part.text.encode(), np.uint8)[:, None]).all(
                axis=0
            )
            continue
        of_part = characters[part.first : part.last] - np.uint8(ord("0"))
        good &= (of_part <= 9).all(axis=0)
        values[part.unit] = 10 ** np.arange(part.last - part.first - 1, -1, -1) @ of_part.astype(np.int64)
        good &= values[part.unit] <= _MOST.get(part.unit, 10**9)
    if (of_half := values.get("hour_of_half")) is not None:
        good &= of_half >= 1
        values["hour"] = of_half % 12
    days, exists = _days(values["year"], values["month"], values["day"])
    good &= exists
    local = np.where(good, ((days * 24 + values["hour"]) * 60 + values["minute"]) * 60 + values["second"], 0)
    if zone != "UTC":
        seconds, of_row = np.unique(local, return_inverse=True)
        local -= np.array([offset_at(zone, second) for second in seconds.tolist()], dtype=np.int64)[of_row]
    return local * 1_000_000 + _micros(values["fraction"], digits, rounding), good


def _days(year: Ints, month: Ints, day: Ints) -> tuple[Ints, Bools]:
    """Return the days from the epoch to dates, and which dates exist."""
    exists = (month >= 1) & (day >= 1)
    months = (year - 1970) * 12 + np.where(exists, month, 1) - 1
    first, after = ((months + more).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64) for more in (0, 1))
    return first + day - 1, exists & (day <= after - first)


def _micros(fraction: Ints, digits: tuple[_Digits, ...], rounding: Rounding) -> Ints:
    size = next((part.last - part.first for part in digits if part.unit == "fraction"), 6)
    finer = 10 ** max(0, size - 6)
    micros: Ints = -(-fraction // finer) if rounding == "up" else fraction // finer
    micros *= 10 ** max(0, 6 - size)
    return micros
