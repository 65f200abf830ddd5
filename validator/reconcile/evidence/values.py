"""Results state aggregates of the events that they used, and not which they are (SEMANTICS 2.23 and 2.29)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from validator.codecs.plain_fields import numbers
from validator.model import arrays
from validator.model.arrays import Bools, Ints, counts, ints, listed, one_array, totals
from validator.model.pair_rules import NUMBERS, PairRule
from validator.model.stated_values import ADDED, Stated
from validator.model.stated_values import Values as StatedValues
from validator.oracles.ids import Flags, IdVerdicts
from validator.reconcile.contributions import (
    INPUT,
    LATE,
    OUTPUT,
    OWES_NOTHING,
    REJECTED,
    Comparison,
    Gathered,
    Items,
    TopicPartition,
    partition_numbers,
    partitions_of,
    sides_of,
)
from validator.reconcile.evidence.seam import (
    VIOLATIONS_KEPT,
    EventIds,
    Evidence,
    Examples,
    StatedSums,
    WrongValues,
    columns_of_lists,
)
from validator.reconcile.joined_values import OfPairs
from validator.reconcile.named_by_sums import NAMED_MOST, IdsOfCell, Surplus
from validator.reconcile.quantities import EXCUSES
from validator.reconcile.record_groups import Groups
from validator.reconcile.values import PRIMES, Aggregate, Answered, fingerprints, wrong_cells


class Values(Evidence):
    """Numbers of events, and aggregates of their fields."""

    names: ClassVar = ("values",)
    names_ids: ClassVar = False
    # SEMANTICS 2.29: fingerprints of values are sums modulo a prime.
    moduli: ClassVar = (0, *PRIMES)
    # SEMANTICS 2.29: until the cell would be missing, another result may give the value that is owed.
    values_may_change: ClassVar = True

    @property
    def fingerprints_decide(self) -> bool:
        """Whether only counts and sums are stated."""
        # SEMANTICS 2.29: fingerprints do not show whether minima, maxima and averages are right.
        return self.stated.add_up

    def of_events(
        self, groups: Groups, events: pa.Table, ids: EventIds, contributing: Ints
    ) -> dict[str, pa.Array | Ints]:
        """Return the aggregates of the fields of events, and fingerprints of the sums that results may state."""
        del ids, contributing
        columns = columns_of_lists(events["values"], len(self.stated.paths))
        if not columns:
            nothing = groups.sum(np.zeros(events.num_rows, dtype=np.int64))
            return {"hash_a": nothing, "hash_b": nothing}
        aggregates, sums = groups.aggregates(columns, self.stated.hashed)
        of_sums = [sums[one.place] if one.function in ADDED else None for one in self.stated.stated]
        hashes = fingerprints(of_sums, len(aggregates))
        return {"aggregates": aggregates, "hash_a": hashes[0], "hash_b": hashes[1]}

    def of_results(self, groups: Groups, results: pa.Table, are_decoded: Bools) -> StatedSums:
        """Return the stated numbers of events, and fingerprints of the stated sums."""
        stated, is_stated = numbers(one_array(results["count"]))
        # SEMANTICS 2.29: a result without the number of its events stands for all of them.
        are_answers = are_decoded & groups.are_last() if self.oracle.reads.replaces else are_decoded
        if self.stated.count_name is None:
            stated = np.where(is_stated, stated, are_answers)
        columns = columns_of_lists(results["values"], len(self.stated.stated))
        of_sums = [
            column if one.function in ADDED else None for one, column in zip(self.stated.stated, columns, strict=True)
        ]
        a, b = (np.where(are_answers, each, 0) for each in fingerprints(of_sums, results.num_rows))
        return StatedSums(stated, a, b)

    def items(self, gathered: Gathered) -> tuple[Items, list[str], list[TopicPartition]]:
        """Return an entry for each fact row of events and for each result, all with the same id. If results state
        pairs, the id says which side an event is of (`validator.oracles.counted_pairs`)."""
        # SEMANTICS 2.23: the events of a cell count as copies of one event, of which a result states a number. An
        # excuse of one event of a row excuses all of them.
        partitions = partitions_of(gathered)
        parts: list[tuple[Ints, ...]] = []
        for facts, cell in gathered:
            side, partition = sides_of(facts), partition_numbers(facts, partitions)
            rows = np.flatnonzero(side != OUTPUT)
            first, last, times = (ints(facts[name])[rows] for name in ("first_offset", "last_offset", "contributions"))
            # SEMANTICS 2.6: the engine may have set aside each of the events that owe nothing: no more than their
            # offsets.
            times = np.where(side[rows] == OWES_NOTHING, last - first + 1, times)
            parts.append((cell[rows], side[rows], partition[rows], last, times, first))
            rows, results = listed(facts["results"])
            offset, times = ints(arrays.field(results, "offset")), ints(arrays.field(results, "count"), 0)
            parts.append((cell[rows], side[rows], partition[rows], offset, times, offset))
        cell, side, partition, offset, times, first = (
            np.concatenate([part[i] for part in parts]) if parts else np.empty(0, np.int64) for i in range(6)
        )
        same = np.zeros_like(cell)
        id_ = same
        if (rule := self.oracle.pair_rule) is not None and len(cell):
            id_ = np.array([rule.number_of(topic) for topic, _ in partitions], dtype=np.int64)[partition]
        return Items(cell, side, partition, offset, same, id_, times, first, np.arange(len(cell))), [], partitions

    def owed(
        self, gathered: Gathered, items: Items, flags: Flags, size: int, *, drops_late: bool
    ) -> tuple[Items, Flags]:
        """Return the entries and flags, as far as they depend on `having` and on the number that results state."""
        if self.oracle.having:
            items, flags = self._under_bounds(gathered, items, flags, size, drops_late=drops_late)
        return (_standing_for_all(items, flags) if self.stated.count_name is None else items), flags

    def _under_bounds(
        self, gathered: Gathered, items: Items, flags: Flags, size: int, *, drops_late: bool
    ) -> tuple[Items, Flags]:
        """Return the entries and their flags, in which a cell without results owes nothing if its values may not reach
        the bounds of all results. If they reach the bounds only with events that the engine has not consumed, all
        events of the cell count as unread; if only with events whose answers may be unread, all count as such."""
        # SEMANTICS 2.33: no further event takes one of these values below its bound.
        values, times = self.stated, items.times
        assert times is not None, "entries without ids have it"
        of_input, of_aside = items.side == INPUT, (items.side == LATE) | (items.side == REJECTED)
        may_drop = (flags.late | flags.doubtful | flags.elsewhere) & drops_late
        bounded = [(value, bound) for value in values.stated if (bound := values.bound_of(value.name)) is not None]
        known = _Known.of(gathered, items, values, size) if bounded else None
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

    def wrong_values(self, it: Comparison, flags: Flags, sums: Mapping[str, Ints], *, drops_late: bool) -> WrongValues:
        """Return the cells whose results state a wrong value, and those that wait for the engine to consume their
        events."""
        values, items, size = self.stated, it.items, len(it.rows)
        none, nothing = np.zeros(size, dtype=np.bool_), np.zeros(len(it.results.cell), dtype=np.bool_)
        if not values.stated:
            return WrongValues(nothing, none, none)
        # SEMANTICS 2.29: a value is judged if every event of the cell is answered, but those that the engine may drop.
        may_drop = (flags.late | flags.doubtful | flags.elsewhere) & drops_late
        dropped = sums["dropped_late"] + sums["doubtful"] + sums["elsewhere"]
        left = sums["outstanding"] - (dropped if drops_late else 0)
        has_results = np.bincount(items.cell[items.side == OUTPUT], minlength=size) > 0
        judged = has_results & (left == 0) & (sums["duplicate"] + sums["foreign"] == 0) & (sums["expected"] > 0)

        def has(chosen: Bools) -> Bools:
            found: Bools = np.bincount(items.cell, chosen, minlength=size) > 0
            return found

        of_input = items.side == INPUT
        all_used = sums["outstanding"] == 0
        if values.count_name is None:
            # SEMANTICS 2.29: whether such a result used an event is not known.
            all_used &= ~has(of_input & may_drop)
        # SEMANTICS 2.29: an event that is not consumed, or an answer that may have expired, may be what the value
        # lacks.
        waits = judged & has(of_input & flags.unread)
        judged &= ~waits
        judged &= ~has(of_input & flags.unsure) | (all_used & (values.count_name is not None))
        # SEMANTICS 2.6: an event that owes nothing may be what was set aside. 2.12: whose pairs lack it is not known.
        has_aside = has((items.side == LATE) | (items.side == REJECTED))
        judged &= ~has_aside | (~has(items.side == OWES_NOTHING) & (self.oracle.pair_rule is None))
        if not judged.any():
            return WrongValues(nothing, none, waits)
        known, pair_rule = _Known.of(it.gathered, items, values, size), self.oracle.pair_rule

        def answered(cell: int, place: int) -> Answered:
            if pair_rule is not None:
                field = values.place_in_side(place)
                return _answered_pairs(known, cell, place, field, may_drop, pair_rule, all_used=bool(all_used[cell]))
            events = known.entries(cell, INPUT)
            return Answered(
                known.aggregates((i for i in events if not may_drop[i]), place),
                known.aggregates((i for i in events if may_drop[i]), place),
                known.aside(cell, place),
                all_used=bool(all_used[cell]),
            )

        tolerances = dict(self.oracle.reads.tolerances)
        clauses = wrong_cells(values, tolerances, np.flatnonzero(judged).tolist(), answered, known.stated)
        are_wrong = none.copy()
        are_wrong[list(clauses)] = True
        return WrongValues(nothing, are_wrong, waits, clauses)

    def examples(
        self, it: Comparison, ids: IdVerdicts, is_known: Bools, sums: Mapping[str, Ints], wrong: WrongValues
    ) -> Examples:
        """Return what is wrong with values, and the ids of events that explain sums modulo 2^64, for the first
        `VIOLATIONS_KEPT` cells."""
        del ids, is_known
        found: Examples = {(int(it.rows[cell]), "wrong_value"): (clause,) for cell, clause in wrong.clauses.items()}
        values = self.stated
        if values.sums_of_ids is None or not self.oracle.names_events:
            return found
        more = sums["duplicate"] + sums["foreign"] - sums["outstanding"]
        # SEMANTICS 2.34: which events have an excuse is not known.
        excused = sum((sums[name] for name in EXCUSES), np.zeros_like(more))
        chosen = np.flatnonzero(np.where(more == 0, wrong.of_cells, (np.abs(more) <= NAMED_MOST) & (excused == 0)))
        chosen = chosen[:VIOLATIONS_KEPT]
        if not len(chosen):
            return found
        known = _Known.of(it.gathered, it.items, values, len(it.rows))
        of_sum, of_squares = values.sums_of_ids
        kind = dict(values.digests)[values.stated[of_sum].place].hash
        for cell, (integers, texts) in zip(chosen.tolist(), _ids_of_events(it.gathered, chosen), strict=True):
            events = IdsOfCell.of(integers, texts, kind)
            sums_of_ids = known.surplus(cell, of_sum, values)
            squares = None if of_squares is None else known.surplus(cell, of_squares, values)
            if events is None or sums_of_ids is None or not events.fit(sums_of_ids[0]):
                continue
            surplus = Surplus(int(more[cell]), sums_of_ids[1], None if squares is None else squares[1])
            names = events.explaining(surplus)
            if names and more[cell] == 0:
                clause = f"{wrong.clauses[cell]}; one lost and one repeated event explain it"
                found[int(it.rows[cell]), "wrong_value"] = (clause, *names)
            elif names:
                name = "missing" if more[cell] < 0 else "duplicate" if sums["expected"][cell] else "unknown_id"
                found[int(it.rows[cell]), name] = names
        return found


def _standing_for_all(items: Items, flags: Flags) -> Items:
    """Return the entries of `Values.items` whose results do not state how many events they used."""
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


def _are_answers(items: Items, known: _Known | None, values: StatedValues) -> Bools:
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
class _Known:
    """What the facts have of the values of compared cells. ``items``: sorted; ``starts``: the first one of each cell.
    ``stored``: as `_stored_values` returns it."""

    items: Items
    starts: Ints
    stored: Sequence[Sequence[Any]]
    hashed: frozenset[int]

    @classmethod
    def of(cls, gathered: Gathered, items: Items, values: StatedValues, size: int) -> _Known:
        """Return what the facts have."""
        starts = np.searchsorted(items.cell, np.arange(size + 1))
        return cls(items, starts, _stored_values(gathered), values.hashed)

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
        return [Aggregate.of(int(times[i]), self.stored[source[i]][index], is_hashed=is_hashed) for i in chosen]

    def aside(self, cell: int, place: int) -> list[Aggregate]:
        """Return the aggregates over the late and rejected records of a cell."""
        return self.aggregates(self.entries(cell, LATE, REJECTED), place)

    def stated(self, cell: int, place: int) -> list[Decimal | None]:
        """Return what the results of a cell state."""
        source = self.items.source
        assert source is not None, "entries without ids have it"
        texts = (self.stored[source[i]][place] for i in self.entries(cell, OUTPUT))
        return [None if text is None else Decimal(text) for text in texts]

    def surplus(self, cell: int, i: int, values: StatedValues) -> tuple[int, int] | None:
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


def _answered_pairs(
    known: _Known,
    cell: int,
    place: int,
    field: tuple[str, int],
    may_drop: Bools,
    rule: PairRule,
    *,
    all_used: bool,
) -> Answered:
    """Return the events of one side of a join, by what the results of the cell must have used. ``field``: their side,
    and the index of the field in their facts."""
    times, (side, at) = known.items.times, field
    assert times is not None, "entries without ids have it"
    events = known.entries(cell, INPUT)
    mine = [i for i in events if known.items.id[i] == NUMBERS[side]]
    others = [i for i in events if known.items.id[i] != NUMBERS[side]]
    most = int(times[others].sum())
    least = most if all_used else int(times[[i for i in others if not may_drop[i]]].sum())
    # SEMANTICS 2.12: left events make as many pairs with one partner as without.
    all_used &= not (rule.may_lack(side) and times[mine].sum() == 1)
    sure = known.aggregates((i for i in mine if not may_drop[i]), place, at)
    free = known.aggregates((i for i in mine if may_drop[i]), place, at)
    return OfPairs(sure, free, (), all_used, *rule.partners(least, most))


def _stored_values(gathered: Gathered) -> list[list[Any]]:
    """Return what the facts have for each entry of `Values.items`: aggregates of fields, or stated values."""
    found: list[list[Any]] = []
    for facts, _ in gathered:
        rows = np.flatnonzero(sides_of(facts) != OUTPUT)
        found += facts["aggregates"].take(pa.array(rows)).to_pylist()
        _, results = listed(facts["results"])
        found += arrays.field(results, "values").to_pylist()
    return found


def _ids_of_events(gathered: Gathered, chosen: Ints) -> Iterator[tuple[Ints, pa.Array]]:
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
