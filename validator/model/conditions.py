"""Conditions on the fields of a record, decided for one record or, with Arrow, for columns. Both must agree.

The rule (`validator.codecs.one_record`) finds one value and returns its text. If a value of a column cannot be decided
with certainty, it is unknown, and its record is left to the rule.

Functions import the array libraries: reading a configuration with a condition needs none of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Final, Literal, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.model.arrays import Bools, Ints

_LARGEST: Final = 2**63 - 1
_SMALLEST: Final = -(2**63)
_SAFE: Final = 1e300
"""A double below this and above its inverse comes from a number that the rule accepts."""

Truth = TypeVar("Truth", bool, "Bools")
Others = Literal["unowed", "skipped", "ignored"]


@dataclass(frozen=True)
class Comparison:
    """Holds if the canonical text of the field at ``path`` is in ``one_of``, or with ``is_negated`` if it is not; if
    ``pattern`` is found in this text; if the field is present and not null, or with ``exists`` false if it is not; or
    if it is a number within the bounds.
    """

    path: str
    one_of: frozenset[str] = frozenset()
    at_least: Decimal | None = None
    above: Decimal | None = None
    at_most: Decimal | None = None
    below: Decimal | None = None
    pattern: str | None = None
    exists: bool | None = None
    is_negated: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether the field must be a number."""
        return not self.one_of and self.pattern is None and self.exists is None

    def holds(self, text: str) -> bool:
        """Return whether it holds for a value with this canonical text (of a number if `is_numeric`)."""
        if self.pattern is not None:
            return re.search(self.pattern, text) is not None
        if not self.is_numeric:
            return (text in self.one_of) is not self.is_negated
        number = Decimal(text)
        return (
            (self.at_least is None or number >= self.at_least)
            and (self.above is None or number > self.above)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )

    def holds_in(self, column: pa.Array, integers: Callable[[pa.Array], tuple[Ints, Bools]]) -> tuple[Bools, Bools]:
        """Return for each value whether the condition holds, and whether that is certain.

        ``integers``: returns the canonical 64-bit integers of a column, and which values are such integers.
        """
        import numpy as np
        import pyarrow as pa

        nowhere = np.zeros(len(column), dtype=np.bool_)
        if self.exists is not None:
            return np.full(len(column), self.exists), _valid(column)
        if pa.types.is_timestamp(column.type) or pa.types.is_binary(column.type):
            # The rule's text of a typed time is its number, and that of bytes their Base64 text.
            return nowhere, nowhere
        if pa.types.is_floating(column.type):
            return (nowhere, nowhere) if self.pattern is not None else self._in_doubles(column)
        if self.pattern is not None:
            return self._found(column)
        if not self.is_numeric:
            among, certain = self._among(column)
            return among != self.is_negated, certain
        if pa.types.is_boolean(column.type):
            return nowhere, nowhere
        found, known = integers(column)
        holds = np.ones(len(found), dtype=np.bool_)
        for bound in _least(self.at_least, self.above):
            holds &= _from_on(found, bound)
        for bound in _least(self.below, self.at_most):
            holds &= ~_from_on(found, bound)
        return holds, known

    def _found(self, column: pa.Array) -> tuple[Bools, Bools]:
        """Each text is tried once: Arrow's regular expressions are others."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        encoded = column.cast(pa.string()).dictionary_encode()
        each = np.array([*map(self.holds, encoded.dictionary.to_pylist()), False])
        codes = pc.fill_null(encoded.indices, len(each) - 1).to_numpy(zero_copy_only=False)
        return each[codes], _valid(column)

    def _among(self, column: pa.Array) -> tuple[Bools, Bools]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_integer(column.type):
            wanted = pa.array([number for text in self.one_of for number in _integer(text)], column.type)
        else:
            column = column.cast(pa.string())
            wanted = pa.array(sorted(self.one_of), pa.string())
        holds = pc.is_in(column, value_set=wanted)
        return np.asarray(holds.to_numpy(zero_copy_only=False), dtype=np.bool_), _valid(column)

    def _in_doubles(self, column: pa.Array) -> tuple[Bools, Bools]:
        """If the doubles of a number and of a bound differ, their order is that of the number and the bound."""
        import numpy as np
        import pyarrow.compute as pc

        values = pc.fill_null(column, 0.0).to_numpy(zero_copy_only=False)
        size = np.abs(values)
        certain = _valid(column) & (size < _SAFE) & (size > 1 / _SAFE)
        if not self.is_numeric:
            certain &= ~np.isin(values, list(map(_double, self.one_of)))
            return np.full(len(values), self.is_negated), certain
        holds = np.ones(len(values), dtype=np.bool_)
        for bound in _given(self.at_least, self.above):
            holds &= values > bound
            certain &= values != bound
        for bound in _given(self.at_most, self.below):
            holds &= values < bound
            certain &= values != bound
        return holds, certain


@dataclass(frozen=True)
class Combined:
    """Holds if all of its parts hold, or one of them if not ``every``; with ``is_negated`` if that is not so."""

    parts: tuple[Comparison | Combined, ...]
    every: bool = True
    is_negated: bool = False


@dataclass(frozen=True)
class Condition:
    """What must hold for a record that counts.

    ``others``: what an event is for which it does not hold: one that owes nothing (`unowed`); such a one that the
    pipeline skips before it reads its other fields (`skipped`); or not an event (`ignored`).
    """

    root: Comparison | Combined
    others: Others = "unowed"

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Its comparisons, each once."""
        return tuple(dict.fromkeys(_leaves(self.root)))

    def decided(self, of: Callable[[Comparison], tuple[Truth, Truth]]) -> tuple[Truth, Truth]:
        """Return whether it surely holds, and whether it surely does not. ``of``: the same of a comparison.

        As in SQL, a comparison that is not known decides nothing where others decide.
        """
        return _decided(self.root, of)


