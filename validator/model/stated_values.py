"""The values that results state about the events of their cell (evidence `values`, SEMANTICS 2.23, 2.29)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Final, Literal, NamedTuple, Self, cast

Function = Literal["sum", "min", "max", "avg", "count", "distinct", "sum_mod64", "sum_squares_mod64", "same", "row"]
FUNCTIONS: Final[tuple[Function, ...]] = ("sum", "min", "max", "avg")
"""The aggregates of a field that is a number."""
MODULAR: Final[tuple[Function, ...]] = ("sum_mod64", "sum_squares_mod64")
"""The aggregates modulo 2^64 of a field that is an integer, or of a hash of a field. From those of ids, ids follow."""
OF_FIELDS: Final[tuple[Function, ...]] = ("count", "distinct", *FUNCTIONS, *MODULAR, "same")
"""The aggregates of a field of the events. `count` is the number of events in which it is not null, `distinct` that of
its different values; with `same` a result repeats the field of its one event."""
ADDED: Final[frozenset[Function]] = frozenset({"sum", "count", "same"})
"""The aggregates that add up over events and results. Of `same` hashes add up."""
EXACT: Final = Context(prec=200)
"""The arithmetic of values: sums of decoded numbers have fewer digits."""
PRIMES: Final = (2**31 - 1, 2**31 - 19)
"""The fingerprints of sums are sums modulo these. Sums of 2^32 fact rows fit into 64 bits."""
REVERSED: Final[frozenset[Function]] = frozenset({*ADDED, "avg"})
"""The aggregates from which an event can be removed again."""
RISING: Final[frozenset[Function]] = frozenset({"count", "distinct", "max"})
"""The aggregates that no further event lowers."""
Hash = Literal["crc32", "md5", "xxhash64"]
HASHES: Final[tuple[Hash, ...]] = ("crc32", "md5", "xxhash64")
"""The hashes of a field's text: its CRC-32, the first eight bytes of its MD5 (the highest one first), Spark's
`xxhash64`."""
_OF_FIELD: Final = re.compile(rf"(\w+)\(\s*(?:({'|'.join(HASHES)})\(\s*([^()\s]+)\s*\)|([^()\s]+))\s*\)")


class OfField(NamedTuple):
    """An aggregate of a field, or of a hash of it."""

    function: Function
    hash: Hash | None
    path: str

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Return the aggregate that a text of `oracle.values` names; None if it names none."""
        parts = _OF_FIELD.fullmatch(text)
        if parts is None or parts[1] not in (MODULAR if parts[2] else OF_FIELDS):
            return None
        return cls(cast("Function", parts[1]), cast("Hash | None", parts[2]), parts[3] or parts[4])


class Digest(NamedTuple):
    """How a field becomes the number of which results state the sum modulo 2^64: its hash, if it has one, perhaps
    squared."""

    hash: Hash | None = None
    is_squared: bool = False


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
    """What results state about the events of a cell. A value of the function `row` is the 64-bit hash of a text, from a
    row of a table.

    ``count_name``: name of the number of events; None if results do not state it. ``stated``: the other values.
    ``paths``: the fields of the events that these depend on. ``present``: the indexes of those that are only counted:
    such a field is 1 where it is not null. ``hashed``: those of which only the number of different values counts: such
    a field is the 64-bit hash of its text. ``digests``: the indexes of those whose sums count modulo 2^64, and how.
    ``bounds``: the bounds that values with these names reach in every result. ``of_one``: each result is of one event.
    ``repeated``: the indexes of the fields that it repeats, in ``paths`` and in ``stated``: each is the hash of the
    fields up to it (`validator.codecs.digests.of_prefixes`).
    """

    count_name: str | None = None
    stated: tuple[Stated, ...] = ()
    paths: tuple[str, ...] = ()
    present: frozenset[int] = frozenset()
    hashed: frozenset[int] = frozenset()
    digests: tuple[tuple[int, Digest], ...] = ()
    bounds: tuple[tuple[str, Bound], ...] = ()
    of_one: bool = False
    repeated: tuple[int, ...] = ()

    @classmethod
    def of(cls, aggregates: Mapping[str, str], bounds: Mapping[str, Bound] = {}, *, of_one: bool = False) -> Values:
        """Return what results state, by the names and texts of `oracle.values`, and the bounds of `oracle.having`."""
        found = {name: one for name, text in aggregates.items() if (one := OfField.of(text)) is not None}
        of_fields = {name: (one.path, _read_as(one)) for name, one in found.items()}
        fields = list(dict.fromkeys(of_fields.values()))
        return cls(
            next((name for name in aggregates if name not in found), None),
            tuple(Stated(name, one.function, fields.index(of_fields[name])) for name, one in found.items()),
            tuple(path for path, _ in fields),
            present=frozenset(i for i, (_, kind) in enumerate(fields) if kind == "count"),
            hashed=frozenset(i for i, (_, kind) in enumerate(fields) if kind == "distinct"),
            digests=tuple((i, kind) for i, (_, kind) in enumerate(fields) if isinstance(kind, Digest)),
            bounds=tuple(bounds.items()),
            of_one=of_one,
            repeated=tuple(i for i, (_, kind) in enumerate(fields) if kind == "same"),
        )

    @property
    def sums_of_ids(self) -> tuple[int, int | None] | None:
        """The indexes in `stated` of a sum modulo 2^64, and of the sum of squares of the same field, if there is one.
        None if results state no such sum, or not the number of their events."""
        read_as = dict(self.digests)
        found = {
            (one.function, self.paths[one.place], read_as[one.place].hash): i
            for i, one in enumerate(self.stated)
            if one.function in MODULAR
        }
        for (function, path, kind), i in found.items():
            if function == "sum_mod64" and self.count_name is not None:
                return i, found.get(("sum_squares_mod64", path, kind))
        return None

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
    def show_number(self) -> bool:
        """Whether results show how many events they used."""
        return self.count_name is not None or self.of_one

    @property
    def add_up(self) -> bool:
        """Whether sums show that a cell is right: its results show the number of events, and else state only sums."""
        return self.show_number and all(one.function in ADDED for one in self.stated)


def _read_as(one: OfField) -> Literal["count", "distinct", "same", "number"] | Digest:
    if one.function in MODULAR:
        return Digest(one.hash, is_squared=one.function == "sum_squares_mod64")
    return one.function if one.function in ("count", "distinct", "same") else "number"


NO_VALUES: Final = Values()
"""Results state no value."""
