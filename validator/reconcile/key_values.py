"""The aggregates of the fields of each key's events, and what its newest result states about them (SEMANTICS 2.29).

They are exact numbers in columns of cells (`validator.reconcile.exact_numbers`), so a batch costs as much as it has
keys, and a key as much as it has aggregates, whatever the number of its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from validator.model.arrays import Bools, Ints, field, ints, listed, one_array
from validator.model.stated_values import EXACT, MODULAR, Function, Stated, Values
from validator.reconcile.exact_numbers import PARTS, added, negated, number_of, order_of, parts_of
from validator.reconcile.values import Aggregate, Answered, wrong_value

_SIZES: Final = "sizes"
"""The sum of absolute numbers, which bounds what doubles lose (SEMANTICS 2.29)."""
_COUNTED: Final[tuple[Function, ...]] = ("count", *MODULAR)
_NEEDED: Final[dict[Function, tuple[str, ...]]] = {
    "min": ("min",),
    "max": ("max",),
    "sum": ("sum", _SIZES),
    "avg": ("sum", _SIZES),
    **dict.fromkeys(_COUNTED, ("sum",)),
}
"""Function of a stated value -> the aggregates on which it depends, first the one that is its value."""
_PLACES: Final = 38
"""Decimal places of `AMOUNT`."""


class CellColumns(Protocol):
    """What this fold reads and writes of `validator.reconcile.cells.Cells`."""

    def __getitem__(self, name: str) -> Ints: ...
    def array(self, name: str) -> Ints:
        """Return a column as a view to be written to."""

    def put(self, name: str, rows: Ints | slice, values: Ints | int) -> None:
        """Write ``values`` to ``rows`` of a column."""


def columns_of(values: Values) -> list[str]:
    """Return the names of the columns; each is 0 at first."""
    found = [name for place, kind in _kept(values) for name in (*_parts(f"of_{place}_{kind}"), f"of_{place}_numbers")]
    found += [name for i in range(len(values.stated)) for name in (*_parts(f"said_{i}"), f"said_{i}_known")]
    return list(dict.fromkeys(found))


def _kept(values: Values) -> list[tuple[int, str]]:
    return list(dict.fromkeys((one.place, kind) for one in values.stated for kind in _NEEDED[one.function]))


def _parts(name: str) -> list[str]:
    return [f"{name}_{i}" for i in range(PARTS)]


def fold_events(cells: CellColumns, rows: Ints, facts: pa.Table, values: Values, signs: Ints) -> None:
    """Fold in fact rows of events. ``rows``: their cells. ``signs``: -1 for rows of events that are removed, else 1; no
    minimum or maximum follows from these."""
    lists = one_array(facts["aggregates"])
    parents, items = listed(lists)
    places = np.arange(len(items)) - np.searchsorted(parents, parents)
    for place in range(len(values.paths)):
        mine = np.flatnonzero(places == place)
        some, of, sign = items.take(pa.array(mine)), rows[parents[mine]], signs[parents[mine]]
        numbers = ints(field(some, "count"), 0) * sign
        for kind in (kind for at, kind in _kept(values) if at == place):
            parts, known = parts_of(_sizes(some) if kind == _SIZES else field(some, kind))
            chosen = [part[known] for part in parts]
            name = f"of_{place}_{kind}"
            if kind == _SIZES:
                _add(cells, name, of[known], chosen)
            elif kind == "sum":
                opposite, is_less = negated(chosen), sign[known] < 0
                signed = [np.where(is_less, *pair) for pair in zip(opposite, chosen, strict=True)]
                _add(cells, name, of[known], signed)
            else:
                _extreme(cells, name, of[known], chosen, f"of_{place}_numbers", largest=kind == "max")
        np.add.at(cells.array(f"of_{place}_numbers"), of, numbers)


def _sizes(aggregates: pa.StructArray) -> pa.Array:
    """Return, as texts, a bound on the sum of the absolute numbers of each aggregate; null if it has no number."""
    sums, least, most = (field(aggregates, name) for name in ("sum", "min", "max"))
    is_mixed = pc.and_(pc.starts_with(least, "-"), pc.invert(pc.starts_with(most, "-")))
    is_mixed = pc.fill_null(is_mixed, fill_value=False)
    # The others have the absolute number of their sum.
    mixed = [_size(one) for one in aggregates.filter(is_mixed).to_pylist()]
    return pc.replace_with_mask(pc.utf8_ltrim(sums, "-"), is_mixed, pa.array(mixed, pa.string()))


def _size(mixed: Mapping[str, str]) -> str:
    largest = max(Decimal(mixed["max"]), -Decimal(mixed["min"]))
    return format(EXACT.multiply(Decimal(mixed["count"]), largest), "f")


def _add(cells: CellColumns, name: str, rows: Ints, parts: list[Ints]) -> None:
    order = np.argsort(rows, kind="stable")
    rows, parts = rows[order], [part[order] for part in parts]
    # Entries of the same cell are added one after the other: there are few in a batch.
    nth = np.arange(len(rows)) - np.searchsorted(rows, rows)
    for n in range(int(nth.max(initial=-1)) + 1):
        at = np.flatnonzero(nth == n)
        sums = added([cells[part][rows[at]] for part in _parts(name)], [part[at] for part in parts])
        for part, values in zip(_parts(name), sums, strict=True):
            cells.put(part, rows[at], values)


def _extreme(cells: CellColumns, name: str, rows: Ints, parts: list[Ints], numbers: str, *, largest: bool) -> None:
    # What the cells have competes with what is new.
    having = np.unique(rows)
    having = having[cells[numbers][having] > 0]
    every = np.concatenate([rows, having])
    whole = [np.concatenate([part, cells[of][having]]) for part, of in zip(parts, _parts(name), strict=True)]
    order = order_of(every, whole)
    ordered = every[order]
    ends = ordered[1:] != ordered[:-1]
    best = order[np.append(ends, True) if largest else np.append(True, ends)] if len(order) else order
    for of, part in zip(_parts(name), whole, strict=True):
        cells.put(of, every[best], part[best])


def note_stated(cells: CellColumns, rows: Ints, facts: pa.Table, values: Values) -> None:
    """Note what the newest result of each of these fact rows states. ``rows``: their cells, each once."""
    parents, claims = listed(facts["results"])
    is_last = ints(field(claims, "offset")) == ints(facts["last_offset"])[parents]
    claims, rows = claims.filter(pa.array(is_last)), rows[parents[is_last]]
    width = len(values.stated)
    items = field(claims, "values").flatten()
    for i in range(width):
        parts, known = parts_of(items.take(pa.array(np.arange(len(claims)) * width + i)))
        for name, part in zip(_parts(f"said_{i}"), parts, strict=True):
            cells.put(name, rows, part)
        cells.put(f"said_{i}_known", rows, known.astype(np.int64))


class Columns(Protocol):
    """What is compared of `validator.reconcile.cells.Columns`."""

    def __getitem__(self, name: str) -> Ints: ...


def wrong_values(
    cells: Columns, chosen: Bools, values: Values, tolerances: Mapping[str, Decimal], *, loses: bool
) -> dict[int, str]:
    """Return those of the ``chosen`` cells whose newest result states another value than all events of the key give,
    with what is wrong. ``loses``: sums may lack what doubles lose."""
    found: dict[int, list[str]] = {}
    rows = np.flatnonzero(chosen)
    for i, one in enumerate(values.stated):
        suspects = rows[~_are_equal(cells, rows, i, one)]
        for row, clause in _wrong(cells, suspects, i, one, tolerances.get(one.name), loses=loses):
            found.setdefault(row, []).append(clause)
    return {row: "; ".join(clauses) for row, clauses in found.items()}


def _are_equal(cells: Columns, rows: Ints, i: int, one: Stated) -> Bools:
    if one.function == "avg":
        return np.zeros(len(rows), dtype=np.bool_)
    has_numbers = cells[f"of_{one.place}_numbers"][rows] > 0
    same: Bools = has_numbers == (cells[f"said_{i}_known"][rows] == 1)
    kind = _NEEDED[one.function][0]
    for owed, said in zip(_parts(f"of_{one.place}_{kind}"), _parts(f"said_{i}"), strict=True):
        same &= ~has_numbers | (cells[owed][rows] == cells[said][rows])
    return same


def _wrong(
    cells: Columns, rows: Ints, i: int, one: Stated, tolerance: Decimal | None, *, loses: bool
) -> Iterator[tuple[int, str]]:
    if not len(rows):
        return
    numbers, events = (cells[name][rows].tolist() for name in (f"of_{one.place}_numbers", "expected_count"))
    kind, *further = _NEEDED[one.function]
    owed, said = _numbers(cells, f"of_{one.place}_{kind}", rows), _numbers(cells, f"said_{i}", rows)
    sizes = _numbers(cells, f"of_{one.place}_{_SIZES}", rows) if further and loses else [Decimal(0)] * len(rows)
    known = cells[f"said_{i}_known"][rows].tolist()
    for at, row in enumerate(rows.tolist()):
        number = owed[at] if numbers[at] > 0 else None
        # Only what the function needs is kept; the others stand in.
        aggregate = Aggregate(events[at], numbers[at], number, number, number, sizes=sizes[at])
        clause = wrong_value(
            one, Answered([aggregate], [], [], all_used=True), [said[at] if known[at] else None], tolerance
        )
        if clause is not None:
            yield row, clause


def _numbers(cells: Columns, name: str, rows: Ints) -> list[Decimal]:
    parts = zip(*(cells[part][rows].tolist() for part in _parts(name)), strict=True)
    return [EXACT.scaleb(Decimal(number_of(list(of_row))), -_PLACES) for of_row in parts]