def _decided(part: Comparison | Combined, of: Callable[[Comparison], tuple[Truth, Truth]]) -> tuple[Truth, Truth]:
    if isinstance(part, Comparison):
        return of(part)
    found = [_decided(each, of) for each in part.parts]
    if part.every:
        true, false = reduce(_both, (one[0] for one in found)), reduce(_either, (one[1] for one in found))
    else:
        true, false = reduce(_either, (one[0] for one in found)), reduce(_both, (one[1] for one in found))
    return (false, true) if part.is_negated else (true, false)


def _both(a: Truth, b: Truth) -> Truth:
    return a & b


def _either(a: Truth, b: Truth) -> Truth:
    return a | b


def _leaves(part: Comparison | Combined) -> Iterator[Comparison]:
    if isinstance(part, Comparison):
        yield part
        return
    for each in part.parts:
        yield from _leaves(each)


def _least(from_on: Decimal | None, after: Decimal | None) -> Iterator[int]:
    """Yield the smallest integers that are at least ``from_on``, and above ``after``."""
    if from_on is not None:
        yield math.ceil(from_on)
    if after is not None:
        yield math.floor(after) + 1


def _given(*bounds: Decimal | None) -> list[float]:
    return [float(bound) for bound in bounds if bound is not None]


def _valid(column: pa.Array) -> Bools:
    import numpy as np

    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _from_on(numbers: Ints, bound: int) -> Bools:
    import numpy as np

    if bound > _LARGEST:
        return np.zeros(len(numbers), dtype=np.bool_)
    holds: Bools = numbers >= max(bound, _SMALLEST)
    return holds


def _integer(text: str) -> tuple[int, ...]:
    """Return the 64-bit integer whose canonical text this is, as a tuple; empty if there is none."""
    try:
        number = int(text)
    except ValueError:
        return ()
    return (number,) if str(number) == text and _SMALLEST <= number <= _LARGEST else ()


def _double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
