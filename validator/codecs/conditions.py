"""A condition on one field of an event, decided for one value or, with Arrow, for a column. Both must agree.

The rule (`validator.codecs.one_record`) finds one value and returns its text. If a value of a column cannot be decided
with certainty, it is unknown, and its record is left to the rule.

Functions import the array libraries: reading a configuration with a condition needs none of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from validator.model.arrays import Bools, Ints

_LARGEST: Final = 2**63 - 1
_SMALLEST: Final = -(2**63)
_SAFE: Final = 1e300
"""A double below this and above its inverse comes from a number that the rule accepts."""


@dataclass(frozen=True)
class Condition:
    """Holds if the canonical text of the field at ``path`` is in ``one_of``, or with ``is_negated`` if it is not. If
    ``one_of`` is empty, it holds if the field is a number that is at least ``at_least`` and less than ``below``.

    ``skips_others``: the pipeline skips events for which it does not hold before it reads their other fields.
    """

    path: str
    one_of: frozenset[str] = frozenset()
    at_least: Decimal | None = None
    below: Decimal | None = None
    is_negated: bool = False
    skips_others: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether the field must be a number."""
        return not self.one_of

    def holds(self, text: str) -> bool:
        """Return whether the condition holds for a value with this canonical text (of a number if `is_numeric`)."""
        if not self.is_numeric:
            return (text in self.one_of) is not self.is_negated
        number = Decimal(text)
        return (self.at_least is None or number >= self.at_least) and (self.below is None or number < self.below)

    def holds_in(self, column: pa.Array, integers: Callable[[pa.Array], tuple[Ints, Bools]]) -> tuple[Bools, Bools]:
        """Return for each value whether the condition holds, and whether that is certain.

        ``integers``: returns the canonical 64-bit integers of a column, and which values are such integers.
        """
        import numpy as np
        import pyarrow as pa

        if not self.is_numeric:
            among, certain = self._in_doubles(column) if pa.types.is_floating(column.type) else self._among(column)
            return among != self.is_negated, certain
        if pa.types.is_floating(column.type):
            return self._in_doubles(column)
        if pa.types.is_boolean(column.type):
            return np.zeros(len(column), dtype=np.bool_), np.zeros(len(column), dtype=np.bool_)
        found, known = integers(column)
        holds = np.ones(len(found), dtype=np.bool_)
        if self.at_least is not None:
            holds &= _from_on(found, math.ceil(self.at_least))
        if self.below is not None:
            holds &= ~_from_on(found, math.ceil(self.below))
        return holds, known

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
            return np.zeros(len(values), dtype=np.bool_), certain & ~np.isin(values, list(map(_double, self.one_of)))
        holds = np.ones(len(values), dtype=np.bool_)
        if self.at_least is not None:
            holds &= values > float(self.at_least)
            certain &= values != float(self.at_least)
        if self.below is not None:
            holds &= values < float(self.below)
            certain &= values != float(self.below)
        return holds, certain


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
