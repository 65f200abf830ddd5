"""The values that results state about the events of their cell (evidence `values`, SEMANTICS 2.23, 2.29)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Final, Literal, cast

Function = Literal["sum", "min", "max", "avg", "count", "distinct"]
FUNCTIONS: Final[tuple[Function, ...]] = ("sum", "min", "max", "avg")
"""The aggregates of a field that is a number."""
OF_FIELDS: Final[tuple[Function, ...]] = ("count", "distinct", *FUNCTIONS)
"""The aggregates of a field of the events. `count` is the number of events in which it is not null, `distinct` that of
its different values."""
ADDED: Final[frozenset[Function]] = frozenset({"sum", "count"})
"""The aggregates that add up over events and results."""
RISING: Final[frozenset[Function]] = frozenset({"count", "distinct", "max"})
"""The aggregates that no further event lowers."""
OF_FIELD: Final = re.compile(r"(\w+)\(\s*([^()\s]+)\s*\)")
"""An aggregate of a field: its function, and the path of the field."""


@dataclass(frozen=True)
class Stated:
    """A value that results state: its ``name`` and ``function``. ``place``: the index of its field of the events in
    `Values.paths`."""

    name: str
    function: Function
    place: int


@dataclass(frozen=True)
class Bound:
    """A lower bound on a value: without it the pipeline writes no result. ``is_above``: the bound itself is too low.
    ``tolerance``: how far the value that a result states may be off."""

    least: Decimal
    is_above: bool = False
    tolerance: Decimal = Decimal(0)

    def holds(self, number: Decimal | Fraction | int) -> bool:
        """Return whether a number reaches it."""
        return number > self.least if self.is_above else number >= self.least

    def may_hold(self, stated: Decimal | int) -> bool:
        """Return whether the value for which a result states this number may reach it."""
        return self.holds(stated) or (bool(self.tolerance) and self.holds(Fraction(stated) + Fraction(self.tolerance)))

    def surely_holds(self, number: Decimal | Fraction) -> bool:
        """Return whether an engine whose value may be off finds that this number reaches it."""
        return self.holds(Fraction(number) - Fraction(self.tolerance) if self.tolerance else number)

    @property
    def least_integer(self) -> int:
        """The smallest integer that reaches it."""
        return math.floor(self.least) + 1 if self.is_above else math.ceil(self.least)

    def __str__(self) -> str:
        return f"{'above' if self.is_above else 'at least'} {self.least}"


@dataclass(frozen=True)
class Values:
    """What results state about the events of a cell.

    ``count_name``: name of the number of events; None if results do not state it. ``stated``: the other values.
    ``paths``: the fields of the events that these depend on. ``present``: the indexes of those that are only counted:
    such a field is 1 where it is not null. ``hashed``: those of which only the number of different values counts: such
    a field is the 64-bit hash of its text. ``bounds``: the bounds that values with these names reach in every result.
    """

    count_name: str | None = None
    stated: tuple[Stated, ...] = ()
    paths: tuple[str, ...] = ()
    present: frozenset[int] = frozenset()
    hashed: frozenset[int] = frozenset()
    bounds: tuple[tuple[str, Bound], ...] = ()

    @classmethod
    def of(cls, aggregates: Mapping[str, str], bounds: Mapping[str, Bound] = {}) -> Values:
        """Return what results state, by the names and texts of `oracle.values`, and the bounds of `oracle.having`."""
        parts = {name: OF_FIELD.fullmatch(text) for name, text in aggregates.items()}
        found = {name: (cast("Function", part[1]), part[2]) for name, part in parts.items() if part is not None}
        read_as = {function: function if function in ("count", "distinct") else "number" for function in OF_FIELDS}
        fields = list(dict.fromkeys((path, read_as[function]) for function, path in found.values()))
        return cls(
            next((name for name, part in parts.items() if part is None), None),
            tuple(
                Stated(name, function, fields.index((path, read_as[function])))
                for name, (function, path) in found.items()
            ),
            tuple(path for path, _ in fields),
            present=frozenset(i for i, (_, kind) in enumerate(fields) if kind == "count"),
            hashed=frozenset(i for i, (_, kind) in enumerate(fields) if kind == "distinct"),
            bounds=tuple(bounds.items()),
        )

    def bound_of(self, name: str) -> Bound | None:
        """Return the bound on a value."""
        return dict(self.bounds).get(name)

    def place_in_side(self, place: int) -> tuple[str, int]:
        """Return the side of a join whose events have the field at an index of ``paths``, and its index in `of_side`.
        Paths begin with the side."""
        side = self.paths[place].partition(".")[0]
        return side, self._places_of(side).index(place)

    def of_side(self, side: str) -> Values:
        """Return what depends on the fields of one side of a join. Their paths then lack the name of the side."""
        places = self._places_of(side)
        return replace(
            self,
            stated=tuple(replace(one, place=places.index(one.place)) for one in self.stated if one.place in places),
            paths=tuple(self.paths[place].partition(".")[2] for place in places),
            present=frozenset(i for i, place in enumerate(places) if place in self.present),
            hashed=frozenset(i for i, place in enumerate(places) if place in self.hashed),
        )

    def _places_of(self, side: str) -> list[int]:
        return [i for i, path in enumerate(self.paths) if path.partition(".")[0] == side]

    @property
    def add_up(self) -> bool:
        """Whether sums show that a cell is right: its results state the number of events, and else only sums."""
        return self.count_name is not None and all(one.function in ADDED for one in self.stated)


NO_VALUES: Final = Values()
"""Results state no value."""
