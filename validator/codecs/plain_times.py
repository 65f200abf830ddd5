"""ISO 8601 texts to instants, a column at once: common forms here, others one by one with `instant_of_text`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from validator.codecs.fingerprints import Ints
from validator.codecs.plain_json import Bools, raw
from validator.codecs.times import Rounding, instant_of_text

_FORM: Final = re.compile(
    rb"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:[.,](?P<fraction>\d{1,9}))?(?P<zone>[Zz]|[+-]\d\d(?:(?P<colon>:?)\d\d)?)?"
)
_SECOND: Final = 19
"""Length of a text up to its seconds."""
_LARGEST_OFFSET: Final = 18 * 60
"""Largest zone offset in minutes, as in `validator.codecs.times`."""
_DAYS_BEFORE: Final = np.array([0, 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334], dtype=np.int64)
_LENGTHS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)
_EPOCH: Final = 719_528
"""Days from 1 January of the year 0 to the epoch."""


def instants_of_texts(texts: pa.Array, rounding: Rounding) -> tuple[Ints, Bools]:
    """Return microseconds since the epoch of each text, and which texts are times, as `instant_of_text` does."""
    instants = np.zeros(len(texts), dtype=np.int64)
    known = np.zeros(len(texts), dtype=np.bool_)
    offsets, data = raw(texts)
    lengths = np.diff(offsets)
    if texts.null_count:
        lengths[~texts.is_valid().to_numpy(zero_copy_only=False)] = 0
    for length in np.unique(lengths[lengths >= _SECOND]).tolist():
        rows = np.flatnonzero(lengths == length)
        if len(rows) * length == len(data):
            characters = data.reshape(len(rows), length).T
        else:
            characters = data[np.arange(length)[:, None] + offsets[:-1][rows]]
        instants[rows], known[rows] = _instants_of_one_form(np.ascontiguousarray(characters), rounding)
    read_others(texts, ~known & (lengths > 0), lambda text: instant_of_text(text, rounding), instants, known)
    return instants, known


def read_others(texts: pa.Array, others: Bools, read: Callable[[str], int | str], instants: Ints, known: Bools) -> None:
    """Add the instants of the texts ``others``, each of which ``read`` returns if the text is a time."""
    rows = np.flatnonzero(others)
    if not len(rows):
        return
    encoded = texts.take(pa.array(rows)).dictionary_encode()
    found = [read(text) for text in encoded.dictionary.to_pylist()]
    codes = encoded.indices.to_numpy()
    known[rows] = np.array([isinstance(instant, int) for instant in found])[codes]
    instants[rows] = np.array([instant if isinstance(instant, int) else 0 for instant in found])[codes]


def _instants_of_one_form(at: npt.NDArray[np.uint8], rounding: Rounding) -> tuple[Ints, Bools]:
    """Return the instants of the texts that have the form of the first text, and which texts these are.
    ``at[i]``: the characters at place i of the texts, which all have the same length."""
    length, count = at.shape
    match = _FORM.fullmatch(at[:, 0].tobytes())
    if match is None:
        return np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.bool_)
    digits = at - np.uint8(ord("0"))
    good = (at[4] == ord("-")) & (at[7] == ord("-")) & (at[13] == ord(":")) & (at[16] == ord(":"))
    good &= (at[10] == ord("T")) | (at[10] == ord(" ")) | (at[10] == ord("t"))

    def number(first: int, last: int) -> Ints:
        """Return the value of the digits from place ``first`` to before ``last``."""
        nonlocal good
        value = np.zeros(count, dtype=np.int64)
        for place in range(first, last):
            good &= digits[place] <= 9
            value *= 10
            value += digits[place]
        return value

    year, month, day = number(0, 4), number(5, 7), number(8, 10)
    hour, minute, second = number(11, 13), number(14, 16), number(17, 19)
    micros, zone = np.zeros(count, dtype=np.int64), _SECOND
    if match["fraction"]:
        first, zone = _SECOND + 1, _SECOND + 1 + len(match["fraction"])
        good &= (at[_SECOND] == ord(".")) | (at[_SECOND] == ord(","))
        last = min(zone, first + 6)
        micros = number(first, last) * 10 ** (first + 6 - last)
        finer = number(last, zone)
        if rounding == "up":
            micros += finer > 0
    minutes = hour * 60 + minute
    good &= (hour <= 23) & (minute <= 59) & (second <= 59)
    if length - zone == 1:
        good &= (at[zone] == ord("Z")) | (at[zone] == ord("z"))
    elif length > zone:
        good &= (at[zone] == ord("+")) | (at[zone] == ord("-"))
        offset = number(zone + 1, zone + 3) * 60
        if match["colon"]:
            good &= at[zone + 3] == ord(":")
        of_hour = number(length - 2, length) if length - zone > 3 else np.zeros(count, dtype=np.int64)
        offset += of_hour
        good &= (of_hour <= 59) & (offset <= _LARGEST_OFFSET)
        minutes -= np.where(at[zone] == ord("-"), -offset, offset)
    good &= (month >= 1) & (month <= 12)
    month = np.where(good, month, 1)
    leaps = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    good &= (day >= 1) & (day <= _LENGTHS[month] + (leaps & (month == 2)))
    before = year - 1
    days = year * 365 + before // 4 - before // 100 + before // 400 + 1
    days += _DAYS_BEFORE[month] + (leaps & (month > 2)) + day - 1 - _EPOCH
    return ((days * 1440 + minutes) * 60 + second) * 1_000_000 + micros, good
