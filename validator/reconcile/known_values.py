"""What the facts have of values: the aggregates of events and what results state, by cell (SEMANTICS 2.29)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from validator.model import arrays
from validator.model.arrays import Bools, Ints, counts, ints, listed, totals
from validator.model.pair_rules import NUMBERS, PairRule
from validator.model.stated_values import Stated, Values
from validator.oracles.ids import Flags
from validator.reconcile.contributions import INPUT, LATE, OUTPUT, OWES_NOTHING, REJECTED, Gathered, Items, sides_of
from validator.reconcile.joined_values import OfPairs
from validator.reconcile.values import Aggregate, Answered


def standing_for_all(items: Items, flags: Flags) -> Items:
    """Return the entries of the evidence `values` whose results do not state how many events they used."""
    times = items.times
    assert times is not None, "entries without ids have it"
    # SEMANTICS 2.29: the results of a cell together stand for all of its events that the engine has read and that are
    # not set aside. A result of a cell without events stands for one.
    cells = int(items.cell.max(initial=-1)) + 1
    events, aside, unread = (
        counts(items.cell, mine, cells, times)
        for mine in (
            items.side == INPUT,
            (items.side == LATE) | (items.side == REJECTED),
            (items.side == INPUT) & flags.unread,
        )
    )
    is_first = np.zeros(len(items.cell), dtype=np.bool_)
    of_output = np.flatnonzero(items.side == OUTPUT)
    is_first[of_output[np.unique(items.cell[of_output], return_index=True)[1]]] = True
    left = np.maximum(events - unread - aside, 0)[items.cell]
    standing = np.where(events[items.cell] > 0, np.where(is_first, left, 0), 1)
    return replace(items, times=np.where(items.side == OUTPUT, standing, times))


def under_bounds(
    values: Values, gathered: Gathered, items: Items, flags: Flags, size: int, *, drops_late: bool
) -> tuple[Items, Flags]:
    """Return the entries and their flags, in which a cell without results owes nothing if its values may not reach
    the bounds of all results. If they reach the bounds only with events that the engine has not consumed, all
    events of the cell count as unread; if only with events whose answers may be unread, all count as such."""
    # SEMANTICS 2.33: no further event takes one of these values below its bound.
    times = items.times
    assert times is not None, "entries without ids have it"
    of_input, of_aside = items.side == INPUT, (items.side == LATE) | (items.side == REJECTED)
    may_drop = (flags.late | flags.doubtful | flags.elsewhere) & drops_late
    bounded = [(value, bound) for value in values.stated if (bound := values.bound_of(value.name)) is not None]
    known = Known.of(gathered, items, values, size) if bounded else None
    unanswered = np.bincount(items.cell[_are_answers(items, known, values)], minlength=size) == 0
    unanswered &= np.bincount(items.cell[of_input], minlength=size) > 0

    def reached(sure: Bools) -> Bools:
        found: Bools = unanswered.copy()
        if values.count_name is not None and (bound := values.bound_of(values.count_name)) is not None:
            used, aside = (totals(items.cell[mine], times[mine], size) for mine in (sure, of_aside))
            found &= used - aside >= bound.least_integer
        for value, least in bounded:
            assert known is not None, "values need it"
            for cell in np.flatnonzero(found).tolist():
                number = known.least(cell, value, sure)
                found[cell] = number is not None and least.surely_holds(number)
        return found

    surely = reached(of_input & ~may_drop)
    now = reached(of_input & ~may_drop & ~flags.unread)
    provably = reached(of_input & ~may_drop & ~flags.unread & ~flags.unsure)
    side = np.where(of_input & (unanswered & ~surely)[items.cell], OWES_NOTHING, items.side)
    unread = flags.unread | (of_input & (surely & ~now)[items.cell])
    # SEMANTICS 3.25: without the events that the engine may never have read, the cell may owe nothing.
    unsure = flags.unsure | (of_input & (surely & ~provably)[items.cell])
    return replace(items, side=side), replace(flags, unread=unread, unsure=unsure)


def _are_answers(items: Items, known: Known | None, values: Values) -> Bools:
    """Return which entries are results that state something. A null value that withdraws a result, or that the engine
    writes instead of one (Kafka Streams), does not."""
    assert items.times is not None, "entries without ids have it"
    found: Bools = items.side == OUTPUT
    if values.count_name is not None:
        return found & (items.times > 0)
    assert known is not None, "only values have bounds"
    assert items.source is not None, "entries without ids have it"
    for i in np.flatnonzero(found).tolist():
        found[i] = any(text is not None for text in known.stored[items.source[i]])
    return found


@dataclass(frozen=True)
class Known:
    """What the facts have of the values of compared cells. ``items``: sorted; ``starts``: the first one of each cell.
    ``stored``: as `_stored_values` returns it."""

    items: Items
    starts: Ints
    stored: Sequence[Sequence[Any]]
    hashed: frozenset[int]
    of_copies: bool = False

    @classmethod
    def of(cls, gathered: Gathered, items: Items, values: Values, size: int, *, of_copies: bool = False) -> Known:
        """Return what the facts have. ``of_copies``: they have the fields of each event."""
        starts = np.searchsorted(items.cell, np.arange(size + 1))
        stored = fields_of_copies(gathered, len(values.paths)) if of_copies else _stored_values(gathered)
        return cls(items, starts, stored, values.hashed, of_copies)

    def entries(self, cell: int, *sides: int) -> list[int]:
        """Return the items of a cell on some sides."""
        return [i for i in range(self.starts[cell], self.starts[cell + 1]) if self.items.side[i] in sides]

    def aggregates(self, chosen: Iterable[int], place: int, at: int | None = None) -> list[Aggregate]:
        """Return the aggregates of a field over the events of each of these items. ``at``: its index in their facts, if
        it is another one than in `Values.paths`."""
        times, source = self.items.times, self.items.source
        assert times is not None, "entries without ids have it"
        assert source is not None, "entries without ids have it"
        is_hashed, index = place in self.hashed, place if at is None else at
        if self.of_copies:
            return [Aggregate.of_one(self.stored[source[i]][index], is_hashed=is_hashed) for i in chosen]
        return [Aggregate.of(int(times[i]), self.stored[source[i]][index], is_hashed=is_hashed) for i in chosen]

    def answered(self, cell: int, place: int, may_drop: Bools, *, all_used: bool) -> Answered:
        """Return the events of a cell with the aggregate of the field at an index of `Values.paths`."""
        events = self.entries(cell, INPUT)
        sure = self.aggregates((i for i in events if not may_drop[i]), place)
        free = self.aggregates((i for i in events if may_drop[i]), place)
        return Answered(sure, free, self.aside(cell, place), all_used)

    def answered_pairs(
        self, cell: int, values: Values, place: int, may_drop: Bools, *, all_used: bool, rule: PairRule
    ) -> Answered:
        """Return the events of one side of a join, by what the results of the cell must have used."""
        times, (side, at) = self.items.times, values.place_in_side(place)
        assert times is not None, "entries without ids have it"
        events = self.entries(cell, INPUT)
        mine = [i for i in events if self.items.id[i] == NUMBERS[side]]
        others = [i for i in events if self.items.id[i] != NUMBERS[side]]
        most = int(times[others].sum())
        least = most if all_used else int(times[[i for i in others if not may_drop[i]]].sum())
        # SEMANTICS 2.12: left events make as many pairs with one partner as without.
        all_used &= not (rule.may_lack(side) and times[mine].sum() == 1)
        sure = self.aggregates((i for i in mine if not may_drop[i]), place, at)
        free = self.aggregates((i for i in mine if may_drop[i]), place, at)
        return OfPairs(sure, free, (), all_used, *rule.partners(least, most))

    def aside(self, cell: int, place: int) -> list[Aggregate]:
        """Return the aggregates over the late and rejected records of a cell."""
        return self.aggregates(self.entries(cell, LATE, REJECTED), place)

    def stated(self, cell: int, place: int) -> list[Decimal | None]:
        """Return what the results of a cell state."""
        source = self.items.source
        assert source is not None, "entries without ids have it"
        texts = (self.stored[source[i]][place] for i in self.entries(cell, OUTPUT))
        return [None if text is None else Decimal(text) for text in texts]

    def surplus(self, cell: int, i: int, values: Values) -> tuple[int, int] | None:
        """Return the sum of integers over the events of a cell, and what the value at an index of `Values.stated` and
        the late and rejected records have above it. None if that is not known."""
        place = values.stated[i].place
        events, aside = self.aggregates(self.entries(cell, INPUT), place), self.aside(cell, place)
        given = [number or Decimal(0) for number in (*(one.sum for one in aside), *self.stated(cell, i))]
        if any(one.numbers < one.events for one in (*events, *aside)) or any(number != int(number) for number in given):
            return None
        total = sum(int(one.sum or 0) for one in events)
        return total, sum(map(int, given)) - total

    def least(self, cell: int, value: Stated, sure: Bools) -> Fraction | None:
        """Return a number that a value surely reaches if the engine has used the ``sure`` events; None if it may be
        null."""
        used = self.aggregates((i for i in self.entries(cell, INPUT) if sure[i]), value.place)
        owed = Answered(used, (), self.aside(cell, value.place), all_used=True).owed(value.function)
        return None if owed is None or owed.is_null else owed.low


def _stored_values(gathered: Gathered) -> list[list[Any]]:
    """Return what the facts have for each entry of the evidence `values`: aggregates of fields, or stated values."""
    found: list[list[Any]] = []
    for facts, _ in gathered:
        rows = np.flatnonzero(sides_of(facts) != OUTPUT)
        found += facts["aggregates"].take(pa.array(rows)).to_pylist()
        _, results = listed(facts["results"])
        found += arrays.field(results, "values").to_pylist()
    return found


def fields_of_copies(gathered: Gathered, width: int) -> list[list[Any]]:
    """Return what the facts have for each entry, if they have the ``width`` fields of each event."""
    found: list[list[Any]] = []
    for facts, _ in gathered:
        rows = np.flatnonzero(sides_of(facts) != OUTPUT)
        events = sum(len(listed(facts[name].take(pa.array(rows)))[0]) for name in ("ids", "text_ids"))
        flat = [one for some in facts["aggregates"].take(pa.array(rows)).to_pylist() for one in some or ()]
        found += [flat[i * width : (i + 1) * width] for i in range(events)]
        _, results = listed(facts["results"])
        found += arrays.field(results, "values").to_pylist()
    return found


def ids_of_events(gathered: Gathered, chosen: Ints) -> Iterator[tuple[Ints, pa.Array]]:
    """Return the integer and the textual ids of the events of each ``chosen`` cell; their numbers rise."""
    parts: dict[str, list[tuple[Ints, pa.Array]]] = {"ids": [], "text_ids": []}
    for facts, cell in gathered:
        mine = np.isin(cell, chosen) & (sides_of(facts) == INPUT)
        some, of = facts.filter(pa.array(mine)), cell[mine]
        for name, found in parts.items():
            rows, events = listed(some[name])
            found.append((of[rows], arrays.field(events, "id")))
    columns = []
    for found in parts.values():
        cells, ids = np.concatenate([cells for cells, _ in found]), pa.concat_arrays([ids for _, ids in found])
        order = np.argsort(cells, kind="stable")
        bounds = [np.searchsorted(cells[order], chosen, side=side) for side in ("left", "right")]
        columns.append((ids.take(pa.array(order)), *bounds))
    (integers, starts, ends), (texts, text_starts, text_ends) = columns
    for i in range(len(chosen)):
        named = texts.slice(text_starts[i], text_ends[i] - text_starts[i])
        yield ints(integers.slice(starts[i], ends[i] - starts[i])), named
