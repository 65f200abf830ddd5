"""How what a result names differs from what was expected, in words: one table for texts, and one for instants."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Final

import numpy as np

from validator.model.wording import plural, plural_of
from validator.oracles.alternatives import begins
from validator.oracles.seam import Oracle
from validator.settings.durations import format_duration

_EXACT: Final = 2**53
"""From here on, a double does not hold every integer."""
_QUARTER_US: Final = 15 * 60_000_000
_ZONE_MOST_US: Final = 14 * 3_600_000_000
"""Offsets of time zones are whole quarters of an hour, up to this."""
_CLOCK_US: Final = 60_000_000
_UNITS: Final = {1_000: "s and ms, or ms and us", 1_000_000: "s and us, or ms and ns", 1_000_000_000: "s and ns"}


def _as_double(text: str) -> object:
    try:
        number = int(text)
    except ValueError:
        return text
    return float(number) if abs(number) >= _EXACT else text


def _as_number(text: str) -> object:
    try:
        return Decimal(text.strip()).normalize()
    except InvalidOperation:
        return text


def _composed(text: str) -> object:
    return unicodedata.normalize("NFC", text)


def _compatible(text: str) -> object:
    return unicodedata.normalize("NFKC", text)


def _visible(text: str) -> object:
    return "".join(it for it in text if unicodedata.category(it) not in ("Cf", "Cc"))


def _without_spaces(text: str) -> object:
    return "".join(text.split())


SAME_TEXTS: Final[tuple[tuple[str, Callable[[str], object]], ...]] = (
    ("beyond 2^53 one is the other rounded to a double", _as_double),
    ("they are the same number: one is a text that is written differently", _as_number),
    ("they differ only in Unicode form", _composed),
    ("they differ only in spaces", _without_spaces),
    ("they differ only in Unicode compatibility form", _compatible),
    ("they differ only in characters that are not seen", _visible),
    ("they differ only in the case of letters", str.casefold),
)
"""Difference in words, and the form in which texts that differ only in this way are equal."""
_LOOK_ALIKE: Final = (_composed, _without_spaces, _compatible, _visible)
"""Forms of texts that may look the same although they differ: their code points are shown."""
_FEW: Final = 2


def of_texts(expected: str, named: str) -> str | None:
    """Return how two ids or keys differ; None if they are equal or the difference is not a known one."""
    if expected == named:
        return None
    for words, form in SAME_TEXTS:
        if form(expected) == form(named):
            return f"{words}: {_code_points(expected, named)}" if form in _LOOK_ALIKE else words
    differ = [pair for pair in zip(expected, named, strict=False) if pair[0] != pair[1]]
    if len(expected) == len(named) and len(differ) <= _FEW and not all("".join(pair).isascii() for pair in differ):
        # Letters of two alphabets may look the same.
        return f"they differ in {plural(len(differ), 'character')}: {_code_points(expected, named)}"
    return None


def _code_points(one: str, other: str) -> str:
    """Return the code points in which two texts differ."""
    first = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    last = 0
    while last < min(len(one), len(other)) - first and one[-1 - last] == other[-1 - last]:
        last += 1
    parts = (text[first : len(text) - last] for text in (one, other))
    return " against ".join(" ".join(f"U+{ord(character):04X}" for character in part) or "nothing" for part in parts)


def of_instants(oracle: Oracle, expected_us: int, named_us: int, result_us: int) -> str | None:
    """Return how the start that a result names differs from the start of the event's cell; None if they are equal.
    ``result_us``: broker time of the result."""
    return next(_of_instants(oracle, expected_us, named_us, result_us), None)


def _of_instants(oracle: Oracle, expected_us: int, named_us: int, result_us: int) -> Iterator[str]:
    shift_us = named_us - expected_us
    if not shift_us:
        return
    for factor, units in _UNITS.items():
        for scaled, other, size in ((named_us, expected_us, "small"), (expected_us, named_us, "large")):
            if scaled and 0.99 < other / (scaled * factor) < 1.01:
                yield f"it is {factor:,} times too {size}: {units} are confused"
    near_us = 2 * oracle.span_us + _CLOCK_US
    if abs(named_us - result_us) <= near_us and abs(expected_us - result_us) > 10 * near_us:
        yield "it is the time at which the result was written: wall clock, not event time"
    later = f"{format_duration(abs(shift_us))} {'later' if shift_us > 0 else 'earlier'}"
    zone = ", as between local time and UTC" if shift_us % _QUARTER_US == 0 and abs(shift_us) <= _ZONE_MOST_US else ""
    if not begins(oracle, np.array([named_us], dtype=np.int64))[0]:
        yield f"no {oracle.cell_noun} of the oracle begins at this instant, {later}{zone}"
    # Sessions have no adjacent windows, and on the wall clock of a zone windows are not a fixed time apart.
    is_even = oracle.merging_gap_us is None and oracle.grid_us * oracle.cells_most >= oracle.span_us
    if is_even and shift_us % oracle.grid_us == 0:
        count = abs(shift_us) // oracle.grid_us
        adjacent, several = f"the adjacent {oracle.cell_noun}", plural_of(oracle.cell_noun)
        yield f"{later}{zone}: {adjacent if count == 1 else f'an offset of {count:,} whole {several}'}"
    yield f"{later}{zone}"
