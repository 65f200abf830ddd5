"""The values that results state about the events of their cell (evidence `values`, SEMANTICS 2.23, 2.29)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

Function = Literal["sum", "min", "max", "avg", "count"]
FUNCTIONS: Final[tuple[Function, ...]] = ("sum", "min", "max", "avg")
"""The aggregates of a field that is a number."""
OF_FIELDS: Final[tuple[Function, ...]] = ("count", *FUNCTIONS)
"""The aggregates of a field of the events. `count` is the number of events in which it is not null."""
ADDED: Final[frozenset[Function]] = frozenset({"sum", "count"})
"""The aggregates that add up over events and results."""
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
class Values:
    """What results state about the events of a cell.

    ``count_name``: name of the number of events; None if results do not state it. ``stated``: the other values.
    ``paths``: the fields of the events that these depend on. ``present``: the indexes of those that are only counted:
    such a field is 1 where it is not null.
    """

    count_name: str | None = None
    stated: tuple[Stated, ...] = ()
    paths: tuple[str, ...] = ()
    present: frozenset[int] = frozenset()

    @classmethod
    def of(cls, aggregates: Mapping[str, str]) -> Values:
        """Return what results state, by the names and texts of `oracle.values`."""
        parts = {name: OF_FIELD.fullmatch(text) for name, text in aggregates.items()}
        found = {name: (cast("Function", part[1]), part[2]) for name, part in parts.items() if part is not None}
        fields = list(dict.fromkeys((path, function == "count") for function, path in found.values()))
        return cls(
            next((name for name, part in parts.items() if part is None), None),
            tuple(
                Stated(name, function, fields.index((path, function == "count")))
                for name, (function, path) in found.items()
            ),
            tuple(path for path, _ in fields),
            frozenset(i for i, (_, is_counted) in enumerate(fields) if is_counted),
        )

    @property
    def add_up(self) -> bool:
        """Whether sums show that a cell is right: its results state the number of events, and else only sums."""
        return self.count_name is not None and all(one.function in ADDED for one in self.stated)


NO_VALUES: Final = Values()
"""Results state no value."""
