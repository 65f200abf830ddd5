"""The ids of a cell's events that explain why sums modulo 2^64 over ids differ (SEMANTICS 2.34)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from validator.codecs.digests import hashes_of, signed
from validator.model.arrays import Bools, Ints
from validator.model.stated_values import Hash

NAMED_MOST: Final = 2
"""Most events whose ids follow from a number, a sum and a sum of squares."""


@dataclass(frozen=True)
class Surplus:
    """How much more results and set-aside records have than the events: number, sum and sum of squares modulo 2^64.
    ``squares``: None if results do not state them."""

    events: int
    total: int
    squares: int | None


@dataclass(frozen=True)
class IdsOfCell:
    """The ids of a cell's events, each as often as it was sent, and the ``numbers`` that are summed up."""

    integers: Ints
    texts: pa.Array
    numbers: Ints

    @classmethod
    def of(cls, integers: Ints, texts: pa.Array, kind: Hash | None) -> IdsOfCell | None:
        """Return the ids; None if a text is not an integer, and is not hashed."""
        if kind is not None:
            named = pa.concat_arrays([pa.array(integers).cast(pa.string()), texts])
            return cls(integers, texts, hashes_of(named, kind))
        try:
            parsed = [signed(int(text)) for text in texts.to_pylist()]
        except ValueError:
            return None
        return cls(integers, texts, np.concatenate([integers, np.array(parsed, dtype=np.int64)]))

    def fit(self, total: int) -> bool:
        """Whether these are the ids whose sum modulo 2^64 is ``total``: results may state sums of another field."""
        return signed(int(self.numbers.sum()) - total) == 0

    def explaining(self, surplus: Surplus) -> tuple[str, ...]:
        """Return the one or two ids of lost events (`Surplus.events` below 0) or repeated ones (above), or of one lost
        and one repeated event. Empty if there is no such explanation, or more than one."""
        distinct, times = np.unique(self.numbers, return_counts=True)
        sign, total = int(np.sign(surplus.events)), np.int64(signed(surplus.total))
        squares = None if surplus.squares is None else np.int64(signed(surplus.squares))
        with np.errstate(over="ignore"):
            if abs(surplus.events) == 1:
                fit = distinct == sign * total
                if squares is not None:
                    fit &= distinct * distinct == sign * squares
                return self._named([distinct[fit]])
            if abs(surplus.events) > NAMED_MOST or squares is None:
                return ()
            # SEMANTICS 2.34: a sum and a sum of squares have two unknowns.
            others = sign * total - distinct if sign else distinct + total
            fit = _are_in(others, distinct)
            if sign:
                fit &= (distinct * distinct + others * others == sign * squares) & (distinct <= others)
                fit &= (distinct < others) | (times > 1) | (sign > 0)
            else:
                fit &= (others * others - distinct * distinct == squares) & (distinct != others)
            return self._named([distinct[fit], others[fit]])

    def _named(self, found: Sequence[Ints]) -> tuple[str, ...]:
        """Return the ids of numbers. ``found``: the first number of each explanation, and perhaps the second."""
        if len(found[0]) != 1:
            return ()
        names = [{self._name(i) for i in np.flatnonzero(self.numbers == part[0]).tolist()} for part in found]
        # Different ids may have the same hash.
        return tuple(name for some in names for name in some) if all(len(some) == 1 for some in names) else ()

    def _name(self, at: int) -> str:
        integers = len(self.integers)
        return str(self.integers[at]) if at < integers else str(self.texts[at - integers].as_py())


def _are_in(numbers: Ints, ordered: Ints) -> Bools:
    at = np.minimum(np.searchsorted(ordered, numbers), max(len(ordered) - 1, 0))
    found: Bools = ordered[at] == numbers if len(ordered) else np.zeros(0, dtype=np.bool_)
    return found
