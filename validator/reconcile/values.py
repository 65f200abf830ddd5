"""Values that results state about the events of their cell (evidence `values`, SEMANTICS 2.23 and 2.29).

Spark's tasks fold the fields of events into a partial aggregate per fact row (`partial_aggregates`), and into two
fingerprints (`fingerprints`): sums modulo a prime, so that the sum of exact decimals of any scale is one integer per
cell. Where fingerprints do not show that a cell is right, `wrong_values` compares the exact numbers.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.codecs.columns import AGGREGATE_TYPE
from validator.codecs.digests import signed
from validator.codecs.plain_fields import bools, plain
from validator.model.arrays import Bools, Ints, interleaved, one_array, run_starts
from validator.model.stated_values import ADDED, EXACT, MODULAR, PRIMES, Function, Stated, Values

_HALF_UNIT: Final = EXACT.divide(Decimal(1), Decimal(2**51))
_PART: Final = Fraction(1, 2**53)
"""The most that one operation with doubles loses of its result."""
_WORDS: Final = 8
"""Parts of 32 bits of a decimal of 256 bits."""
_TRIED: Final = 64
"""Numbers of a column of which all must be whole before the others are tried."""


def residues(numbers: pa.Array, prime: int, name: int) -> Ints:
    """Return the numbers (`AMOUNT`) modulo ``prime``, times a factor that differs by ``name``; 0 for null."""
    filled = pc.fill_null(numbers, pa.scalar(Decimal(0), numbers.type)) if numbers.null_count else numbers
    raw = np.frombuffer(filled.buffers()[1], np.uint32)
    rows = raw[filled.offset * _WORDS : (filled.offset + len(filled)) * _WORDS].reshape(-1, _WORDS)
    words = rows.T.astype(np.int64, order="C")
    # Two's complement: the highest word has the sign.
    words[-1] = np.where(words[-1] >= 2**31, words[-1] - 2**32, words[-1])
    found = np.zeros(len(rows), dtype=np.int64)
    for i, word in enumerate(words):
        # The highest words of most columns are 0.
        if word.any():
            found += word % prime * pow(2, 32 * i, prime) % prime
    return found % prime * pow(_FACTOR, name + 1, prime) % prime


_FACTOR: Final = 1_103_515_245


def fingerprints(numbers: Sequence[pa.Array | None], size: int) -> tuple[Ints, Ints]:
    """Return both fingerprints of each row. ``numbers``: a column for each sum that results state; None for another
    value."""
    first, second = (
        sum(
            (residues(column, prime, i) for i, column in enumerate(numbers) if column is not None),
            np.zeros(size, dtype=np.int64),
        )
        for prime in PRIMES
    )
    return first, second


def partial_aggregates(
    columns: Sequence[pa.Array], group: Ints, many: int, hashed: frozenset[int] = frozenset()
) -> tuple[pa.Array, list[pa.Array]]:
    """Return, for each group, a list with the partial aggregate of each column (`AGGREGATE_TYPE`), and the sums of each
    column. ``group``: the group of each row, in rising order from 0; there are ``many``. ``hashed``: as in `Values`."""
    parts, sums = [], []
    for i, column in enumerate(columns):
        if i in hashed:
            parts.append(_hashes(column, group, many))
            sums.append(pa.nulls(many, column.type))
            continue
        table = pa.table({"group": group, "value": column})
        kinds = ("count", "sum", "min", "max")
        found = table.group_by("group", use_threads=False).aggregate([("value", kind) for kind in kinds])
        count, *amounts = (found[f"value_{kind}"].combine_chunks() for kind in kinds)
        sums.append(amounts[0])
        several = plain(count) > 1
        texts = [texts_of(amounts[0])]
        # Of one number, sum, minimum and maximum are the same text, and texts of decimals are expensive.
        texts += [_replaced(texts[0], several, texts_of(amount.filter(pa.array(several)))) for amount in amounts[1:]]
        parts.append(pa.StructArray.from_arrays([count, *texts], fields=list(AGGREGATE_TYPE)))
    return interleaved(parts, many, AGGREGATE_TYPE), sums


def columns_of_lists(lists: pa.ChunkedArray, width: int) -> list[pa.Array]:
    """Return lists of ``width`` items each as so many columns."""
    items, rows = one_array(lists).flatten(), np.arange(len(lists)) * width
    return [items if width == 1 else items.take(pa.array(rows + i)) for i in range(width)]


def _hashes(column: pa.Array, group: Ints, many: int) -> pa.StructArray:
    """Return the different hashes of each group in ``sum``, as the base64 of their bytes. ``count``: the events that
    have one."""
    rows = np.flatnonzero(bools(column.is_valid()))
    numbers, group = plain(column.take(pa.array(rows)).cast(pa.int64())), group[rows]
    counted = np.bincount(group, minlength=many)
    order = np.lexsort((numbers, group))
    numbers, group = numbers[order], group[order]
    first = run_starts(group, numbers)
    numbers, group = numbers[first], group[first]
    ends = np.cumsum(np.bincount(group, minlength=many)).tolist()
    texts = [b64encode(numbers[start:end].tobytes()).decode() for start, end in pairwise([0, *ends])]
    none = pa.nulls(many, pa.string())
    columns = [pa.array(counted), pa.array(texts, pa.string(), mask=counted == 0), none, none]
    return pa.StructArray.from_arrays(columns, fields=list(AGGREGATE_TYPE))


def fields_of_events(columns: Sequence[pa.Array], ends: Ints) -> pa.ListArray:
    """Return lists with an item for each event and column, of which only ``count`` (0 or 1) and ``sum`` are set
    (`AGGREGATE_TYPE`). ``ends``: the events up to the end of each list, from 0."""
    parts = []
    for column in columns:
        none = pa.nulls(len(column), pa.string())
        columns_of_one = [column.is_valid().cast(pa.int64()), texts_of(column), none, none]
        parts.append(pa.StructArray.from_arrays(columns_of_one, fields=list(AGGREGATE_TYPE)))
    items = interleaved(parts, len(columns[0]), AGGREGATE_TYPE).flatten()
    return pa.ListArray.from_arrays(pa.array((ends * len(columns)).astype(np.int32)), items)


def _replaced(texts: pa.Array, chosen: Bools, others: pa.Array) -> pa.Array:
    """Return ``texts``, with ``others`` in place of the chosen ones."""
    return pc.replace_with_mask(texts, pa.array(chosen), others) if len(others) else texts


def texts_of(numbers: pa.Array) -> pa.Array:
    """Return decimals as texts without redundant zeros."""
    with suppress(pa.ArrowInvalid):
        # Most columns with a fraction have one at their beginning.
        numbers.slice(0, _TRIED).cast(pa.int64())
        return numbers.cast(pa.int64()).cast(pa.string())
    # Some have a fraction, or more than 64 bits.
    texts = numbers.cast(pa.string())
    # Small numbers have an exponent: 3.0E-10.
    return pc.if_else(pc.match_substring(texts, "E"), texts, pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), "."))


class Aggregate(NamedTuple):
    """The aggregate of a field over some events. ``events``: their number. ``numbers``: how many have a number in the
    field. The others are None if none has. ``hashes``: instead of the others, the hashes of different values.
    ``sizes``: a bound on the sum of the absolute numbers, if minimum and maximum do not give one."""

    events: int
    numbers: int
    sum: Decimal | None
    min: Decimal | None
    max: Decimal | None
    hashes: frozenset[int] = frozenset()
    sizes: Decimal | None = None

    @property
    def magnitude(self) -> Fraction:
        """A bound on the sum of the absolute numbers."""
        if self.sizes is not None:
            return Fraction(self.sizes)
        if self.sum is None or self.min is None or self.max is None:
            return Fraction(0)
        total, low, high = Fraction(self.sum), Fraction(self.min), Fraction(self.max)
        if low >= 0 or high <= 0:
            return abs(total)
        # Between minimum and maximum, no absolute number is above the straight line through both absolute numbers.
        return (high * (total - self.numbers * low) - low * (self.numbers * high - total)) / (high - low)

    @classmethod
    def of_one(cls, stored: Mapping[str, Any], *, is_hashed: bool = False) -> Aggregate:
        """Return the aggregate of the field of one event (`fields_of_events`)."""
        number = None if stored["sum"] is None else Decimal(stored["sum"])
        if is_hashed:
            hashes = frozenset[int]() if number is None else frozenset({int(number)})
            return cls(1, stored["count"], None, None, None, hashes)
        return cls(1, stored["count"], number, number, number)

    @classmethod
    def of(cls, events: int, stored: Mapping[str, Any], *, is_hashed: bool = False) -> Aggregate:
        """Return an aggregate as the facts have it (`AGGREGATE_TYPE`)."""
        if is_hashed:
            hashes = np.frombuffer(b64decode(stored["sum"] or ""), np.int64)
            return cls(events, stored["count"], None, None, None, frozenset(hashes.tolist()))
        total, least, most = (None if stored[name] is None else Decimal(stored[name]) for name in ("sum", "min", "max"))
        return cls(events, stored["count"], total, least, most)


class Owed(NamedTuple):
    """The values from ``low`` to ``high`` that a cell may have. ``is_null``: it may also be null. ``modulus``: if it is
    not 0, values with the same remainder are equal."""

    low: Fraction | None
    high: Fraction | None
    is_null: bool
    modulus: int = 0

    def holds(self, stated: Decimal | None, tolerance: Decimal | Fraction) -> bool:
        """Return whether a stated value is right."""
        if stated is None or self.low is None or self.high is None:
            # A sum of no number is 0 for engines that do not know null.
            return self.is_null and not stated
        if self.modulus:
            return (Fraction(stated) - self.low) % self.modulus == 0
        return self.low - Fraction(tolerance) <= Fraction(stated) <= self.high + Fraction(tolerance)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return "null"
        if self.modulus:
            return f"{signed(int(self.low))} modulo 2^64"
        low, high = (_text(number) for number in (self.low, self.high))
        return low if low == high else f"from {low} to {high}"


@dataclass(frozen=True)
class Answered:
    """The events of a cell by what its results must have used.

    ``sure``: events that were on time; ``free``: events that a correct engine may have dropped; ``aside``: late and
    rejected records. ``all_used``: every event is in a result or set aside.
    """

    sure: Sequence[Aggregate]
    free: Sequence[Aggregate]
    aside: Sequence[Aggregate]
    all_used: bool

    @property
    def lacks_fields(self) -> bool:
        """Whether set-aside records lack the field."""
        return any(part.numbers < part.events for part in self.aside)

    @property
    def times_most(self) -> int:
        """How often an event counts at most."""
        return 1

    def rounding(self, function: Function, stated: Decimal) -> Fraction:
        """Return how far the ``stated`` value of an engine that computes with doubles may be off."""
        # SEMANTICS 2.29: of the sum of absolute numbers, reading n decimals as doubles loses at most a part of 2^-53,
        # adding them in any order n - 1 of these (Jeannerod and Rump, 2013), writing the sum as a decimal one, and
        # the products of these less than one.
        if function in ("min", "max"):
            return 2 * _PART * abs(Fraction(stated))
        if function not in ("sum", "avg"):
            return Fraction(0)
        parts = (*self.sure, *self.free)
        magnitude = self.times_most * sum((part.magnitude for part in parts), Fraction(0))
        # An average over k of the events is off by (k + 2) / k of such parts, and by its quotient (`wrong_value`).
        numbers = 1 if function == "avg" else self.times_most * sum(part.numbers for part in parts)
        return (numbers + 2) * _PART * magnitude

    def owed(self, function: Function) -> Owed | None:
        """Return which values the results may state; None if that is not known."""
        parts = [*self.sure, *self.free]
        # A set-aside record without the field does not say what its event had in it.
        if self.lacks_fields:
            return None
        if function == "distinct":
            # A value of a set-aside event may be that of another event, too.
            surely = _union(parts if self.all_used else self.sure) - _union(self.aside)
            return Owed(Fraction(len(surely)), Fraction(len(_union(parts))), is_null=False)
        if function == "count":
            number = sum(part.numbers for part in parts) - sum(part.numbers for part in self.aside)
            dropped = 0 if self.all_used else sum(part.numbers for part in self.free)
            return Owed(Fraction(number - dropped), Fraction(number), is_null=False)
        if function in MODULAR:
            # SEMANTICS 2.34: a sum modulo 2^64 has no order, so a hidden addend makes any value right.
            if not self.all_used:
                return None
            total = _sum(part.sum for part in parts) - _sum(part.sum for part in self.aside)
            numbers = sum(part.numbers for part in parts) - sum(part.numbers for part in self.aside)
            return Owed(total, total, is_null=numbers <= 0, modulus=2**64)
        lowest, highest = _smallest(part.min for part in parts), _largest(part.max for part in parts)
        exact = self.all_used and not self.aside
        is_null = lowest is None or not exact
        if lowest is None or highest is None:
            return Owed(None, None, is_null)
        if function in ("sum", "same"):
            total = _sum(part.sum for part in parts) - _sum(part.sum for part in self.aside)
            free = () if self.all_used else self.free
            return Owed(total - sum(map(_most, free)), total - sum(map(_least, free)), is_null)
        if function == "avg" and exact:
            mean = _sum(part.sum for part in parts) / sum(part.numbers for part in parts)
            return Owed(mean, mean, is_null)
        low, high = Fraction(lowest), Fraction(highest)
        if exact:
            return Owed(low, low, is_null) if function == "min" else Owed(high, high, is_null)
        if not self.aside and function == "min":
            return Owed(low, _fraction(_smallest(part.min for part in self.sure), high), is_null)
        if not self.aside and function == "max":
            return Owed(_fraction(_largest(part.max for part in self.sure), low), high, is_null)
        return Owed(low, high, is_null)


def together(function: Function, stated: Sequence[Decimal | None]) -> Decimal | None:
    """Return what the results of a cell state together. Raises ValueError if averages do not add up."""
    numbers = [number for number in stated if number is not None]
    if not numbers:
        return None
    if function in ADDED or function in MODULAR:
        total = Decimal(0)
        for number in numbers:
            total = EXACT.add(total, number)
        return total
    if function == "avg" and len(set(stated)) > 1:
        raise ValueError(function)
    return max(numbers) if function == "max" else min(numbers)


def wrong_value(
    one: Stated, answered: Answered, stated: Sequence[Decimal | None], declared: Decimal | None = None
) -> str | None:
    """Return what is wrong with a value that the results of a cell state, as a clause; None if it is right, or if what
    is owed is not known. ``declared``: the tolerance; 0: the value is exact; None: doubles may have lost something."""
    tolerance = Decimal(0) if declared is None else declared
    owed = answered.owed(one.function)
    if owed is None:
        return None
    if one.function == "distinct" and len(stated) > 1 and owed.low is not None and owed.high is not None:
        # SEMANTICS 2.29: several results may have values in common.
        numbers = [Fraction(number or 0) for number in stated]
        least, most = max(numbers) - Fraction(tolerance), sum(numbers) + Fraction(tolerance) * len(numbers)
        said = f"{one.name} is {' and '.join(map(_said, stated))} and should be {owed} in all"
        return None if least <= owed.high and most >= owed.low else said
    try:
        found = together(one.function, stated)
    except ValueError:
        return None
    if one.function == "avg" and found is not None:
        # SEMANTICS 2.29: an average is right to as many digits as the result shows.
        exponent = EXACT.normalize(found).as_tuple().exponent
        assert isinstance(exponent, int), "decoded numbers are finite"
        # A quotient of doubles is exact to half a unit of its last of 53 bits.
        of_double = EXACT.multiply(abs(found), _HALF_UNIT)
        tolerance = max(tolerance, of_double, Decimal(1).scaleb(min(exponent, 0)))
    if one.function in ADDED:
        # Each result may be off by the tolerance.
        tolerance = EXACT.multiply(tolerance, Decimal(len(stated)))
    if owed.holds(found, tolerance):
        return None
    if (
        found is not None
        and declared != 0
        and owed.holds(found, Fraction(tolerance) + answered.rounding(one.function, found))
    ):
        return None
    if one.function == "same":
        return f"the results do not repeat {one.name} of the events"
    return f"{one.name} is {_said(found)} and should be {owed}"


def _said(number: Decimal | None) -> str:
    return "null" if number is None else _text(Fraction(number))


def _text(number: Fraction) -> str:
    """Return a number in decimal digits, at most 20 of them after the point."""
    found = EXACT.divide(Decimal(number.numerator), Decimal(number.denominator))
    text = format(EXACT.quantize(found, Decimal(1).scaleb(-20)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _union(parts: Iterable[Aggregate]) -> frozenset[int]:
    return frozenset[int]().union(*(part.hashes for part in parts))


def _sum(numbers: Iterable[Decimal | None]) -> Fraction:
    return sum((Fraction(number) for number in numbers if number is not None), Fraction(0))


def _smallest(numbers: Iterable[Decimal | None]) -> Decimal | None:
    return min((number for number in numbers if number is not None), default=None)


def _largest(numbers: Iterable[Decimal | None]) -> Decimal | None:
    return max((number for number in numbers if number is not None), default=None)


def _fraction(number: Decimal | None, otherwise: Fraction) -> Fraction:
    return otherwise if number is None else Fraction(number)


def _most(part: Aggregate) -> Fraction:
    """Return a bound that the sum of any of these events does not exceed."""
    if part.max is None or part.max <= 0 or part.min is None:
        return Fraction(0)
    return Fraction(part.sum or 0) if part.min >= 0 else part.numbers * Fraction(part.max)


def _least(part: Aggregate) -> Fraction:
    """Return a bound that the sum of any of these events does not fall below."""
    if part.min is None or part.min >= 0 or part.max is None:
        return Fraction(0)
    return Fraction(part.sum or 0) if part.max <= 0 else part.numbers * Fraction(part.min)


def wrong_cells(
    values: Values,
    tolerances: Mapping[str, Decimal],
    cells: Sequence[int],
    answered: Callable[[int, int], Answered],
    stated: Callable[[int, int], Sequence[Decimal | None]],
) -> dict[int, str]:
    """Return the cells of which a value is wrong, with what is wrong. ``answered``: the events of a cell, with the
    aggregate of the field at an index of `Values.paths`. ``stated``: what its results state at an index of
    `Values.stated`."""
    found: dict[int, str] = {}
    for cell in cells:
        clauses: list[str | None] = []
        lacks_earlier = False
        for i, one in enumerate(values.stated):
            owed = answered(cell, one.place)
            # SEMANTICS 2.36: a tuple has the fields before it, so a record without one of them has the tuple of
            # another event.
            lacks_earlier |= one.function == "same" and owed.lacks_fields
            if not (one.function == "same" and lacks_earlier):
                clauses.append(wrong_value(one, owed, stated(cell, i), tolerances.get(one.name)))
        if wrong := "; ".join(filter(None, clauses)):
            found[cell] = wrong
    return found
