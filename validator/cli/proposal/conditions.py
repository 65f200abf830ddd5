"""Conditions that may decide which events a pipeline reads: those that the sampled results explain."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, Final

from validator.cli.proposal.columns import Columns
from validator.cli.proposal.matches import KeyField, Named
from validator.cli.proposal.times import Time
from validator.settings.formats.guesses import ENOUGH

_VALUES_MOST: Final = 20
"""Values that a condition lists."""
_PART_MOST: Final = 40
"""Characters of a text that is looked for within others."""
_SHORTEST_MOST: Final = 500
"""Characters of the shortest of the texts within which it is looked for."""
_TEXTS_FIRST: Final = 20
"""Texts that a part is looked for in before all others."""
_Chosen = tuple[str, frozenset[str | None]]
"""A field, and its values in the events that are read."""


def common_part(these: Sequence[str], those: Sequence[str]) -> str | None:
    """Return the shortest text that is in each of ``these`` and in none of ``those``."""
    shortest = min(these, key=len)
    if len(shortest) > _SHORTEST_MOST:
        return None
    first = these[:_TEXTS_FIRST]
    starts: Sequence[int] = range(len(shortest))
    for length in range(1, _PART_MOST + 1):
        # A text is in all of these only if its beginning is.
        parts = {at: shortest[at : at + length] for at in starts if at + length <= len(shortest)}
        common = {part for part in set(parts.values()) if all(part in text for text in first)}
        for part in sorted(common):
            if not any(part in text for text in those) and all(part in text for text in these):
                return part
        starts = [at for at, part in parts.items() if part in common]
    return None


def conditions_of_sides(
    inputs: Sequence[Columns], named: Named, keys: Sequence[KeyField], at: Sequence[Time], start: Time, size: int
) -> dict[str, Any] | None:
    """Return the conditions of the two inputs of an inner join, with which events that have a partner are in results:
    as in the file; empty if none is needed. None: no conditions explain the events in no result."""
    starts = [it for link in named.links if (it := start.instants[link.result]) is not None]
    cells = [
        _cells(one, keys, source, at[source], (min(starts), max(starts)), size) for source, one in enumerate(inputs)
    ]
    linked = [{link.event for link in named.links if link.source == source} for source in range(2)]
    options = [[None, *_few_values(one, linked[source])] for source, one in enumerate(inputs)]
    for chosen in product(*options):
        passed = [_passed(*three) for three in zip(inputs, cells, chosen, strict=True)]
        both = set(passed[0].values()) & set(passed[1].values())
        owed = [{row for row, cell in of.items() if cell in both} for of in passed]
        if sum(len(of - its) for of, its in zip(owed, linked, strict=True)) <= (1 - ENOUGH) * sum(map(len, owed)):
            where = _where(inputs, chosen) if any(chosen) else {}
            if where is not None:
                return where
    return None


def _cells(
    one: Columns, keys: Sequence[KeyField], source: int, at: Time, bounds: tuple[int, int], size: int
) -> dict[int, tuple[object, ...]]:
    """Row of an event -> its window and key. The results of windows outside of ``bounds`` may be older than the
    sample."""
    columns = [one.texts[key.events[source]] for key in keys]
    first, last = bounds
    return {
        row: (instant - (instant - first) % size, *values)
        for row, (instant, *values) in enumerate(zip(at.instants, *columns, strict=True))
        if instant is not None and first <= instant < last + size
    }


def _passed(
    one: Columns, cells: Mapping[int, tuple[object, ...]], chosen: _Chosen | None
) -> Mapping[int, tuple[object, ...]]:
    if chosen is None:
        return cells
    path, values = chosen
    return {row: cell for row, cell in cells.items() if one.texts[path][row] in values}


def _few_values(one: Columns, rows: set[int]) -> Iterator[_Chosen]:
    """Yield the fields of which the ``rows`` have few values, and other events others."""
    for path, column in one.texts.items():
        values = frozenset(column[row] for row in rows)
        if None not in values and len(values) <= _VALUES_MOST and 2 * len(values) <= len(rows) and set(column) - values:
            yield path, values


def _where(inputs: Sequence[Columns], chosen: Sequence[_Chosen | None]) -> dict[str, Any] | None:
    """Both conditions as one. Each side is known by a field that the other one lacks; None: one side has no such."""
    parts: list[dict[str, Any]] = []
    for source, one in enumerate(chosen):
        others = inputs[1 - source].texts
        own = _only_here(inputs[source], others)
        if one is not None and one[0] not in others:
            own = one[0]
        if own is None:
            return None
        is_known = {"path": own, "exists": True}
        if one is None:
            parts.append(is_known)
        else:
            path, values = one
            parts.append({"all": [is_known, {"path": path, "one_of": sorted(map(str, values))}]})
    return {"any": parts}


def _only_here(one: Columns, others: Collection[str]) -> str | None:
    """A field that all events of ``one`` have, and none of the ``others``. An event without it would be left out."""
    here = (path for path in one.texts if path not in others and not path.startswith("$"))
    return next((path for path in here if one.share(path) == 1), None)
